package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// When a record fails, kgo fails everything behind it in its partition with the same error, so the error speaks of one
// record at most and nobody knows of which. Resolving sends what failed again, in order, partition by partition, in
// pieces that are halved until a single record stands alone before the broker. Only what fails alone, with an error
// that no retry can cure, is refused; its dead letter takes its place, before the records behind it. For any other
// error the oldest record waits and is tried again: nothing overtakes it and nothing becomes a dead letter.

// corruptTries is how often a record must be called corrupt, alone, to be refused: a bit can flip on the way.
const corruptTries = 3

// group is the unresolved records of one partition, or of a topic whose partitions are not known, in order.
type group struct {
	items []item
	size  int // how many to send next

	err     error     // why the last attempt failed; nil after a success
	tries   int       // failed attempts in a row that held
	corrupt int       // times the first item was called corrupt, alone
	due     time.Time // not before
	waitsOn string    // the topic it is blocked on, "" when it is not

	asked bool // the topic's limit was read again
}

// item is one record on its way.
type item struct {
	i      int // index in the batch
	rec    *kgo.Record
	dead   bool        // rec is a dead letter
	reason Reason      // of the dead letter
	whole  *kgo.Record // the dead letter before it was trimmed
	limit  int         // what it was trimmed to
}

func (g *group) add(b *Batch, i int, rec *kgo.Record) {
	r := &b.records[i]
	g.items = append(g.items, item{i: i, rec: rec, dead: r.dead, reason: r.reason})
	g.size = len(g.items)
}

// judged is true when the next attempt decides over a single record: it must be all that is sent.
func (g *group) judged() bool {
	return g.size == 1 && g.err != nil && Classify(g.err) == PermanentRecord
}

// sort splits a run into what was acknowledged and groups of what failed.
func (p *Idempotent) sort(b *Batch, r run, failed []failure) (acked run, groups []*group) {
	type partition struct {
		topic string
		n     int32
	}
	errs := make(map[*kgo.Record]error, len(failed))
	whole := make(map[string]bool) // topics with a failed record that never had a partition
	for _, f := range failed {
		errs[f.rec] = f.err
		if f.rec.Partition == unpartitioned {
			whole[f.rec.Topic] = true
		}
	}
	at := make(map[partition]*group)
	acked.idx = []int{}
	for k, rec := range r.recs {
		key := partition{rec.Topic, rec.Partition}
		if whole[rec.Topic] {
			key.n = unpartitioned
		}
		g := at[key]
		err, bad := errs[rec]
		if !bad {
			if g != nil {
				// The publisher's promise is broken and cannot be mended. Say so.
				p.log.Error("a record was acknowledged behind a failed one of its partition", "topic", rec.Topic, "partition", rec.Partition)
				p.observer.Retry("kafka", "overtaken")
			}
			acked.recs, acked.idx = append(acked.recs, rec), append(acked.idx, r.index(k))
			continue
		}
		if g == nil {
			g = new(group)
			at[key] = g
			groups = append(groups, g)
		}
		if g.err == nil || errors.Is(g.err, kgo.ErrAborting) {
			g.err = err
		}
		g.add(b, r.index(k), rec)
	}
	return acked, groups
}

// resolve returns nil when every item of every group is acknowledged.
func (p *Idempotent) resolve(ctx context.Context, b *Batch, groups []*group) error {
	for len(groups) > 0 {
		if ctx.Err() != nil {
			return p.ended(ctx)
		}
		var together []*group
		now := time.Now()
		for _, g := range groups {
			switch {
			case g.due.After(now):
			case g.judged() || p.alone(g):
				if err := p.try(ctx, b, []*group{g}); err != nil {
					return err
				}
			default:
				together = append(together, g)
			}
		}
		if len(together) > 0 {
			if err := p.try(ctx, b, together); err != nil {
				return err
			}
		}

		open := groups[:0]
		for _, g := range groups {
			if len(g.items) > 0 {
				open = append(open, g)
			}
		}
		groups = open
		p.blocked.keep(func(topic string) bool {
			for _, g := range groups {
				if g.waitsOn == topic {
					return true
				}
			}
			return false
		})
		if len(groups) > 0 && !p.refused.IsZero() && time.Since(p.refused) >= p.patience {
			return p.refusedFor(groups[0].err)
		}
		if err := p.rest(ctx, groups); err != nil {
			return err
		}
	}
	return nil
}

// rest waits until one of the groups is due.
func (p *Idempotent) rest(ctx context.Context, groups []*group) error {
	if len(groups) == 0 {
		return nil
	}
	next := groups[0].due
	for _, g := range groups {
		if g.due.Before(next) {
			next = g.due
		}
	}
	p.beat()
	wait := time.NewTimer(time.Until(next))
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
			return nil
		case <-p.tick.C:
			p.beat()
		case <-ctx.Done():
			return p.ended(ctx)
		}
	}
}

