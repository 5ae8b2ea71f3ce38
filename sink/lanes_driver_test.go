package sink

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"
)

// driver publishes like the loop of a session: one batch after the other, and between two it hears what came late.
type driver struct {
	t     testing.TB
	lanes *Lanes
	w     *witness
	ctx   context.Context
	stop  context.CancelCauseFunc
	count uint64
	left  map[uint64]*Batch // not settled; nil: only copies are elsewhere
}

// lanesFor makes a publisher with lanes and short pauses. mutate may change the configuration.
func lanesFor(t testing.TB, brokers []string, mutate func(*PublisherConfig)) *driver {
	t.Helper()
	d := &driver{t: t, w: newWitness(), left: map[uint64]*Batch{}}
	cfg := PublisherConfig{Kafka: KafkaConfig{Brokers: brokers, DLQTopic: testDLQ}, Beat: d.w.beat, Observer: d.w, Isolate: true}
	if mutate != nil {
		mutate(&cfg)
	}
	var err error
	if d.lanes, err = NewLanes(context.Background(), cfg, slog.New(slog.NewTextHandler(d.w, nil))); err != nil {
		t.Fatal(err)
	}
	d.lanes.convalescence = 0
	e := d.lanes.main.engine
	e.slow, e.backoffMin, e.backoffMax = 300*time.Millisecond, 20*time.Millisecond, 200*time.Millisecond
	d.session()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.lanes.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			log := d.w.logged()
			t.Logf("log of the publisher:\n%s", log[max(0, len(log)-6000):])
		}
	})
	return d
}

// session begins one: it has a context of its own.
func (d *driver) session() {
	d.ctx, d.stop = context.WithCancelCause(context.Background())
	d.left = map[uint64]*Batch{}
}

// lanesRunning is the stacks of all goroutines that are in a lane, those of parallel tests too.
func lanesRunning() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var in []string
	for _, stack := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(stack, "sink.(*lane).") {
			in = append(in, stack)
		}
	}
	return strings.Join(in, "\n\n")
}

// publish publishes a batch of events. It must return soon.
func (d *driver) publish(evs ...ev) Outcome {
	d.t.Helper()
	return d.publishBatch(batchOf(d.t, evs...))
}

func (d *driver) publishBatch(b *Batch) Outcome {
	d.t.Helper()
	d.hear()
	d.count++
	b.Number = d.count
	type result struct {
		outcome Outcome
		err     error
	}
	done := make(chan result, 1)
	go func() {
		o, err := d.lanes.Publish(d.ctx, b)
		done <- result{o, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			d.t.Fatalf("publish: %v", r.err)
		}
		switch r.outcome {
		case Held:
			d.left[b.Number] = b
		case Left:
			d.left[b.Number] = nil
			fallthrough
		case Done:
			if !b.Settled() {
				d.t.Fatalf("%v with open promises", r.outcome)
			}
			b.Reset() // so that what still points into it is found out
			b.slab = append(b.slab, strings.Repeat("overwritten", 1000)...)
		}
		return r.outcome
	case <-time.After(patience):
		d.t.Fatal("publish did not return")
		return Done
	}
}

// hear takes what has come late and does not wait for it.
func (d *driver) hear() {
	d.t.Helper()
	for {
		select {
		case l := <-d.lanes.Late():
			d.late(l)
		default:
			return
		}
	}
}

func (d *driver) late(l Late) {
	d.t.Helper()
	if l.Err != nil {
		d.t.Fatalf("a lane failed: %v", l.Err)
	}
	for _, n := range l.Settled {
		b, waits := d.left[n]
		if !waits {
			d.t.Errorf("batch %d is settled and was not left, or twice", n)
		}
		if b != nil && !b.Settled() {
			d.t.Errorf("batch %d is called settled with open promises", n)
		}
		delete(d.left, n)
	}
}

// settled waits until no batch is left.
func (d *driver) settled() {
	d.t.Helper()
	for end := time.After(patience); len(d.left) > 0; {
		select {
		case l := <-d.lanes.Late():
			d.late(l)
		case <-end:
			d.t.Fatalf("%d batches are still not settled", len(d.left))
		}
	}
}

// blocked waits until a topic is said to be blocked.
func (d *driver) blocked(topic string) {
	d.t.Helper()
	eventually(d.t, topic+" is blocked", func() bool { return d.w.cause(topic) != "" })
}

// alone waits until the main lane is the only one.
func (d *driver) alone() {
	d.t.Helper()
	eventually(d.t, "the lanes have ended", func() bool {
		d.hear()
		d.lanes.mu.Lock()
		defer d.lanes.mu.Unlock()
		return len(d.lanes.running) == 0 && len(d.lanes.byTopic) == 0
	})
}

func (d *driver) wants(outcome, want Outcome) {
	d.t.Helper()
	if outcome != want {
		d.t.Errorf("the batch is %v, want %v", outcome, want)
	}
}
