package relay_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// An event is on its way and not acknowledged; the server tells of positions
// beyond it, from other tables and another database. None of them may be
// confirmed. In one run the request is lost, in the other the answer.
//
// Seen red with a reader that confirms a keepalive's position itself.
func TestCase_L01_KeepaliveNeverOvertakes(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]kafka.Fate{"request lost": kafka.LoseRequest, "answer lost": kafka.LoseAnswer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t, plantOptions{})
			relay := p.start().Ready()
			var lost atomic.Int32
			p.wire.On(func(r *kafka.Request) kafka.Fate {
				if !produces(r) {
					return kafka.Pass
				}
				lost.Add(1)
				return fate
			})
			p.ledger.Insert(t, 0, 1)
			harness.Eventually(t, 10*time.Second, "a produce request", func() bool { return lost.Load() > 0 })

			p.pg.Exec(t, "CREATE DATABASE neighbour", "CREATE TABLE junk AS SELECT g AS n, repeat('x', 200) AS pad FROM generate_series(1, 50000) g")
			p.pg.ExecIn(t, "neighbour", "CREATE TABLE junk AS SELECT g AS n FROM generate_series(1, 10000) g")
			p.waitHeard(p.wal(), 6)
			relay.WaitNotReady("order", 10*time.Second)
			held := p.sampler.Samples()
			relay.Kill()

			p.wire.On(nil)
			relay = p.start().Ready()
			records := p.end(relay, 1)
			assertHeld(t, held, first(t, records, "order"))
		})
	}
}

// In one cycle a topic whose leader does not answer and one whose leader does:
// what the second acknowledged is behind what the first did not.
//
// Seen red with a publisher that confirms before it looks at the promises.
func TestCase_L03_SlowTopicHoldsThePosition(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{
		Ledger: harness.LedgerOptions{Types: []string{"order.placed.v1", "payment.made.v1"}},
		Kafka:  kafka.FakeOptions{Brokers: 2, Topics: map[string]int32{"order": 1, "payment": 1}},
	})
	for node, topic := range []string{"order", "payment"} {
		if err := p.fake.MoveTopicPartition(topic, 0, int32(node)); err != nil {
			t.Fatal(err)
		}
	}
	relay := p.start().Ready()

	// The first payment is held at the broker for so long as it takes to fill
	// the next batch with events of both topics.
	plugged, plug := make(chan struct{}), make(chan struct{})
	var payments atomic.Int32
	p.wire.On(func(r *kafka.Request) kafka.Fate {
		batches := r.Batches(p.fake.Cluster)
		if len(batches["payment"]) > 0 && payments.Add(1) == 1 {
			close(plugged)
			<-plug
		}
		if len(batches["order"]) > 0 {
			return kafka.LoseRequest
		}
		return kafka.Pass
	})
	p.ledger.Insert(t, 1, 1)
	select {
	case <-plugged:
	case <-time.After(10 * time.Second):
		close(plug)
		t.Fatal("no payment was produced")
	}
	p.ledger.Insert(t, 0, 1)
	for range 49 {
		p.ledger.Insert(t, 1, 1)
	}
	// The relay has it all when the server has heard of it all.
	p.waitHeard(p.wal(), 2)
	close(plug)

	p.consumer.WaitLen(50, 10*time.Second)
	if n := payments.Load(); n != 2 {
		t.Fatalf("the payments came in %d requests: they were not in one cycle with the order", n)
	}
	p.waitHeard(p.wal(), 4)
	held := p.sampler.Samples()
	relay.Kill()

	p.wire.On(nil)
	relay = p.start().Ready()
	records := p.end(relay, 49)
	assertHeld(t, held, first(t, records, "order"))
}

// Requests that took effect and whose answers are lost: again and again, more
// often than the client retries anything else, and once for as long as it waits
// for an answer. The outcome is unknown to the relay, so the events are neither
// dead letters nor confirmed; it asks until it is told.
//
// Seen red with a publisher that gives a cycle up after a second and takes it
// for done.
func TestCase_L18_UnknownOutcomeIsAskedAgain(t *testing.T) {
	t.Parallel()
	t.Run("connections cut", func(t *testing.T) {
		t.Parallel()
		unknownOutcome(t, kafka.CutAnswer, 20)
	})
	t.Run("answers swallowed", func(t *testing.T) {
		t.Parallel()
		unknownOutcome(t, kafka.LoseAnswer, 1)
	})
}

func unknownOutcome(t *testing.T, fate kafka.Fate, times int32) {
	p := newPlant(t, plantOptions{Ledger: harness.LedgerOptions{Keys: 5, Partitions: 1}})
	relay := p.start().Ready()
	var lost atomic.Int32
	healed := make(chan int, 1) // how many samples there were when the wire healed
	p.wire.On(func(r *kafka.Request) kafka.Fate {
		if !produces(r) {
			return kafka.Pass
		}
		switch n := lost.Add(1); {
		case n == times+1:
			healed <- len(p.sampler.Samples())
			fallthrough
		case n > times:
			return kafka.Pass
		}
		return fate
	})
	for key := range 5 {
		p.ledger.Insert(t, key, 20)
	}
	var before int
	select {
	case before = <-healed:
	case <-time.After(90 * time.Second):
		t.Fatalf("the relay has asked %d times and no more", lost.Load())
	}
	samples := p.sampler.Samples()[:before]
	// A batch that was written and is sent again is known to the broker by its number.
	records := p.end(relay, 0)
	assertHeld(t, samples, first(t, records, "order"))
	if dead, ok := countIn(records, p.ledger.DLQ()); dead > 0 {
		t.Errorf("%d dead letters, the first %s", dead, ok)
	}
}

// countIn counts the records of a topic and shows the first one's headers.
func countIn(records []harness.Record, topic string) (n int, example string) {
	for i := range records {
		if records[i].Topic == topic {
			if n++; n == 1 {
				example = fmt.Sprint(records[i].Headers)
			}
		}
	}
	return n, example
}
