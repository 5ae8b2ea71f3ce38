package replication

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// This file holds every judgement about a server, a slot and a publication:
// the relay refuses to start by them, init and status tell them beforehand.

// ServerState is what decides whether a server can be streamed from at all.
type ServerState struct {
	Version     int // as server_version_num: 150018
	VersionText string
	Database    string
	WALLevel    string
	InRecovery  bool // it is a standby
	// SenderTimeout is wal_sender_timeout as it holds for the session that
	// asked; 0: off.
	SenderTimeout time.Duration
}

// InspectServer reads the state of the server that c is connected to.
func InspectServer(ctx context.Context, c Querier) (ServerState, error) {
	var s ServerState
	var timeout int64
	err := c.QueryRow(ctx, `
SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_database()::text,
       (SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'),
       current_setting('wal_level'), pg_is_in_recovery()`).
		Scan(&s.Version, &s.VersionText, &s.Database, &timeout, &s.WALLevel, &s.InRecovery)
	if err != nil {
		return ServerState{}, &Error{Op: "identify", Object: "the server", Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	s.SenderTimeout = time.Duration(timeout) * time.Millisecond
	return s, nil
}

// Check tells why nothing can be streamed from the server; the error is an
// *Error, or nil.
func (s ServerState) Check() error {
	if s.WALLevel != "logical" {
		return &Error{Op: "check", Object: "the server", Class: Usage,
			Err: fmt.Errorf("wal_level is %q, logical decoding needs \"logical\"", s.WALLevel),
			Hint: "ALTER SYSTEM SET wal_level = 'logical'; and restart Postgres; on managed services " +
				"set rds.logical_replication = 1, cloudsql.logical_decoding = on, or azure.replication_support = logical"}
	}
	if s.InRecovery && s.Version < 160000 {
		// Transient: in a failover this host may be promoted in a moment.
		return &Error{Op: "check", Object: "the server", Class: Transient,
			Err:  errors.New("it is a standby, and before PostgreSQL 16 only a primary decodes"),
			Hint: "point postgres.dsn at the primary, or list all hosts and add target_session_attrs=read-write"}
	}
	return nil
}

// ErrNoSlot is the cause of an error about a slot that is not there.
var ErrNoSlot = errors.New("it does not exist")

// Check tells why the slot of that name cannot be streamed from by a connection
// to database; the error is an *Error, or nil.
func (s SlotState) Check(slot, database string) error {
	fault := func(class Class, hint, format string, args ...any) error {
		return &Error{Op: "check", Object: quoted("slot", slot), Class: class, Hint: hint, Err: fmt.Errorf(format, args...)}
	}
	other := "name another slot in postgres.slot; tailer init --apply creates it"
	anew := "tailer slot accept-gap, tailer slot drop, and then tailer slot create"
	drop := "SELECT pg_drop_replication_slot(" + literal(slot) + "); then tailer init --apply"
	switch {
	case !s.Exists:
		return fault(Gap, "if this relay never ran, create it: tailer init --apply; "+
			"if it did, events written since its last run may be missing from Kafka, and a new slot begins only now",
			"%w", ErrNoSlot)
	case s.Plugin == "":
		return fault(Usage, other, "it is a physical slot")
	case s.Plugin != "pgoutput":
		return fault(Usage, other, "its output plugin is %q, not \"pgoutput\"", s.Plugin)
	case s.Database != database:
		return fault(Usage, "connect to that database in postgres.dsn, or "+other,
			"it belongs to database %q, and this is %q", s.Database, database)
	case s.Temporary:
		return fault(Usage, other, "it is temporary and ends with the session that created it")
	case s.TwoPhase:
		return fault(Usage, other, "it decodes prepared transactions before they commit (two_phase)")
	case s.Lost():
		why := "the server removed WAL that it still needed"
		if s.InvalidationReason != "" {
			why = "invalidated: " + s.InvalidationReason
		}
		return fault(Gap, fmt.Sprintf("a person must decide: events written after %s are not in Kafka. To go on from now: %s", s.ConfirmedFlush, anew),
			"it is lost (%s); events from %s up to now, %s, are missing", why, s.ConfirmedFlush, s.CurrentWAL)
	case s.ConfirmedFlush == 0:
		return fault(Gap, "drop it and create it again: "+drop, "it has no confirmed position: its creation never finished")
	}
	return nil
}

// checkPosition refuses to start behind the end of the server's WAL: the server
// would take the position and skip whatever it writes up to there.
func checkPosition(cfg Config, start, flushed pglogrepl.LSN) error {
	if start <= flushed {
		return nil
	}
	return &Error{Op: "check", Object: quoted("slot", cfg.Slot), Class: Gap,
		Err:  fmt.Errorf("its position %s is ahead of the server's, %s", start, flushed),
		Hint: "this server is not the one the position comes from: it was restored or reset; a person must decide what is missing"}
}

// Check tells why the publication of that name does not deliver every row of t
// with the columns that are needed; the error is an *Error, or nil.
func (p PublicationState) Check(publication string, t Table, need ...Column) error {
	fault := func(class Class, hint, format string, args ...any) error {
		return &Error{Op: "check", Object: quoted("publication", publication), Class: class, Hint: hint, Err: fmt.Errorf(format, args...), unpublished: true}
	}
	alter := "ALTER PUBLICATION " + pgx.Identifier{publication}.Sanitize()
	table := pgx.Identifier{t.Schema, t.Name}.Sanitize()
	switch {
	case !p.Exists:
		return fault(Gap, "tailer init --apply creates it; rows that were written while it was missing cannot be decoded, so a slot that is older must be created again after it",
			"it does not exist in this database")
	case !p.TableExists:
		return fault(Usage, "check outbox.table (names stand as in the catalogue, without case folding), or create it: tailer init --apply",
			"there is no table %s", table)
	case !p.Insert:
		return fault(Usage, alter+" SET (publish = 'insert');", "it does not publish inserts")
	case !p.HasTable && p.LeavesOnly:
		return fault(Usage, alter+" SET (publish_via_partition_root = true); and where it lists the partitions, "+alter+" ADD TABLE "+table+";",
			"it publishes the partitions of %s under their own names", table)
	case !p.HasTable:
		return fault(Usage, alter+" ADD TABLE "+table+";", "it does not contain %s", table)
	case p.RowFilter != "":
		return fault(Usage, alter+" SET TABLE "+table+"; publishes every row of that table, and no other table",
			"its row filter hides rows of %s: WHERE %s", table, p.RowFilter)
	}
	return p.checkColumns(publication, t, need)
}

// streamError gives an error of START_REPLICATION or of the stream its class.
func streamError(op string, cfg Config, pg *pgconn.PgError) error {
	slot := quoted("slot", cfg.Slot)
	switch pg.Code {
	case "55006":
		return &ActiveError{Slot: cfg.Slot, PID: pidIn(pg.Message)}
	case "42704":
		if strings.Contains(pg.Message, cfg.Publication) || changeLSN(pg.Where) != "" {
			return gapByPublication(op, cfg, pg)
		}
		return &Error{Op: op, Object: slot, Class: Gap, Err: pg,
			Hint: "the slot was dropped: events written since its last confirmed position may be missing; a person must decide. To go on from now: tailer init --apply"}
	case "55000":
		// Also raised for a slot of another database and for a low wal_level,
		// both of which are checked before.
		return &Error{Op: op, Object: slot, Class: Gap, Err: pg,
			Hint: "the slot can no longer be read: SELECT * FROM pg_replication_slots; shows how far it came. " +
				"To go on from now: SELECT pg_drop_replication_slot(" + literal(cfg.Slot) + "); then tailer init --apply"}
	}
	e := &Error{Op: op, Object: slot, Class: classifyState(pg.Code), Hint: HintOf(pg), Err: pg}
	if pg.Code == "XX000" || pg.Code == "54000" {
		e.unsendable = cfg.Slot
		e.Hint = unsendable + "; docs/limits.md tells how to step over it"
		if lsn := changeLSN(pg.Where); lsn != "" {
			e.Err = fmt.Errorf("the server cannot send the change at %s: %w", lsn, pg)
		}
	}
	return e
}

const unsendable = "Postgres cannot build the message of a row whose text comes near 1 GB (a bytea counts twice), and the slot stands before it: look for it in the outbox, publish it in another way and keep such rows out"

// StepOver completes the hint of an error about a change that the server fails
// to send, with what leads out of it: the slot is moved behind the transaction
// that commits at the given position and was begun in the stream. Other errors
// it returns as they are.
func StepOver(err error, commit pglogrepl.LSN) error {
	var e *Error
	if !errors.As(err, &e) || e.unsendable == "" {
		return err
	}
	over := *e
	over.Err = fmt.Errorf("%w, in the transaction that commits at %s", e.Err, commit)
	// The server sends what commits at or after the slot's position.
	over.Hint = fmt.Sprintf("%s; then stop the relay and step over that transaction, whose rows are then not in Kafka: SELECT pg_replication_slot_advance(%s, '%s'); and tailer slot accept-gap if the relay then finds the slot moved",
		unsendable, literal(e.unsendable), commit+1)
	return &over
}

// skipsPublication recognises the warning by which PostgreSQL 18 tells that it
// decodes without the publication. The routine's name is never translated.
func skipsPublication(n *pgconn.PgError) bool {
	return n.Code == "55000" &&
		(n.Routine == "LoadPublications" || strings.Contains(n.Message, "skipped loading publication"))
}

// gapByPublication is the error for WAL in which the publication does not
// exist: creating it now does not help there.
func gapByPublication(op string, cfg Config, pg *pgconn.PgError) error {
	at := ""
	if lsn := changeLSN(pg.Where); lsn != "" {
		at = " at " + lsn
	}
	return &Error{Op: op, Object: quoted("slot", cfg.Slot), Class: Gap,
		Err: fmt.Errorf("the slot is older than publication %q: it did not exist%s in the WAL, and rows written before it cannot be read through it: %w", cfg.Publication, at, pg),
		Hint: fmt.Sprintf("with the publication in place, skip what cannot be read, as a named gap: SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn()); and tailer slot accept-gap if the relay then finds the slot moved; "+
			"or go on from now with a new slot: tailer slot drop, tailer slot accept-gap, and then tailer slot create. Rows of that time are then not in Kafka", literal(cfg.Slot))}
}

var (
	quotedText = regexp.MustCompile(`"[^"]*"|«[^»]*»|„[^“]*“`)
	digits     = regexp.MustCompile(`[0-9]+`)
	hexLSN     = regexp.MustCompile(`\b[0-9A-F]{1,8}/[0-9A-F]{1,8}\b`)
)

// pidIn finds the process in: replication slot "s1" is active for PID 42. The
// words may be translated; the slot's name may have digits.
func pidIn(message string) uint32 {
	pid, err := strconv.ParseUint(digits.FindString(quotedText.ReplaceAllString(message, "")), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(pid)
}

// changeLSN finds the position in: slot "s", output plugin "pgoutput", in the
// change callback, associated LSN 0/1234.
func changeLSN(where string) string {
	return hexLSN.FindString(quotedText.ReplaceAllString(where, ""))
}

func quoted(kind, name string) string { return kind + " " + strconv.Quote(name) }
