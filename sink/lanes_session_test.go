package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The end of a session cuts every lane off. The next one begins when nothing is open any more, sends all again, and no
// goroutine stays.
func TestLanesEndWithTheSession(t *testing.T) {
	c := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a", "b", "c"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	d.lanes.main.engine.abort = 300 * time.Millisecond
	thaw := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if holding(req, "a1") {
			c.SleepControl(func() { <-thaw })
		}
		return nil, nil, false
	})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "b", Err: kerr.TopicAuthorizationFailed, Count: -1})
	d.wants(d.publish(ev{"a", "k", "a1"}, ev{"c", "k", "c1"}), Held) // a frozen one
	d.wants(d.publish(ev{"b", "k", "b1"}), Held)                     // and a refused one
	d.wants(d.publish(ev{"a", "k", "a2"}, ev{"b", "k", "b2"}), Left)
	stuck := d.left
	d.stop(errors.New("the session has ended"))
	if err := d.lanes.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	for n, b := range stuck {
		if b != nil && !b.Settled() {
			t.Errorf("batch %d has open promises", n)
		}
	}
	if stacks := lanesRunning(); stacks != "" {
		t.Errorf("lanes run on:\n%s", stacks)
	}
	if log := d.w.logged(); !strings.Contains(log, "records of a sick topic are left") || !strings.Contains(log, "topic=b waiting=1 begun=1") {
		t.Errorf("what was left is not said:\n%s", log)
	}
	if err := d.lanes.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	if d.w.cause("a")+d.w.cause("b") != "" {
		t.Error("topics of the old session are still blocked")
	}
	close(thaw)
	d.session()
	d.wants(d.publish(ev{"c", "k", "c2"}), Done)
	d.wants(d.publish(ev{"b", "k", "b1"}), Held)
	if err := d.lanes.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if stacks := lanesRunning(); stacks != "" {
		t.Errorf("goroutines outlive Close:\n%s", stacks)
	}
}

// A lane asks before each of its cycles whether it may begin, and what forbids it ends the session.
func TestLanesAskWhetherTheSlotIsOurs(t *testing.T) {
	lost := errors.New("nothing was heard of the server")
	may := make(chan error)
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	d := lanesFor(t, c.ListenAddrs(), func(cfg *PublisherConfig) {
		cfg.Heard = func(ctx context.Context) error {
			select {
			case err := <-may:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.TopicAuthorizationFailed, Count: -1})
	d.wants(d.publish(ev{"a", "k", "a1"}), Held)
	h.Remove()
	d.wants(d.publish(ev{"a", "k", "a2"}), Left)
	may <- nil // the first is tried again
	l := <-d.lanes.Late()
	d.late(l)
	may <- lost
	if l := <-d.lanes.Late(); !errors.Is(l.Err, lost) {
		t.Errorf("heard %+v", l)
	}
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "a1")
}

// Where no broker answers, no topic is isolated: nothing could be written beside it, and what comes behind would only
// fill memory.
//
// Seen red without the question whether a broker is there.
func TestOutageIsolatesNothing(t *testing.T) {
	dir := t.TempDir()
	c := fakeCluster(t, kfake.SeedTopics(1, "a", "b"), kfake.DataDir(dir))
	now := new(atomic.Pointer[string])
	now.Store(&c.ListenAddrs()[0])
	d := lanesFor(t, []string{bootstrap}, func(cfg *PublisherConfig) { cfg.Kafka.dial = behind(now) })
	d.wants(d.publish(ev{"a", "k", "a1"}, ev{"b", "k", "b1"}), Done)
	now.Store(nil)
	c.Close()
	done := make(chan error, 1)
	b := batchOf(t, ev{"a", "k", "a2"}, ev{"b", "k", "b2"})
	b.Number = 2
	var outcome Outcome
	go func() {
		var err error
		outcome, err = d.lanes.Publish(d.ctx, b)
		done <- err
	}()
	d.blocked("a")
	d.blocked("b")
	asked := d.w.count("kafka connection")
	eventually(t, "the brokers are asked several times", func() bool { return d.w.count("kafka connection") > asked+20 })
	running(t, done, "there is no broker")

	c = fakeCluster(t, kfake.DataDir(dir))
	now.Store(&c.ListenAddrs()[0])
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	if outcome != Done { // there was one, and it took a moment to answer for the topics
		d.left[b.Number] = b
		d.settled()
	}
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "a1", "a2")
}

