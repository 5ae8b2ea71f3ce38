package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	beatEvery = 250 * time.Millisecond // the watchdog wants one every 500 ms
	// slowAfter is how long a cycle may wait for answers before its topics count as blocked. What is stuck must be
	// visible within ten seconds.
	slowAfter = 5 * time.Second
	// abortPatience is how long what is in flight may take to settle when a session ends. It bounds what a publisher
	// can still write after its successor took over.
	abortPatience = 2 * time.Second
	// closePatience is how long we then wait for the promises of a closed client before the batch is given up.
	closePatience = time.Second
	// authPatience is how long refused logins are tried again before publishing ends with an error.
	authPatience = 60 * time.Second
	// askPatience bounds a question about a topic, so that a cycle can go on with the others.
	askPatience = 8 * time.Second
)

// PublisherConfig is what a publisher needs beside a logger.
type PublisherConfig struct {
	Kafka    KafkaConfig
	Beat     func() // called at least every 500 ms while the publisher waits; nil: nobody watches
	Observer Observer
}

// Idempotent publishes batches at least once, in cycles: produce everything, flush, look at every promise, resolve what
// failed. Nothing of a cycle is sent before all of it is buffered, and none begins before the one before is settled;
// that is what keeps the records of a partition a clean prefix when one of them fails.
//
// All methods belong to one goroutine, the publisher's. It starts goroutines for single calls into kgo, so that it can
// beat while they block, and waits for each of them; the client's own goroutines end with Close.
type Idempotent struct {
	cfg  KafkaConfig
	log  *slog.Logger
	opts []kgo.Opt

	observer Observer
	beat     func()
	tick     *time.Ticker

	limits limits
	conns  connections
	losses chan struct{} // a producer state the broker lost; drained into the observer

	// main takes what fits into a batch of its topic, large takes what does not, one record at a time: whether that is
	// too large is for the broker to say, who sees it compressed. Both are made when needed and replaced when in doubt.
	main, large *client

	// unsettled are flights of cycles that were given up with promises open.
	// Invariant: no record is produced while there is one.
	unsettled []*flight
	closing   []<-chan struct{} // clients being closed

	blocked blocked
	refused time.Time // since when nothing but refused logins was heard

	tally []tally // scratch of observe

	// Fixed but in tests.
	slow, abort            time.Duration
	backoffMin, backoffMax time.Duration
	patience               time.Duration
}

// NewIdempotent checks the configuration, all of it at once. It does not touch the network; Ping does.
func NewIdempotent(_ context.Context, cfg PublisherConfig, log *slog.Logger) (*Idempotent, error) {
	opts, err := cfg.Kafka.options()
	if cfg.Kafka.DLQTopic == "" {
		err = errors.Join(err, errors.New("dlq.topic: the dead letter topic has no name"))
	} else if why := topicFault(cfg.Kafka.DLQTopic); why != "" {
		err = errors.Join(err, fmt.Errorf("dlq.topic: %q is no topic name: %s", cfg.Kafka.DLQTopic, why))
	}
	if err != nil {
		return nil, err
	}
	p := &Idempotent{
		cfg:        cfg.Kafka,
		log:        log,
		observer:   cfg.Observer,
		beat:       cfg.Beat,
		losses:     make(chan struct{}, 1000),
		slow:       slowAfter,
		abort:      abortPatience,
		backoffMin: 200 * time.Millisecond,
		backoffMax: 5 * time.Second,
		patience:   authPatience,
	}
	if p.observer == nil {
		p.observer = nobody{}
	}
	if p.beat == nil {
		p.beat = func() {}
	}
	p.blocked = blocked{observer: p.observer, log: log}
	p.opts = append(opts,
		kgo.WithLogger(&kafkaLog{log: log}),
		kgo.WithHooks(&p.conns),
		kgo.ProducerOnDataLossDetected(func(string, int32) {
			select {
			case p.losses <- struct{}{}:
			default:
			}
		}),
	)
	if _, err := p.client(false); err != nil { // the options kgo itself refuses
		return nil, err
	}
	p.tick = time.NewTicker(beatEvery)
	return p, nil
}

// client returns the main or the large client and makes it if there is none.
func (p *Idempotent) client(large bool) (*client, error) {
	at, batch := &p.main, kgo.ProducerBatchMaxBytesFn(p.limits.of)
	if large {
		at, batch = &p.large, kgo.ProducerBatchMaxBytes(maxRequest)
	}
	if *at == nil {
		c, err := newClient(p.opts, batch)
		if err != nil {
			return nil, err
		}
		*at = c
	}
	return *at, nil
}

// renew drops both clients. The next use makes new ones, with new producer ids.
func (p *Idempotent) renew() {
	for _, c := range []*client{p.main, p.large} {
		if c == nil {
			continue
		}
		closed := make(chan struct{})
		go func() { defer close(closed); c.close() }()
		p.closing = append(p.closing, closed)
	}
	p.main, p.large = nil, nil
}

