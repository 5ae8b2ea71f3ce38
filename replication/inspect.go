package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// Querier is a connection of either kind: what pgx.Conn and pgx.Tx offer.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SlotState is a row of pg_replication_slots, and where the server stands.
type SlotState struct {
	Exists, Active      bool
	ActivePID           int32
	Plugin, Database    string // both empty for a physical slot
	Temporary, TwoPhase bool
	WALStatus           string // reserved, extended, unreserved, lost
	InvalidationReason  string // from 16 on, else empty

	RestartLSN     pglogrepl.LSN // WAL is kept from here; 0 when there is none
	ConfirmedFlush pglogrepl.LSN // where streaming goes on
	CurrentWAL     pglogrepl.LSN // flushed on a primary, replayed on a standby; also without a slot
}

// Lag is the WAL between the confirmed position and the server's.
func (s SlotState) Lag() int64 { return behind(s.CurrentWAL, s.ConfirmedFlush) }

// Retained is the WAL that the server keeps for the slot.
func (s SlotState) Retained() int64 { return behind(s.CurrentWAL, s.RestartLSN) }

// Lost tells whether the server has removed what the slot still needed.
func (s SlotState) Lost() bool {
	return s.Exists && (s.WALStatus == "lost" || s.InvalidationReason != "" || s.RestartLSN == 0)
}

// behind is never negative: the two are read at different moments.
func behind(server, slot pglogrepl.LSN) int64 {
	if slot == 0 || slot > server {
		return 0
	}
	return int64(server - slot)
}

// to_jsonb reads columns that only newer servers have: conflicting is from 16,
// invalidation_reason from 17.
const slotSQL = `
SELECT s.slot_name IS NOT NULL, coalesce(s.active, false), coalesce(s.active_pid, 0),
       coalesce(s.plugin::text, ''), coalesce(s.database::text, ''),
       coalesce(s.temporary, false), coalesce(s.two_phase, false),
       coalesce(s.wal_status, ''),
       coalesce(to_jsonb(s) ->> 'invalidation_reason',
                CASE WHEN to_jsonb(s) ->> 'conflicting' = 'true' THEN 'conflict with recovery' END, ''),
       coalesce(s.restart_lsn, '0/0')::text, coalesce(s.confirmed_flush_lsn, '0/0')::text,
       coalesce(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END, '0/0')::text
  FROM (SELECT 1) AS one
  LEFT JOIN pg_catalog.pg_replication_slots AS s ON s.slot_name = $1::text`

