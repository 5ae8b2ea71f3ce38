package sink

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
