package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/internal/crashpoint"
)

// task is what a call of publish has not settled, beside what is with the client.
type task struct {
	batch   *Batch
	ready   run      // not sent yet
	waiting []*group // of topics that cannot be written to; resolved last
	groups  []*group // being resolved
}

// publish sends runs of records, each a cycle of its own: a record too large for its topic's batches is a run alone.
func (p *Idempotent) publish(ctx context.Context, b *Batch, all run) error {
	waiting, ready, err := p.missing(ctx, b, all)
	if err != nil {
		return err
	}
	t := &p.task
	*t = task{batch: b, ready: ready, waiting: waiting}
	for !t.ready.empty() {
		large, n := p.piece(t.ready.recs)
		now, rest := t.ready.split(n)
		t.ready = rest
		failed, err := p.attempt(ctx, b.flight, large, now.recs)
		if err != nil && !b.Settled() {
			return err
		}
		if len(failed) == 0 {
			p.observe(b, now)
			continue
		}
		acked, groups := p.sort(b, now, failed)
		p.observe(b, acked)
		if err != nil {
			return err
		}
		for _, g := range groups {
			p.failed(ctx, g, len(g.items))
		}
		// What failed here is resolved before anything behind it is sent.
		if t.ready.empty() {
			groups, t.waiting = append(groups, t.waiting...), nil
		}
		if err := p.resolve(ctx, b, groups); err != nil {
			return err
		}
	}
	waiting, t.waiting = t.waiting, nil
	return p.resolve(ctx, b, waiting)
}

// run is a piece of a batch in order.
type run struct {
	recs []*kgo.Record
	base int   // index in the batch of recs[0], when the run has no holes
	idx  []int // else the index of each
}

func (r run) empty() bool { return len(r.recs) == 0 }

func (r run) index(k int) int {
	if r.idx != nil {
		return r.idx[k]
	}
	return r.base + k
}

func (r run) split(n int) (head, tail run) {
	head, tail = run{recs: r.recs[:n], base: r.base}, run{recs: r.recs[n:], base: r.base + n}
	if r.idx != nil {
		head.idx, tail.idx = r.idx[:n], r.idx[n:]
	}
	return head, tail
}

// piece is the number of records that may be sent together, from the first on, and whether it is a large one alone.
func (p *Idempotent) piece(recs []*kgo.Record) (large bool, n int) {
	topic, limit := "", 0
	for i, r := range recs {
		if r.Topic != topic || i == 0 {
			topic, limit = r.Topic, int(p.limits.of(r.Topic))
		}
		if oversized(r, limit) {
			if i == 0 {
				return true, 1
			}
			return false, i
		}
	}
	return false, len(recs)
}

// oversized is true also a few bytes too early: a record that the main client finds too large for a batch would be
// refused by the client and not by the broker.
func oversized(r *kgo.Record, limit int) bool {
	const margin = 16
	return wireSize(r)+margin > limit
}

// missing sets aside the records of topics that cannot be written to now, as groups to be resolved, so that the others
// are not held up and kgo is not asked to guess.
func (p *Idempotent) missing(ctx context.Context, b *Batch, all run) ([]*group, run, error) {
	var (
		bad         map[string]error
		unreachable error // no broker answered: do not ask for topic after topic
		last        string
	)
	for i, r := range all.recs {
		if r.Topic == last && i > 0 {
			continue
		}
		last = r.Topic
		if _, known := p.limits.get(r.Topic); known || bad[r.Topic] != nil {
			continue
		}
		err := unreachable
		if err == nil {
			err = p.ensure(ctx, r.Topic)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, run{}, p.ended(ctx)
			}
			if !answered(err) {
				unreachable = err
			}
			if bad == nil {
				bad = make(map[string]error)
			}
			bad[r.Topic] = err
		}
	}
	if bad == nil {
		return nil, all, nil
	}
	ready := run{idx: []int{}}
	byTopic := make(map[string]*group)
	var groups []*group
	for k, r := range all.recs {
		err := bad[r.Topic]
		if err == nil {
			ready.recs, ready.idx = append(ready.recs, r), append(ready.idx, all.index(k))
			continue
		}
		g := byTopic[r.Topic]
		if g == nil {
			g = &group{err: err}
			byTopic[r.Topic] = g
			groups = append(groups, g)
			p.hold(g, r.Topic, err)
		}
		g.add(b, all.index(k), r)
	}
	return groups, ready, nil
}

