package docs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/e2e/docs/page"
	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// What the page of limits says about tables and servers, and what no other test
// shows, on a Postgres that has all of it.
func TestLimits(t *testing.T) {
	t.Parallel()
	doc := page.Open(t, "limits.md", "")
	pg := postgres.New(t, postgres.Options{Version: "17"})
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	at := newPlace(t, pg)
	config := harness.Config{
		"postgres": harness.Config{"dsn": pg.UserDSN("relay", "", "postgres")},
		"outbox":   harness.Config{"columns": harness.Config{"tenant": "tenant"}},
		"kafka":    harness.Config{"brokers": fake.Addrs(), "topics": harness.Config{"create": true}},
		"schema":   harness.Config{"mode": "off"},
	}
	// No primary key, and so no replica identity; partitioned; with a policy that
	// lets nobody but the superuser read.
	pg.Exec(t, `CREATE TABLE outbox (id int, aggregate_id text, type text DEFAULT 'order.placed.v1', payload jsonb, headers jsonb, tenant text,
			occurred_at timestamptz DEFAULT now(), sent_at timestamptz) PARTITION BY LIST (id)`,
		"CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1, 2, 3, 4, 5, 6, 7, 8, 9)", "CREATE TABLE outbox_2 PARTITION OF outbox DEFAULT",
		"ALTER TABLE outbox ENABLE ROW LEVEL SECURITY", "ALTER TABLE outbox FORCE ROW LEVEL SECURITY")
	check := doc.Next("sql")
	at.sql("postgres", check)
	insert := func(id int) string {
		return fmt.Sprintf(`INSERT INTO outbox (id, aggregate_id, payload, tenant) VALUES (%d, 'k', '{"n": %d}', 'acme')`, id, id)
	}
	pg.Exec(t, insert(1)) // before the slot
	failover := doc.Next("sql")
	doc.End()
	pg.Exec(t, "CREATE PUBLICATION tailer FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)")
	at.sql("postgres", failover)
	owner := config.With("postgres.dsn", pg.DSN("postgres"))
	if r := harness.Run(t, owner, "init", "--apply", "--role", "relay"); r.Code != 0 {
		t.Fatalf("init: %s%s", r.Stdout, r.Stderr)
	}
	if got := pg.Query1(t, "SELECT failover FROM pg_replication_slots"); got != "t" {
		t.Fatalf("failover is %s", got)
	}
	relay := harness.StartRelay(t, harness.RelayOptions{Config: config}).Ready()
	consumer := harness.NewConsumer(t, fake.Addrs(), "order", "tailer.dlq")
	arrives := func(ids ...int) {
		t.Helper()
		all := consumer.WaitLen(len(ids), waitLimit)
		for i, id := range ids {
			if got := all[i].ID(); got != fmt.Sprint(id) || all[i].Topic != "order" {
				t.Fatalf("record %d is of event %s in %s, %d was expected", i, got, all[i].Topic, id)
			}
		}
	}

	// Updates without an identity succeed and publish nothing, nor do deletes and
	// upserts; COPY does, and so does an update that moves a row to another partition.
	pg.Exec(t, insert(2), "UPDATE outbox SET sent_at = now() WHERE id = 2", "DELETE FROM outbox WHERE id = 1",
		"BEGIN; "+insert(3)+"; DELETE FROM outbox WHERE id = 3; COMMIT", insert(4), "UPDATE outbox SET id = 40 WHERE id = 4", insert(5))
	arrives(2, 3, 4, 40, 5)
	conn := pg.Conn(t, "postgres")
	if _, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("6\tk\tacme\n"), "COPY outbox (id, aggregate_id, tenant) FROM STDIN"); err != nil {
		t.Fatal(err)
	}
	// Its payload is NULL, which is a dead letter: another topic, read in any order.
	harness.Eventually(t, waitLimit, "the copied row", func() bool { return consumer.Len() == 6 })
	if last := consumer.Records()[5]; last.ID() != "6" || last.Topic != "tailer.dlq" {
		t.Errorf("the copied row came as %s in %s", last.ID(), last.Topic)
	}

	// The check refuses what would not fit, in the application's transaction.
	if err := pg.Run("postgres", "INSERT INTO outbox (id, payload) VALUES (7, to_jsonb(repeat('x', 1000000)))"); err == nil || !strings.Contains(err.Error(), "payload_fits") {
		t.Errorf("a payload of a megabyte: %v", err)
	}

	// A filled table that becomes a partition publishes nothing.
	pg.Exec(t, "CREATE TABLE outbox_3 (LIKE outbox INCLUDING CONSTRAINTS)", "INSERT INTO outbox_3 (id, type, payload) VALUES (100, 'order.placed.v1', '{}')",
		"ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES IN (100)")

	// Unmapped columns come and go; a mapped one that is renamed ends the relay, and
	// nothing is lost.
	pg.Exec(t, "ALTER TABLE outbox DROP COLUMN sent_at", "ALTER TABLE outbox ADD region text", insert(8))
	harness.Eventually(t, waitLimit, "the event after DDL", func() bool { return consumer.Len() == 7 })
	pg.Exec(t, "ALTER TABLE outbox RENAME tenant TO customer", strings.Replace(insert(9), "tenant)", "customer)", 1))
	if code := relay.WaitExit(waitLimit); code != 2 {
		t.Errorf("exit code %d after a mapped column was renamed", code)
	}
	relay = harness.StartRelay(t, harness.RelayOptions{Config: config.With("outbox.columns.tenant", "customer")}).Ready()
	harness.Eventually(t, waitLimit, "the event after the renaming", func() bool { return consumer.Len() == 8 })
	relay.Stop()
	if got := len(consumer.CatchUp(waitLimit)); got != 8 {
		t.Errorf("%d records, 8 were expected", got)
	}

	// A prepared transaction is there when it is committed.
	relay = harness.StartRelay(t, harness.RelayOptions{Config: config.With("outbox.columns.tenant", "customer")}).Ready()
	pg.Exec(t, "BEGIN; "+strings.Replace(insert(10), "tenant)", "customer)", 1)+"; PREPARE TRANSACTION 'later'", strings.Replace(insert(11), "tenant)", "customer)", 1))
	harness.Eventually(t, waitLimit, "the event beside the prepared one", func() bool { return consumer.Len() == 9 })
	if last := consumer.Records()[8]; last.ID() != "11" {
		t.Errorf("event %s came before its transaction was committed", last.ID())
	}
	pg.Exec(t, "COMMIT PREPARED 'later'")
	harness.Eventually(t, waitLimit, "the prepared event", func() bool { return consumer.Len() == 10 })
	relay.Stop()

	pg.Exec(t, "CREATE UNLOGGED TABLE fast (id int)")
	if err := pg.Run("postgres", "ALTER PUBLICATION tailer ADD TABLE fast"); err == nil {
		t.Error("an unlogged table was published")
	}
}

