package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestPublish(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(3, "a", "b", "c"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	topics := []string{"a", "b", "c"}
	b := batchOf(t)
	want := map[string][]string{} // by topic and key
	for cycle := range 5 {
		var evs []ev
		for i := range 1000 {
			e := ev{topics[i%3], fmt.Sprintf("k%d", i%17), fmt.Sprintf("%d.%d", cycle, i)}
			evs = append(evs, e)
			want[e.topic+e.key] = append(want[e.topic+e.key], e.value)
		}
		fill(t, b, evs...)
		publish(t, p, b)
		b.Reset()
	}
	got := map[string][]string{}
	for _, topic := range topics {
		for _, r := range topicOf(t, c.ListenAddrs(), topic) {
			k := topic + string(r.Key)
			got[k] = append(got[k], string(r.Value))
			if !r.Timestamp.Equal(committed) {
				t.Fatalf("timestamp %v, want the commit time", r.Timestamp)
			}
		}
	}
	for k := range want {
		if !slices.Equal(got[k], want[k]) {
			t.Fatalf("key %s: got %d records, want %d in order", k, len(got[k]), len(want[k]))
		}
	}
	if w.acked != 5000 || w.published["a"]+w.published["b"]+w.published["c"] != 5000 || len(w.published) != 3 {
		t.Errorf("observed %d acked, published %v", w.acked, w.published)
	}
	if len(w.retries) > 0 || len(w.causes) > 0 {
		t.Errorf("retries %v, blocked %v in fair weather", w.retries, w.causes)
	}
}

// The partition of a key must be that of Java's default partitioner: murmur2, made positive, modulo. The pairs are from
// Kafka's own test of its murmur2.
func TestPartitionAsJava(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(7, "a"))
	p, _ := publisherFor(t, c.ListenAddrs(), nil)
	hashes := map[string]int32{"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971}
	var evs []ev
	for k := range hashes {
		evs = append(evs, ev{"a", k, "v"})
	}
	publish(t, p, batchOf(t, evs...))
	for _, r := range topicOf(t, c.ListenAddrs(), "a") {
		if want := (hashes[string(r.Key)] & 0x7fffffff) % 7; r.Partition != want {
			t.Errorf("key %s is in partition %d, want %d", r.Key, r.Partition, want)
		}
	}
}

// One topic's acknowledgement missing holds the whole batch, whatever the other topic says. Seen red with a
// Publish that does not wait for the flush.
func TestCase_L03_AcksOutOfOrderAcrossTopics(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a", "b"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	p.slow = 300 * time.Millisecond
	// Written, but the answer says that nobody knows: kgo sends it again for ever.
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.RequestTimedOut, Count: -1})
	evs := append([]ev{{"a", "k", "a1"}}, series("b", "k", "b", 1, 50)...)
	done := background(context.Background(), p, batchOf(t, evs...))
	if err := h.Wait(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	eventually(t, "topic a counts as blocked", func() bool { return w.cause("a") != "" })
	if w.cause("b") != "" {
		t.Errorf("topic b counts as blocked: %s", w.cause("b"))
	}
	eventually(t, "topic b has its records", func() bool { return len(topicOf(t, c.ListenAddrs(), "b")) == 50 })
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), labels(series("b", "k", "b", 1, 50))...)
	running(t, done, "topic a did not acknowledge")
	h.Remove()
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "a1")
	if w.cause("a") != "" {
		t.Errorf("still blocked: %s", w.cause("a"))
	}
}

// Hiccups of a broker never make dead letters, however often they come. The field's 90 s are 24 answers, 12 a partition, for each of
// the first three errors here, more than kgo tries by itself.
func TestCase_L17_TransientIsNotPermanent(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend,
		kerr.KafkaStorageError, kerr.NotLeaderForPartition, kerr.UnknownServerError, kerr.BrokerNotAvailable} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			c := fakeCluster(t, kfake.SeedTopics(2, "a"))
			p, w := publisherFor(t, c.ListenAddrs(), nil)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: e, Count: 24})
			var evs []ev
			for i := range 100 {
				evs = append(evs, ev{"a", fmt.Sprint(i % 2), fmt.Sprint(i)})
			}
			publish(t, p, batchOf(t, evs...))
			got := map[string][]string{}
			for _, r := range topicOf(t, c.ListenAddrs(), "a") {
				got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
			}
			for k, vs := range got {
				if len(vs) != 50 || !slices.IsSortedFunc(vs, func(x, y string) int { return number(x) - number(y) }) {
					t.Errorf("key %s: %v", k, vs)
				}
			}
			if w.deadLetters() != 0 || len(topicOf(t, c.ListenAddrs(), testDLQ)) != 0 {
				t.Error("dead letters for a hiccup")
			}
			if e == kerr.NotEnoughReplicas && !strings.Contains(strings.Join(w.causes, "\n"), `topic "a" has fewer replicas in sync`) {
				t.Errorf("causes: %q", w.causes)
			}
		})
	}
}

