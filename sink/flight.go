package sink

import (
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/internal/crashpoint"
)

// flight is what is known of the records of one batch that are with a client. It belongs to the batch as long as that
// lives, because a promise may be called long after the cycle was given up; a later cycle has another flight.
//
// One promise serves all records: it only counts, and keeps what failed. A closure for each record would cost an
// allocation for each event.
type flight struct {
	batch   *Batch // Invariant: batch.pending is the number of promises not yet called
	promise func(*kgo.Record, error)
	idle    chan struct{} // has room for one: "pending reached zero"

	mu      sync.Mutex // the promise runs in kgo's goroutine, two clients have two
	waiting []waiting  // by topic
	byTopic map[string]int
	last    int // the index used last: records of a topic come in runs
	failed  []failure
	broken  error // an error that must end the session
}

type waiting struct {
	topic string
	n     int
}

type failure struct {
	rec *kgo.Record
	err error
}

func newFlight(b *Batch) *flight {
	f := &flight{batch: b, idle: make(chan struct{}, 1), byTopic: make(map[string]int)}
	f.promise = f.answered
	return f
}

// expect must be called before the records are produced.
func (f *flight) expect(recs []*kgo.Record) {
	f.mu.Lock()
	for _, r := range recs {
		f.waiting[f.of(r.Topic)].n++
	}
	f.mu.Unlock()
	f.batch.pending.Add(int64(len(recs)))
	select {
	case <-f.idle: // an old one
	default:
	}
}

func (f *flight) of(topic string) int {
	if f.last < len(f.waiting) && f.waiting[f.last].topic == topic {
		return f.last
	}
	i, ok := f.byTopic[topic]
	if !ok {
		i = len(f.waiting)
		f.waiting = append(f.waiting, waiting{topic: topic})
		f.byTopic[topic] = i
	}
	f.last = i
	return i
}

// answered is the promise.
func (f *flight) answered(r *kgo.Record, err error) {
	crashpoint.Pass("ack.before")
	f.mu.Lock()
	f.waiting[f.of(r.Topic)].n--
	if err != nil {
		f.failed = append(f.failed, failure{r, err})
		if errors.Is(err, kgo.ErrMaxBuffered) {
			f.broken = err
		}
	}
	f.mu.Unlock()
	if f.batch.pending.Add(-1) == 0 {
		select {
		case f.idle <- struct{}{}:
		default:
		}
	}
}

func (f *flight) settled() bool { return f.batch.pending.Load() == 0 }

func (f *flight) anyFailed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.failed) > 0
}

// take hands out what failed since the last take. Call it when the flight is settled.
func (f *flight) take() ([]failure, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.failed
	f.failed = nil
	return failed, f.broken
}

// unanswered calls fn for each topic that has records without an answer.
func (f *flight) unanswered(fn func(topic string, n int)) {
	f.mu.Lock()
	var open []waiting
	for _, w := range f.waiting {
		if w.n > 0 {
			open = append(open, w)
		}
	}
	f.mu.Unlock()
	for _, w := range open {
		fn(w.topic, w.n)
	}
}

// unsettled adds the topics that have records without an answer, or with a bad one.
func (f *flight) unsettled(topics map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.waiting {
		if w.n > 0 {
			topics[w.topic] = true
		}
	}
	for _, fail := range f.failed {
		topics[fail.rec.Topic] = true
	}
}