// InspectSlot reads the state of a slot. A missing slot is not an error.
func InspectSlot(ctx context.Context, c Querier, slot string) (SlotState, error) {
	var s SlotState
	var restart, confirmed, current string
	err := c.QueryRow(ctx, slotSQL, slot).Scan(&s.Exists, &s.Active, &s.ActivePID, &s.Plugin, &s.Database,
		&s.Temporary, &s.TwoPhase, &s.WALStatus, &s.InvalidationReason, &restart, &confirmed, &current)
	if err == nil {
		err = parseLSNs(restart, &s.RestartLSN, confirmed, &s.ConfirmedFlush, current, &s.CurrentWAL)
	}
	if err != nil {
		return SlotState{}, &Error{Op: "inspect", Object: quoted("slot", slot), Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	return s, nil
}

// Working tells whether a walsender does something else than to wait for its
// client. One that is cut off from its client waits for it, in a read or in a
// write; one that decodes does not.
func Working(ctx context.Context, c Querier, pid uint32) (working bool, err error) {
	// What belongs to another role is hidden: its state is NULL.
	err = c.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_catalog.pg_stat_activity
		WHERE pid = $1::bigint AND state IS NOT NULL AND coalesce(wait_event_type, '') NOT IN ('Client', 'Activity')`, int64(pid)).Scan(&working)
	if err != nil {
		err = &Error{Op: "inspect", Object: fmt.Sprintf("walsender %d", pid), Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	return working, err
}

func parseLSNs(a string, x *pglogrepl.LSN, b string, y *pglogrepl.LSN, c string, z *pglogrepl.LSN) error {
	for _, p := range []struct {
		text string
		lsn  *pglogrepl.LSN
	}{{a, x}, {b, y}, {c, z}} {
		lsn, err := pglogrepl.ParseLSN(p.text)
		if err != nil {
			return err
		}
		*p.lsn = lsn
	}
	return nil
}

// PublicationState is what a publication does with one table.
type PublicationState struct {
	Exists                           bool
	Insert, Update, Delete, Truncate bool
	ViaRoot, AllTables               bool

	TableExists bool
	Partitioned bool // the table is a partitioned one
	// HasTable tells that the table's rows are published under its own name.
	HasTable bool
	// LeavesOnly tells that partitions are published, but under their own names.
	LeavesOnly bool

	RowFilter string   // empty: every row
	Columns   []string // nil: all

	TableColumns []TableColumn
	// Identity tells that updates and deletes of the table can be published.
	Identity bool

	sent    []string // the columns that the server names as published, if it does
	version int      // of the server, as server_version_num
}

const publicationSQL = `
SELECT p.oid IS NOT NULL, coalesce(p.pubinsert, false), coalesce(p.pubupdate, false), coalesce(p.pubdelete, false),
       coalesce(p.pubtruncate, false), coalesce(p.pubviaroot, false), coalesce(p.puballtables, false),
       c.oid IS NOT NULL, coalesce(c.relkind = 'p', false), t.tablename IS NOT NULL,
       EXISTS (SELECT FROM pg_catalog.pg_partition_tree(c.oid::regclass) AS leaf
                 JOIN pg_catalog.pg_class AS lc ON lc.oid = leaf.relid
                 JOIN pg_catalog.pg_namespace AS ln ON ln.oid = lc.relnamespace
                 JOIN pg_catalog.pg_publication_tables AS lt
                   ON lt.pubname = p.pubname AND lt.schemaname = ln.nspname AND lt.tablename = lc.relname
                WHERE leaf.relid <> c.oid),
       coalesce(to_jsonb(t) ->> 'rowfilter', ''),
       published.columns,
       NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
                      AND NOT a.attname::text = ANY (published.columns)),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       ARRAY(SELECT a.attgenerated::text FROM pg_catalog.pg_attribute AS a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       coalesce(c.relreplident = 'f' OR EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid
                AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident)), false),
       current_setting('server_version_num')::int
  FROM (SELECT 1) AS one
  LEFT JOIN pg_catalog.pg_publication AS p ON p.pubname = $1::text
  LEFT JOIN (pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = $2::text)
    ON c.relname = $3::text AND c.relkind IN ('r', 'p')
  LEFT JOIN pg_catalog.pg_publication_tables AS t
    ON t.pubname = p.pubname AND t.schemaname = n.nspname AND t.tablename = c.relname
 CROSS JOIN LATERAL (SELECT ARRAY(SELECT jsonb_array_elements_text(
         CASE jsonb_typeof(to_jsonb(t) -> 'attnames') WHEN 'array' THEN to_jsonb(t) -> 'attnames' ELSE '[]' END)) AS columns) AS published`

// InspectPublication reads what a publication does with a table. Neither of
// them has to exist.
func InspectPublication(ctx context.Context, c Querier, publication string, t Table) (PublicationState, error) {
	var p PublicationState
	var all bool
	var columns, generated []string
	err := c.QueryRow(ctx, publicationSQL, publication, t.Schema, t.Name).Scan(
		&p.Exists, &p.Insert, &p.Update, &p.Delete, &p.Truncate, &p.ViaRoot, &p.AllTables,
		&p.TableExists, &p.Partitioned, &p.HasTable, &p.LeavesOnly, &p.RowFilter, &p.sent, &all,
		&columns, &generated, &p.Identity, &p.version)
	if err != nil {
		return PublicationState{}, &Error{Op: "inspect", Object: quoted("publication", publication), Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	// Servers list every column where no list was given, or none at all.
	if !all && len(p.sent) > 0 {
		p.Columns = p.sent
	}
	for i, name := range columns {
		p.TableColumns = append(p.TableColumns, TableColumn{name, generated[i]})
	}
	p.LeavesOnly = p.LeavesOnly && !p.HasTable
	return p, nil
}