func number(s string) int {
	var n int
	_, _ = fmt.Sscan(s, &n)
	return n
}

// deaf is a connection whose peer's answers can be lost on the way: the request arrives, the answer never does.
type deaf struct {
	net.Conn
	lose *atomic.Int32 // answers still to be lost
	sent atomic.Bool   // a produce request went out on it
}

func (d *deaf) Write(p []byte) (int, error) {
	if len(p) > 6 && p[4] == 0 && p[5] == 0 { // api key 0 behind the length
		d.sent.Store(true)
	}
	return d.Conn.Write(p)
}

func (d *deaf) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if err == nil && d.sent.Load() && d.lose.Load() > 0 {
		d.lose.Add(-1)
		_ = d.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// Requests arrive, answers are lost: what happened is not known, so it is asked again until answered, never a dead
// letter and never reported done. The broker knows the producer, so there is not even a duplicate.
func TestCase_L18_UnknownOutcome(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	lose := new(atomic.Int32)
	p, w := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) {
		cfg.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &deaf{Conn: conn, lose: lose}, err
		}
	})
	p.renew()
	p.opts = append(p.opts, kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }))
	publish(t, p, batchOf(t, series("a", "k", "e", 1, 5)...))
	lose.Store(15) // more than recordTries
	publish(t, p, batchOf(t, series("a", "k", "e", 6, 60)...))
	if n := lose.Load(); n != 0 {
		t.Errorf("published with %d answers still to be lost", n)
	}
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(series("a", "k", "e", 1, 60))...)
	if w.deadLetters() != 0 {
		t.Error("dead letters")
	}
}

// noise is text that does not compress.
func noise(prefix string, n int) string {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := []byte(prefix)
	for len(b) < n {
		b = append(b, byte(33+r.IntN(94)))
	}
	return string(b)
}

// Only the broker knows what is too large, because it sees the record compressed. Neighbours on the same key keep their
// order around it, and the dead letter, itself too large for its topic, is trimmed.
func TestCase_S05_TooLarge(t *testing.T) {
	const limit = 1 << 20
	c := fakeCluster(t, kfake.SeedTopics(1, "a", "small"))
	if err := c.CreateTopic("wide", 1, map[string]string{"max.message.bytes": "4194304"}); err != nil {
		t.Fatal(err)
	}
	p, w := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.Compression = "zstd" })
	evs := []ev{
		{"a", "k", "e1"}, {"a", "k", noise("big2 ", 2*limit)}, {"a", "k", "e3"},
		{"a", "k", "easy4 " + strings.Repeat("x", 5*limit)}, // compresses to nothing
		{"a", "k", noise("below5 ", limit-1000)}, {"a", "k", noise("above6 ", limit+300000)}, {"a", "k", "e7"},
		{"small", "k", "s1"},
		{"wide", "k", noise("wide8 ", 2*limit)}, {"wide", "k", "w9"},
	}
	publish(t, p, batchOf(t, evs...))
	got := topicOf(t, c.ListenAddrs(), "a")
	wantValues(t, "a", got, "e1", "e3", evs[3].value[:40], evs[4].value[:40], "e7")
	wantValues(t, "small", topicOf(t, c.ListenAddrs(), "small"), "s1")
	wantValues(t, "wide", topicOf(t, c.ListenAddrs(), "wide"), evs[8].value[:40], "w9")
	dlq := topicOf(t, c.ListenAddrs(), testDLQ)
	wantValues(t, "dead letters", dlq, evs[1].value[:40], evs[5].value[:40])
	for _, r := range dlq {
		wantDead(t, r, ReasonTooLarge)
		msg, _ := headerOf(r, hdrDLQMessage)
		if !strings.Contains(string(msg), "bytes") || !strings.Contains(string(msg), "1048588") {
			t.Errorf("the message has no sizes: %s", msg)
		}
		if v, _ := headerOf(r, hdrDLQTruncated); string(v) != "true" {
			t.Error("a dead letter above its topic's limit was not trimmed")
		}
	}
	if w.dead[ReasonTooLarge] != 2 || w.acked != 8 {
		t.Errorf("observed %v and %d acked", w.dead, w.acked)
	}
}