// alone is true when the group's first record needs the large client.
func (p *Idempotent) alone(g *group) bool {
	rec := g.items[0].rec
	return oversized(rec, int(p.limits.of(rec.Topic)))
}

// chunk is what of the group is sent next. A dead letter goes by itself: the records behind it are for another topic,
// and nothing but an acknowledgement orders two topics.
func (p *Idempotent) chunk(g *group) []item {
	n := min(max(g.size, 1), len(g.items))
	for k := range n {
		it := &g.items[k]
		if p.oversizedItem(it) || it.rec.Topic != g.items[0].rec.Topic {
			n = max(k, 1)
			break
		}
	}
	return g.items[:n]
}

func (p *Idempotent) oversizedItem(it *item) bool {
	return oversized(it.rec, int(p.limits.of(it.rec.Topic)))
}

// try sends one chunk of each group in one cycle.
func (p *Idempotent) try(ctx context.Context, b *Batch, groups []*group) error {
	var (
		recs   []*kgo.Record
		chunks = make([][]item, len(groups))
		large  = len(groups) == 1 && p.alone(groups[0])
	)
	for i, g := range groups {
		topic := g.items[0].rec.Topic
		if _, known := p.limits.get(topic); !known {
			if err := p.ensure(ctx, topic); err != nil {
				if ctx.Err() != nil {
					return p.ended(ctx)
				}
				p.hold(g, topic, err)
				continue
			}
		}
		if len(groups) > 1 && p.alone(g) {
			continue // its limit has just become known; the next round takes it
		}
		if len(groups) == 1 {
			large = p.alone(g)
		}
		chunks[i] = p.chunk(g)
		for k := range chunks[i] {
			recs = append(recs, chunks[i][k].rec)
		}
	}
	if len(recs) == 0 {
		return nil
	}
	failed, ended := p.attempt(ctx, b.flight, large, recs)
	if !b.Settled() {
		return ended
	}
	errs := make(map[*kgo.Record]error, len(failed))
	for _, f := range failed {
		errs[f.rec] = f.err
	}
	for i, g := range groups {
		if chunks[i] != nil {
			p.settle(b, g, chunks[i], errs)
		}
	}
	if ended != nil {
		return ended
	}
	for i, g := range groups {
		if chunks[i] == nil || len(g.items) == 0 || g.err == nil {
			continue
		}
		if g.judged() && len(chunks[i]) == 1 && len(recs) == 1 {
			p.judge(b, g)
			continue
		}
		p.failed(ctx, g, len(chunks[i]))
	}
	return nil
}

// settle takes out of the group what was acknowledged.
func (p *Idempotent) settle(b *Batch, g *group, chunk []item, errs map[*kgo.Record]error) {
	var (
		open  []item
		acked = run{idx: []int{}}
		why   error
	)
	for _, it := range chunk {
		err, bad := errs[it.rec]
		switch {
		case bad:
			open = append(open, it)
			if why == nil || errors.Is(why, kgo.ErrAborting) {
				why = err
			}
		case it.dead:
			p.observer.DeadLetter(it.reason)
		default:
			acked.recs, acked.idx = append(acked.recs, it.rec), append(acked.idx, it.i)
		}
	}
	p.observe(b, acked)
	if len(open) < len(chunk) {
		g.tries, g.corrupt, g.waitsOn = 0, 0, ""
		p.refused = time.Time{}
	}
	rest := g.items[len(chunk):]
	if len(open) == 0 {
		g.items, g.err, g.due = rest, nil, time.Time{}
		g.size = 2 * len(chunk)
		return
	}
	g.items = append(open, rest...)
	g.err = why
}

// failed decides what to do after an attempt of n records in which g.err came up.
func (p *Idempotent) failed(ctx context.Context, g *group, n int) {
	topic := g.items[0].rec.Topic
	switch {
	case errors.Is(g.err, kgo.ErrAborting):
		// Not sent, because another record failed first.
		g.err, g.size, g.due = nil, len(g.items), time.Time{}
	case Classify(g.err) == PermanentRecord:
		p.observer.Retry("kafka", kindOf(g.err))
		if n > 1 && !g.asked && (errors.Is(g.err, kerr.MessageTooLarge) || errors.Is(g.err, kerr.RecordListTooLarge)) {
			g.asked = true
			p.reread(ctx, topic)
		}
		g.size, g.due = max(1, min(n, len(g.items))/2), time.Time{}
	default:
		p.hold(g, topic, g.err)
	}
}

