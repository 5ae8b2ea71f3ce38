package relay_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// refused starts a relay that must exit by itself, with exactly this said.
func (o *outbox) refused(config harness.Config, code int, says, hint string) {
	o.t.Helper()
	relay := harness.StartRelay(o.t, harness.RelayOptions{Config: config})
	if got := relay.WaitExit(loudness); got != code {
		o.t.Fatalf("exit code %d, want %d\n%s", got, code, relay.Logs())
	}
	if want := "tailer: " + says + "\nhint: " + hint + "\n"; !strings.HasSuffix(relay.Logs(), want) {
		o.t.Errorf("the log does not end with\n%s\nit is\n%s", want, relay.Logs())
	}
}

// header waits for the event and returns one of its headers.
func (o *outbox) header(id, name string) (value string, found bool) {
	o.t.Helper()
	consumer := harness.NewConsumer(o.t, o.fake.Addrs(), "order")
	defer consumer.Close()
	harness.Eventually(o.t, waitLimit, "event "+id, func() bool {
		for _, r := range consumer.Records() {
			if r.ID() == id {
				value, found = r.Header(name)
				return true
			}
		}
		return false
	})
	return value, found
}

// A publication that hides rows or columns passes for a good one: the relay
// streams what is left. It is refused instead, with the statement that mends it.
//
// Seen red without the checks: the relay runs, and the rows that the filter
// hides never come.
func TestCase_L14_PublicationHidesRowsOrColumns(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.pg.Exec(t, `ALTER PUBLICATION tailer SET TABLE outbox (id, type, payload, occurred_at)`)
	o.refused(o.config, 2, `check publication "tailer": its column list for public.outbox hides columns "aggregate_id" (role key), "headers" (role headers)`,
		`ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"; publishes every column of that table, and no other table`)
	o.pg.Exec(t, `ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"`)
	o.recovers(o.config, o.order())

	o.pg.Exec(t, `ALTER PUBLICATION tailer SET TABLE outbox WHERE (aggregate_id = 'a')`)
	o.refused(o.config, 2, `check publication "tailer": its row filter hides rows of "public"."outbox": WHERE (aggregate_id = 'a'::text)`,
		`ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"; publishes every row of that table, and no other table`)
	o.pg.Exec(t, `ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"`)
	o.recovers(o.config, o.order())
}

// A column that the table does not have is told before the first event.
func TestMissingColumnsAtStart(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	wrong := o.config.With("outbox.columns", harness.Config{"tenant": "tenant_id"}).With("outbox.header_columns", harness.Config{"region": "area"})
	o.refused(wrong, 2, `check the table: columns "tenant_id" (role tenant), "area" (header region) are not in public.outbox; it has id, occurred_at, aggregate_id, type, payload, headers, sent_at`,
		`map columns that the table has, or nothing, under outbox.columns (role: column) and outbox.header_columns (header: column)`)
	o.pg.Exec(t, `ALTER TABLE outbox ADD tenant_id text, ADD area text`)
	o.recovers(wrong, o.order())
}

// Generated columns are not in the stream of a server before 18, and from 18 on
// only on demand. A relay that maps one says so; a header is never just empty.
//
// Seen red with a generated column that counts as published.
func TestCase_W35_GeneratedColumns(t *testing.T) {
	t.Parallel()
	const add = `ALTER TABLE outbox ADD tenant text GENERATED ALWAYS AS (payload ->> 't') STORED`
	for version, want := range map[string]struct{ says, hint, repair string }{
		"15": {`check publication "tailer": column "tenant" (role tenant) of public.outbox is generated, and a server before PostgreSQL 18 does not publish that`,
			`ALTER TABLE "public"."outbox" ALTER COLUMN "tenant" DROP EXPRESSION; makes it a column that the application or a trigger fills; or map another one under outbox.columns`,
			`ALTER TABLE "public"."outbox" ALTER COLUMN "tenant" DROP EXPRESSION`},
		"18": {`check publication "tailer": column "tenant" (role tenant) of public.outbox is generated, and publish_generated_columns is none`,
			`ALTER PUBLICATION "tailer" SET (publish_generated_columns = stored);`,
			`ALTER PUBLICATION "tailer" SET (publish_generated_columns = stored);`},
	} {
		t.Run(version, func(t *testing.T) {
			o := &outbox{t: t, pg: postgres.New(t, postgres.Options{Version: version}), fake: kafka.NewFake(t, kafka.FakeOptions{})}
			o.config = harness.Config{
				"postgres": harness.Config{"dsn": o.pg.DSN("postgres")},
				"kafka":    harness.Config{"brokers": o.fake.Addrs(), "topics": harness.Config{"create": true}},
				"schema":   harness.Config{"mode": "off"},
			}
			o.init(o.config)
			o.conn = o.pg.Conn(t, "postgres")
			o.pg.Exec(t, add)
			mapped := o.config.With("outbox.columns", harness.Config{"tenant": "tenant"})
			o.refused(mapped, 2, want.says, want.hint)
			o.pg.Exec(t, want.repair)
			relay := o.run(mapped)
			var id string
			if version == "15" { // now the application's
				id = o.text(`INSERT INTO outbox (aggregate_id, type, payload, tenant) VALUES ('k', 'order.placed.v1', '{"t": "acme"}', 'acme') RETURNING id::text`)
			} else {
				id = o.insert("k", "order.placed.v1", `{"t": "acme"}`)
			}
			if got, _ := o.header(id, "tenant"); got != "acme" {
				t.Errorf("the header tenant is %q", got)
			}
			relay.Stop()
		})
	}
}

