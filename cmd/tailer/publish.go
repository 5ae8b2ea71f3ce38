package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/internal/crashpoint"
	"github.com/tailer-relay/tailer/sink"
)

// publisher is what a session needs of sink's publishers.
type publisher interface {
	// Publish returns when what can be written now is settled. A batch that is
	// not done has records that wait for a sick topic; its ticket follows by Late.
	Publish(ctx context.Context, b *sink.Batch) (sink.Outcome, error)
	// Late tells of batches that Publish has left out. nil: there are none, ever.
	Late() <-chan sink.Late
	// Settle waits until no record of an earlier session is open.
	Settle(ctx context.Context) error
	Ping(ctx context.Context) error
	Close(ctx context.Context) error
}

// heardPatience is for how long a cycle waits to know that the slot is still this
// session's: long enough for the monitor to look.
const heardPatience = monitorEvery + time.Second

// publishLoop takes batches, publishes each, and reports what may be confirmed.
// It returns nil when the reader has closed the handoff and everything is
// settled. A batch that Publish could not settle is not given back: its memory
// is still the Kafka client's. No cycle begins after life has ended; one that has
// begun goes on until late ends.
//
// Batches that wait for a sick topic are settled later, in any order; the loop
// hears of them between two others and stays the one that confirms.
func (s *session) publishLoop(life, late context.Context) error {
	either := withEither(life, late)
	for {
		b, err := s.next(life, late)
		if err != nil {
			return err
		}
		if b == nil {
			return s.drained(late)
		}
		s.health.Beat(loopPublisher)
		ticket := s.tracker.Hand(b.LastMark())
		b.Number = s.window.next()
		outcome := sink.Done
		if b.Len() > 0 {
			if err := s.heard(either, func() { s.health.Beat(loopPublisher) }); err != nil {
				return err
			}
			s.metrics.SetInflight(s.window.pinned() + b.Bytes())
			if outcome, err = s.publisher.Publish(late, b); err != nil {
				return err
			}
			crashpoint.Pass("ack.after")
		}
		if outcome == sink.Done {
			s.window.passed(b.Weight())
			s.confirm(late, ticket, b.Len() > 0)
		} else {
			if s.window.empty() {
				s.health.Start(loopLanes)
			}
			s.window.left(ticket, b.Weight())
		}
		s.metrics.SetInflight(s.window.pinned())
		if outcome == sink.Held {
			s.hand.replace()
			continue
		}
		b.Reset()
		s.hand.release(b)
	}
}

// next waits for a batch and settles what comes late meanwhile. It takes none
// while the window is full. A nil batch: the reader has closed.
func (s *session) next(life, late context.Context) (*sink.Batch, error) {
	if life.Err() != nil {
		return nil, context.Cause(life)
	}
	var tick *time.Ticker // made only where there is something to wait for
	var ticks <-chan time.Time
	for {
		offered := s.hand.offered
		if s.window.full() {
			if offered = nil; !s.filled {
				s.filled = true
				s.log.Warn("so much waits for sick topics that the others wait too", "isolation_bytes", s.window.limit)
			}
		}
		if tick == nil {
			select {
			case b := <-offered:
				return b, nil
			case l := <-s.publisher.Late():
				if err := s.settle(late, l); err != nil {
					return nil, err
				}
				continue
			default:
			}
			tick = time.NewTicker(beatEvery)
			defer tick.Stop()
			ticks = tick.C
		}
		select {
		case b := <-offered:
			return b, nil
		case l := <-s.publisher.Late():
			if err := s.settle(late, l); err != nil {
				return nil, err
			}
		case <-ticks:
			s.health.Beat(loopPublisher)
		case <-life.Done():
			return nil, context.Cause(life)
		}
	}
}

// drained waits for what still waits for a sick topic when nothing will follow.
func (s *session) drained(late context.Context) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for !s.window.empty() {
		select {
		case l := <-s.publisher.Late():
			if err := s.settle(late, l); err != nil {
				return err
			}
		case <-tick.C:
			s.health.Beat(loopPublisher)
		case <-late.Done():
			return context.Cause(late)
		}
	}
	return nil
}

// settle confirms what has come late.
func (s *session) settle(late context.Context, l sink.Late) error {
	for _, number := range l.Settled {
		if ticket, ok := s.window.settle(number); ok {
			s.confirm(late, ticket, true)
		}
	}
	s.metrics.SetInflight(s.window.pinned())
	if s.window.empty() {
		s.filled = false
		s.health.Stop(loopLanes)
	}
	return l.Err
}

// confirm reports a settled batch. The state is stored before the slot moves.
func (s *session) confirm(late context.Context, t checkpoint.Ticket, events bool) {
	mark := s.tracker.Done(t)
	s.keeper.keep(late, mark, events)
	s.stream.Confirm(mark)
	if events {
		s.doubt.confirmed(mark)
	}
}

// heard waits until the server has sent something within the last two intervals
// (a status asks for a reply in each, so a living link is never older than one
// and the reply's way), or was seen to name this session as the slot's holder,
// which counts where the reader is held back and what it reads is old. A relay
// that was frozen or cut off wakes with a batch in its hands while another one
// may have the slot: it must not begin a cycle before it knows that the slot is
// still its own.
//
// It does not wait for ever: a reader that is held back by this very publisher
// hears nothing, and where the slot cannot be watched nobody else tells. A new
// session knows.
func (s *session) heard(ctx context.Context, beat func()) error {
	const look = 10 * time.Millisecond
	limit := 2 * s.stream.Interval()
	for began := time.Now(); time.Since(s.stream.Heard()) > limit && s.owned.since() > limit; {
		if time.Since(began) > heardPatience {
			return lost(fmt.Errorf("nothing tells that it is still this session's: the server was not heard for %v", time.Since(s.stream.Heard()).Round(time.Millisecond)))
		}
		if err := sleep(ctx, look, beat); err != nil {
			return err
		}
	}
	return nil
}

// mayBegin is the same for a cycle that no Publish waits for: records of sick
// topics have cycles of their own. These end before the next session begins.
func (r *relay) mayBegin(ctx context.Context) error {
	return r.current.Load().heard(ctx, func() {})
}