// A dead letter topic with a small limit that may not be read: trimmed by halves until it fits.
func TestDeadLetterTrimmedWithoutKnowingTheLimit(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	if err := c.CreateTopic("tiny.dlq", 1, map[string]string{"max.message.bytes": "20000"}); err != nil {
		t.Fatal(err)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	p, w := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.DLQTopic = "tiny.dlq"; cfg.Compression = "none" })
	poison(c, "a", kerr.InvalidRecord, -1, noise("bad", 400000))
	b := batchOf(t, ev{"a", "k", noise("bad", 400000)}, ev{"a", "k", "e2"})
	b.builder.cfg.DLQTopic = "tiny.dlq"
	publish(t, p, b)
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "e2")
	dlq := topicOf(t, c.ListenAddrs(), "tiny.dlq")
	if len(dlq) != 1 || len(dlq[0].Value) < 5000 || len(dlq[0].Value) > 20000 {
		t.Fatalf("%d dead letters, the first of %d bytes", len(dlq), len(dlq[0].Value))
	}
	if w.dead[ReasonRefused] != 1 {
		t.Errorf("observed %v", w.dead)
	}
}

// The topic's limit is lowered while the client still believes the old one.
func TestLimitLoweredWhileRunning(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.Compression = "none" })
	publish(t, p, batchOf(t, ev{"a", "k", "e0"}))
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "a"
	entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	entry.Name, entry.Value = "max.message.bytes", kmsg.StringPtr("5000")
	res.Configs = append(res.Configs, entry)
	req.Resources = append(req.Resources, res)
	if _, err := req.RequestWith(context.Background(), cl); err != nil {
		t.Fatal(err)
	}
	var evs []ev
	for i := 1; i <= 40; i++ {
		evs = append(evs, ev{"a", "k", noise(fmt.Sprintf("e%d ", i), 1000)})
	}
	publish(t, p, batchOf(t, evs...))
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), append([]string{"e0"}, labels(evs)...)...)
	if n, _ := p.limits.get("a"); n != 5000 {
		t.Errorf("the limit is remembered as %d", n)
	}
	if w.deadLetters() != 0 {
		t.Errorf("dead letters: %v", w.dead)
	}
}

// Authorisation holds, names the object and what to type, makes no dead letter, and goes on when granted, without a
// restart. kgo keeps a refused producer id for ever: seen red without checkProducers.
func TestCase_S24_Authorisation(t *testing.T) {
	cases := []struct {
		name  string
		fault kfake.Fault
		cause string
	}{
		{"producer id", kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed}, "--operation IdempotentWrite --cluster"},
		{"producer id with an unknown error", kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.UnknownServerError}, "read the broker's log"},
		{"produce", kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.TopicAuthorizationFailed}, "--operation Write --operation Describe --topic a"},
		{"metadata", kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "a", Err: kerr.TopicAuthorizationFailed}, "--topic a"},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := fakeCluster(t, kfake.SeedTopics(1, "a", "b"))
			p, w := publisherFor(t, c.ListenAddrs(), nil)
			tt.fault.Count = -1
			if tt.fault.TopLevel = tt.fault.Keys[0] == kmsg.InitProducerID; tt.fault.TopLevel {
				tt.fault.Topic = ""
			}
			h := c.Fault(tt.fault)
			done := background(context.Background(), p, batchOf(t, append(series("a", "k", "a", 1, 20), ev{"b", "k", "b1"})...))
			eventually(t, "a is blocked", func() bool { return strings.Contains(w.cause("a"), tt.cause) })
			hits := h.Hits()
			eventually(t, "it is tried again", func() bool { return h.Hits() > hits+1 })
			if tt.fault.Keys[0] != kmsg.Metadata && len(topicOf(t, c.ListenAddrs(), "a")) != 0 {
				t.Error("a has records")
			}
			running(t, done, "a may not be written to")
			h.Remove()
			if err := result(t, done); err != nil {
				t.Fatal(err)
			}
			wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(series("a", "k", "a", 1, 20))...)
			wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), "b1")
			if w.deadLetters() != 0 || w.cause("a") != "" {
				t.Errorf("dead letters %v, still blocked by %q", w.dead, w.cause("a"))
			}
		})
	}
}

