// Command bench measures tailer beside what bounds it, on real servers:
//
//   - a drain: how long a backlog takes from the start of the process until the
//     slot has confirmed its end, beside pg_recvlogical > /dev/null, which is
//     what the walsender can send to somebody who does nothing with it;
//   - latencies: from a COMMIT's return to the record in a consumer's hands,
//     beside a bare loop that receives and produces (bare.go).
//
// Rules. Both contenders of a comparison read the same WAL, written once, each
// through a slot of its own made before it, and take turns: a machine that is
// busy or slow shows in both, and ratios of medians are the result. Whoever is
// measured is a process of its own. What a relay published is read back and
// counted after each turn: a figure of a run that lost something is none.
//
// Goroutines: one a process waits for its end; during a latency run the writers
// and one consumer, which the run waits for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	events   int
	rounds   int
	duration time.Duration
	warm     time.Duration
	rates    string
	sizes    string
	only     string
	postgres string
	kafka    string
	tailer   string
	against  string
}

func (o *options) register(f *flag.FlagSet) {
	f.IntVar(&o.events, "events", 1_000_000, "`events` of a drain")
	f.IntVar(&o.rounds, "rounds", 3, "`rounds` in which the contenders take turns")
	f.DurationVar(&o.duration, "duration", 15*time.Second, "`time` of each latency measurement")
	f.DurationVar(&o.warm, "warm", 3*time.Second, "`time` before it that does not count")
	f.StringVar(&o.rates, "rates", "100,1000", "transactions a second at which latency is measured")
	f.StringVar(&o.sizes, "rows", "1,100", "rows a transaction of the drains")
	f.StringVar(&o.only, "only", "", "drain or latency (default: both)")
	f.StringVar(&o.postgres, "postgres", "debian", "debian, or embedded where that cannot be had")
	f.StringVar(&o.kafka, "kafka", "real", "real, or fake where that cannot be had")
	f.StringVar(&o.tailer, "tailer", "", "`path` of a tailer binary, instead of building one")
	f.StringVar(&o.against, "against", "", "`path` of another tailer binary that takes turns too: what was it like before a change?")
}

func main() {
	if cfg := os.Getenv(bareVariable); cfg != "" {
		os.Exit(bareMain(cfg))
	}
	var opt options
	opt.register(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := measure(ctx, opt, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// measure does everything and prints the report to out.
func measure(ctx context.Context, opt options, args []string, out, progress io.Writer) (rep *report, err error) {
	sizes, err1 := numbers("rows", opt.sizes)
	rates, err2 := numbers("rates", opt.rates)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	for _, size := range sizes {
		if opt.events < size {
			return nil, fmt.Errorf("-events %d do not fill a transaction of %d rows", opt.events, size)
		}
	}
	if opt.only != "" && opt.only != "drain" && opt.only != "latency" {
		return nil, fmt.Errorf("-only %q is neither drain nor latency", opt.only)
	}
	if opt.rounds < 1 || opt.duration <= 0 || opt.warm < 0 {
		return nil, errors.New("-rounds and -duration must be positive")
	}
	rep = &report{command: strings.Join(append([]string{"go run ./e2e/bench"}, args...), " "), machine: machine(), events: opt.events, rounds: opt.rounds, duration: opt.duration}
	b, err := newBed(ctx, opt, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	rep.servers, rep.notes = b.versions, b.notes

	if opt.only != "latency" {
		if !b.recvlogical() {
			rep.notes = append(rep.notes, "nothing to compare a drain with: this PostgreSQL has no pg_recvlogical (sudo apt-get install -y postgresql)")
		}
		for _, size := range sizes {
			d, err := b.drains(ctx, opt, size)
			if err != nil {
				return nil, fmt.Errorf("drain with %d rows a transaction: %w", size, err)
			}
			rep.drains = append(rep.drains, d)
		}
	}
	if opt.only != "drain" {
		for _, rate := range rates {
			l, err := b.latencies(ctx, opt, rate)
			if err != nil {
				return nil, fmt.Errorf("latency at %d transactions a second: %w", rate, err)
			}
			rep.latencies = append(rep.latencies, l)
		}
	}
	fmt.Fprintf(out, "\n%s\n", rep.text())
	fmt.Fprintf(out, "For docs/performance.md:\n\n%s", rep.markdown())
	return rep, nil
}

func numbers(flag, list string) ([]int, error) {
	var all []int
	for _, field := range strings.Split(list, ",") {
		var n int
		if _, err := fmt.Sscanf(strings.TrimSpace(field), "%d", &n); err != nil || n < 1 {
			return nil, fmt.Errorf("-%s %q: %q is no positive number", flag, list, field)
		}
		all = append(all, n)
	}
	return all, nil
}
