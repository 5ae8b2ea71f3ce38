package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// MissingTopic routes events to a topic that does not exist and may not be
// created. They wait, and none is a dead letter; the relay is not ready and says
// why; another topic flows. When the topic appears they are delivered in order,
// and all is well by itself.
//
// Seen red with delivery.isolation_bytes 0 (the other topic does not flow), and
// with a publisher that calls a batch done when its healthy part is.
func MissingTopic(t *testing.T, env Env) {
	b := env.lay(t, bedOptions{two: true, topics: map[string]map[string]string{theOther: nil, theDLQ: nil}})
	b.config = b.config.With("kafka.topics.create", false)
	relay := b.start()
	for range 20 {
		b.ledger.Insert(t, 0, 1)
		b.ledger.Insert(t, 1, 2)
	}
	b.consumer.WaitDistinct(40, patience)
	relay.WaitNotReady("topic "+b.topic+": UNKNOWN_TOPIC_OR_PARTITION", 10*time.Second)
	b.assertBlocked(relay)
	for _, rec := range b.consumer.Records() {
		if rec.Topic != b.other {
			t.Fatalf("a record in %s", rec.Topic)
		}
	}
	kafka.CreateTopic(t, b.addrs, b.topic, 3, -1, nil)
	b.settle()
	relay.WaitReady("active", 10*time.Second)
	b.ledger.Insert(t, 0, 1)
	b.settle()
	b.finish(relay, 0)
}

// SickTopic refuses the writes to one topic for lack of replicas while events for
// it and another one alternate. The other one flows, nothing behind the first
// event that waits is confirmed, and what waits and what flows stays below the
// bound that was set: then all wait. When the topic is well again it has everything
// in order, and nothing came twice.
//
// real is a cluster of three; nil: kfake.
//
// Seen red with: a publisher that calls a batch done when its healthy part is; a
// window that is never full; delivery.isolation_bytes 0.
func SickTopic(t *testing.T, env Env, real *kafka.Real) {
	b := env.lay(t, bedOptions{two: true})
	const bound, batch = 192 << 10, 20
	b.config = b.config.With("delivery.isolation_bytes", bound).With("delivery.batch_records", batch)
	if real != nil {
		b.config = b.config.With("kafka.topics.replication_factor", 3)
	}
	relay := b.start()
	b.ledger.Insert(t, 0, 1)
	b.ledger.Insert(t, 1, 1)
	b.settle()
	heal := b.sicken(real)
	for range 30 {
		b.ledger.Insert(t, 0, 1)
		b.ledger.Insert(t, 1, 1)
	}
	b.waitIn(b.other, 31)
	relay.WaitNotReady("topic "+b.topic, 20*time.Second)
	b.assertBlocked(relay)

	// Now more than may be handed over. Each event counts 512 bytes and more.
	for range 20 {
		b.ledger.Insert(t, 1, 50)
	}
	relay.WaitLog("so much waits for sick topics that the others wait too", patience)
	inflight, _ := relay.Metrics().Sum("tailer_inflight_bytes")
	if inflight == 0 || inflight > bound {
		t.Errorf("tailer_inflight_bytes is %v, of at most %d", inflight, bound)
	}
	flowed := b.countIn(b.other)
	if most := 31 + bound/512 + batch; flowed < 31 || flowed > most {
		t.Errorf("%d events of the other topic have come, of at most %d", flowed, most)
	}
	if peak := relay.Usage().PeakRSS; peak > 64<<20 {
		t.Errorf("%d MiB of memory for a bound of %d KiB", peak>>20, bound>>10)
	}
	heal()
	relay.WaitReady("active", patience)
	b.settle()
	if !logged(relay, "topics are sick, the others go on without them", "topic is no longer blocked") {
		t.Error("the log does not tell of the sick topic")
	}
	if n, ok := relay.Metrics().Sum("tailer_topic_blocked", fmt.Sprintf("topic=%q", b.topic)); !ok || n != 0 {
		t.Errorf("tailer_topic_blocked is %v, %v", n, ok)
	}
	duplicates := 0
	if real != nil {
		duplicates = b.consumer.Len() // an answer may be lost with the broker
	}
	b.finish(relay, duplicates)
}