// The broker forgets the producer, or says so: nothing is lost, nothing is reordered, nobody restarts.
func TestCase_D05_ProducerStateLost(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			c := fakeCluster(t, kfake.SeedTopics(1, "a"))
			p, w := publisherFor(t, c.ListenAddrs(), nil)
			publish(t, p, batchOf(t, series("a", "k", "e", 1, 10)...))
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: e, Count: 3})
			publish(t, p, batchOf(t, series("a", "k", "e", 11, 50)...))
			publish(t, p, batchOf(t, series("a", "k", "e", 51, 60)...))
			if h.Hits() != 3 {
				t.Errorf("%d faults hit", h.Hits())
			}
			wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(series("a", "k", "e", 1, 60))...)
			if w.deadLetters() != 0 || w.count("kafka producer_state") == 0 {
				t.Errorf("dead letters %v, retries %v", w.dead, w.retries)
			}
		})
	}
	t.Run("DUPLICATE_SEQUENCE_NUMBER", func(t *testing.T) {
		t.Parallel()
		c := fakeCluster(t, kfake.SeedTopics(1, "a"))
		p, w := publisherFor(t, c.ListenAddrs(), nil)
		publish(t, p, batchOf(t, series("a", "k", "e", 1, 10)...))
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.DuplicateSequenceNumber})
		// The broker says that it has them; the fake has not, and we must believe it.
		publish(t, p, batchOf(t, series("a", "k", "dup", 1, 5)...))
		publish(t, p, batchOf(t, series("a", "k", "e", 11, 20)...))
		wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(series("a", "k", "e", 1, 20))...)
		if w.acked != 25 || w.deadLetters() != 0 {
			t.Errorf("acked %d, dead letters %v", w.acked, w.dead)
		}
	})
	t.Run("INVALID_RECORD", func(t *testing.T) {
		t.Parallel()
		c := fakeCluster(t, kfake.SeedTopics(1, "a"))
		p, w := publisherFor(t, c.ListenAddrs(), nil)
		// One answer for a whole batch accuses nobody: sent again, all of it passes.
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.InvalidRecord})
		publish(t, p, batchOf(t, series("a", "k", "e", 1, 30)...))
		wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(series("a", "k", "e", 1, 30))...)
		if w.deadLetters() != 0 || w.count("kafka invalid_record") == 0 {
			t.Errorf("dead letters %v, retries %v", w.dead, w.retries)
		}
	})
}

// A topic that is missing waits, and holds up nothing else; its records are delivered when it appears. It is not
// created by accident, also where the cluster would.
func TestCase_S07_TopicMissing(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "b"), kfake.AllowAutoTopicCreation())
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	evs := append(series("late", "k", "l", 1, 10), series("b", "k", "b", 1, 10)...)
	evs = append(evs, series("late", "k", "l", 11, 20)...)
	done := background(context.Background(), p, batchOf(t, evs...))
	eventually(t, "the topic is blocked", func() bool { return strings.Contains(w.cause("late"), " --create --topic late)") })
	eventually(t, "the other topic has its records", func() bool { return len(topicOf(t, c.ListenAddrs(), "b")) == 10 })
	wantValues(t, "b", topicOf(t, c.ListenAddrs(), "b"), labels(series("b", "k", "b", 1, 10))...)
	running(t, done, "a topic is missing")
	if c.TopicInfo("late") != nil {
		t.Fatal("the topic was created by accident")
	}
	if err := c.CreateTopic("late", 2, nil); err != nil {
		t.Fatal(err)
	}
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	wantValues(t, "late", topicOf(t, c.ListenAddrs(), "late"), labels(series("late", "k", "l", 1, 20))...)
	if w.cause("late") != "" || w.deadLetters() != 0 {
		t.Errorf("still blocked by %q, dead letters %v", w.cause("late"), w.dead)
	}
}