// Ping is the check at start: the brokers answer and let us in, we may produce, and the dead letter topic exists or
// was created. Its error has a hint and a class.
func (p *Idempotent) Ping(ctx context.Context) error {
	c, err := p.client(false)
	if err != nil {
		return err
	}
	fail := func(op, object string, err error) error {
		if last, _ := p.conns.last(); last != nil && Classify(err) == Transient {
			err = last // the reason, where the request only knows that it took too long
		}
		h := hint(p.cfg.DLQTopic, p.cfg.SASL.Username, err)
		if h == "" {
			h = "check kafka.brokers, and that the addresses the brokers advertise can be reached from here"
		}
		return &Error{Op: op, Object: object, Class: Classify(err), Hint: h, Err: err}
	}
	if err := p.await(ctx, askPatience, c.Ping); err != nil {
		return fail("reach brokers", fmt.Sprint(p.cfg.Brokers), err)
	}
	if err := p.ensure(ctx, p.cfg.DLQTopic); err != nil {
		return fail("check dead letter topic", p.cfg.DLQTopic, err)
	}
	err = p.await(ctx, askPatience, func(ctx context.Context) error {
		_, _, err := c.ProducerID(ctx)
		return err
	})
	if err != nil {
		p.renew() // the client keeps a refused producer id for ever
		return fail("get a producer id", "", err)
	}
	return nil
}

// ensure is the function of the same name for one topic, with beats.
func (p *Idempotent) ensure(ctx context.Context, topic string) error {
	c, err := p.client(false)
	if err != nil {
		return err
	}
	return p.await(ctx, askPatience, func(ctx context.Context) error {
		return ensure(ctx, c.Client, p.cfg.Topics, topic, &p.limits, p.log)
	})
}

// await runs fn, which must end soon after its context does, and beats.
func (p *Idempotent) await(ctx context.Context, patience time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-p.tick.C:
			p.beat()
		}
	}
}

// Publish returns nil when every record of the batch is acknowledged, in its topic or as a dead letter. It returns an
// error when ctx ends, when the brokers refuse our login for a minute, or for a bug; then records may or may not have
// been written, and b.Settled says whether the batch may be reused or must be dropped.
func (p *Idempotent) Publish(ctx context.Context, b *Batch) error {
	if err := ctx.Err(); err != nil {
		return p.ended(ctx)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := p.Settle(ctx); err != nil {
		return err
	}
	if b.flight == nil {
		b.flight = newFlight(b)
	}
	p.refused = time.Time{}
	if err := p.publish(ctx, b, b.seal()); err != nil {
		return err
	}
	p.blocked.keep(nil)
	return nil
}

// publish sends runs of records, each a cycle of its own: a record too large for its topic's batches is a run alone.
func (p *Idempotent) publish(ctx context.Context, b *Batch, recs []*kgo.Record) error {
	all := run{recs: recs}
	waiting, ready, err := p.missing(ctx, b, all)
	if err != nil {
		return err
	}
	for !ready.empty() {
		large, n := p.piece(ready.recs)
		now, rest := ready.split(n)
		ready = rest
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
		if ready.empty() {
			groups, waiting = append(groups, waiting...), nil
		}
		if err := p.resolve(ctx, b, groups); err != nil {
			return err
		}
	}
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
	var bad map[string]error
	last := ""
	for i, r := range all.recs {
		if r.Topic == last && i > 0 {
			continue
		}
		last = r.Topic
		if _, known := p.limits.get(r.Topic); known || bad[r.Topic] != nil {
			continue
		}
		if err := p.ensure(ctx, r.Topic); err != nil {
			if ctx.Err() != nil {
				return nil, run{}, p.ended(ctx)
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
	ended := p.wait(ctx, f, c, c.flush())
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
			last, refused := p.conns.last()
			f.unanswered(func(topic string, n int) {
				why := last
				if why == nil {
					why = fmt.Errorf("no answer from topic %q for %d records: see that its leaders run and its replicas are in sync (kafka-topics.sh --describe --topic %s)", topic, n, topic)
				}
				p.blocked.set(topic, cause(topic, p.cfg.SASL.Username, why), now)
			})
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
	return &Error{Op: "log in to brokers", Object: fmt.Sprint(p.cfg.Brokers), Class: Auth, Hint: hint("", p.cfg.SASL.Username, err), Err: err}
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
			p.observer.DeadLetter(from.reason)
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

// Settle waits until no record of an earlier Publish is open. A new session calls it before its first cycle; Publish
// does so itself.
func (p *Idempotent) Settle(ctx context.Context) error {
	for len(p.unsettled) > 0 {
		f := p.unsettled[0]
		if f.settled() {
			_, _ = f.take()
			p.unsettled = p.unsettled[1:]
			continue
		}
		select {
		case <-f.idle:
		case <-p.tick.C:
			p.beat()
		case <-ctx.Done():
			return p.ended(ctx)
		}
	}
	for len(p.closing) > 0 {
		select {
		case <-p.closing[0]:
			p.closing = p.closing[1:]
		case <-p.tick.C:
			p.beat()
		case <-ctx.Done():
			return p.ended(ctx)
		}
	}
	p.unsettled, p.closing = nil, nil
	return nil
}

// Close closes the clients and waits for them and for every promise.
func (p *Idempotent) Close(ctx context.Context) error {
	p.renew()
	err := p.Settle(ctx)
	p.tick.Stop()
	return err
}
