package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"golang.org/x/sync/errgroup"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/decoder"
	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/schema"
	"github.com/tailer-relay/tailer/sink"
)

const (
	// cutOffAfter bounds what a publisher may still write once the stream is
	// lost: another relay may have the slot by then.
	cutOffAfter = 2 * time.Second
	// standbyPoll is how often a standby asks for the slot.
	standbyPoll = 500 * time.Millisecond
	// closeWithin bounds the goodbye to the server (Close itself bounds the
	// statement that keeps the position over a server restart).
	closeWithin = 8 * time.Second
	// steady is how long a session must have streamed before the next failure
	// counts as a new one and is retried at once.
	steady = 30 * time.Second
)

var (
	errDrain     = errors.New("the drain deadline has passed")
	errUndrained = errors.New("the session was lost before it had drained")
)

// relay runs sessions until it is told to stop or a person must decide.
type relay struct {
	stream    replication.Config
	mapping   schema.Mapping
	builder   *sink.Builder
	encoder   *encoder
	publisher publisher
	law       *gapLaw
	facts     facts
	streamed  bool // there was a session
	doubt     doubt
	drain     time.Duration
	isolation int                     // bound of a session's window
	current   atomic.Pointer[session] // whose cycles are running
	health    *health
	metrics   *metrics
	log       *slog.Logger
}

// stream is what a session needs of a replication stream. *replication.Stream
// is the one that runs; a scripted one shows in tests what is confirmed when.
type stream interface {
	Next(ctx context.Context) (replication.Frame, error)
	Confirm(lsn pglogrepl.LSN)
	Heard() time.Time
	Interval() time.Duration
	Server() replication.Server
}

// session is one life of the replication connection: everything in it is built
// anew, so that nothing remembered can differ from what the server knows.
type session struct {
	*relay
	stream  stream
	tracker *checkpoint.Tracker
	hand    *handoff
	window  window
	filled  bool // it was said that the window is full
	owned   owned
	keeper  *keeper
}

// run repeats sessions. It returns nil after a drain, else an *exitError.
func (r *relay) run(ctx context.Context) error {
	var (
		wait    retries
		refused patience
		holder  uint32 // the backend that had the slot when last asked
	)
	for {
		began := time.Now()
		err := r.session(ctx)
		if ctx.Err() != nil {
			return r.stopped(err)
		}
		if time.Since(began) > steady {
			wait.reset()
		}
		v := classify(err)
		cause := withHint(errors.New(v.cause), v.hint)
		if r.streamed && replication.Unpublished(err) {
			v.kind, cause = verdictRetry, r.facts.refused(err, r.log) // it was right once
		}
		if v.kind != verdictStandby {
			holder = 0
		}
		if v.kind != verdictAuth {
			refused = patience{}
		}
		pause := wait.next()
		switch v.kind {
		case verdictExit:
			r.health.NotReady(v.cause)
			return &exitError{code: v.code, err: err, hint: v.hint}
		case verdictStandby:
			wait.reset()
			pause = standbyPoll
			if r.health.Standby(); v.pid != holder {
				r.log.Info("standing by: the slot is active elsewhere", "pid", v.pid)
				holder = v.pid
			}
		case verdictAuth:
			if refused.over(v, began, time.Now()) {
				return &exitError{code: exitRetry, err: err, hint: v.hint}
			}
			fallthrough
		case verdictRetry:
			r.metrics.Retry(v.peer, "session")
			r.health.NotReady(cause)
			r.doubt.raise(cause)
			r.log.Warn("session ended", "retry_in", pause.Round(time.Millisecond), "err", err, "hint", v.hint)
		}
		if sleep(ctx, pause, func() {}) != nil {
			return nil
		}
	}
}

// stopped says how a relay ended that was told to.
func (r *relay) stopped(err error) error {
	switch {
	case errors.Is(err, errDrain):
		if ready, cause := r.health.ready(); !ready {
			err = fmt.Errorf("%w; until then the relay waited: %s", err, cause)
		}
		return &exitError{code: exitRetry, err: err,
			hint: "what was not acknowledged is not confirmed and comes again after the restart; if the broker was slow, raise delivery.drain_timeout"}
	case errors.Is(err, errUndrained):
		return &exitError{code: exitRetry, err: err,
			hint: "nothing is lost: what was not confirmed comes again after the restart"}
	case err != nil && !errors.Is(err, context.Canceled):
		r.log.Warn("stopped while no session ran", "err", err)
	}
	return nil
}

