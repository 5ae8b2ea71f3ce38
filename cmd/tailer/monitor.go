package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/replication"
)

const (
	monitorEvery = 3 * time.Second
	monitorRetry = 10 * time.Second
	// monitorPatience is for how long the server may take to answer.
	monitorPatience = 10 * time.Second
	// factsEvery is how often the publication and the role's rights are looked
	// at: with the next look at the slot, a change shows within ten seconds.
	factsEvery = 5 * time.Second
	// lockPatience bounds a look at a publication whose tables are locked.
	lockPatience = "500ms"
)

// owned remembers when the server was last seen to name this session's backend
// as the one that holds the slot, and when that backend was last seen at work.
type owned struct{ at, worked atomic.Int64 } // Unix nanoseconds

func (o *owned) seen(at time.Time)    { o.at.Store(at.UnixNano()) }
func (o *owned) last() time.Time      { return time.Unix(0, o.at.Load()) }
func (o *owned) ever() bool           { return o.at.Load() != 0 }
func (o *owned) since() time.Duration { return time.Since(o.last()) }

// busy excuses a stream on which the server is silent, for as long as it takes
// to look again.
func (o *owned) busy() bool { return time.Since(time.Unix(0, o.worked.Load())) < 2*monitorEvery }

var errShuttingDown = lost(errors.New("the server is shutting down"))

// lost is what the monitor saw as an error that a new session mends.
func lost(why error) error {
	return &replication.Error{Op: "watch", Object: "the replication slot", Class: replication.Transient, Err: why}
}

// monitor looks at the slot over a plain connection: lag and retained WAL for
// the metrics, and whether the slot is still this session's. It is also what
// notices a server that goes away while the reader is held back by the broker
// and does not look at its socket: a fast shutdown waits for every walsender,
// so a session that stayed would block it.
//
// The relay streams without this connection too (a server may be out of
// ordinary ones): failing to get it is logged and tried again.
func (s *session) monitor(ctx context.Context) error {
	var warned bool
	for {
		err := s.watch(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errShuttingDown), errors.Is(err, errSlotTaken), errors.As(err, new(*unpublished)):
			return err
		}
		if !warned {
			s.log.Warn("the slot cannot be watched: lag and retained WAL are not measured", "err", err)
			warned = true
		}
		if sleep(ctx, monitorRetry, func() {}) != nil {
			return nil
		}
	}
}

var errSlotTaken = lost(errors.New("it is no longer held by this session"))

// watch polls until the connection fails.
func (s *session) watch(ctx context.Context) error {
	conn, err := replication.Connect(ctx, s.relay.stream)
	if err != nil {
		if replication.ShuttingDown(err) {
			return errShuttingDown
		}
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "SET lock_timeout = '"+lockPatience+"'"); err != nil {
		return s.gone(ctx, err)
	}
	var looked time.Time // at the facts: at once, a session before may have left them broken
	for {
		if err := s.look(ctx, conn, &looked); err != nil {
			return s.gone(ctx, err)
		}
		if err := idle(ctx, conn, min(monitorEvery, s.stream.Interval())); err != nil {
			return s.gone(ctx, err)
		}
	}
}

// look is one poll. A server that does not answer it is one that cannot be watched.
func (s *session) look(ctx context.Context, conn *pgx.Conn, looked *time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, monitorPatience)
	defer cancel()
	asked := time.Now()
	state, err := replication.InspectSlot(ctx, conn, s.relay.stream.Slot)
	if err != nil {
		return err
	}
	ours := state.Active && uint32(state.ActivePID) == s.stream.Server().BackendPID
	switch {
	case ours:
		s.owned.seen(asked)
	case s.owned.ever():
		return fmt.Errorf("%w (active: %t, pid %d)", errSlotTaken, state.Active, state.ActivePID)
	default:
		// Behind a connection pooler the pid that the session was told is the
		// pooler's invention, and says nothing about the slot.
	}
	defer s.metrics.SetSlot(state.Lag(), state.Retained()) // last: whoever sees the figures knows that all was looked at
	if time.Since(s.stream.Heard()) > s.stream.Interval() {
		working, err := replication.Working(ctx, conn, s.stream.Server().BackendPID)
		if err != nil {
			return err
		}
		if working {
			s.owned.worked.Store(asked.UnixNano())
		}
	}
	// Only the server that streams can say what it publishes: another one may be
	// a standby that is behind.
	if ours && asked.Sub(*looked) >= factsEvery {
		*looked = asked
		return s.relay.facts.look(ctx, conn, s, state.CurrentWAL)
	}
	return nil
}

// gone tells a server that shuts down (it ends ordinary backends first, then
// waits for walsenders) from a connection that somebody ended.
func (s *session) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil || !replication.ShuttingDown(err) {
		return err
	}
	conn, again := replication.Connect(ctx, s.relay.stream)
	if again == nil {
		_ = conn.Close(ctx)
		return err
	}
	if replication.ShuttingDown(again) {
		return errShuttingDown
	}
	return err
}

// idle waits with an eye on the connection: a server that ends it is noticed at
// once, not at the next poll.
func idle(ctx context.Context, conn *pgx.Conn, d time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		if _, err := conn.WaitForNotification(wait); err != nil {
			if wait.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
				return nil
			}
			return err
		}
	}
}
