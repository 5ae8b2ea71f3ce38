package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tailer-relay/tailer/replication"
)

// facts are what a relay checked at its start and what may change under it: the
// publication, the rights of its role. The server says nothing of either to a
// stream that runs; it sends nothing, or refuses the next one. A fact that went
// wrong makes the relay not ready and is said once, with what to type; put
// right, the relay is ready again by itself.
//
// They outlive the session that found them, and are read by its monitor alone.
type facts struct {
	mu     sync.Mutex // a monitor may still end while the next one begins
	broken string     // what is wrong with the publication, "" when nothing is
	sound  pglogrepl.LSN
	// mayStream is what the catalogue said of the role at first. Where it never
	// said so and the relay streams all the same, it proves nothing.
	asked, mayStream bool
	revoked          string // why a new stream would be refused
}

// unpublished is a publication that is gone: WAL written meanwhile cannot be
// read through one that is made later.
type unpublished struct{ err error }

func (u *unpublished) Error() string { return "while streaming: " + u.err.Error() }
func (u *unpublished) Unwrap() error { return u.err }

// begin notes where a session begins: Open has found nothing wrong.
func (f *facts) begin(lsn pglogrepl.LSN) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == "" {
		f.sound = lsn
	}
}

// refused notes why no further session could begin.
func (f *facts) refused(err error, log *slog.Logger) (cause string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.breaks(err, log)
	return f.broken
}

func (f *facts) breaks(err error, log *slog.Logger) {
	cause := withHint(err, replication.HintOf(err))
	if cause != f.broken {
		log.Error("the outbox is not published as it was: what is written now does not reach Kafka, or not whole", "err", err, "hint", replication.HintOf(err))
	}
	f.broken = cause
}

// look compares the facts with the start's. It returns an *unpublished, or why
// it cannot tell.
func (f *facts) look(ctx context.Context, conn *pgx.Conn, s *session, wal pglogrepl.LSN) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.publication(ctx, conn, s, wal); err != nil {
		return err
	}
	if err := f.rights(ctx, conn, s); err != nil {
		return err
	}
	cause := f.broken
	if cause == "" {
		cause = f.revoked
	}
	s.health.Fault(cause)
	return nil
}

// publication looks whether every row still comes with the columns it needs. A
// publication that cannot be looked at because somebody changes its table is
// looked at later.
func (f *facts) publication(ctx context.Context, conn *pgx.Conn, s *session, wal pglogrepl.LSN) error {
	config := &s.relay.stream
	p, err := replication.InspectPublication(ctx, conn, config.Publication, config.Table)
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "55P03" {
		return nil
	}
	if err != nil {
		return err
	}
	err = p.Check(config.Publication, config.Table, config.Columns...)
	switch {
	case err != nil && replication.Classify(err) == replication.Gap:
		return &unpublished{err}
	case err != nil:
		f.breaks(err, s.log)
	case f.broken != "":
		s.log.Warn("the outbox is published again: rows committed meanwhile may be in the table and not in Kafka",
			"table", config.Table.String(), "from", f.sound.String(), "to", wal.String())
		f.broken, f.sound = "", wal
	default:
		f.sound = wal
	}
	return nil
}

// rights tells when the role has lost what a new stream needs. The catalogue
// gives the hint, trying gives the word.
func (f *facts) rights(ctx context.Context, conn *pgx.Conn, s *session) error {
	var may bool
	err := conn.QueryRow(ctx, `SELECT (rolsuper OR rolreplication) AND rolcanlogin AND has_database_privilege(oid, current_database(), 'CONNECT')
		FROM pg_catalog.pg_roles WHERE rolname = session_user`).Scan(&may)
	if err != nil {
		return fmt.Errorf("look at the role's rights: %w", err)
	}
	if !f.asked {
		f.asked, f.mayStream = true, may
	}
	refused := ""
	if f.mayStream && !may {
		_, err := replication.Identify(ctx, s.relay.stream)
		switch class := replication.Classify(err); {
		case err == nil:
		case class == replication.Usage, class == replication.Auth:
			refused = withHint(fmt.Errorf("the stream goes on, and the next one would be refused: %w", err), replication.HintOf(err))
		default: // the server is out of connections, or on its way down: that proves nothing
			return nil
		}
	}
	switch {
	case refused != "" && f.revoked == "":
		s.log.Error("rights were withdrawn: the stream goes on, and the next one would be refused", "err", refused)
	case refused == "" && f.revoked != "":
		s.log.Info("the rights are back")
	}
	f.revoked = refused
	return nil
}
