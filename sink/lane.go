package sink

import (
	"context"
	"maps"
	"slices"
	"time"
)

// lane is one client's way to the brokers: the main one, or one that has sick topics. What it writes at a time is
// current; the rest of its topics' records waits in queues.
type lane struct {
	lanes  *Lanes
	engine *Idempotent // of the lane's goroutine
	reply  chan reply  // to Publish, while the lane is the main one; has room for one

	// Set when it stops being the main one, or was never.
	ctx  context.Context
	wake chan struct{} // something was added to a queue; has room for one
	done chan struct{} // closed when nothing of it is open any more

	// Guarded by Lanes.mu. topics is nil in the main lane.
	// Invariant: Lanes.byTopic[t] is this lane for every t in topics, and for no other.
	topics  map[string]*queue
	current *chunk
	ill     time.Time // when something of it could not be written last
	moved   bool      // since the last LaneBeat
	over    bool      // the goroutine has ended
}

// queue is what waits of a topic, in order. It is guarded by Lanes.mu.
type queue struct {
	topic  string
	chunks []*chunk
}

// add copies record i of a batch to the end.
func (q *queue) add(b *Batch, i int, p *parcel) {
	var c *chunk
	if n := len(q.chunks); n > 0 && !q.chunks[n-1].batch.Full() {
		c = q.chunks[n-1]
	} else {
		c = &chunk{batch: b.builder.NewBatch()}
		q.chunks = append(q.chunks, c)
	}
	c.batch.copyRecord(b, i)
	if n := len(c.parcels); n == 0 || c.parcels[n-1] != p {
		c.parcels = append(c.parcels, p)
		p.parts++
	}
}

// begin publishes in the main lane. When that departs meanwhile, the goroutine goes with it.
func (l *lane) begin(ctx context.Context, b *Batch, part run) {
	err := l.engine.publishPart(ctx, b, part)
	l.lanes.mu.Lock()
	departed := l.topics != nil
	l.lanes.mu.Unlock()
	if departed {
		l.goOn(err)
		return
	}
	l.reply <- reply{err: err}
}

// goOn is the life of a lane that has sick topics, from the moment on in which its current chunk has ended with err.
func (l *lane) goOn(err error) {
	for err == nil {
		settled, next, rest := l.next()
		if err = l.tell(Late{Settled: settled}); err != nil {
			break
		}
		if next == nil {
			if rest <= 0 {
				break
			}
			err = l.idle(rest)
			continue
		}
		if l.engine.gate != nil {
			err = l.engine.gate(l.ctx)
		}
		if err == nil {
			err = l.engine.Publish(l.ctx, next)
		}
	}
	if err != nil {
		l.left(err)
	}
	_ = l.engine.Close(context.Background()) // waits for every promise, and that is what it is for
	f := l.lanes
	f.mu.Lock()
	defer f.mu.Unlock()
	l.over = true
	if err == nil {
		f.running = slices.DeleteFunc(f.running, func(o *lane) bool { return o == l })
	}
	close(l.done)
}

// next takes the current chunk for settled and returns what to write next. Where there is nothing it returns for how
// long the lane still stays as it is; after that its topics are the main lane's again.
func (l *lane) next() (settled []uint64, next *Batch, rest time.Duration) {
	f := l.lanes
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.current != nil {
		for _, p := range l.current.parcels {
			if p.parts--; p.parts == 0 {
				settled = append(settled, p.number)
			}
		}
		l.current = nil
	}
	for _, q := range l.topics {
		for len(q.chunks) > 0 && l.join(q.chunks[0]) {
			q.chunks = q.chunks[1:]
		}
	}
	if l.current != nil {
		return settled, l.current.batch, 0
	}
	if rest = f.convalescence - time.Since(l.ill); rest > 0 {
		return settled, nil, rest
	}
	for topic := range l.topics {
		f.log.Info("topic has caught up and is published with the others again", "topic", topic)
		delete(f.byTopic, topic)
	}
	clear(l.topics)
	return settled, nil, 0
}

// join adds a chunk to what is written next, as long as that is not full: topics that share a lane share its cycles, so
// that brokers which are only slow are as slow for many topics as for one. mu is held.
func (l *lane) join(c *chunk) bool {
	if l.current == nil {
		l.current = c
		return true
	}
	if l.current.batch.Full() {
		return false
	}
	for i := range c.batch.records {
		l.current.batch.copyRecord(c.batch, i)
	}
	l.current.parcels = append(l.current.parcels, c.parcels...)
	return true
}

// idle waits until something is there to be written, but not longer than d.
func (l *lane) idle(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-l.wake:
			return nil
		case <-timer.C:
			return nil
		case <-l.engine.tick.C:
			l.beat()
		case <-l.ctx.Done():
			return l.engine.ended(l.ctx)
		}
	}
}

// rouse tells that something was added to a queue.
func (l *lane) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tell hands a Late over. It fails when the session ends first: then nobody asks any more.
func (l *lane) tell(late Late) error {
	if len(late.Settled) == 0 && late.Err == nil {
		return nil
	}
	for {
		select {
		case l.lanes.late <- late:
			return nil
		case <-l.engine.tick.C:
			l.beat()
		case <-l.ctx.Done():
			return l.engine.ended(l.ctx)
		}
	}
}

