package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// closeTimeout bounds a Close whose context has no earlier deadline.
	closeTimeout = 10 * time.Second
	// patience is how long the server may go on sending after CopyDone: it
	// sends a transaction that it has begun to the end.
	patience = 1500 * time.Millisecond
	// advanceTimeout bounds pg_replication_slot_advance, which decodes again
	// from restart_lsn.
	advanceTimeout = 5 * time.Second
	// pollPause is the time between two looks at the slot.
	pollPause = 20 * time.Millisecond
)

// errSending tells that the server is in the middle of a large transaction.
var errSending = errors.New("the server is still sending a transaction")

// Close ends the stream and releases the slot. After Next failed for another
// reason than its context it only closes. Else it sends the watermark, ends the
// copy and reads until the server is ready for the next command, because a
// status is lost when the connection closes right behind it; and up to
// PostgreSQL 16 it makes the slot's position survive a restart of the server.
//
// An error tells that the last watermark may not have arrived: events behind an
// earlier one may come again. The connection is closed in any case.
func (s *Stream) Close(ctx context.Context) error {
	s.closed.Do(func() { s.closeErr = s.close(ctx) })
	return s.closeErr
}

func (s *Stream) close(ctx context.Context) error {
	defer s.conn.Close()
	s.release()
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()

	close(s.closing)
	// The status writer may be in a write that the server does not take.
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	<-s.reported
	if s.err != nil {
		return nil
	}
	err := s.endCopy(ctx)
	if errors.Is(err, errSending) {
		err = s.confirmApart(ctx)
	} else if err == nil {
		s.leave(ctx)
	}
	if err != nil {
		return &Error{Op: "close", Object: quoted("slot", s.cfg.Slot), Class: Transient,
			Err: fmt.Errorf("the last confirmed position %s may not have arrived: %w", s.Confirmed(), err)}
	}
	return nil
}

// endCopy sends the last status and CopyDone and reads to ReadyForQuery.
func (s *Stream) endCopy(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	s.mu.Lock()
	s.hooked++ // a hook that is already running comes too late
	err := s.conn.SetReadDeadline(earlier(deadline, time.Now().Add(patience)))
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
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			return errSending
		}
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
		s.log.Warn("the replication connection takes no commands", "err", err)
		return
	}
	defer conn.Close(ctx)
	s.persist(ctx, conn)
}

// confirmApart waits until the last status has arrived, without reading: only
// a server that cannot send looks at what it was sent. Then the transaction it
// is in the middle of can be cut off; it comes again.
func (s *Stream) confirmApart(ctx context.Context) error {
	conn, err := Connect(ctx, s.cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for {
		slot, err := InspectSlot(ctx, conn, s.cfg.Slot)
		if err != nil {
			return err
		}
		if slot.ConfirmedFlush >= s.Confirmed() {
			break
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	s.conn.Close()
	s.persist(ctx, conn.PgConn())
	return nil
}

// persist makes the position survive a clean restart of the server: up to 16
// confirming alone does not, but pg_replication_slot_advance marks the slot as
// one to be written down. A crash of the server forgets it all the same.
func (s *Stream) persist(ctx context.Context, conn *pgconn.PgConn) {
	if s.server.Version >= 170000 {
		return
	}
	err := advance(ctx, conn, s.cfg.Slot, s.Confirmed())
	if err != nil {
		s.log.Info("the position is confirmed, but a restart of Postgres before its next checkpoint may repeat events",
			"lsn", s.Confirmed().String(), "err", describe(err))
	}
}

func advance(ctx context.Context, conn *pgconn.PgConn, slot string, lsn pglogrepl.LSN) error {
	if _, err := conn.Exec(ctx, fmt.Sprintf("SET statement_timeout = %d", advanceTimeout.Milliseconds())).ReadAll(); err != nil {
		return err
	}
	sql := fmt.Sprintf("SELECT pg_catalog.pg_replication_slot_advance(%s, '%s')", literal(slot), lsn)
	for {
		_, err := conn.Exec(ctx, sql).ReadAll()
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55006" {
			return err
		}
		// The walsender that we left in mid transaction has not noticed yet.
		if err := pause(ctx); err != nil {
			return pg
		}
	}
}

func pause(ctx context.Context) error {
	t := time.NewTimer(pollPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
