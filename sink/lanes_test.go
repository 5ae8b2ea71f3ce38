package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
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

// A topic that is not there waits by itself: its records are no dead letters, other topics flow, and it has all of them
// in order when it appears. Nothing of its batches is settled before.
//
// Seen red: a batch called done when its part in the main lane was.
func TestCase_S07_MissingTopicWaitsAlone(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(2, "a"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	late := series("late", "k", "l", 1, 30)
	a := series("a", "k", "a", 1, 30)
	d.wants(d.publish(a[0], late[0], a[1]), Held)
	for i := 1; i < 29; i++ {
		d.wants(d.publish(late[i], a[i+1]), Left)
	}
	d.wants(d.publish(late[29]), Left)
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(a)...)
	if cause := d.w.cause("late"); !strings.Contains(cause, "does not exist") {
		t.Errorf("late is blocked by %q", cause)
	}
	if d.w.cause("a") != "" || len(d.left) != 30 {
		t.Errorf("a is blocked by %q, %d batches are left", d.w.cause("a"), len(d.left))
	}
	if c.TopicInfo("late") != nil {
		t.Fatal("the topic was created by accident")
	}
	if err := c.CreateTopic("late", 2, nil); err != nil {
		t.Fatal(err)
	}
	d.settled()
	d.alone()
	d.wants(d.publish(ev{"late", "k", "l31"}, ev{"a", "k", "a31"}), Done)
	wantValues(t, "late", topicOf(t, c.ListenAddrs(), "late"), labels(series("late", "k", "l", 1, 31))...)
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(series("a", "k", "a", 1, 31))...)
	if d.w.cause("late") != "" || d.w.deadLetters() != 0 {
		t.Errorf("blocked by %q, dead letters %v", d.w.cause("late"), d.w.dead)
	}
	if d.w.acked != 62 {
		t.Errorf("%d records were observed as acknowledged, of 62", d.w.acked)
	}
}

// Too few replicas for a topic: the other one flows, and the sick one has everything in order afterwards.
func TestCase_S32_OneSickTopic(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a", "b"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	a, b := series("a", "k", "a", 1, 200), series("b", "k", "b", 1, 200)
	d.wants(d.publish(a[0], b[0]), Done)
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.NotEnoughReplicas, Count: -1})
	for i := 1; i < 200; i++ {
		d.publish(a[i], b[i])
	}
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), labels(b)...)
	d.blocked("a")
	if len(d.left) != 199 {
		t.Errorf("%d batches wait, want 199", len(d.left))
	}
	h.Remove()
	d.settled()
	d.alone()
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(a)...)
	if d.w.deadLetters() != 0 || d.w.cause("a") != "" {
		t.Errorf("dead letters %v, blocked %q", d.w.dead, d.w.cause("a"))
	}
}

// Records that the broker has and does not answer for stay with their client: nothing is taken back, so nothing comes
// twice, and what waits behind them is sent after them. The answered topic of the same cycle goes on.
//
// Seen red: a batch called done when its part in the main lane was.
func TestCase_L03_UnansweredTopicKeepsItsClient(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a", "b"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.RequestTimedOut, Count: -1})
	a, b := series("a", "k", "a", 1, 40), series("b", "k", "b", 1, 40)
	d.wants(d.publish(a[0], b[0]), Held)
	for i := 1; i < 40; i++ {
		d.wants(d.publish(a[i], b[i]), Left)
	}
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), labels(b)...)
	if len(d.left) != 40 {
		t.Errorf("%d batches are left, want all 40", len(d.left))
	}
	h.Remove()
	d.settled()
	d.alone()
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(a)...)
}

