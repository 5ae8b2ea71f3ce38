package sink

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// When a record fails, kgo fails everything behind it in its partition with the same error, so the error speaks of one
// record at most and nobody knows of which. Resolving sends what failed again, in order, partition by partition, in
// pieces that are halved until a single record stands alone before the broker. Only what fails alone, with an error
// that no retry can cure, is refused; its dead letter takes its place, before the records behind it. For any other
// error the oldest record waits and is tried again: nothing overtakes it and nothing becomes a dead letter.

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
	defer func() { p.task.groups = nil }()
	for len(groups) > 0 {
		p.task.groups = groups
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
		p.task.groups = groups
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
		if slices.ContainsFunc(groups, func(g *group) bool { return g.waitsOn != "" }) {
			p.isolate(nil)
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
	if p.gate != nil {
		if err := p.gate(ctx); err != nil {
			return err
		}
	}
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
			p.buried(b, &b.records[it.i], it.reason)
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