// session connects, runs the reader, the publisher and the monitor, and tears
// everything down again. A nil error means that ctx ended and all was drained.
func (r *relay) session(ctx context.Context) error {
	opening := r.opening()
	defer opening.end()
	opening.asks("Kafka")
	// Records of the session before must be settled: nothing of it may be
	// written after the first record of this one.
	if err := r.publisher.Settle(ctx); err != nil {
		return err
	}
	if err := r.publisher.Ping(ctx); err != nil {
		return err
	}
	opening.asks("Postgres")
	s := &session{relay: r, window: window{limit: r.isolation}}
	config := r.stream
	config.Busy = s.owned.busy
	stream, err := r.law.open(ctx, config, r.log)
	if err != nil {
		return err
	}
	if s.keeper, err = r.law.admit(ctx, stream); err != nil {
		r.close(stream)
		return err
	}
	defer s.keeper.close()
	s.stream, s.tracker = stream, checkpoint.NewTracker(stream.Start())
	s.hand = newHandoff(r.builder.NewBatch, r.health.Beat)
	server := stream.Server()
	r.log.Info("streaming", "publication", r.stream.Publication, "lsn", stream.Start().String(),
		"server", server.VersionText, "system", server.SystemID, "timeline", server.Timeline)
	opening.end()
	r.streamed = true
	r.facts.begin(stream.Start())
	r.doubt.begin(server.Flushed, stream.Start(), r.health)
	r.health.Active()

	err = s.run(ctx)
	if err == nil {
		s.keeper.stop(context.Background(), stream.Confirmed())
	}
	if closeErr := r.close(stream); err == nil {
		err = closeErr
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, errDrain) {
		err = fmt.Errorf("%w: %w", errUndrained, err)
	}
	r.log.Info("session closed", "lsn", stream.Confirmed().String())
	return err
}

// close says goodbye to the server, also when the relay was told to stop.
func (r *relay) close(stream *replication.Stream) error {
	closing, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	return stream.Close(closing)
}

// run joins the session's goroutines. Three contexts bound them:
//
//	life   ends with the first error of any of them
//	stop   the reader's wish to stop: life or a shutdown
//	late   what a cycle may still take: cutOffAfter beyond a lost session, the
//	       drain timeout beyond a shutdown. Never the session's own: a record
//	       that is cancelled may have been written all the same.
func (s *session) run(shutdown context.Context) error {
	group, life := errgroup.WithContext(context.Background())
	stop, cancelStop := context.WithCancel(life)
	defer cancelStop()
	late, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	cutLater := func(after time.Duration, cause error) func() {
		return func() { time.AfterFunc(after, func() { cut(cause) }) }
	}
	defer context.AfterFunc(life, cutLater(cutOffAfter, errors.New("the session has ended")))()
	defer context.AfterFunc(shutdown, cutLater(s.drain, errDrain))()
	defer context.AfterFunc(shutdown, cancelStop)()

	watch, unwatch := context.WithCancel(life)
	defer unwatch()

	s.current.Store(s)
	r := s.reader()
	reading := withEither(life, late)
	s.encoder.ctx = reading // a look-up must not outlast the drain
	s.health.Start(loopReader)
	s.health.Start(loopPublisher)
	group.Go(func() error {
		defer s.health.Stop(loopReader)
		return r.run(reading, stop)
	})
	group.Go(func() error {
		defer unwatch()
		defer s.health.Stop(loopPublisher)
		defer s.health.Stop(loopLanes)
		return s.publishLoop(life, late)
	})
	group.Go(func() error { return s.monitor(watch) })
	return group.Wait()
}

func (s *session) reader() *reader {
	return &reader{stream: s.stream, tracker: s.tracker, hand: s.hand, mapping: s.mapping,
		table: s.relay.stream.Table, reload: s.encoder.reload, health: s.health, doubt: &s.doubt, metrics: s.metrics, log: s.log,
		plans: make(map[*decoder.Relation]*schema.Plan)}
}

// withEither is a context that ends with a or b, with the cause of that one.
func withEither(a, b context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(a)
	context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx
}

// runRelay wires the pipeline from the configuration and runs it until ctx ends.
func runRelay(ctx context.Context, cfg *Config, log *slog.Logger) error {
	log = log.With("slot", cfg.Postgres.Slot) // names the relay in every line, also of the packages below
	m := newMetrics(cfg.Postgres.Slot)
	h := newHealth(m)
	_, stopHTTP, err := serveHTTP(ctx, cfg.HTTP.Listen, h, m, log)
	if err != nil {
		return err
	}
	defer stopHTTP(context.Background())

	enc, err := newEncoder(ctx, cfg, m, log)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	defer enc.close()
	builder, err := sink.NewBuilder(batchConfig(cfg), enc)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	tlsConfig, err := sink.NewTLS(sink.TLSConfig(cfg.Kafka.TLS))
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	var r *relay
	pub, err := sink.NewLanes(ctx, sink.PublisherConfig{
		Kafka: kafkaConfig(cfg, tlsConfig), Observer: m, Beat: func() { h.Beat(loopPublisher) },
		Isolate: cfg.Delivery.IsolationBytes > 0, LaneBeat: func() { h.Beat(loopLanes) },
		Heard: func(ctx context.Context) error { return r.mayBegin(ctx) },
	}, log)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), cutOffAfter)
		defer cancel()
		if err := pub.Close(closing); err != nil {
			log.Warn("the Kafka client did not close in time", "err", err)
		}
	}()
	stream := streamConfig(cfg)
	stream.Alive, stream.Warn = h.Alive, warnOnce(log)
	r = &relay{stream: stream, law: newGapLaw(cfg, log), mapping: mapping(cfg), builder: builder, encoder: enc, publisher: pub,
		drain: cfg.Delivery.DrainTimeout, isolation: int(cfg.Delivery.IsolationBytes), health: h, metrics: m, log: log}
	return r.run(ctx)
}