// SickTopicCrash kills the relay while a topic is sick, and stops another one in
// the middle of it. Nothing is lost, and what comes again is what the guarantee
// says: from the oldest event that waited on.
//
// Seen red with a publisher that calls a batch done when its healthy part is.
func SickTopicCrash(t *testing.T, env Env) {
	b := env.lay(t, bedOptions{two: true})
	b.config = b.config.With("delivery.drain_timeout", "1s")
	relay := b.start()
	b.ledger.Insert(t, 0, 5)
	b.ledger.Insert(t, 1, 5)
	b.settle()
	heal := b.sicken(nil)
	fill := func() {
		for range 30 {
			b.ledger.Insert(t, 0, 1)
			b.ledger.Insert(t, 1, 1)
		}
	}
	fill()
	b.waitIn(b.other, 35)
	relay.WaitNotReady("topic "+b.topic, 10*time.Second)
	relay.Kill()

	relay = b.start()
	fill()
	// All since the oldest that waits, again and in the same order.
	b.waitIn(b.other, 35+60)
	relay.WaitNotReady("topic "+b.topic, 10*time.Second)
	if code := relay.Stop(); code != 1 {
		t.Errorf("exit code %d of a stop that could not drain", code)
	}
	if !logged(relay, "records of a sick topic are left", fmt.Sprintf(`"topic":%q`, b.topic)) {
		t.Error("the stop does not say what is left")
	}

	relay = b.start()
	b.waitIn(b.other, 95+60)
	heal()
	b.settle()
	// The other topic's, once for each of the two ends.
	if records := b.finish(relay, 30+60); len(records) != 130+30+60 {
		t.Errorf("%d records", len(records))
	}
}

// sicken makes every write to the first topic fail for lack of replicas, until
// heal is called.
func (b *bed) sicken(real *kafka.Real) (heal func()) {
	b.t.Helper()
	if real == nil {
		return b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: b.topic, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
	}
	b.configure(b.admin(), "min.insync.replicas", "3")
	victim := real.Broker(2)
	if err := victim.Kill(); err != nil {
		b.t.Fatal(err)
	}
	heal = func() {
		if err := victim.Start(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	b.insync(b.admin(), 2)
	return heal
}

// waitIn waits for so many records in a topic.
func (b *bed) waitIn(topic string, n int) {
	b.t.Helper()
	harness.Eventually(b.t, patience, fmt.Sprintf("%d records in %s", n, topic), func() bool { return b.countIn(topic) >= n })
}

func (b *bed) countIn(topic string) (n int) {
	for _, rec := range b.consumer.Records() {
		if rec.Topic == topic {
			n++
		}
	}
	return n
}

// assertBlocked fails the test unless the first topic, and it alone, is told to be blocked.
func (b *bed) assertBlocked(relay *harness.Relay) {
	b.t.Helper()
	m := relay.Metrics()
	if n, _ := m.Sum("tailer_topic_blocked", fmt.Sprintf("topic=%q", b.topic)); n != 1 {
		b.t.Errorf("tailer_topic_blocked of %s is %v", b.topic, n)
	}
	if n, _ := m.Sum("tailer_topic_blocked"); n != 1 {
		b.t.Errorf("%v topics are blocked", n)
	}
	if code, body := relay.Probe("/healthz"); code != 200 {
		b.t.Errorf("/healthz: %d %s", code, body)
	}
	if !logged(relay, "topic is blocked, its records wait", fmt.Sprintf(`"topic":%q`, b.topic)) {
		b.t.Error("the log does not name the topic")
	}
}