// Partitions under their own names would never be recognised as the outbox.
//
// Seen red with a relay that takes the leaves for other tables.
func TestCase_L11_PartitionsUnderTheirOwnNames(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{before: []string{
		`CREATE TABLE outbox (id uuid NOT NULL DEFAULT gen_random_uuid(), occurred_at timestamptz NOT NULL DEFAULT now(), aggregate_id text, type text, payload jsonb, headers jsonb)
			PARTITION BY RANGE (occurred_at)`,
		`CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('2020-01-01')`,
		`CREATE TABLE outbox_new PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO (MAXVALUE)`,
	}})
	o.pg.Exec(t, `ALTER PUBLICATION tailer SET (publish_via_partition_root = false)`)
	o.refused(o.config, 2, `check publication "tailer": it publishes the partitions of "public"."outbox" under their own names`,
		`ALTER PUBLICATION "tailer" SET (publish_via_partition_root = true); and where it lists the partitions, ALTER PUBLICATION "tailer" ADD TABLE "public"."outbox";`)
	o.pg.Exec(t, `ALTER PUBLICATION "tailer" SET (publish_via_partition_root = true)`)
	old := o.text(`INSERT INTO outbox (occurred_at, aggregate_id, type, payload) VALUES ('2019-12-31', 'k', 'order.placed.v1', '{}') RETURNING id::text`)
	relay := o.run(o.config)
	events := []string{old, o.order()}
	for id := range o.read(2, "order") {
		if id != events[0] && id != events[1] {
			t.Errorf("event %s was never written", id)
		}
	}
	relay.Stop()
}

// Connected, healthy, and never an event: refused.
//
// Seen red without the check.
func TestCase_L21_PublicationWithoutInserts(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.pg.Exec(t, `ALTER PUBLICATION tailer SET (publish = 'update,delete')`)
	o.refused(o.config, 2, `check publication "tailer": it does not publish inserts`, `ALTER PUBLICATION "tailer" SET (publish = 'insert');`)
	o.pg.Exec(t, `ALTER PUBLICATION "tailer" SET (publish = 'insert')`)
	o.recovers(o.config, o.order())
}

// A publication of updates makes the application's own UPDATE fail where the
// table has no replica identity. What init makes publishes inserts of the outbox
// alone; what somebody else made is warned about, once, and relayed.
//
// Seen red without the warning, and with one at every session.
func TestCase_D10_UpdatesOfATableWithoutIdentity(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{before: []string{
		`CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), occurred_at timestamptz DEFAULT now(), aggregate_id text, type text, payload jsonb, headers jsonb, sent_at timestamptz)`}})
	o.pg.Exec(t, `CREATE PUBLICATION everything FOR ALL TABLES WITH (publish = 'insert')`)
	o.order()
	o.pg.Exec(t, `UPDATE outbox SET sent_at = now()`) // with the publication that init made

	o.pg.Exec(t, `ALTER PUBLICATION tailer SET (publish = 'insert, update, delete')`)
	const update = `UPDATE outbox SET sent_at = now() WHERE true`
	if err := o.pg.Run("postgres", update); err == nil {
		t.Fatal("the UPDATE does not fail: nothing is to be warned about")
	}
	relay := o.run(o.config)
	o.header(o.order(), "ce_id") // it is relayed
	const text = `publication "tailer" publishes updates and deletes of public.outbox, which has no replica identity: the application's UPDATE and DELETE fail there`
	o.warned(relay, text, `ALTER PUBLICATION "tailer" SET (publish = 'insert');`)
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	o.pg.Exec(t, `ALTER PUBLICATION "tailer" SET (publish = 'insert')`, update)

	all := o.config.With("postgres.publication", "everything")
	relay = o.run(all)
	o.header(o.order(), "ce_id") // it is relayed
	o.warned(relay, `publication "everything" is FOR ALL TABLES: the server sends the changes of every table, and the relay skips them`,
		`make one for the outbox alone, and once the relay has caught up name it in postgres.publication: `+
			`CREATE PUBLICATION tailer_outbox FOR TABLE "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true);`)
	// A new session says it no second time.
	o.pg.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots`)
	harness.Eventually(t, waitLimit, "a second session", func() bool { return strings.Count(relay.Logs(), `"msg":"streaming"`) > 1 })
	if n := strings.Count(relay.Logs(), "FOR ALL TABLES: "); n != 1 {
		t.Errorf("warned %d times", n)
	}
	o.pg.Exec(t, `CREATE PUBLICATION tailer_outbox FOR TABLE "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true)`)
	o.header(o.order(), "ce_id") // the relay has come beyond its creation
	relay.Stop()
	o.recovers(o.config.With("postgres.publication", "tailer_outbox"), o.order())
}

// warned wants one warning with exactly this text and hint.
func (o *outbox) warned(relay *harness.Relay, text, hint string) {
	o.t.Helper()
	for line := range strings.Lines(relay.Logs()) {
		var entry struct{ Level, Msg, Hint string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "WARN" && entry.Msg == text && entry.Hint == hint {
			return
		}
	}
	o.t.Errorf("no warning %q with %q in\n%s", text, hint, relay.Logs())
}
