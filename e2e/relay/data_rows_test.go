package relay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// wideTable has a column for every role that these tests need.
const wideTable = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), occurred_at timestamptz NOT NULL DEFAULT now(),
	aggregate_id text, type text NOT NULL DEFAULT 'row.written.v1', payload jsonb DEFAULT '{}', headers jsonb,
	correlation_id text, traceparent text, tenant text, amount numeric, ratio float8, sent_at timestamptz)`

func newWide(t *testing.T, more map[string]any) *outbox {
	t.Helper()
	config := map[string]any{
		"outbox.columns":        harness.Config{"correlation_id": "correlation_id", "traceparent": "traceparent", "tenant": "tenant"},
		"outbox.header_columns": harness.Config{"amount": "amount", "ratio": "ratio"},
	}
	for path, value := range more {
		config[path] = value
	}
	return newOutbox(t, outboxOptions{before: []string{wideTable}, config: config})
}

// row inserts what the columns and values say and returns the id.
func (o *outbox) row(columns, values string, args ...any) string {
	o.t.Helper()
	return o.text(fmt.Sprintf("INSERT INTO outbox (%s) VALUES (%s) RETURNING id::text", columns, values), args...)
}

// has checks a header: want nil is absent.
func has(t *testing.T, r *harness.Record, name string, want *string) {
	t.Helper()
	got, ok := r.Header(name)
	if ok != (want != nil) || ok && got != *want {
		t.Errorf("event %s has %s %q (%t), want %v", r.ID(), name, got, ok, want)
	}
}

// Seen red with header columns whose numbers pass through a float.
func TestCase_W17_NumbersThatAreNone(t *testing.T) {
	t.Parallel()
	o := newWide(t, map[string]any{"outbox.columns": harness.Config{"key": "amount"}})
	ids := map[string]string{}
	for _, number := range []string{"NaN", "Infinity", "-Infinity", "12345678901234567890.50"} {
		ids[number] = o.row("amount, ratio", "$1::text::numeric, $1::text::float8", number)
	}
	o.run(o.config)
	records := o.read(len(ids), "row")
	for number, id := range ids {
		r := records[id]
		has(t, r, "amount", &number)
		has(t, r, "ratio", new(o.text("SELECT ratio::text FROM outbox WHERE id::text = $1", id)))
		if string(r.Key) != number {
			t.Errorf("%s became the key %q", number, r.Key)
		}
	}
}

// Seen red with a stream in the database's own encoding.
func TestCase_W20_OtherEncodings(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(o *outbox) harness.Config{
		"the database's": func(o *outbox) harness.Config {
			o.pg.Exec(o.t, "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
			o.conn = o.pg.Conn(o.t, "latin")
			if _, err := o.conn.Exec(o.t.Context(), "SET client_encoding = 'UTF8'"); err != nil { // what is inserted
				o.t.Fatal(err)
			}
			return o.config.With("postgres.dsn", o.pg.DSN("latin")).With("postgres.slot", "latin").With("postgres.publication", "latin")
		},
		"the role's": func(o *outbox) harness.Config {
			o.pg.Exec(o.t, "CREATE ROLE relay SUPERUSER LOGIN", "ALTER ROLE relay SET client_encoding = 'LATIN1'")
			return o.config.With("postgres.dsn", o.pg.UserDSN("relay", "", "postgres"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutbox(t, outboxOptions{})
			config := prepare(o)
			o.init(config)
			id := o.insert("clé", "order.placed.v1", `{"s":"élève ÿ"}`)
			o.run(config)
			r := o.read(1, "order")[id]
			if string(r.Key) != "clé" || string(r.Value) != `{"s": "élève ÿ"}` {
				t.Errorf("key %q, value %q", r.Key, r.Value)
			}
		})
	}
}

// A leaf that was attached has the columns in another order than the root. (What
// a plan by position makes of that is in the test of the plan.)
func TestCase_W22_LeafWithOtherColumnOrder(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{before: []string{
		`CREATE TABLE outbox (id uuid NOT NULL DEFAULT gen_random_uuid(), occurred_at timestamptz NOT NULL DEFAULT now(), aggregate_id text,
			type text NOT NULL, payload jsonb, headers jsonb, sent_at timestamptz) PARTITION BY LIST (aggregate_id)`,
		`CREATE TABLE plain PARTITION OF outbox FOR VALUES IN ('plain')`,
		`CREATE TABLE swapped (headers jsonb, payload jsonb, gone int, type text NOT NULL, aggregate_id text, sent_at timestamptz,
			occurred_at timestamptz NOT NULL DEFAULT now(), id uuid NOT NULL DEFAULT gen_random_uuid())`,
		`ALTER TABLE swapped DROP gone`,
		`ALTER TABLE outbox ATTACH PARTITION swapped FOR VALUES IN ('swapped')`,
	}})
	ids := map[string]string{}
	for i := range 6 {
		key := []string{"plain", "swapped"}[i%2]
		ids[o.insert(key, "order.placed.v1", fmt.Sprintf(`{"n": %d}`, i))] = fmt.Sprintf(`%s {"n": %d}`, key, i)
	}
	o.run(o.config)
	for id, r := range o.read(len(ids), "order") {
		if got := string(r.Key) + " " + string(r.Value); got != ids[id] {
			t.Errorf("event %s is %s, want %s", id, got, ids[id])
		}
	}
}

// The bookkeeping of an application publishes nothing, also where the
// publication sends updates and deletes with their old keys, and holds nothing up.
//
// Seen red with a relay that ends at an update.
func TestCase_W24_UpdatesAndDeletesAreNoEvents(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{settings: map[string]string{"wal_sender_timeout": "2s"}})
	o.pg.Exec(t, "ALTER PUBLICATION tailer SET (publish = 'insert, update, delete, truncate')", "ALTER TABLE outbox REPLICA IDENTITY FULL")
	relay := o.run(o.config)
	id := o.order()
	o.pg.Exec(t, `DO $$ BEGIN FOR i IN 1..1000 LOOP UPDATE outbox SET sent_at = now(); COMMIT; END LOOP; END $$`, "DELETE FROM outbox", "TRUNCATE outbox")
	end := o.lsn("SELECT pg_current_wal_flush_lsn()::text")
	harness.Eventually(t, soon, "the position beyond the updates", func() bool {
		return o.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots") >= end
	})
	if o.read(1, "order", "tailer.dlq")[id] == nil {
		t.Errorf("another event than %s", id)
	}
	waitMetric(t, relay, 1000, "tailer_ignored_changes_total", `op="update"`)
}

// A payload that is stored out of line is whole; the update that leaves it alone
// is no event without one.
//
// Seen red with a relay that ends at an update.
func TestCase_W25_PayloadsOutOfLine(t *testing.T) {
	t.Parallel()
	table := strings.Replace(jsonTable, "payload json,", "payload text,", 1)
	o := newOutbox(t, outboxOptions{before: []string{table}})
	o.pg.Exec(t, "ALTER PUBLICATION tailer SET (publish = 'insert, update')")
	const random = `(SELECT string_agg(md5(g::text || $1), '') FROM generate_series(1, $2::int) g)`
	var ids []string
	for _, storage := range []string{"EXTENDED", "EXTERNAL"} {
		o.pg.Exec(t, "ALTER TABLE outbox ALTER payload SET STORAGE "+storage)
		for _, pieces := range []int{320, 9600} { // 10 KB and 300 KB
			ids = append(ids, o.row("type, payload", `'order.placed.v1', '{"s":"' || `+random+` || '"}'`, storage, pieces))
		}
	}
	o.pg.Exec(t, "UPDATE outbox SET sent_at = now()")
	relay := o.run(o.config)
	records := o.read(len(ids), "order", "tailer.dlq")
	for _, id := range ids {
		if want := o.text("SELECT payload FROM outbox WHERE id::text = $1", id); string(records[id].Value) != want {
			t.Errorf("%d bytes arrived of %d", len(records[id].Value), len(want))
		}
	}
	waitMetric(t, relay, float64(len(ids)), "tailer_ignored_changes_total", `op="update"`)
}

// Seen red with a name of ours that a row may set.
func TestCase_W27_HeadersThatAreNoFlatMap(t *testing.T) {
	t.Parallel()
	o := newWide(t, nil)
	none := []string{o.row("headers", "NULL"), o.row("headers", "'null'"), o.row("headers", "'{}'")}
	var bad []string
	for _, value := range []string{`[]`, `"x"`, `3`} {
		bad = append(bad, o.row("headers", "$1::text::jsonb", value))
	}
	id := o.row("headers, traceparent", `$1::text::jsonb, 'ours'`,
		`{"a":1,"b":true,"c":null,"d":{"x":1},"e":[1],"f":9007199254740993,"":"x","ce_id":"evil","traceparent":"other","line\nfeed":"y","big":"`+strings.Repeat("é", 100000)+`"}`)
	o.run(o.config)
	records := o.read(len(none)+len(bad)+1, "row", "tailer.dlq")
	for _, id := range none {
		if n := len(records[id].Headers); n != 7 { // specversion, id, source, type, time, content-type, sequence
			t.Errorf("a row without headers has %d: %v", n, records[id].Headers)
		}
	}
	for _, id := range bad {
		has(t, records[id], "dlq_reason", new("invalid"))
		has(t, records[id], "dlq_path", new("$headers"))
	}
	r := records[id]
	for name, want := range map[string]*string{"a": new("1"), "b": new("true"), "c": nil, "d": new(`{"x":1}`), "e": new("[1]"), "f": new("9007199254740993"),
		"": new("x"), "ce_id": &id, "traceparent": new("ours"), "line\nfeed": new("y"), "big": new(strings.Repeat("é", 100000))} {
		has(t, r, name, want)
	}
	seen := map[string]bool{}
	for _, h := range r.Headers {
		if seen[h.Key] {
			t.Errorf("header %q is there twice", h.Key)
		}
		seen[h.Key] = true
	}
}

// Seen red with an empty column that gives no header.
func TestCase_W28_NullAndEmptyColumns(t *testing.T) {
	t.Parallel()
	o := newWide(t, nil)
	want := map[string]*string{o.row("tenant", "NULL"): nil}
	for _, value := range []string{"", " ", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "malformed", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01"} {
		want[o.row("correlation_id, traceparent, tenant", "$1::text, $1::text, $1::text", value)] = &value
	}
	o.run(o.config)
	for id, r := range o.read(len(want), "row") {
		for _, name := range []string{"correlation_id", "traceparent", "tenant"} {
			has(t, r, name, want[id])
		}
	}
}

// Seen red with an empty key that becomes none.
func TestCase_W29_NullAndEmptyKeys(t *testing.T) {
	t.Parallel()
	o := newWide(t, nil)
	want := map[string]*string{o.row("aggregate_id", "NULL"): nil}
	for _, key := range []string{"", "ключ ✓", strings.Repeat("k", 70000)} {
		want[o.row("aggregate_id", "$1::text", key)] = &key
	}
	o.run(o.config)
	for id, r := range o.read(len(want), "row") {
		if !sameBytes(r.Key, want[id]) {
			t.Errorf("event %s has a key of %d bytes (nil: %t)", id, len(r.Key), r.Key == nil)
		}
	}
	dead := newWide(t, map[string]any{"outbox.null_key": "dlq"})
	id := dead.row("aggregate_id", "NULL")
	dead.run(dead.config)
	has(t, dead.read(1, "row", "tailer.dlq")[id], "dlq_reason", new("null_key"))
}

// Seen red with a JSON null that becomes a tombstone.
func TestCase_W30_PayloadsWithoutARecord(t *testing.T) {
	t.Parallel()
	for policy, c := range map[string]struct {
		config map[string]any
		null   string // the reason; "": a tombstone
	}{
		"dlq":       {map[string]any{}, "null_payload"},
		"tombstone": {map[string]any{"outbox.null_payload": "tombstone"}, ""},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			o := newOutbox(t, outboxOptions{config: c.config, schemas: map[string]string{"order.placed.v1": numberSchema}})
			null := o.row("aggregate_id, type, payload", "'k', 'order.placed.v1', NULL")
			var invalid []string
			for _, payload := range []string{`null`, `{}`, `[]`, `"s"`, `1`} {
				invalid = append(invalid, o.insert("k", "order.placed.v1", payload))
			}
			o.run(o.config)
			records := o.read(len(invalid)+1, "order", "tailer.dlq")
			for _, id := range invalid {
				has(t, records[id], "dlq_reason", new("invalid"))
			}
			r := records[null]
			if c.null == "" {
				if r.Topic != "order" || r.Value != nil || string(r.Key) != "k" {
					t.Errorf("topic %s, key %q, value %q", r.Topic, r.Key, r.Value)
				}
				has(t, r, "ce_type", new("order.placed.v1"))
			} else {
				has(t, r, "dlq_reason", &c.null)
			}
		})
	}
}