// reread asks for a topic's limit again when a batch was too large for it: it may have been lowered. The client keeps
// the limits it learnt, so it is replaced when that is so.
func (p *Idempotent) reread(ctx context.Context, topic string) {
	before := p.limits.of(topic)
	p.limits.forget(topic)
	if err := p.ensure(ctx, topic); err != nil || p.limits.of(topic) != before {
		p.renew()
	}
}

// judge is called when the group's first record failed alone, with nothing else in flight.
func (p *Idempotent) judge(b *Batch, g *group) {
	it := &g.items[0]
	topic := it.rec.Topic
	reason, ok := refusal(g.err)
	switch {
	case !ok:
		p.hold(g, topic, g.err)
	case errors.Is(g.err, kerr.CorruptMessage) && g.corrupt+1 < corruptTries:
		g.corrupt++
		p.observer.Retry("kafka", kindOf(g.err))
		g.due = time.Now().Add(backoff(g.corrupt, p.backoffMin, p.backoffMax))
	case !it.dead:
		rej := &Rejection{Reason: reason, Message: p.verdict(it.rec, g.err)}
		p.log.Warn("the broker refused a record, writing its dead letter", "topic", topic, "reason", reason,
			"id", string(b.at(b.records[it.i].meta.id)), "dlq", p.cfg.DLQTopic, "cause", rej.Message)
		it.rec = b.deadLetter(it.i, rej)
		it.dead, it.reason = true, reason
		g.err, g.corrupt, g.tries, g.waitsOn, g.size, g.asked = nil, 0, 0, "", 1, false
		g.due = time.Time{}
	case reason == ReasonTooLarge && p.trim(b, it):
		g.err, g.due = nil, time.Time{}
	default:
		// A dead letter that its topic refuses has nowhere to go.
		p.hold(g, topic, fmt.Errorf("dead letter refused: %w", g.err))
	}
}

// verdict is the dlq_message. It must not depend on when it is written.
func (p *Idempotent) verdict(rec *kgo.Record, err error) string {
	var code *kerr.Error
	if !errors.As(err, &code) {
		return oneLine(err)
	}
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		return fmt.Sprintf("%s: the record has %d bytes uncompressed, topic %q takes %d (max.message.bytes)",
			code.Message, wireSize(rec), rec.Topic, p.limits.of(rec.Topic))
	}
	return code.Message + ": " + code.Description
}

// smallest is the size below which a dead letter is not trimmed further.
const smallest = 1 << 10

// trim makes a dead letter smaller. The first time it is made to fit what its topic is said to take, then half of that
// at each time, since what it takes is not always known.
func (p *Idempotent) trim(b *Batch, it *item) bool {
	if it.whole == nil {
		it.whole = it.rec
		it.limit = min(int(p.limits.of(it.rec.Topic)), wireSize(it.rec)-1)
	} else {
		it.limit /= 2
	}
	if it.limit < smallest {
		return false
	}
	it.rec = b.trimDeadLetter(it.whole, it.limit)
	p.log.Warn("dead letter is too large for its topic, trimming it", "topic", it.rec.Topic, "bytes", wireSize(it.whole), "to", wireSize(it.rec))
	return true
}

// hold makes the group wait and says why.
func (p *Idempotent) hold(g *group, topic string, err error) {
	now := time.Now()
	g.err, g.size, g.waitsOn = err, 1, topic
	g.tries++
	g.due = now.Add(backoff(g.tries, p.backoffMin, p.backoffMax))
	why := err
	if _, last := p.conns.last(); last != nil && !answered(err) {
		why = last
	}
	if Classify(why) != Auth {
		p.refused = time.Time{}
	} else if p.refused.IsZero() {
		p.refused = now
	}
	p.observer.Retry("kafka", kindOf(err))
	p.blocked.set(topic, p.cfg.cause(topic, why), now)
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		if _, known := p.limits.get(topic); known {
			// It is gone since. Ask for it again, and create it if that is allowed; the client may hold on to its old id.
			p.limits.forget(topic)
			p.renew()
		}
		return
	}
	var code *kerr.Error
	if errors.As(err, &code) && !code.Retriable {
		p.checkProducers()
	}
}

// checkProducers drops the clients when one of them has no usable producer id. An id that was refused stays refused in
// kgo, also when the right was granted meanwhile. Nothing is in flight here.
func (p *Idempotent) checkProducers() {
	for _, c := range []*client{p.main, p.large} {
		if c == nil {
			continue
		}
		err := p.await(context.Background(), 400*time.Millisecond, func(ctx context.Context) error {
			_, _, err := c.ProducerID(ctx)
			return err
		})
		if err != nil {
			p.renew()
			return
		}
	}
}
