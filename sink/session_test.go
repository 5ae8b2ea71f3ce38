package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bootstrap is an address that stays while what is behind it changes.
const bootstrap = "kafka.test:9092"

// behind dials whatever the bootstrap address stands for now.
func behind(now *atomic.Pointer[string]) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == bootstrap {
			at := now.Load()
			if at == nil {
				return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
			}
			address = *at
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// All brokers go and come back with other ports and other node ids behind the same bootstrap address: the batch in
// progress gets through, nothing is lost, nothing is a dead letter, and the beats never stop. The field's ten minutes
// are until the topic counts as blocked.
func TestCase_S09_BrokersReturnElsewhere(t *testing.T) {
	dir := t.TempDir()
	start := func() *kfake.Cluster {
		return fakeCluster(t, kfake.SeedTopics(2, "a"), kfake.DataDir(dir))
	}
	c := start()
	now := new(atomic.Pointer[string])
	old := c.ListenAddrs()
	now.Store(&old[0])
	p, w := publisherFor(t, []string{bootstrap}, func(cfg *KafkaConfig) { cfg.dial = behind(now) })
	p.slow = 500 * time.Millisecond
	evs := series("a", "k", "e", 1, 200)
	publish(t, p, batchOf(t, evs[:50]...))

	now.Store(nil)
	c.Close()
	done := background(context.Background(), p, batchOf(t, evs[50:]...))
	eventually(t, "the topic is blocked", func() bool { return w.cause("a") != "" })
	eventually(t, "the cause names the brokers", func() bool { return strings.Contains(w.cause("a"), "connect to broker") })
	running(t, done, "there is no broker")

	c = start()
	for i := range 2 { // the new brokers first, then the ids of the old cluster go
		if _, _, err := c.AddNode(int32(70+i), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if err := c.RemoveNode(int32(i)); err != nil {
			t.Fatal(err)
		}
	}
	addrs := c.ListenAddrs()
	if slices.ContainsFunc(addrs, func(a string) bool { return slices.Contains(old, a) }) {
		t.Fatalf("the ports are the same: %v and %v", old, addrs)
	}
	now.Store(&addrs[0])
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	publish(t, p, batchOf(t, ev{"a", "k", "last"}))
	wantValues(t, "a", topicOf(t, addrs, "a"), append(labels(evs), "last")...)
	if w.deadLetters() != 0 || w.cause("a") != "" {
		t.Errorf("dead letters %v, blocked %q", w.dead, w.cause("a"))
	}
	wantBeats(t, w)
}

// wantBeats fails when the publisher was silent for longer than the watchdog allows, with some room for a busy machine.
func wantBeats(t *testing.T, w *witness) {
	t.Helper()
	defer w.lock()()
	for i := 1; i < len(w.beats); i++ {
		if gap := w.beats[i].Sub(w.beats[i-1]); gap > time.Second {
			t.Errorf("no beat for %v", gap)
		}
	}
	if len(w.beats) == 0 {
		t.Error("no beat at all")
	}
}

// A stop in the outage: the call returns in time, nothing is reported done, and when the brokers are back everything
// is sent by the next session.
func TestCase_S09_StopInTheOutage(t *testing.T) {
	for _, before := range []int{0, 20} { // never connected, and connected before
		t.Run(fmt.Sprintf("after %d records", before), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := fakeCluster(t, kfake.SeedTopics(1, "a"), kfake.DataDir(dir))
			now := new(atomic.Pointer[string])
			now.Store(&c.ListenAddrs()[0])
			p, w := publisherFor(t, []string{bootstrap}, func(cfg *KafkaConfig) { cfg.dial = behind(now) })
			p.slow = 300 * time.Millisecond
			evs := series("a", "k", "e", 1, 100)
			if before > 0 {
				publish(t, p, batchOf(t, evs[:before]...))
			}
			now.Store(nil)
			c.Close()
			ctx, stop := context.WithCancelCause(context.Background())
			b := batchOf(t, evs[before:]...)
			done := background(ctx, p, b)
			eventually(t, "the topic is blocked", func() bool { return w.cause("a") != "" })
			stopped := time.Now()
			why := errors.New("told to stop")
			stop(why)
			if err := result(t, done); !errors.Is(err, why) {
				t.Fatalf("error %v", err)
			}
			if d := time.Since(stopped); d > 4*time.Second {
				t.Errorf("took %v to stop", d)
			}
			if err := p.Settle(context.Background()); err != nil || !b.Settled() {
				t.Fatalf("settled %v, error %v", b.Settled(), err)
			}
			if w.acked != before {
				t.Errorf("%d acknowledged", w.acked)
			}

			c = fakeCluster(t, kfake.DataDir(dir))
			now.Store(&c.ListenAddrs()[0])
			publish(t, p, batchOf(t, evs[before:]...))
			wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(evs)...)
		})
	}
}

