// Command tailer relays an outbox table of Postgres to Kafka: it reads the
// table's inserts from the WAL through a logical replication slot, validates
// each payload against its Avro schema, produces it, and confirms a position to
// Postgres only after the broker has acknowledged everything before it.
//
// This package is the only one that knows commands, flags, the configuration
// file and the log's looks; the packages beside it take plain values. Its rules:
//
//   - only main exits: a command returns an error, an *exitError where the code
//     is not 1 or there is something to type next;
//   - logs go to stderr, a command's output to stdout;
//   - no secret is printed: not by a log, an error, or the table of keys.
//
// Goroutines: main's own for signals, which ends with the process; one for the
// HTTP server, which its stop function waits for; a session's reader, publisher
// and monitor, which session.run joins; one for the statement that creates a
// slot, which createSlot waits for. What the packages beside it start, they own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// gcPercent is how much memory may be garbage, in percent of what is in use. The
// pipeline works in memory that it keeps, so the collector has little to do, and
// Go's own 100 would only leave room for what the batches outgrew at the start.
const gcPercent = 50

func main() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(context.Background())
	go watchSignals(signals, cancel, os.Stderr, os.Exit)
	os.Exit(execute(ctx, os.Args, os.Stdout, os.Stderr, os.LookupEnv))
}

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// watchSignals lets the first signal end the context, which drains, and the
// second the process.
func watchSignals(signals <-chan os.Signal, cancel context.CancelCauseFunc, stderr io.Writer, exit func(int)) {
	<-signals
	cancel(errInterrupted)
	s := <-signals
	fmt.Fprintf(stderr, "tailer: second signal (%s): stopped without draining\n", s)
	exit(exitRetry)
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) (string, bool)) int {
	return report(stderr, newApp(stdout, stderr, getenv).RunContext(ctx, args))
}