func TestTopicsAreCreatedWhenAsked(t *testing.T) {
	c := fakeCluster(t)
	p, _ := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) {
		cfg.DLQTopic = "new.dlq"
		cfg.Topics = TopicsConfig{Create: true, Partitions: 5, Replication: 1, Config: map[string]string{"max.message.bytes": "2000000"}}
	})
	if err := p.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	publish(t, p, batchOf(t, series("fresh", "k", "e", 1, 10)...))
	wantValues(t, "fresh", topicOf(t, c.ListenAddrs(), "fresh"), labels(series("fresh", "k", "e", 1, 10))...)
	for _, topic := range []string{"new.dlq", "fresh"} {
		info := c.TopicInfo(topic)
		if info == nil || len(c.PartitionInfos(topic)) != 5 {
			t.Errorf("topic %s: %+v", topic, info)
		}
		if n, _ := p.limits.get(topic); n != 2000000 {
			t.Errorf("topic %s takes %d bytes", topic, n)
		}
	}
	// Somebody else was quicker.
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAlreadyExists})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "fresh", Err: kerr.UnknownTopicOrPartition})
	p.limits.forget("fresh")
	if err := p.ensure(context.Background(), "fresh"); err != nil {
		t.Error(err)
	}
}

// A topic that is deleted and made again while the relay runs has another id.
func TestTopicRecreatedWhileRunning(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	publish(t, p, batchOf(t, series("a", "k", "e", 1, 5)...))
	if err := c.DeleteTopic("a"); err != nil {
		t.Fatal(err)
	}
	done := background(context.Background(), p, batchOf(t, series("a", "k", "e", 6, 10)...))
	eventually(t, "the topic is blocked", func() bool { return strings.Contains(w.cause("a"), "does not exist") })
	if err := c.CreateTopic("a", 3, nil); err != nil {
		t.Fatal(err)
	}
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "e6", "e7", "e8", "e9", "e10")
}

// A record that fails before anything is sent must not be overtaken by those behind it that did not.
// Seen red without the abort behind the barrier.
func TestNothingIsSentWhenARecordFailsWhileBuffering(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, _ := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.Compression = "none" })
	publish(t, p, batchOf(t, ev{"a", "k", "e0"})) // the client learns the limit
	p.limits.set("a", 1<<30)                      // and we another one: the client refuses e2 by itself
	evs := []ev{{"a", "k", "e1"}, {"a", "k", noise("e2 ", 1<<20+400)}, {"a", "k", "e3"}}
	b := batchOf(t, evs...)
	b.flight = newFlight(b)
	failed, err := p.attempt(context.Background(), b.flight, false, b.seal())
	if err != nil || len(failed) != 3 || !b.Settled() {
		t.Fatalf("%d of 3 failed, error %v", len(failed), err)
	}
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "e0")
}

func TestMaxBufferedEndsTheSession(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, _ := publisherFor(t, c.ListenAddrs(), nil)
	p.renew()
	p.opts = append(p.opts, kgo.MaxBufferedRecords(3))
	b := batchOf(t, series("a", "k", "e", 1, 9)...)
	err := p.Publish(context.Background(), b)
	if !errors.Is(err, kgo.ErrMaxBuffered) || !b.Settled() {
		t.Fatalf("error %v, settled %v", err, b.Settled())
	}
	if recs := topicOf(t, c.ListenAddrs(), "a"); len(recs) != 0 {
		t.Errorf("wrote %d records", len(recs))
	}
}

func TestNewIdempotentChecksAllAtOnce(t *testing.T) {
	_, err := NewIdempotent(context.Background(), PublisherConfig{Kafka: KafkaConfig{Compression: "lzma", SASL: SASLConfig{Mechanism: "PLAIN"}}}, nil)
	for _, want := range []string{"kafka.brokers", "kafka.compression", "kafka.sasl", "dlq.topic"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in: %v", want, err)
		}
	}
}
