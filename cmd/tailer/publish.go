package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tailer-relay/tailer/sink"
)

// publisher is what a session needs of sink's publishers.
type publisher interface {
	Publish(ctx context.Context, b *sink.Batch) error
	Settle(ctx context.Context) error
	Ping(ctx context.Context) error
	Close(ctx context.Context) error
}

// heardPatience is for how long a cycle waits to know that the slot is still this
// session's: long enough for the monitor to look.
const heardPatience = monitorEvery + time.Second

// publishLoop takes batches, publishes each whole, and reports what may be
// confirmed. It returns nil when the reader has closed the handoff and
// everything is settled. A batch that Publish could not settle is not given
// back: its memory is still the Kafka client's. No cycle begins after life has
// ended; one that has begun goes on until late ends.
func (s *session) publishLoop(life, late context.Context) error {
	either := withEither(life, late)
	for {
		b, err := s.hand.take(life)
		if b == nil || err != nil {
			return err
		}
		s.health.Beat(loopPublisher)
		ticket := s.tracker.Hand(b.LastMark())
		if b.Len() > 0 {
			if err := s.heard(either); err != nil {
				return err
			}
			s.metrics.SetInflight(b.Bytes())
			if err := s.publisher.Publish(late, b); err != nil {
				return err
			}
			s.metrics.SetInflight(0)
		}
		mark := s.tracker.Done(ticket)
		s.keeper.keep(late, mark, b.Len() > 0)
		s.stream.Confirm(mark)
		b.Reset()
		s.hand.release(b)
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
func (s *session) heard(ctx context.Context) error {
	const look = 10 * time.Millisecond
	limit := 2 * s.stream.Interval()
	for began := time.Now(); time.Since(s.stream.Heard()) > limit && s.owned.since() > limit; {
		if time.Since(began) > heardPatience {
			return lost(fmt.Errorf("nothing tells that it is still this session's: the server was not heard for %v", time.Since(s.stream.Heard()).Round(time.Millisecond)))
		}
		if err := sleep(ctx, look, func() { s.health.Beat(loopPublisher) }); err != nil {
			return err
		}
	}
	return nil
}