// A broker that took the request and went silent: aborting cannot end such a record, so the client is closed. Records
// that were written all the same come again in order. Seen red when Publish does not close the client (it hangs), and
// when a batch counts as settled as soon as Publish returns.
func TestEndBehindAFrozenBroker(t *testing.T) {
	c := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	p.abort = 300 * time.Millisecond
	publish(t, p, batchOf(t, ev{"a", "k", "e0"}))
	frozen := make(chan struct{})
	thaw := make(chan struct{})
	var first sync.Once
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		first.Do(func() { close(frozen) })
		c.SleepControl(func() { <-thaw })
		return nil, nil, false
	})
	ctx, stop := context.WithCancel(context.Background())
	evs := series("a", "k", "e", 1, 10)
	b := batchOf(t, evs...)
	done := background(ctx, p, b)
	<-frozen
	stop()
	if err := result(t, done); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if !strings.Contains(w.logged(), "closing the kafka client") {
		t.Error("the client was not closed")
	}
	if err := p.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !b.Settled() {
		t.Fatal("Settle returned before every promise was called")
	}
	if w.acked != 1 {
		t.Errorf("%d acknowledged", w.acked)
	}
	close(thaw)
	b.Reset()
	fill(t, b, evs...)
	publish(t, p, b)
	// The frozen request may have been written after all: then the series comes twice, each time in order.
	got := valuesOf(topicOf(t, c.ListenAddrs(), "a"))
	once := append([]string{"e0"}, labels(evs)...)
	if twice := append(slices.Clone(once), labels(evs)...); !slices.Equal(got, once) && !slices.Equal(got, twice) {
		t.Errorf("a has %v", got)
	}
}

// When ctx ends and everything in flight gets through within the deadline, the batch is done.
func TestEndWithEverythingAcknowledged(t *testing.T) {
	c := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	ctx, stop := context.WithCancel(context.Background())
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		stop()
		c.SleepControl(func() { time.Sleep(100 * time.Millisecond) }) // the answer comes after the end
		return nil, nil, false
	})
	if err := p.Publish(ctx, batchOf(t, series("a", "k", "e", 1, 10)...)); err != nil {
		t.Fatal(err)
	}
	if w.acked != 10 {
		t.Errorf("%d acknowledged", w.acked)
	}
}

// A stop while a record is held by the broker's refusal returns at once: nothing is in flight.
func TestEndWhileHolding(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	p.backoffMin, p.backoffMax = time.Minute, time.Minute
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.TopicAuthorizationFailed, Count: -1})
	ctx, stop := context.WithCancel(context.Background())
	b := batchOf(t, series("a", "k", "e", 1, 10)...)
	done := background(ctx, p, b)
	eventually(t, "the topic is blocked", func() bool { return w.cause("a") != "" })
	stop()
	start := time.Now()
	if err := result(t, done); !errors.Is(err, context.Canceled) || !b.Settled() {
		t.Fatalf("error %v, settled %v", err, b.Settled())
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("took %v", d)
	}
	if err := p.Publish(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("publish with an ended context: %v", err)
	}
}

// The beats go on while a topic is held for longer than the watchdog's patience, and the log does not run over.
func TestHoldingBeatsAndKeepsQuiet(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	p.backoffMin, p.backoffMax = time.Millisecond, time.Millisecond
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.TopicAuthorizationFailed, Count: -1})
	done := background(context.Background(), p, batchOf(t, series("a", "k", "e", 1, 10)...))
	if err := h.Wait(context.Background(), 100); err != nil {
		t.Fatal(err)
	}
	h.Remove()
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(w.logged(), "topic is blocked"); n != 1 {
		t.Errorf("logged %d times in 100 tries:\n%s", n, w.logged())
	}
	if n := strings.Count(w.logged(), "\n"); n > 20 {
		t.Errorf("%d lines of log", n)
	}

	// One long pause. Seen red without the beats in rest.
	p.backoffMin, p.backoffMax = 1500*time.Millisecond, 1500*time.Millisecond
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.TopicAuthorizationFailed})
	publish(t, p, batchOf(t, ev{"a", "k", "later"}))
	wantBeats(t, w)
}

// A session ended while a topic was blocked, and another relay sent its records.
// When this one has the slot again nothing waits, and nothing may say so.
//
// Seen red: the topic stayed blocked, and the relay not ready, until the next event.
func TestStartForgetsWhatWasBlocked(t *testing.T) {
	c := fakeCluster(t)
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	ping := func() {
		t.Helper()
		if err := p.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	for range 2 {
		ctx, stop := context.WithCancel(t.Context())
		done := background(ctx, p, batchOf(t, ev{"nowhere", "k", "1"}))
		eventually(t, "the topic is blocked", func() bool { return w.cause("nowhere") != "" })
		stop()
		if err := result(t, done); err == nil {
			t.Fatal("published to a topic that is not there")
		}
		ping()
		if cause := w.cause("nowhere"); cause != "" {
			t.Errorf("after the start: %s", cause)
		}
	}
}