// Two topics are stuck in one request that is not answered. They wait together, a third flows, and when the answer
// comes for one of them that one goes its own way although the other stays sick.
//
// Seen red: the queue sent by another client while the first cycle was still open; a topic released that was open.
func TestTopicsThatAreStuckTogetherPart(t *testing.T) {
	c := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a", "b", "c"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	d.wants(d.publish(ev{"a", "k", "a1"}, ev{"b", "k", "b1"}, ev{"c", "k", "c1"}), Done)
	thaw := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if !holding(req, "a2") {
			c.KeepControl()
			return nil, nil, false
		}
		c.SleepControl(func() { <-thaw })
		return nil, nil, false
	})
	d.wants(d.publish(ev{"a", "k", "a2"}, ev{"b", "k", "b2"}), Held)
	d.blocked("a")
	d.blocked("b")
	d.wants(d.publish(ev{"b", "k", "b3"}, ev{"c", "k", "c2"}), Left)
	d.wants(d.publish(ev{"a", "k", "a3"}, ev{"b", "k", "b4"}, ev{"c", "k", "c3"}), Left)
	wantValues(t, "c", topicOf(t, c.ListenAddrs(), "c"), "c1", "c2", "c3")
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), "b1")

	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.NotEnoughReplicas, Count: -1})
	close(thaw)
	eventually(t, "b has got through", func() bool { d.hear(); return len(topicOf(t, c.ListenAddrs(), "b")) == 4 })
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), "b1", "b2", "b3", "b4")
	eventually(t, "b is not blocked", func() bool { d.hear(); return d.w.cause("b") == "" })
	eventually(t, "only a is sick", func() bool {
		d.hear()
		d.lanes.mu.Lock()
		defer d.lanes.mu.Unlock()
		return d.lanes.byTopic["b"] == nil && d.lanes.byTopic["a"] != nil
	})
	d.wants(d.publish(ev{"b", "k", "b5"}, ev{"a", "k", "a4"}), Left)
	h.Remove()
	d.settled()
	d.alone()
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "a1", "a2", "a3", "a4")
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), "b1", "b2", "b3", "b4", "b5")
}

// Brokers that are slow for all topics make all of them sick at once. Then they share the cycles of their lane: what has
// gathered meanwhile is one more cycle, not one for each topic.
//
// Seen red with a lane that takes one topic's chunk after the other.
func TestTopicsOfOneLaneShareCycles(t *testing.T) {
	const topics = 20
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("t%02d", i))
	}
	c := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, names...))
	d := lanesFor(t, c.ListenAddrs(), nil)
	thaw := make(chan struct{})
	var requests atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		c.SleepControl(func() { <-thaw })
		return nil, nil, false
	})
	want := map[string][]string{}
	for n := range 10 {
		var evs []ev
		for _, topic := range names {
			v := fmt.Sprint(topic, ".", n)
			evs = append(evs, ev{topic, "k", v})
			want[topic] = append(want[topic], v)
		}
		d.wants(d.publish(evs...), map[bool]Outcome{true: Held, false: Left}[n == 0])
	}
	before := requests.Load()
	close(thaw)
	d.settled()
	if n := requests.Load() - before; n > 3 {
		t.Errorf("%d requests for what is one cycle", n)
	}
	d.alone()
	for _, topic := range names {
		wantValues(t, topic, topicOf(t, c.ListenAddrs(), topic), want[topic]...)
	}
}

// A record too large for a batch splits a cycle. What of it is not sent when a topic falls sick goes on without it.
func TestRestOfACycleGoesOn(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a", "b"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.TopicAuthorizationFailed, Count: -1})
	large := "b2" + strings.Repeat(" padding", 140000)
	d.wants(d.publish(ev{"a", "k", "a1"}, ev{"b", "k", "b1"}, ev{"b", "k", large}, ev{"a", "k", "a2"}, ev{"b", "k", "b3"}), Held)
	d.wants(d.publish(ev{"b", "k", "b4"}, ev{"a", "k", "a3"}), Left)
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), "b1", large[:40], "b3", "b4")
	h.Remove()
	d.settled()
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "a1", "a2", "a3")
}

