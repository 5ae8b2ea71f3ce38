package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

	// Isolate keeps a topic that cannot be written to from holding up the others, see Lanes.
	Isolate bool
	// LaneBeat is called while records wait in lanes, as long as every lane moves; nil: nobody watches.
	LaneBeat func()
	// Heard returns nil when a cycle may begin that no Publish waits for; nil: always.
	Heard func(context.Context) error
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
	// making is held while a client is made, by all that share opts: kgo sorts the codecs in an option's own memory.
	making *sync.Mutex

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
	graves  graves
	refused time.Time // since when nothing but refused logins was heard

	tally []tally // scratch of observe

	// task is what is being written. It is kept for isolate.
	task task
	// sick is told which topics have records with this publisher that are not settled, whenever some of them cannot be
	// written now. What it gives no more to do is taken out of task. nil: all wait together.
	sick  func(open map[string]bool)
	reach reach
	// gate must return nil before something is tried again; nil: nobody asks.
	gate func(context.Context) error

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
		opts:       append(opts, kgo.WithLogger(&kafkaLog{log: log})),
		making:     new(sync.Mutex),
		losses:     make(chan struct{}, 1000),
		slow:       slowAfter,
		abort:      abortPatience,
		backoffMin: 200 * time.Millisecond,
		backoffMax: 5 * time.Second,
		patience:   authPatience,
	}
	p.tell(cfg.Observer, cfg.Beat)
	if _, err := p.client(false); err != nil { // the options kgo itself refuses
		return nil, err
	}
	if strings.EqualFold(cfg.Kafka.SASL.Mechanism, "PLAIN") && cfg.Kafka.TLS == nil {
		log.Warn("kafka.sasl sends the password in clear text: turn on kafka.tls or use SCRAM-SHA-512")
	}
	p.tick = time.NewTicker(beatEvery)
	return p, nil
}

// tell sets who hears of records and of the publisher's moves; nil is nobody.
func (p *Idempotent) tell(observer Observer, beat func()) {
	if observer == nil {
		observer = nobody{}
	}
	if beat == nil {
		beat = func() {}
	}
	p.observer, p.beat = observer, beat
	p.blocked = blocked{observer: observer, log: p.log}
}

// sibling makes another publisher of the same configuration, with clients of its own.
func (p *Idempotent) sibling(observer Observer, beat func()) *Idempotent {
	s := &Idempotent{
		cfg:        p.cfg,
		log:        p.log,
		opts:       p.opts,
		making:     p.making,
		losses:     make(chan struct{}, cap(p.losses)),
		tick:       time.NewTicker(beatEvery),
		slow:       p.slow,
		abort:      p.abort,
		backoffMin: p.backoffMin,
		backoffMax: p.backoffMax,
		patience:   p.patience,
	}
	s.limits.learn(&p.limits)
	s.tell(observer, beat)
	return s
}

// lost counts a producer state that the broker has lost.
func (p *Idempotent) lost(string, int32) {
	select {
	case p.losses <- struct{}{}:
	default:
	}
}

// client returns the main or the large client and makes it if there is none.
func (p *Idempotent) client(large bool) (*client, error) {
	at, batch := &p.main, kgo.ProducerBatchMaxBytesFn(p.limits.of)
	if large {
		at, batch = &p.large, kgo.ProducerBatchMaxBytes(maxRequest)
	}
	if *at == nil {
		p.making.Lock()
		c, err := newClient(p.opts, batch, kgo.WithHooks(&p.conns), kgo.ProducerOnDataLossDetected(p.lost))
		p.making.Unlock()
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
	fail := func(op, object string, err error) error { return p.failure(op, object, p.cfg.DLQTopic, err) }
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
	// What was blocked may have been sent by another relay meanwhile, and then no
	// cycle of ours would ever take it back.
	p.blocked.forget()
	return nil
}

// failure is an error of a check, with its class and what to do.
func (p *Idempotent) failure(op, object, topic string, err error) *Error {
	if _, last := p.conns.last(); last != nil && !answered(err) {
		err = last // the reason, where the request only knows that it took too long
	}
	h := p.cfg.hint(topic, err)
	if h == "" {
		h = "check kafka.brokers, and that the addresses the brokers advertise can be reached from here"
	}
	return &Error{Op: op, Object: object, Class: Classify(err), Hint: h, Err: err}
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
	if b.Len() == 0 && ctx.Err() == nil {
		return nil
	}
	return p.publishPart(ctx, b, run{recs: b.seal()})
}

// publishPart is Publish for some of the records of a batch, which is sealed.
func (p *Idempotent) publishPart(ctx context.Context, b *Batch, part run) error {
	if err := ctx.Err(); err != nil {
		return p.ended(ctx)
	}
	if err := p.Settle(ctx); err != nil {
		return err
	}
	if b.flight == nil {
		b.flight = newFlight(b)
	}
	p.refused = time.Time{}
	defer func() { p.task = task{} }()
	if err := p.publish(ctx, b, part); err != nil {
		return err
	}
	p.blocked.keep(nil)
	return nil
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
