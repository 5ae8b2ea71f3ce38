// Command demo shows tailer at work: a private Postgres, a broker and a schema
// registry, an order service that writes its outbox, the relay, and a consumer.
//
//	go run ./e2e/demo             until Ctrl-C
//	go run ./e2e/demo -for 30s    ending by itself
//
// What is real and what is not. The relay is the plain binary in a process of
// its own, driven by a configuration file that is shown. Postgres is real too,
// and durable. The broker is kfake and the registry srfake, both in this
// process. The consumer knows nothing of the relay but topics and registry:
// it decodes with an Avro library that the relay does not use, and what it
// decoded is compared with what the order service wrote.
//
// Rules: everything on disk lives in one folder of package host, which is gone
// at the end; a child that outlives its welcome dies with this process. Every
// way out of run goes through its deferred steps, which end what was started,
// the last first.
//
// Goroutines: the order service, the consumer, one that waits for the relay,
// one that watches signals and our parent, and one that counts the seconds of a
// step on a terminal. Whoever starts one waits for it, but for the watcher,
// which ends with the process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	duration time.Duration // 0: until stopped
	rate     float64       // events a second
	tailer   string        // "" builds it
	verbose  bool
}

func main() {
	var opt options
	flag.DurationVar(&opt.duration, "for", 0, "end after this `time` of orders, such as 30s (default: Ctrl-C ends it)")
	flag.Float64Var(&opt.rate, "rate", 4, "`events` a second, 0.1 to 1000")
	flag.StringVar(&opt.tailer, "tailer", "", "`path` of a tailer binary, instead of building one")
	flag.BoolVar(&opt.verbose, "v", false, "show all of the relay's log, and the SQL of tailer init")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		usage("no arguments are taken, not %q", flag.Args())
	case !(opt.rate >= 0.1 && opt.rate <= 1000):
		usage("-rate %v is not within 0.1 and 1000", opt.rate)
	case opt.duration < 0:
		usage("-for %v is negative", opt.duration)
	}
	began := time.Now()
	ctx, hurry := watch()
	s := newScreen(os.Stdout)
	err := run(ctx, hurry, opt, s, began)
	if err == nil {
		return
	}
	if !errors.Is(err, errFailed) { // which has been said, before the last line
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	}
	if errors.Is(err, errStopped) {
		os.Exit(130)
	}
	os.Exit(1)
}

func usage(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "demo: "+format+"\n", args...)
	flag.Usage()
	os.Exit(2)
}

// errStopped is the cause of a context that a signal ended.
var errStopped = errors.New("stopped before the first order")

// watch returns two contexts: the first ends with the first wish to stop, the
// second with the second, for a user who does not want to wait for the drain.
//
// A broken pipe (make demo | head) is such a wish. So is the death of our
// parent: `go run` dies of a SIGTERM without passing it on, and a demo that
// nobody can see any more must not run for ever.
func watch() (ctx, hurry context.Context) {
	ctx, stop := context.WithCancelCause(context.Background())
	hurry, stopNow := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	go func() {
		parent := os.Getppid()
		tick := time.NewTicker(200 * time.Millisecond)
		for {
			select {
			case sig := <-signals:
				if ctx.Err() != nil && sig != syscall.SIGPIPE { // each write to a broken pipe is one
					stopNow(errStopped)
				}
				stop(errStopped)
			case <-tick.C:
				if os.Getppid() != parent {
					stop(errStopped)
				}
			}
		}
	}()
	return ctx, hurry
}
