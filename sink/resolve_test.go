package sink

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// e10 to e19 fail once, e15 for good: e15 alone is a dead letter, and what follows it in the topic comes after the
// dead letter is written. Seen red with halves resolved from the end, and with a refusal by the batch's error.
func TestCase_D06_OrderAroundAFailure(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	evs := series("a", "k", "e", 1, 100)
	poison(c, "a", kerr.NotLeaderForPartition, 1, "e10", "e14", "e19")
	poison(c, "a", kerr.InvalidRecord, -1, "e15")
	// When the dead letter arrives, nothing behind e15 may be in the topic.
	var before, behind atomic.Int32
	before.Store(-1)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if holding(req, "e16") && !holding(req, "e15") && before.Load() < 0 {
			behind.Add(1)
		}
		if holding(req, "e15") {
			for _, tp := range req.(*kmsg.ProduceRequest).Topics {
				if info := c.TopicIDInfo(tp.TopicID); info != nil && info.Topic == testDLQ {
					before.Store(1)
				}
			}
		}
		return nil, nil, false
	})
	publish(t, p, batchOf(t, evs...))
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), append(labels(evs[:14]), labels(evs[15:])...)...)
	dlq := topicOf(t, c.ListenAddrs(), testDLQ)
	wantValues(t, "dead letters", dlq, "e15")
	wantDead(t, dlq[0], ReasonRefused)
	if before.Load() != 1 || behind.Load() != 0 {
		t.Errorf("dead letter seen: %d; requests with e16 before it: %d", before.Load(), behind.Load())
	}
	if w.acked != 99 || w.dead[ReasonRefused] != 1 {
		t.Errorf("acked %d, dead letters %v", w.acked, w.dead)
	}
}

// Each code that can refuse a record, and CORRUPT_MESSAGE that needs three.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		err    *kerr.Error
		times  int
		reason Reason
	}{
		{kerr.MessageTooLarge, -1, ReasonTooLarge}, {kerr.RecordListTooLarge, -1, ReasonTooLarge},
		{kerr.InvalidRecord, -1, ReasonRefused}, {kerr.InvalidTimestamp, -1, ReasonRefused}, {kerr.CorruptMessage, -1, ReasonRefused},
		{kerr.CorruptMessage, 4, ""}, // four records, two records, and twice alone
	} {
		t.Run(fmt.Sprint(tt.err.Message, tt.times), func(t *testing.T) {
			t.Parallel()
			c := fakeCluster(t, kfake.SeedTopics(1, "a"))
			p, w := publisherFor(t, c.ListenAddrs(), nil)
			h := poison(c, "a", tt.err, tt.times, "e1")
			publish(t, p, batchOf(t, series("a", "k", "e", 1, 4)...))
			dlq := topicOf(t, c.ListenAddrs(), testDLQ)
			if tt.reason == "" {
				wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "e1", "e2", "e3", "e4")
				wantValues(t, "dead letters", dlq)
				if h.Hits() != tt.times {
					t.Errorf("%d faults hit", h.Hits())
				}
				return
			}
			wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "e2", "e3", "e4")
			wantValues(t, "dead letters", dlq, "e1")
			wantDead(t, dlq[0], tt.reason)
			if w.dead[tt.reason] != 1 {
				t.Errorf("observed %v", w.dead)
			}
		})
	}
}

// A dead letter that cannot be written holds everything behind it, says so, and is tried again.
func TestDeadLetterTopicFails(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	poison(c, "a", kerr.InvalidRecord, -1, "e2")
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testDLQ, Err: kerr.TopicAuthorizationFailed, Count: -1})
	done := background(context.Background(), p, batchOf(t, series("a", "k", "e", 1, 9)...))
	eventually(t, "the dead letter topic is blocked", func() bool { return strings.Contains(w.cause(testDLQ), "--topic "+testDLQ) })
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "e1")
	running(t, done, "the dead letter is not written")
	h.Remove()
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "e1", "e3", "e4", "e5", "e6", "e7", "e8", "e9")
	wantValues(t, "dead letters", topicOf(t, c.ListenAddrs(), testDLQ), "e2")
}

// A batch brings dead letters of its own. They go their way with the rest, and are counted as what they are.
func TestDeadLettersOfTheBatch(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	publish(t, p, batchOf(t, ev{"no/name", "k", "e0"}, ev{"a", "k", "also"}))
	if w.acked != 1 || w.dead[ReasonInvalidTopic] != 1 || len(w.published) != 1 || len(w.causes) != 0 {
		t.Errorf("acked %d, dead %v, published %v, causes %q", w.acked, w.dead, w.published, w.causes)
	}
	b := batchOf(t, ev{"a", "k", "e1"}, ev{"no/name", "k", "e2"}, ev{"a", "k", "e3"})
	poison(c, testDLQ, kerr.InvalidRecord, 3, "e2") // refused for good, it holds and is tried again
	publish(t, p, b)
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), "also", "e1", "e3")
	dlq := topicOf(t, c.ListenAddrs(), testDLQ)
	wantValues(t, "dead letters", dlq, "e0", "e2")
	wantDead(t, dlq[1], ReasonInvalidTopic)
	if w.acked != 3 || w.dead[ReasonInvalidTopic] != 2 || w.published[testDLQ] != 0 || !strings.Contains(strings.Join(w.causes, "\n"), "dead letter refused") {
		t.Errorf("acked %d, dead %v, published %v, causes %q", w.acked, w.dead, w.published, w.causes)
	}
}

// A client that is told the same passing error again and again may be wrong about the cluster for good: a broker that was
// replaced behind its address, metadata that it takes for newer than what it is told. After some tries another one is made.
//
// Seen red with one client for ever.
func TestStaleClientIsReplaced(t *testing.T) {
	c := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	p, w := publisherFor(t, c.ListenAddrs(), nil)
	p.renew()
	p.opts = append(p.opts, kgo.MetadataMinAge(10*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	var stale atomic.Int64
	stale.Store(-1)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Err: kerr.NotLeaderForPartition, Count: -1, When: func(req kmsg.Request) bool {
		var rb kmsg.RecordBatch
		if rb.ReadFrom(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records) != nil {
			return false
		}
		stale.CompareAndSwap(-1, rb.ProducerID)
		return stale.Load() == rb.ProducerID
	}})
	publish(t, p, batchOf(t, series("a", "k", "e", 1, 10)...))
	wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a"), labels(series("a", "k", "e", 1, 10))...)
	if w.deadLetters() != 0 || w.cause("a") != "" {
		t.Errorf("dead letters %v, blocked %q", w.dead, w.cause("a"))
	}
}
