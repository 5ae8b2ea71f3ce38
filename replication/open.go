package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// Open connects, checks slot and publication, and starts streaming where the
// slot stands. ctx bounds only the opening. The Stream must be closed.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Stream, error) {
	if !slotName.MatchString(cfg.Slot) {
		return nil, &Error{Op: "check", Object: quoted("slot", cfg.Slot), Class: Usage,
			Err:  errors.New("not a name that Postgres allows for a slot"),
			Hint: "set postgres.slot to lower-case letters, digits and underscores, 63 at most"}
	}
	conn, socket, err := dial(ctx, cfg, true)
	if err != nil {
		return nil, err
	}
	s := &Stream{
		cfg: cfg, log: log, socket: socket, born: time.Now(),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), reported: make(chan struct{}),
	}
	if err := s.prepare(ctx, conn); err != nil {
		closeQuietly(conn)
		return nil, contextFirst(ctx, err)
	}
	if err := s.take(ctx, conn.PgConn()); err != nil {
		return nil, contextFirst(ctx, err)
	}
	if err := s.begin(ctx); err != nil {
		s.conn.Close()
		return nil, contextFirst(ctx, err)
	}
	go s.report()
	return s, nil
}

// contextFirst prefers the caller's reason over the broken read it caused.
func contextFirst(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func closeQuietly(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx) // there is already an error to report
}

// prepare asks the server who it is and refuses what would lose events.
func (s *Stream) prepare(ctx context.Context, conn *pgx.Conn) error {
	facts, err := s.identify(ctx, conn)
	if err != nil {
		return err
	}
	if err := checkServer(facts); err != nil {
		return err
	}
	slot, err := InspectSlot(ctx, conn, s.cfg.Slot)
	if err != nil {
		return err
	}
	// After the slot was read, so that a busy server cannot seem to be behind it.
	id, err := pglogrepl.IdentifySystem(ctx, conn.PgConn())
	if err != nil {
		return &Error{Op: "identify", Object: "the server", Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	facts.flushed, facts.database = id.XLogPos, id.DBName
	s.server.SystemID, s.server.Timeline, s.server.Database = id.SystemID, id.Timeline, id.DBName
	if err := checkSlot(s.cfg, facts, slot); err != nil {
		return err
	}
	publication, err := InspectPublication(ctx, conn, s.cfg.Publication, s.cfg.Table)
	if err != nil {
		return err
	}
	if err := checkPublication(s.cfg, publication); err != nil {
		return err
	}
	if publication.RowFilter != "" {
		s.log.Warn("the publication has a row filter: rows that do not pass it are not relayed",
			"slot", s.cfg.Slot, "publication", s.cfg.Publication, "table", s.cfg.Table.String(), "filter", publication.RowFilter)
	}
	s.start = slot.ConfirmedFlush
	s.confirmed.Store(uint64(s.start))
	s.received.Store(uint64(s.start))
	return nil
}

func (s *Stream) identify(ctx context.Context, conn *pgx.Conn) (serverFacts, error) {
	var f serverFacts
	var timeout int64
	err := conn.QueryRow(ctx, `
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       (SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'),
       current_setting('wal_level'), pg_is_in_recovery()`).
		Scan(&f.version, &s.server.VersionText, &timeout, &f.walLevel, &f.inRecovery)
	if err != nil {
		return f, &Error{Op: "identify", Object: "the server", Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	s.server.Version = f.version
	s.server.BackendPID = conn.PgConn().PID()
	s.server.SenderTimeout = time.Duration(timeout) * time.Millisecond
	s.interval = statusInterval(s.server.SenderTimeout)
	return f, nil
}

// statusInterval keeps four statuses within wal_sender_timeout, where the
// server cuts the connection.
func statusInterval(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return maxInterval
	}
	return max(min(maxInterval, timeout/4), 10*time.Millisecond)
}

// take makes the connection ours: from here on pgconn does not touch it, so
// that reader and status writer can each use their own direction of it.
func (s *Stream) take(ctx context.Context, conn *pgconn.PgConn) error {
	err := conn.SyncConn(ctx) // nothing may be left in pgconn's buffers
	if err == nil {
		s.hijack, err = conn.Hijack()
	}
	if err != nil {
		conn.Conn().Close()
		return &Error{Op: "prepare", Object: "the replication connection", Class: classifyCause(err), Err: err}
	}
	s.conn = s.hijack.Conn
	s.in = newMessageReader((*streamSource)(s))
	return nil
}

// begin sends START_REPLICATION and waits until the stream is open.
func (s *Stream) begin(ctx context.Context) error {
	command := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s)",
		pgx.Identifier{s.cfg.Slot}.Sanitize(), s.start, literal(pgx.Identifier{s.cfg.Publication}.Sanitize()))
	query, err := (&pgproto3.Query{String: command}).Encode(nil)
	if err != nil {
		return err
	}
	s.watch(ctx, ctx.Done())
	if deadline, ok := ctx.Deadline(); ok {
		s.conn.SetWriteDeadline(deadline)
	}
	if _, err := s.conn.Write(query); err != nil {
		return &Error{Op: "start", Object: quoted("slot", s.cfg.Slot), Class: classifyCause(err), Err: err}
	}
	for {
		kind, body, err := s.in.message()
		if err != nil {
			return s.readFailed(ctx, err)
		}
		switch kind {
		case 'W':
			return nil
		case 'E':
			var m pgproto3.ErrorResponse
			if err := m.Decode(body); err != nil {
				return &Error{Op: "start", Object: quoted("slot", s.cfg.Slot), Class: Auth, Err: err}
			}
			return streamError("start", s.cfg, pgconn.ErrorResponseToPgError(&m))
		default:
			if err := s.aside(kind, body); err != nil {
				return err
			}
		}
	}
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
