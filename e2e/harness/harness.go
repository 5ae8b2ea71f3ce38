// Package harness drives the built tailer binary against real servers and
// judges what came out.
//
//	pg := postgres.New(t, postgres.Options{})
//	fake := kafka.NewFake(t, kafka.FakeOptions{})
//	ledger := harness.NewLedger(t, pg, harness.LedgerOptions{})
//	relay := harness.StartRelay(t, harness.RelayOptions{Config: ledger.Config(fake.Addrs())})
//	relay.Ready()
//	consumer := harness.NewConsumer(t, fake.Addrs(), ledger.Topics()...)
//	writers := ledger.Write(t, harness.WriteOptions{})
//	...
//	writers.Stop()
//	ledger.WaitDelivered(t, consumer, time.Minute)
//	ledger.Check(t, consumer.Records()).AssertExact(t)
//
// Three judges, pure functions with tests of their own that show each of them a
// bad history: completeness (O1) and order (O3) in Judge, and in JudgeAcks that
// nothing was confirmed to Postgres before it was in Kafka (O2). The truth they
// compare with is read in the database, never kept by a writer: whether a
// commit whose answer was lost took place is known there alone.
//
// Goroutines: one a relay waits for its process, one a consumer polls, one a
// sampler samples, one a writer writes. All end with the test.
package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/host"
)

var build = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("TAILER_E2E_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	return Build()
})

// Build builds a tailer with the build tags, for as long as this process lasts.
func Build(tags ...string) (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("the source of the harness is not known")
	}
	// Never closed: it lasts as long as this process, and the next process that
	// makes a run removes it.
	run, err := host.NewRun("binary")
	if err != nil {
		return "", err
	}
	path := filepath.Join(run.Dir, "tailer")
	cmd := exec.Command("go", "build", "-tags", strings.Join(tags, ","), "-o", path, "./cmd/tailer")
	cmd.Dir = filepath.Join(filepath.Dir(file), "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tailer: %w\n%s", err, out)
	}
	return path, nil
}

// Binary is the plain tailer, built once a test process; $TAILER_E2E_BINARY
// names one that is built already.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Result is what a finished command left.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a tailer command to its end, at most a minute. config is written to
// a file and named by --config unless nil.
func Run(t testing.TB, config Config, args ...string) Result {
	t.Helper()
	return RunEnv(t, config, nil, args...)
}

// RunEnv is Run with variables on top of the environment.
func RunEnv(t testing.TB, config Config, env []string, args ...string) Result {
	t.Helper()
	if config != nil {
		run, err := host.NewRun("command")
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		args = append(args, "--config", config.write(t, run.Dir))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	cmd.Env = append(environment(), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("tailer %v: %v\n%s", args, errors.Join(err, ctx.Err()), stderr.String())
	}
	return Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// environment is ours without what would configure the relay or its driver
// behind a test's back.
func environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if len(entry) > 2 && entry[:2] == "PG" || len(entry) > 7 && entry[:7] == "TAILER_" {
			continue
		}
		env = append(env, entry)
	}
	return env
}

// Soaking is true under make soak, where a case is played at its literal length.
func Soaking() bool { return os.Getenv("TAILER_SOAK") != "" }

// Span is how long a fault lasts: short, on a server whose own limits are
// shortened too, or as long as it was in the field under make soak.
func Span(short, field time.Duration) time.Duration {
	if Soaking() {
		return field
	}
	return short
}

// Eventually waits until ok returns true, asking every 20 ms, and fails the test
// with what was waited for when it took longer than limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for: %s", limit, what)
		}
	}
}
