package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/internal/crashpoint"
	"github.com/tailer-relay/tailer/replication"
)

const (
	// keepEvery is the least time between two stored positions while events flow,
	// and the pause after a write that failed.
	keepEvery = 10 * time.Second
	// keepWithin bounds a write: what it holds up is the confirming, and behind it
	// the publisher.
	keepWithin = 2 * time.Second
)

// keeper stores how far a session came. The publisher's loop owns it between
// begin and stop. A nil keeper keeps nothing.
//
// It stores before the stream confirms: a slot is never more than
// checkpoint.Slack ahead of what is stored, so one that is was moved by somebody
// else. An idle relay writes nothing: without events only every so many bytes of
// WAL count, and a write makes a few hundred.
type keeper struct {
	tables  stateTables
	config  replication.Config
	session string // names this session in the table: one that was taken over writes no more
	log     *slog.Logger

	conn    *pgx.Conn     // nil: to be opened again
	stored  pglogrepl.LSN // what the table has
	at      time.Time     // when it was written
	failed  time.Time     // when a write failed last; zero: the last one did not
	retired bool          // another session has taken over
}

// connect opens the connection for the state. A commit there does not wait for
// standbys: one that is away would hold up the relay.
func (k *keeper) connect(ctx context.Context) error {
	conn, err := replication.Connect(ctx, k.config)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SET synchronous_commit = local; SET statement_timeout = '2s'"); err != nil {
		closeConn(conn)
		return k.tables.failed("write", err)
	}
	k.conn = conn
	return nil
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing depends on it
}

func (k *keeper) close() {
	if k != nil && k.conn != nil {
		closeConn(k.conn)
		k.conn = nil
	}
}

// begin stores a session's first position, before anything is confirmed.
func (k *keeper) begin(ctx context.Context, server replication.Server, lsn, start pglogrepl.LSN) error {
	k.session = rand.Text()
	if err := k.tables.begin(ctx, k.conn, server, lsn, start, k.session); err != nil {
		return err
	}
	k.stored, k.at = lsn, time.Now()
	return nil
}

// keep stores a position that is about to be confirmed, if it is due: events
// have flowed for a while, or WAL has passed. A write that fails is said and
// does not stop the stream.
func (k *keeper) keep(ctx context.Context, lsn pglogrepl.LSN, events bool) {
	if k == nil || lsn <= k.stored || k.retired {
		return
	}
	now := time.Now()
	far := lsn-k.stored > checkpoint.Slack
	if !far && (!events || now.Sub(k.at) < keepEvery) || now.Sub(k.failed) < keepEvery {
		return
	}
	if err := k.write(ctx, lsn, false); err != nil {
		k.failed = time.Now()
		k.log.Error("the position is not stored: after a crash the relay may take what it confirmed since for a gap, and exit",
			"table", k.tables.stateSQL(), "lsn", lsn.String(), "stored", k.stored.String(), "err", err, "hint", replication.HintOf(err))
		return
	}
	if !k.failed.IsZero() {
		k.log.Info("the position is stored again", "lsn", lsn.String())
		k.failed = time.Time{}
	}
}

// stop stores the last position of a session that has settled everything. It
// comes before the slot is released, so that nobody else has begun.
func (k *keeper) stop(ctx context.Context, lsn pglogrepl.LSN) {
	if k == nil || k.retired {
		return
	}
	if err := k.write(ctx, lsn, true); err != nil {
		k.log.Warn("the last position is not stored; the one before it is",
			"table", k.tables.stateSQL(), "lsn", lsn.String(), "stored", k.stored.String(), "err", err, "hint", replication.HintOf(err))
	}
}

func (k *keeper) write(ctx context.Context, lsn pglogrepl.LSN, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	for again := !last; ; again = false {
		if k.conn == nil || k.conn.IsClosed() {
			if err := k.connect(ctx); err != nil {
				return err
			}
		}
		crashpoint.Pass("state.before")
		err := k.tables.store(ctx, k.conn, lsn, k.session, last)
		crashpoint.Pass("state.after")
		switch {
		case err == nil:
			k.stored, k.at = lsn, time.Now()
			return nil
		case again && k.conn.IsClosed() && ctx.Err() == nil:
			// A connection that the server ended while nobody used it fails at its
			// next use. Should the statement have run, it may run twice.
		default:
			k.retired = errors.Is(err, errTakenOver)
			return err
		}
	}
}