// left ends the session if that is not why the lane ends, and says what it leaves.
func (l *lane) left(err error) {
	if l.ctx.Err() == nil {
		_ = l.tell(Late{Err: err})
	}
	f := l.lanes
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, topic := range slices.Sorted(maps.Keys(l.topics)) {
		queued, begun := 0, 0
		for _, c := range l.topics[topic].chunks {
			queued += c.batch.Len()
		}
		if l.current != nil {
			for i := range l.current.batch.records {
				if l.current.batch.records[i].topic == topic {
					begun++
				}
			}
		}
		if queued+begun == 0 {
			continue
		}
		f.log.Warn("records of a sick topic are left; they are not confirmed and come again", "topic", topic, "waiting", queued, "begun", begun)
	}
}

// beat tells that the lane moves. The publisher's watchdog hears of it when all of them do.
func (l *lane) beat() {
	f := l.lanes
	if f.cfg.LaneBeat == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l.moved = true
	for _, o := range f.running {
		if !o.moved && !o.over {
			return
		}
	}
	for _, o := range f.running {
		o.moved = false
	}
	f.cfg.LaneBeat()
}

// wait returns when nothing of the lane is open any more. It beats with the caller's Idempotent.
func (l *lane) wait(ctx context.Context, with *Idempotent) error {
	for {
		select {
		case <-l.done:
			return nil
		case <-with.tick.C:
			with.beat()
		case <-ctx.Done():
			return with.ended(ctx)
		}
	}
}

// sick is called by the lane's goroutine when some of what it is writing cannot be written now; open are the topics
// that have records in it which are not settled.
func (l *lane) sick(open map[string]bool) {
	f := l.lanes
	f.mu.Lock()
	defer f.mu.Unlock()
	l.ill = time.Now()
	switch {
	case l.topics != nil:
		f.release(l, open)
	case len(f.running) < maxLanes:
		f.depart(l, open)
	}
}

// depart makes the main lane one beside it, with what is open in it, and a new one the main lane. mu is held.
func (f *Lanes) depart(l *lane, open map[string]bool) {
	t := &l.engine.task
	p := f.parcelOf(t.batch)
	p.parts++
	l.current = &chunk{batch: t.batch, parcels: []*parcel{p}}
	var rest *Batch
	t.giveUp(open, func(b *Batch, i int) {
		if rest == nil {
			rest = b.builder.NewBatch()
			rest.Number = b.Number
		}
		rest.copyRecord(b, i)
	})
	f.run(l, f.ctx)
	for topic := range open {
		f.enter(l, &queue{topic: topic})
	}
	f.main = f.another(l)
	f.log.Warn("topics are sick, the others go on without them", "topics", slices.Sorted(maps.Keys(open)))
	l.reply <- reply{next: f.main, rest: rest}
}

// release lets the topics of a lane go that have nothing open in it: to the main lane when nothing of them waits, else
// each to a lane of its own. mu is held.
func (f *Lanes) release(l *lane, open map[string]bool) {
	t := &l.engine.task
	unsent := make(map[string]bool)
	for _, rec := range t.ready.recs {
		unsent[rec.Topic] = true
	}
	var leaving []*queue
	room := maxLanes - len(f.running)
	for topic, q := range l.topics {
		waits := unsent[topic] || len(q.chunks) > 0
		switch {
		case open[topic]:
		case waits && room == 0:
			open[topic] = true // it stays
		default:
			leaving = append(leaving, q)
			if waits {
				room--
			}
		}
	}
	if len(leaving) == 0 {
		return
	}
	heads := make(map[string]*chunk)
	t.giveUp(open, func(b *Batch, i int) {
		topic := b.records[i].topic
		c := heads[topic]
		if c == nil {
			// Which of the parcels it belongs to is not known: it may be each of them.
			c = &chunk{batch: b.builder.NewBatch(), parcels: slices.Clone(l.current.parcels)}
			for _, p := range c.parcels {
				p.parts++
			}
			heads[topic] = c
		}
		c.batch.copyRecord(b, i)
	})
	for _, q := range leaving {
		delete(l.topics, q.topic)
		delete(f.byTopic, q.topic)
		if c := heads[q.topic]; c != nil {
			q.chunks = slices.Insert(q.chunks, 0, c)
		}
		if len(q.chunks) == 0 {
			f.log.Info("topic has got through and is published with the others again", "topic", q.topic)
			continue
		}
		n := f.another(l)
		n.ill = l.ill
		f.run(n, l.ctx)
		f.enter(n, q)
		go n.goOn(nil)
	}
}

// another is a lane with an Idempotent of its own, which is not used yet.
func (f *Lanes) another(like *lane) *lane {
	return f.newLane(like.engine.sibling(f.voices.one(), f.cfg.Beat))
}

// run makes a lane one beside the main one. mu is held, and the lane's goroutine calls or is not there yet.
func (f *Lanes) run(l *lane, ctx context.Context) {
	l.ctx, l.done, l.wake = ctx, make(chan struct{}), make(chan struct{}, 1)
	l.topics = make(map[string]*queue)
	l.engine.beat = l.beat
	l.engine.gate = f.cfg.Heard
	f.running = append(f.running, l)
}

// enter puts a topic and what waits of it into a lane. mu is held.
func (f *Lanes) enter(l *lane, q *queue) {
	if f.byTopic == nil {
		f.byTopic = make(map[string]*lane)
	}
	f.byTopic[q.topic] = l
	l.topics[q.topic] = q
}
