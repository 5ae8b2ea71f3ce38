package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/replication"
)

// stateTables are the two tables in which a relay remembers: one row a slot of
// how far it came, and one row for each gap that a person has accepted.
type stateTables struct {
	slot        string
	schema      string
	state, gaps string // bare names
}

// gapsSuffix makes the second table's name out of the first one's.
const gapsSuffix = "_gaps"

func stateTablesOf(cfg *Config) stateTables {
	return stateTables{slot: cfg.Postgres.Slot, schema: cfg.Checkpoint.TableSchema,
		state: cfg.Checkpoint.TableName, gaps: cfg.Checkpoint.TableName + gapsSuffix}
}

func (t stateTables) stateSQL() string { return quoteIdent(t.schema, t.state) }
func (t stateTables) gapsSQL() string  { return quoteIdent(t.schema, t.gaps) }

func (t stateTables) createState() string {
	return fmt.Sprintf(`CREATE TABLE %s (
    slot text PRIMARY KEY,
    system_identifier text NOT NULL,
    timeline integer NOT NULL,
    confirmed_lsn pg_lsn NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    session text -- who writes here now; NULL after a stop in order
)`, t.stateSQL())
}

func (t stateTables) createGaps() string {
	return fmt.Sprintf(`CREATE TABLE %s (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot text NOT NULL,
    from_lsn pg_lsn NOT NULL,
    to_lsn pg_lsn, -- NULL: known at the relay's next start
    reason text NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT now(),
    accepted_by text NOT NULL
)`, t.gapsSQL())
}

func (t stateTables) grant(role string) string {
	return fmt.Sprintf("GRANT SELECT, INSERT, UPDATE ON %s, %s TO %s", t.stateSQL(), t.gapsSQL(), quoteIdent(role))
}

// storedState is a row of the state table.
type storedState struct {
	checkpoint.State
	updated time.Time
}

// decisive is what Decide looks at; nil when nothing is stored.
func (s *storedState) decisive() *checkpoint.State {
	if s == nil {
		return nil
	}
	return &s.State
}

// read returns nil when the relay never stored anything.
func (t stateTables) read(ctx context.Context, q replication.Querier) (*storedState, error) {
	var s storedState
	var lsn string
	err := q.QueryRow(ctx, fmt.Sprintf(`SELECT s.system_identifier, s.timeline, s.confirmed_lsn::text, s.updated_at, s.session IS NOT NULL,
			EXISTS (SELECT FROM %s AS g WHERE g.slot = s.slot AND g.to_lsn IS NULL)
		FROM %s AS s WHERE s.slot = $1`, t.gapsSQL(), t.stateSQL()), t.slot).
		Scan(&s.System, &s.Timeline, &lsn, &s.updated, &s.Running, &s.Accepted)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		s.Confirmed, err = pglogrepl.ParseLSN(lsn)
	}
	if err != nil {
		return nil, t.failed("read", err)
	}
	return &s, nil
}

// errNoState is the cause of an error about a state table that is not there.
var errNoState = errors.New("it does not exist")

// failed says what to do about a table that is missing, of another shape, or
// not ours to touch: the gap law cannot be kept without it, so a relay does not
// start then. Everything else has its class from the server.
func (t stateTables) failed(op string, err error) error {
	e := &replication.Error{Op: op, Object: "state table " + t.stateSQL(), Class: replication.Classify(err), Hint: replication.HintOf(err), Err: err}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return e
	}
	e.Err = pg // without what the driver adds
	switch pg.Code {
	case "42P01", "3F000":
		e.Op, e.Class, e.Err = "check", replication.Usage, errNoState
		e.Hint = "tailer init --apply creates it (with --role NAME, also the relay's rights)"
	case "42501":
		e.Class = replication.Usage
		e.Hint = "let its owner run: tailer init --apply --role NAME; or grant by hand: " + t.grant("NAME")
	case "42703", "42804", "42883", "428C9", "23502", "42P10":
		e.Class = replication.Usage
		e.Hint = "it is not a table that tailer made: name another one with checkpoint.table, and tailer init --apply creates it"
	}
	return e
}

// begin stores where a session begins, and that it is the one that writes from
// now on. An accepted gap whose end was not known ends here.
func (t stateTables) begin(ctx context.Context, conn *pgx.Conn, server replication.Server, lsn, start pglogrepl.LSN, session string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (slot, system_identifier, timeline, confirmed_lsn, session)
			VALUES ($1, $2, $3, $4::text::pg_lsn, $5)
			ON CONFLICT (slot) DO UPDATE SET system_identifier = EXCLUDED.system_identifier, timeline = EXCLUDED.timeline,
				confirmed_lsn = EXCLUDED.confirmed_lsn, session = EXCLUDED.session, updated_at = now()`, t.stateSQL()),
			t.slot, server.SystemID, server.Timeline, lsn.String(), session)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, fmt.Sprintf("UPDATE %s SET to_lsn = $2::text::pg_lsn WHERE slot = $1 AND to_lsn IS NULL", t.gapsSQL()),
			t.slot, start.String())
		return err
	})
	if err != nil {
		return t.failed("write", err)
	}
	return nil
}

// errTakenOver: the row is another session's by now, or gone.
var errTakenOver = errors.New("its row is not this session's any more")

// store moves a session's position. last ends the session in order.
func (t stateTables) store(ctx context.Context, conn *pgx.Conn, lsn pglogrepl.LSN, session string, last bool) error {
	next := &session
	if last {
		next = nil
	}
	tag, err := conn.Exec(ctx, fmt.Sprintf(`UPDATE %s SET confirmed_lsn = greatest(confirmed_lsn, $3::text::pg_lsn), session = $4, updated_at = now()
		WHERE slot = $1 AND session = $2`, t.stateSQL()), t.slot, session, lsn.String(), next)
	if err == nil && tag.RowsAffected() == 0 {
		err = errTakenOver
	}
	if err != nil {
		return t.failed("write", err)
	}
	return nil
}

// gap is what a person accepts.
type gap struct {
	from, to pglogrepl.LSN // to 0: not known yet
	reason   string
	by       string
}

// accept records a gap. Where its end is known the state goes on from there.
func (t stateTables) accept(ctx context.Context, conn *pgx.Conn, g gap, system replication.System) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var to *string
		if g.to != 0 {
			text := g.to.String()
			to = &text
			_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (slot, system_identifier, timeline, confirmed_lsn) VALUES ($1, $2, $3, $4::text::pg_lsn)
				ON CONFLICT (slot) DO UPDATE SET system_identifier = EXCLUDED.system_identifier, timeline = EXCLUDED.timeline,
					confirmed_lsn = EXCLUDED.confirmed_lsn, session = NULL, updated_at = now()`, t.stateSQL()),
				t.slot, system.ID, system.Timeline, text)
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (slot, from_lsn, to_lsn, reason, accepted_by)
			VALUES ($1, $2::text::pg_lsn, $3::text::pg_lsn, $4, $5)`, t.gapsSQL()), t.slot, g.from.String(), to, g.reason, g.by)
		return err
	})
	if err != nil {
		return t.failed("write", err)
	}
	return nil
}
