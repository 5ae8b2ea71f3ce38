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
// slot stands. ctx bounds only the opening. The Stream must be closed. What it
// logs does not name the slot: log does, for the relay as a whole.
//
// All queries go over a connection of their own. On the one that streams they
// would lose events: the walsender decodes with the catalogue caches that they
// filled, finds a publication there that did not exist at that point of the
// WAL, and skips the row without the error that it owes.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Stream, error) {
	s, err := openStream(ctx, cfg, log)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err() // the reason of the broken read, not the read
	}
	return s, err
}

func openStream(ctx context.Context, cfg Config, log *slog.Logger) (*Stream, error) {
	if !slotName.MatchString(cfg.Slot) {
		return nil, &Error{Op: "check", Object: quoted("slot", cfg.Slot), Class: Usage,
			Err:  errors.New("not a name that Postgres allows for a slot"),
			Hint: "set postgres.slot to lower-case letters, digits and underscores, 63 at most"}
	}
	queries, err := Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(queries)
	s := &Stream{
		cfg: cfg, log: log, born: time.Now(),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), reported: make(chan struct{}),
	}
	slot, err := s.check(ctx, queries)
	if err != nil {
		return nil, err
	}
	if err := s.connect(ctx, slot.ConfirmedFlush); err != nil {
		return nil, err
	}
	err = s.begin(ctx, slot.ConfirmedFlush)
	if err == nil {
		err = s.seed(ctx, queries)
	}
	if err != nil {
		// The hook outlives the attempt with the caller's context, and with it
		// all that the Stream holds: a standby tries twice a second, for weeks.
		s.release()
		s.conn.Close()
		return nil, err
	}
	go s.report()
	return s, nil
}

func closeQuietly(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx) // nothing depends on it
}

// check asks the server who it is and refuses what would lose events.
func (s *Stream) check(ctx context.Context, c *pgx.Conn) (SlotState, error) {
	server, err := InspectServer(ctx, c)
	if err != nil {
		return SlotState{}, err
	}
	s.server.Version, s.server.VersionText, s.server.Database = server.Version, server.VersionText, server.Database
	s.server.SenderTimeout = server.SenderTimeout
	s.interval = statusInterval(server.SenderTimeout)
	if err := server.Check(); err != nil {
		return SlotState{}, err
	}
	slot, err := InspectSlot(ctx, c, s.cfg.Slot)
	if err != nil {
		return slot, err
	}
	if err := slot.Check(s.cfg.Slot, server.Database); err != nil {
		return slot, err
	}
	publication, err := InspectPublication(ctx, c, s.cfg.Publication, s.cfg.Table)
	if err != nil {
		return slot, err
	}
	for _, w := range publication.Warnings(s.cfg.Publication, s.cfg.Table) {
		if s.cfg.Warn != nil {
			s.cfg.Warn(w)
		} else {
			s.log.Warn(w.Text, "hint", w.Hint)
		}
	}
	return slot, publication.Check(s.cfg.Publication, s.cfg.Table, s.cfg.Columns...)
}

// connect opens the replication connection and makes it ours: from then on
// pgconn does not touch it, so that reader and status writer can each use their
// own direction of it.
func (s *Stream) connect(ctx context.Context, start pglogrepl.LSN) error {
	conn, socket, err := dial(ctx, s.cfg, true)
	if err != nil {
		return err
	}
	id, err := pglogrepl.IdentifySystem(ctx, conn.PgConn())
	if err != nil {
		closeQuietly(conn)
		return &Error{Op: "identify", Object: "the server", Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	s.server.SystemID, s.server.Timeline, s.server.BackendPID = id.SystemID, id.Timeline, conn.PgConn().PID()
	s.server.Flushed = id.XLogPos
	if err := checkPosition(s.cfg, start, id.XLogPos); err != nil {
		closeQuietly(conn)
		return err
	}
	err = conn.PgConn().SyncConn(ctx) // nothing may be left in pgconn's buffers
	if err == nil {
		s.hijack, err = conn.PgConn().Hijack()
	}
	if err != nil {
		closeQuietly(conn)
		return &Error{Op: "prepare", Object: "the replication connection", Class: classifyCause(err), Err: err}
	}
	s.conn, s.socket = s.hijack.Conn, socket
	s.in = newMessageReader((*streamSource)(s))
	return nil
}

// seed reads where the slot stands now that nobody else can move it: before,
// another relay may have held it and confirmed more. The watermark begins there.
func (s *Stream) seed(ctx context.Context, c *pgx.Conn) error {
	slot, err := InspectSlot(ctx, c, s.cfg.Slot)
	if err != nil {
		return err
	}
	if !slot.Active {
		if err := s.ended(ctx); err != nil {
			return err
		}
		return &Error{Op: "check", Object: quoted("slot", s.cfg.Slot), Class: Transient,
			Err:  errors.New("it streams, but where queries go it is not in use: the two connections reached different servers"),
			Hint: "let postgres.dsn lead to one server: add target_session_attrs=read-write where it lists several hosts"}
	}
	s.start = slot.ConfirmedFlush
	s.confirmed.Store(uint64(s.start))
	s.received.Store(max(s.received.Load(), uint64(s.start)))
	return nil
}

// ended reads a stream that seems to be over and returns the server's reason;
// nil if it goes on.
func (s *Stream) ended(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		if _, err := s.Next(ctx); err != nil && ctx.Err() == nil {
			return err
		} else if err != nil {
			return nil
		}
	}
}

// statusInterval keeps four statuses within wal_sender_timeout, where the
// server cuts the connection.
func statusInterval(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return maxInterval
	}
	return max(min(maxInterval, timeout/4), 10*time.Millisecond)
}

// begin sends START_REPLICATION and waits until the stream is open.
func (s *Stream) begin(ctx context.Context, start pglogrepl.LSN) error {
	command := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s)",
		pgx.Identifier{s.cfg.Slot}.Sanitize(), start, literal(pgx.Identifier{s.cfg.Publication}.Sanitize()))
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
			s.said.Store(s.heard.Load())
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
