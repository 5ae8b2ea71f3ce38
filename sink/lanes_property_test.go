package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The same property with lanes: beside the random faults whole topics fall sick for a while, by refusal, by silence or by
// not being there, the dead letter topic among them; and sessions end in the middle of it, after which all is sent again
// from the oldest batch on that was not settled.
//
// Seen red, each by itself, with: a batch called done when its part in the main lane is; the queue of a lane sent by
// another client while its cycle is open; a topic given back to the main lane although something of it waits, or is open
// in the lane; a released topic's rest put behind its queue.
func TestRandomSickTopics(t *testing.T) {
	for seed := range *rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { t.Parallel(); randomSickTopics(t, uint64(seed)) })
	}
}

func randomSickTopics(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	topics := []string{"a", "b", "c", "d", "e"}
	c := fakeCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(2, topics...))
	d := lanesFor(t, c.ListenAddrs(), func(cfg *PublisherConfig) { cfg.Kafka.Compression = []string{"none", "lz4"}[seed%2] })
	d.lanes.convalescence = time.Duration(seed%3) * 30 * time.Millisecond
	e := d.lanes.main.engine
	e.renew()
	e.opts = append(e.opts, kgo.MetadataMinAge(10*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	e.slow, e.abort, e.backoffMin, e.backoffMax = 20*time.Millisecond, 300*time.Millisecond, time.Millisecond, 10*time.Millisecond
	s := &storm{r: rand.New(rand.NewPCG(seed, 4)), c: c, chance: 0.03, lost: 0.01, sick: map[string]sickness{}}
	c.ControlKey(int16(kmsg.Produce), s.control)
	absent := map[string]*kfake.FaultHandle{}
	heal := func(topic string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if gate := s.sick[topic].gate; gate != nil {
			close(gate)
		}
		if h := absent[topic]; h != nil {
			h.Remove()
			delete(absent, topic)
		}
		delete(s.sick, topic)
	}
	t.Cleanup(func() {
		for _, topic := range append(topics, testDLQ) {
			heal(topic)
		}
	})
	fallSick := func(topic string) {
		ill := sickness{err: []*kerr.Error{kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition}[r.IntN(3)]}
		switch r.IntN(3) {
		case 0:
			ill = sickness{gate: make(chan struct{})}
		case 1:
			ill.err = kerr.UnknownTopicOrPartition
			absent[topic] = c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.UnknownTopicOrPartition, Count: -1})
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sick[topic] = ill
	}

	l := &lot{r: r, topics: topics, sent: map[string][]string{}, refused: map[string]bool{}, compressed: seed%2 == 1}
	batches := map[uint64][]ev{} // that a crash now would repeat
	oldest, sessions, alone, late := uint64(1), 1, 0, 0
	publish := func(evs []ev) {
		switch d.publish(evs...) {
		case Done:
			alone++
		case Held, Left:
			late++
		}
		batches[d.count] = evs
		for ; oldest <= d.count; oldest++ {
			if _, waits := d.left[oldest]; waits {
				break
			}
			delete(batches, oldest)
		}
	}
	until := map[string]int{}
	const steps = 60
	for step := range steps {
		for topic, end := range until {
			if step >= end {
				heal(topic)
				delete(until, topic)
			}
		}
		if topic := append(topics, testDLQ)[r.IntN(len(topics)+1)]; r.IntN(4) == 0 && until[topic] == 0 {
			fallSick(topic)
			until[topic] = step + 2 + r.IntN(12)
		}
		publish(l.draw(1 + r.IntN(40)))
		if r.IntN(15) == 0 {
			sessions++
			d.stop(errors.New("the session has ended"))
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			if err := d.lanes.Settle(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			var again [][]ev
			for n := oldest; n <= d.count; n++ {
				again = append(again, batches[n])
				delete(batches, n)
			}
			oldest = d.count + 1
			d.session()
			for _, evs := range again {
				if evs != nil {
					publish(evs)
				}
			}
		}
	}
	for topic := range until {
		heal(topic)
	}
	d.settled()
	d.alone()
	t.Logf("%d events, %d faults, %d sessions, %d batches settled at once, %d late", l.n, s.hits, sessions, alone, late)
	if late == 0 {
		t.Error("no batch came late: the test proves nothing")
	}
	s.mu.Lock()
	s.chance, s.lost = 0, 0
	s.mu.Unlock()
	l.check(t, c.ListenAddrs())
	if d.w.count("kafka overtaken") > 0 {
		t.Error("a record was acknowledged behind a failed one")
	}
}
