package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asTailer makes the test binary behave as tailer itself, for tests that need a
// process: signals and exit codes.
const asTailer = "TAILER_TEST_IS_TAILER"

func TestMain(m *testing.M) {
	if os.Getenv(asTailer) != "" {
		main()
	}
	os.Exit(m.Run())
}

// tailer runs one command line in process.
func tailer(ctx context.Context, getenv func(string) (string, bool), args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(ctx, append([]string{"tailer"}, args...), &out, &errs, getenv)
	return code, out.String(), errs.String()
}

// tailerProcess prepares one command line in a process of its own.
func tailerProcess(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{asTailer + "=1", "PATH=" + os.Getenv("PATH")}, env...)
	return cmd
}

func TestSignals(t *testing.T) {
	signals := make(chan os.Signal)
	ctx, cancel := context.WithCancelCause(t.Context())
	exits := make(chan int)
	var stderr bytes.Buffer
	go watchSignals(signals, cancel, &stderr, func(code int) { exits <- code })
	signals <- syscall.SIGTERM
	<-ctx.Done()
	if context.Cause(ctx) != errInterrupted {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	select {
	case code := <-exits:
		t.Fatalf("the first signal exits with %d", code)
	case signals <- os.Interrupt:
	}
	if code := <-exits; code != 1 {
		t.Errorf("the second signal exits with %d", code)
	}
	if want := "tailer: second signal (interrupt): stopped without draining\n"; stderr.String() != want {
		t.Errorf("got %q", stderr.String())
	}
}

// within ends a test whose condition does not come.
func within(t *testing.T, d time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(d)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", d, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestExitCodesOfAProcess(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"version"}, 0},
		{[]string{"run", "--help"}, 0},
		{[]string{"nonsense"}, 2},
		{[]string{"health", "--http-listen", "127.0.0.1:1"}, 1},
	} {
		cmd := tailerProcess(nil, c.args...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != c.want {
			t.Errorf("%s: exit %d, want %d: %s", strings.Join(c.args, " "), got, c.want, out)
		}
	}
}
