package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// closeTimeout bounds a Close whose context has no deadline.
	closeTimeout = 10 * time.Second
	// advanceTimeout bounds pg_replication_slot_advance, which decodes again
	// from restart_lsn.
	advanceTimeout = 5 * time.Second
)

// Close ends the stream and releases the slot. After Next failed for another
// reason than its context it only closes. Else it sends the watermark, ends the
// copy and reads until the server is ready for the next command, because a
// status is lost when the connection closes right behind it; and up to
// PostgreSQL 16 it makes the slot's position survive a restart of the server.
//
// An error tells that the last watermark may not have arrived: events after the
// one before may come again. The connection is closed in any case.
func (s *Stream) Close(ctx context.Context) error {
	s.closed.Do(func() { s.closeErr = s.close(ctx) })
	return s.closeErr
}

func (s *Stream) close(ctx context.Context) error {
	defer func() { s.conn.Close() }()
	if s.unhook != nil {
		s.unhook()
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()

	close(s.closing)
	// The status writer may be in a write that the server does not take.
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	<-s.reported
	if s.err != nil {
		stop()
		return nil
	}
	err := s.farewell(ctx)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return &Error{Op: "close", Object: quoted("slot", s.cfg.Slot), Class: Transient,
			Err: fmt.Errorf("the last confirmed position %s may not have arrived: %w", s.Confirmed(), err)}
	}
	s.leave(ctx)
	return nil
}

// farewell sends the last status and ends the copy.
func (s *Stream) farewell(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	s.mu.Lock()
	s.hooked++ // a hook that is already running comes too late
	err := s.conn.SetReadDeadline(deadline)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.send(s.Confirmed(), false, deadline); err != nil {
		return err
	}
	if _, err := s.conn.Write([]byte{'c', 0, 0, 0, 4}); err != nil {
		return err
	}
	for {
		// Data that was under way is read and dropped; it comes again.
		kind, body, err := s.in.message()
		if err != nil {
			return err
		}
		switch kind {
		case 'Z':
			return nil
		case 'E':
			var m pgproto3.ErrorResponse
			if err := m.Decode(body); err != nil {
				return err
			}
			return pgconn.ErrorResponseToPgError(&m)
		}
	}
}

// leave uses the connection, which takes commands again, for what is left.
func (s *Stream) leave(ctx context.Context) {
	if s.in.buffered() != 0 {
		return // the server spoke behind ReadyForQuery: it is going down
	}
	conn, err := pgconn.Construct(s.hijack)
	if err != nil {
		s.log.Warn("cannot use the replication connection any more", "slot", s.cfg.Slot, "err", err)
		return
	}
	defer conn.Close(ctx)
	if s.server.Version >= 170000 {
		return // a clean shutdown of the server keeps the position
	}
	if err := advance(ctx, conn, s.cfg.Slot, s.Confirmed()); err != nil {
		s.log.Info("the slot's position is confirmed, but a restart of Postgres before its next checkpoint may repeat events",
			"slot", s.cfg.Slot, "lsn", s.Confirmed().String(), "err", describe(err))
	}
}

// advance marks the slot dirty, so that a clean shutdown of the server writes
// its position down: up to 16, confirming alone does not.
func advance(ctx context.Context, conn *pgconn.PgConn, slot string, lsn pglogrepl.LSN) error {
	sql := fmt.Sprintf("SET statement_timeout = %d; SELECT pg_catalog.pg_replication_slot_advance(%s, '%s')",
		advanceTimeout.Milliseconds(), literal(slot), lsn)
	_, err := conn.Exec(ctx, sql).ReadAll()
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg
	}
	return err
}