// What a lane's topic refuses becomes a dead letter in its place, also while the dead letter topic itself is sick, and
// others' dead letters wait with that.
func TestDeadLettersOfALane(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a", "b"))
	d := lanesFor(t, c.ListenAddrs(), nil)
	sick := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.TopicAuthorizationFailed, Count: -1})
	noGraves := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testDLQ, Err: kerr.TopicAuthorizationFailed, Count: -1})
	d.wants(d.publish(ev{"a", "k", "a1"}, ev{"b", "k", "b1"}), Held)
	d.wants(d.publish(ev{"a", "k", "a2"}, ev{"a", "k", "a3"}, ev{"b", "k", "b2"}), Left)
	d.wants(d.publish(ev{"not a topic", "k", "x1"}, ev{"b", "k", "b3"}), Held)
	d.wants(d.publish(ev{"not a topic", "k", "x2"}, ev{"b", "k", "b4"}), Left)
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), "b1", "b2", "b3", "b4")
	d.blocked("a")
	d.blocked(testDLQ)
	poison(c, "a", kerr.InvalidRecord, -1, "a2")
	sick.Remove()
	eventually(t, "the record before the refused one is written", func() bool { d.hear(); return len(topicOf(t, c.ListenAddrs(), "a")) == 1 })
	d.wants(d.publish(ev{"a", "k", "a4"}, ev{"b", "k", "b5"}), Left)
	noGraves.Remove()
	d.settled()
	d.alone()
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "a1", "a3", "a4")
	graves := map[string]bool{}
	var ours []string
	for _, r := range topicOf(t, c.ListenAddrs(), testDLQ) {
		graves[string(r.Value)] = true
		if string(r.Value)[0] == 'x' {
			ours = append(ours, string(r.Value))
		}
	}
	if len(graves) != 3 || !graves["a2"] || !slices.Equal(ours, []string{"x1", "x2"}) {
		t.Errorf("dead letters %v", graves)
	}
}

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

// A copy of a record is the record, in every profile, dead letters made at once or later included.
func TestCopiedRecords(t *testing.T) {
	for _, profile := range []Profile{CloudEvents, Debezium, Plain} {
		cfg := config(profile)
		cfg.HeaderColumns = []string{"extra"}
		builder, err := NewBuilder(cfg, verbatimEncoder{})
		if err != nil {
			t.Fatal(err)
		}
		from := builder.NewBatch()
		for i := range 40 {
			e := Event{CommitLSN: 77, Ordinal: uint64(i), CommitTime: committed, ID: fmt.Appendf(nil, "id%d", i),
				Key: []byte("k"), Type: []byte("order.placed.v1"), Payload: fmt.Appendf(nil, `{"n":%d}`, i), AggregateType: []byte("order"),
				Headers: []byte(`{"one":"1","empty":"","more":"` + strings.Repeat("x", i) + `"}`), HeaderColumns: [][]byte{nil}}
			switch i % 8 {
			case 1:
				e.Key = nil
			case 2:
				e.Key = []byte{}
			case 3:
				e.Payload = nil
			case 4:
				e.Type = []byte("no topic at all")
			case 5:
				e.ID = nil
			case 6:
				e.HeaderColumns = [][]byte{[]byte("v")}
			case 7:
				e.CorrelationID, e.Tenant = []byte("k"), []byte{}
			}
			if err := from.Add(&e); err != nil {
				t.Fatal(err)
			}
		}
		to := builder.NewBatch()
		for i := range from.records {
			to.copyRecord(from, i)
		}
		want, got := from.seal(), to.seal()
		rej := &Rejection{Reason: ReasonRefused, Message: "no"}
		for i := range want {
			if !reflect.DeepEqual(want[i], got[i]) {
				t.Fatalf("%v: record %d:\n%+v\n%+v", profile, i, want[i], got[i])
			}
			if w, g := from.deadLetter(i, rej), to.deadLetter(i, rej); !reflect.DeepEqual(w, g) {
				t.Fatalf("%v: dead letter %d:\n%+v\n%+v", profile, i, w, g)
			}
		}
		if to.Len() != from.Len() || len(to.slab) > len(from.slab) {
			t.Errorf("%v: the copy has %d records in %d bytes, the original %d in %d", profile, to.Len(), len(to.slab), from.Len(), len(from.slab))
		}
	}
}