// Turned off, everything waits together.
func TestWithoutIsolationAllWait(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	d := lanesFor(t, c.ListenAddrs(), func(cfg *PublisherConfig) { cfg.Isolate = false })
	done := make(chan error, 1)
	go func() {
		o, err := d.lanes.Publish(d.ctx, batchOf(t, ev{"late", "k", "l1"}, ev{"a", "k", "a1"}))
		if o != Done {
			err = fmt.Errorf("outcome %v", o)
		}
		done <- err
	}()
	d.blocked("late")
	running(t, done, "a topic is missing")
	if err := c.CreateTopic("late", 2, nil); err != nil {
		t.Fatal(err)
	}
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
}

// A topic that falls sick again and again holds up the others once: it stays in its lane for a while, and returns when
// it was well for so long.
//
// Seen red with a lane that ends as soon as it has written everything.
func TestFlappingTopicHoldsUpOnce(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a", "b"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	d.lanes.convalescence = time.Hour
	n := 0
	for round := range 5 {
		h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.TopicAuthorizationFailed, Count: -1})
		for range 5 {
			n++
			outcome := d.publish(ev{"a", "k", fmt.Sprint("a", n)}, ev{"b", "k", fmt.Sprint("b", n)})
			if round == 0 && n == 1 {
				d.wants(outcome, Held) // it held up b
			} else {
				d.wants(outcome, Left)
			}
		}
		h.Remove()
		d.settled()
		if d.w.cause("a") != "" {
			t.Errorf("a is well and said to be blocked: %s", d.w.cause("a"))
		}
	}
	d.lanes.mu.Lock()
	d.lanes.convalescence = 0
	for _, l := range d.lanes.running {
		l.rouse()
	}
	d.lanes.mu.Unlock()
	d.alone()
	d.wants(d.publish(ev{"a", "k", fmt.Sprint("a", n+1)}), Done)
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(series("a", "k", "a", 1, n+1))...)
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), labels(series("b", "k", "b", 1, n))...)
}

// Each sick topic that falls sick by itself has a lane, up to a number; then the next one holds up the others.
func TestNumberOfLanesIsBounded(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	name := func(i int) string { return fmt.Sprintf("late.%02d", i) }
	for i := range maxLanes {
		d.wants(d.publish(ev{name(i), "k", "l"}), Held)
	}
	b := batchOf(t, ev{name(maxLanes), "k", "l"}, ev{"a", "k", "a1"})
	d.count++
	b.Number = d.count
	done := make(chan error, 1)
	go func() {
		_, err := d.lanes.Publish(d.ctx, b)
		done <- err
	}()
	d.blocked(name(maxLanes))
	running(t, done, "there are too many sick topics")
	for i := range maxLanes + 1 {
		if err := c.CreateTopic(name(i), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	d.settled()
	d.alone()
}

// The watchdog of the lanes hears nothing as soon as one of them does not move.
func TestLaneBeats(t *testing.T) {
	c := fakeCluster(t)
	beats := make(chan struct{}, 1000)
	hold := make(chan struct{})
	d := lanesFor(t, c.ListenAddrs(), func(cfg *PublisherConfig) {
		cfg.LaneBeat = func() { beats <- struct{}{} }
		cfg.Heard = func(ctx context.Context) error {
			select {
			case <-hold:
			default:
				<-ctx.Done() // wedged
			}
			return ctx.Err()
		}
	})
	d.lanes.main.engine.backoffMin, d.lanes.main.engine.backoffMax = time.Hour, time.Hour
	d.wants(d.publish(ev{"late.1", "k", "l"}), Held)
	for range 3 {
		<-beats
	}
	d.lanes.main.engine.backoffMin, d.lanes.main.engine.backoffMax = time.Millisecond, time.Millisecond
	d.wants(d.publish(ev{"late.2", "k", "l"}), Held)
	for len(beats) > 0 { // from before the second began
		<-beats
	}
	<-time.After(5 * beatEvery)
	if n := len(beats); n > 1 { // it moved once, before it stood still
		t.Errorf("%d beats although a lane stands still", n)
	}
	d.stop(errors.New("over"))
}