// The text of a database in another encoding arrives as UTF-8.
func TestLimitsEncoding(t *testing.T) {
	t.Parallel()
	pg := postgres.New(t, postgres.Options{})
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	pg.Exec(t, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
	config := harness.Config{
		"postgres": harness.Config{"dsn": pg.DSN("latin")},
		"kafka":    harness.Config{"brokers": fake.Addrs(), "topics": harness.Config{"create": true}},
		"schema":   harness.Config{"mode": "off"},
	}
	if r := harness.Run(t, config, "init", "--apply"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	harness.StartRelay(t, harness.RelayOptions{Config: config}).Ready()
	conn, err := pgx.Connect(t.Context(), pg.DSN("latin")+"&client_encoding=UTF8")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var bytes int
	if err := conn.QueryRow(t.Context(), `INSERT INTO outbox (aggregate_id, type, payload) VALUES ('clé', 'order.placed.v1', '{"name": "Zoë"}')
		RETURNING octet_length(aggregate_id)`).Scan(&bytes); err != nil || bytes != 3 {
		t.Fatalf("the server keeps the key in %d bytes, %v", bytes, err)
	}
	record := harness.NewConsumer(t, fake.Addrs(), "order").WaitLen(1, waitLimit)[0]
	if string(record.Key) != "clé" || string(record.Value) != `{"name": "Zoë"}` {
		t.Errorf("key %q, value %q", record.Key, record.Value)
	}
}
