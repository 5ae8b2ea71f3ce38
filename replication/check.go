package replication

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// serverFacts decide what can be streamed at all.
type serverFacts struct {
	version    int
	database   string
	walLevel   string
	inRecovery bool
}

func checkServer(f serverFacts) error {
	if f.walLevel != "logical" {
		return &Error{Op: "check", Object: "the server", Class: Usage,
			Err: fmt.Errorf("wal_level is %q, logical decoding needs \"logical\"", f.walLevel),
			Hint: "ALTER SYSTEM SET wal_level = 'logical' and restart Postgres; on managed services " +
				"set rds.logical_replication = 1, cloudsql.logical_decoding = on, or azure.replication_support = logical"}
	}
	if f.inRecovery && f.version < 160000 {
		// Transient: in a failover this host may be promoted in a moment.
		return &Error{Op: "check", Object: "the server", Class: Transient,
			Err:  errors.New("it is a standby, and before PostgreSQL 16 only a primary decodes"),
			Hint: "point postgres.dsn at the primary, or list all hosts and add target_session_attrs=read-write"}
	}
	return nil
}

func checkSlot(cfg Config, f serverFacts, s SlotState) error {
	fault := func(class Class, hint, format string, args ...any) error {
		return &Error{Op: "check", Object: quoted("slot", cfg.Slot), Class: class, Hint: hint, Err: fmt.Errorf(format, args...)}
	}
	other := "name another slot in postgres.slot; tailer init --apply creates it"
	switch {
	case !s.Exists:
		return fault(Gap, "if this relay never ran, create it: tailer init --apply; "+
			"if it did, events written since its last run may be missing from Kafka, and a new slot begins only now",
			"it does not exist")
	case s.Plugin == "":
		return fault(Usage, other, "it is a physical slot")
	case s.Plugin != "pgoutput":
		return fault(Usage, other, "its output plugin is %q, not \"pgoutput\"", s.Plugin)
	case s.Database != f.database:
		return fault(Usage, "connect to that database in postgres.dsn, or "+other,
			"it belongs to database %q, and this is %q", s.Database, f.database)
	case s.Temporary:
		return fault(Usage, other, "it is temporary and ends with the session that created it")
	case s.TwoPhase:
		return fault(Usage, other, "it decodes prepared transactions before they commit (two_phase)")
	case s.Lost():
		why := "the server removed WAL that it still needed"
		if s.InvalidationReason != "" {
			why = "invalidated: " + s.InvalidationReason
		}
		return fault(Gap, fmt.Sprintf("a person must decide: events written after %s are not in Kafka. To go on from now: "+
			"SELECT pg_drop_replication_slot('%s'); then tailer init --apply", s.ConfirmedFlush, cfg.Slot),
			"it is lost (%s); events from %s up to now, %s, are missing", why, s.ConfirmedFlush, s.CurrentWAL)
	case s.ConfirmedFlush == 0:
		return fault(Gap, "drop it and create it again: SELECT pg_drop_replication_slot('"+cfg.Slot+"'); then tailer init --apply",
			"it has no confirmed position: its creation never finished")
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

func checkPublication(cfg Config, p PublicationState) error {
	fault := func(class Class, hint, format string, args ...any) error {
		return &Error{Op: "check", Object: quoted("publication", cfg.Publication), Class: class, Hint: hint, Err: fmt.Errorf(format, args...)}
	}
	name := pgx.Identifier{cfg.Publication}.Sanitize()
	table := pgx.Identifier{cfg.Table.Schema, cfg.Table.Name}.Sanitize()
	switch {
	case !p.Exists:
		return fault(Gap, "tailer init --apply creates it; rows that were written while it was missing cannot be decoded, so a slot that is older must be created again after it",
			"it does not exist in this database")
	case !p.TableExists:
		return fault(Usage, "check outbox.table (names stand as in the catalogue, without case folding), or create it: tailer init --apply",
			"there is no table %s", table)
	case !p.Insert:
		return fault(Usage, fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", name), "it does not publish inserts")
	case !p.HasTable && p.LeavesOnly:
		return fault(Usage, fmt.Sprintf("ALTER PUBLICATION %s SET (publish_via_partition_root = true); and where it lists the partitions, ADD TABLE %s", name, table),
			"it publishes the partitions of %s under their own names", table)
	case !p.HasTable:
		return fault(Usage, fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", name, table), "it does not contain %s", table)
	}
	return nil
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
			Hint: "the slot was dropped: events written since its last confirmed position may be missing"}
	case "55000":
		// Also raised for a slot of another database and for a low wal_level,
		// both of which are checked before.
		return &Error{Op: op, Object: slot, Class: Gap, Err: pg,
			Hint: "the slot can no longer be read: SELECT * FROM pg_replication_slots shows how far it came; " +
				"to go on from now, drop it and run tailer init --apply"}
	}
	return &Error{Op: op, Object: slot, Class: classifyState(pg.Code), Hint: HintOf(pg), Err: pg}
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
	upTo := "pg_current_wal_lsn()"
	if lsn := changeLSN(pg.Where); lsn != "" {
		at = " at " + lsn
	}
	return &Error{Op: op, Object: quoted("slot", cfg.Slot), Class: Gap,
		Err: fmt.Errorf("the slot is older than publication %q: it did not exist%s in the WAL, and rows written before it cannot be read through it: %w", cfg.Publication, at, pg),
		Hint: fmt.Sprintf("with the publication in place, skip what cannot be read, as a named gap: SELECT pg_replication_slot_advance('%s', %s); "+
			"or drop the slot and run tailer init --apply. Rows of that time are then not in Kafka", cfg.Slot, upTo)}
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
