package sink

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// isolate says which topics have records here that are not settled, because some of them cannot be written now. f is
// the flight that is waited for; nil when nothing is with the client. Where no broker answers at all there is nobody to
// isolate a topic from: then all wait together, and no memory is spent on what comes behind them.
func (p *Idempotent) isolate(f *flight) {
	if p.sick == nil || !p.reached() {
		return
	}
	open := make(map[string]bool)
	if f != nil {
		f.unsettled(open)
	}
	for _, groups := range [][]*group{p.task.waiting, p.task.groups} {
		for _, g := range groups {
			for k := range g.items {
				// The topic it came for: a dead letter is written in the place of its record.
				open[p.task.batch.records[g.items[k].i].topic] = true
			}
		}
	}
	p.sick(open)
}

const (
	// reachPatience is for how long a broker may take to answer when it is asked whether it is there.
	reachPatience = time.Second
	// reachTrust is for how long an answer counts.
	reachTrust = 5 * time.Second
)

// reach is when a broker answered last, and whether they are being asked.
type reach struct {
	mu     sync.Mutex
	at     time.Time
	asking bool
}

// reached reports whether a broker has answered a moment ago. If not, all of them are asked, and a later call tells.
func (p *Idempotent) reached() bool {
	for _, g := range p.task.groups {
		if g.waitsOn != "" && answered(g.err) {
			return true
		}
	}
	r := &p.reach
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < reachTrust {
		return true
	}
	if c, err := p.client(false); err == nil && !r.asking {
		r.asking = true
		asked := make(chan struct{})
		go func() { defer close(asked); r.ask(c.Client) }()
		p.closing = append(p.closing, asked)
	}
	return false
}

// ask returns when a broker has answered, or none has in time. A frozen one keeps a connection busy, so none waits for
// another.
func (r *reach) ask(c *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), reachPatience)
	defer cancel()
	var all sync.WaitGroup
	for _, broker := range append(c.DiscoveredBrokers(), c.SeedBrokers()...) {
		all.Go(func() {
			if _, err := broker.Request(ctx, kmsg.NewPtrApiVersionsRequest()); err == nil {
				r.mu.Lock()
				r.at = time.Now()
				r.mu.Unlock()
				cancel()
			}
		})
	}
	all.Wait()
	r.mu.Lock()
	r.asking = false
	r.mu.Unlock()
}

// giveUp takes the records of all other topics out of what is still to be sent, and copies them.
func (t *task) giveUp(open map[string]bool, copied func(b *Batch, i int)) {
	kept := run{idx: []int{}}
	for k, rec := range t.ready.recs {
		i := t.ready.index(k)
		if !open[rec.Topic] {
			copied(t.batch, i)
			continue
		}
		kept.recs, kept.idx = append(kept.recs, rec), append(kept.idx, i)
	}
	t.ready = kept
}

// copyRecord appends record i of another batch of the same builder. It reads nothing that a client may write to.
func (b *Batch) copyRecord(from *Batch, i int) {
	r := from.records[i]
	slab := len(b.slab)
	was := [...]span{r.key, r.value, r.payload, r.meta.id, r.meta.typ}
	var is [len(was)]span
	// Spans are shared where the bytes are the same, and the prefix is in every slab.
	moved := func(s span, known int) span {
		if s.isNull() || s.end <= len(from.builder.prefix) {
			return s
		}
		for k := range known {
			if was[k] == s {
				return is[k]
			}
		}
		return b.put(from.at(s))
	}
	for k, s := range was {
		is[k] = moved(s, k)
	}
	r.key, r.value, r.payload, r.meta.id, r.meta.typ = is[0], is[1], is[2], is[3], is[4]
	headers := from.headers[r.hdrs[0]:r.hdrs[1]]
	r.hdrs[0] = len(b.headers)
	for _, h := range headers {
		b.headers = append(b.headers, header{key: h.key, value: moved(h.value, len(was))})
	}
	r.hdrs[1] = len(b.headers)
	b.records = append(b.records, r)
	b.bytes += max(b.size(&r), len(b.slab)-slab)
}

// without is what is left of a run that has no holes when elsewhere has taken its records.
func (r run) without(elsewhere func(topic string, i int) bool) run {
	part := r
	for i, rec := range r.recs {
		switch {
		case elsewhere(rec.Topic, i):
			if part.idx != nil {
				continue
			}
			part = run{recs: r.recs[:i:i], idx: make([]int, i)}
			for k := range part.idx {
				part.idx[k] = k
			}
		case part.idx != nil:
			part.recs, part.idx = append(part.recs, rec), append(part.idx, i)
		}
	}
	return part
}