// attempt is one cycle: produce all, flush, wait for every promise. It returns what failed, and an error when the
// session must end; records that are neither failed nor open are acknowledged even then.
func (p *Idempotent) attempt(ctx context.Context, f *flight, large bool, recs []*kgo.Record) ([]failure, error) {
	c, err := p.client(large)
	if err != nil {
		return nil, err
	}
	f.expect(recs)
	crashpoint.Pass("produce.before")
	for _, r := range recs {
		r.Partition = unpartitioned
		// Never a context that can end: a record taken back may have been written all the same.
		c.Produce(context.Background(), r, f.promise)
	}
	// A record can fail before anything is sent (the client's view of a topic changed in mid-loop) while later ones of
	// its key are buffered. Then nothing must be sent.
	c.barrier()
	unsent := f.anyFailed()
	if unsent {
		c.UnsafeAbortBufferedRecords() // safe: nothing is in flight
	}
	flushed := c.flush()
	crashpoint.Pass("produce.after")
	ended := p.wait(ctx, f, c, flushed)
	p.count()
	if !f.settled() {
		// Given up with promises open. What they said so far is not safe to look at.
		p.unsettled = append(p.unsettled, f)
		if ended == nil {
			ended = &Error{Op: "publish", Class: Hold, Err: errors.New("the client flushed and left promises open, which is a bug")}
		}
		return nil, ended
	}
	if unsent {
		for _, r := range recs {
			r.Partition = unpartitioned // some have one and some have none: the whole topic is one group
		}
	}
	failed, broken := f.take()
	if broken != nil {
		return failed, &Error{Op: "publish", Class: Hold, Err: fmt.Errorf("the client's buffer is full, which is a bug: %w", broken)}
	}
	if len(failed) == 0 {
		return nil, nil // also when ctx ended: it got through
	}
	return failed, ended
}

// unpartitioned marks a record that kgo has not given a partition.
const unpartitioned = -1

// wait returns nil when the flush is done, else why it was given up.
func (p *Idempotent) wait(ctx context.Context, f *flight, c *client, done <-chan struct{}) error {
	start := time.Now()
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			p.cutOff(f, c, done)
			return p.ended(ctx)
		case now := <-p.tick.C:
			p.beat()
			p.count()
			if now.Sub(start) < p.slow {
				continue
			}
			refused, last := p.conns.last()
			f.unanswered(func(topic string, n int) {
				why := fmt.Errorf("no answer from topic %q for %d records: see that its leaders run and its replicas are in sync (%s --describe --topic %s)", topic, n, p.cfg.script("kafka-topics.sh"), topic)
				if last != nil {
					why = fmt.Errorf("no answer from topic %q for %d records; %w", topic, n, last)
				}
				p.blocked.set(topic, p.cfg.cause(topic, why), now)
			})
			p.isolate(f)
			if !refused.IsZero() && now.Sub(refused) >= p.patience {
				p.cutOff(f, c, done)
				return p.refusedFor(last)
			}
		}
	}
}

// cutOff ends a cycle. What is not sent fails at once, what is in flight gets abortPatience, then the client is closed
// and the promises are waited for, but not for ever.
func (p *Idempotent) cutOff(f *flight, c *client, done <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), p.abort)
	defer cancel()
	aborted := make(chan error, 1)
	go func() { aborted <- c.AbortBufferedRecords(ctx) }()
	for waiting := true; waiting; {
		select {
		case err := <-aborted:
			waiting = false
			if err == nil {
				<-done // nothing is buffered, so the flush is over too
				return
			}
		case <-p.tick.C:
			p.beat()
		}
	}
	p.log.Warn("records in flight did not settle, closing the kafka client", "waited", p.abort)
	p.renew()
	timeout := time.NewTimer(closePatience)
	defer timeout.Stop()
	for !f.settled() {
		select {
		case <-f.idle:
		case <-timeout.C:
			return
		case <-p.tick.C:
			p.beat()
		}
	}
}

// ended is the error of a cycle whose context ended.
func (p *Idempotent) ended(ctx context.Context) error {
	return &Error{Op: "publish", Class: Transient, Err: context.Cause(ctx)}
}

func (p *Idempotent) refusedFor(err error) error {
	return &Error{Op: "log in to brokers", Object: fmt.Sprint(p.cfg.Brokers), Class: Auth, Hint: p.cfg.hint("", err), Err: err}
}

// count tells the observer what the client retried by itself.
func (p *Idempotent) count() {
	for n := p.conns.take(); n > 0; n-- {
		p.observer.Retry("kafka", "connection")
	}
	for {
		select {
		case <-p.losses:
			p.observer.Retry("kafka", "producer_state")
		default:
			return
		}
	}
}

type tally struct {
	topic  string
	n      int
	oldest time.Time
}

// observe reports acknowledged records.
func (p *Idempotent) observe(b *Batch, r run) {
	p.tally = p.tally[:0]
	cur := -1
	for k, rec := range r.recs {
		from := &b.records[r.index(k)]
		if from.dead {
			p.buried(b, from, from.reason)
			continue
		}
		p.observer.Acked(from.meta.committed)
		if cur < 0 || p.tally[cur].topic != rec.Topic {
			cur = p.tallyOf(rec.Topic)
		}
		t := &p.tally[cur]
		t.n++
		if t.oldest.IsZero() || from.meta.committed.Before(t.oldest) {
			t.oldest = from.meta.committed
		}
	}
	for _, t := range p.tally {
		p.observer.Published(t.topic, t.n, t.oldest)
	}
}

func (p *Idempotent) tallyOf(topic string) int {
	for i := range p.tally {
		if p.tally[i].topic == topic {
			return i
		}
	}
	p.tally = append(p.tally, tally{topic: topic})
	return len(p.tally) - 1
}
