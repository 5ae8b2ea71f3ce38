package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/e2e/postgres"
)

// LedgerOptions describe an outbox that keeps books. The zero value is the slot
// and publication "tailer" in the database postgres, one type and 20 keys.
type LedgerOptions struct {
	Database    string
	Slot        string
	Publication string
	Types       []string // event types; a key always has the same one
	Keys        int
	NoSlot      bool // leave the slot to the test
	Partitions  int  // of the topics that the relay creates; default 3
	Partitioned bool // the table is a partitioned one: by its column part, 0 at first
}

// Ledger is an outbox table whose rows carry, beside their id, their number
// within their key. The number is drawn from a counter row that the
// transaction keeps locked until it commits, so it is the order of the commits.
type Ledger struct {
	pg  *postgres.Server
	opt LedgerOptions
}

// LedgerSchema is the Avro schema of the ledger's payloads, as <type>.avsc.
const LedgerSchema = `{"type":"record","name":"Entry","namespace":"e2e","fields":[
  {"name":"key","type":"string"},{"name":"n","type":"long"},{"name":"pad","type":"string"}]}`

// NewLedger makes the outbox, its publication and its slot.
func NewLedger(t testing.TB, pg *postgres.Server, opt LedgerOptions) *Ledger {
	t.Helper()
	if opt.Database == "" {
		opt.Database = "postgres"
	}
	if opt.Slot == "" {
		opt.Slot = "tailer"
	}
	if opt.Publication == "" {
		opt.Publication = opt.Slot
	}
	if len(opt.Types) == 0 {
		opt.Types = []string{"order.placed.v1"}
	}
	if opt.Keys == 0 {
		opt.Keys = 20
	}
	if opt.Partitions == 0 {
		opt.Partitions = 3
	}
	l := &Ledger{pg: pg, opt: opt}
	const columns = `aggregate_id text, type text NOT NULL, payload jsonb, headers jsonb,
		occurred_at timestamptz DEFAULT clock_timestamp(), sent_at timestamptz`
	table := []string{`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), ` + columns + `)`}
	if opt.Partitioned {
		table = []string{
			`CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), ` + columns + `, part int NOT NULL DEFAULT 0,
				PRIMARY KEY (id, part)) PARTITION BY LIST (part)`,
			`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES IN (0)`,
		}
	}
	pg.ExecIn(t, opt.Database, table...)
	pg.ExecIn(t, opt.Database,
		`CREATE TABLE counter (key text PRIMARY KEY, n bigint NOT NULL DEFAULT 0)`,
		fmt.Sprintf(`INSERT INTO counter (key) SELECT 'key-' || g FROM generate_series(0, %d) g`, opt.Keys-1),
		fmt.Sprintf(`CREATE PUBLICATION %s FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`, pgx.Identifier{opt.Publication}.Sanitize()),
	)
	pg.ExecIn(t, opt.Database, stateTables...)
	if !opt.NoSlot {
		l.CreateSlot(t)
	}
	return l
}

// CreateSlot makes the slot, for a ledger without one.
func (l *Ledger) CreateSlot(t testing.TB) {
	t.Helper()
	l.pg.Query1In(t, l.opt.Database, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')::text", l.opt.Slot)
}

// DSN is the address of the ledger's database.
func (l *Ledger) DSN() string { return l.pg.DSN(l.opt.Database) }

// Slot is the slot's name.
func (l *Ledger) Slot() string { return l.opt.Slot }

// Config is a configuration that relays the ledger without schemas: JSON as
// the column has it, topics created.
func (l *Ledger) Config(brokers []string) Config {
	return Config{
		"postgres": Config{"dsn": l.DSN(), "slot": l.opt.Slot, "publication": l.opt.Publication},
		"outbox":   Config{"table": "public.outbox"},
		"kafka":    Config{"brokers": brokers, "topics": Config{"create": true, "partitions": l.opt.Partitions}},
		"schema":   Config{"mode": "off", "encoding": "json"},
	}
}

// Topics are where the events go by the default routing, and last the dead
// letter topic.
func (l *Ledger) Topics() []string {
	var topics []string
	seen := map[string]bool{}
	for _, typ := range l.opt.Types {
		domain, _, _ := strings.Cut(typ, ".")
		if !seen[domain] {
			seen[domain] = true
			topics = append(topics, domain)
		}
	}
	return append(topics, l.DLQ())
}

// DLQ is the dead letter topic.
func (l *Ledger) DLQ() string { return l.opt.Slot + ".dlq" }

func (l *Ledger) typeOf(key int) string { return l.opt.Types[key%len(l.opt.Types)] }

// Committed reads the truth: every committed event. Rows that a test wrote
// without a number of the ledger are not in it.
func (l *Ledger) Committed(t testing.TB) []Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(ctx, `SELECT id::text, coalesce(aggregate_id, ''), (payload->>'n')::bigint FROM outbox WHERE payload ? 'n'`)
	if err != nil {
		t.Fatal(err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Event])
	if err != nil {
		t.Fatalf("read what was committed: %v", err)
	}
	return events
}

// WaitDelivered waits until the consumer has seen as many different events as
// were committed, and then reads to where the topics end.
func (l *Ledger) WaitDelivered(t testing.TB, c *Consumer, limit time.Duration) {
	t.Helper()
	start := time.Now()
	c.WaitDistinct(len(l.Committed(t)), limit)
	c.CatchUp(max(limit-time.Since(start), 5*time.Second))
}

// Check judges what a consumer read against what was committed.
func (l *Ledger) Check(t testing.TB, records []Record) Report {
	t.Helper()
	return Judge(l.Committed(t), records, l.DLQ())
}
