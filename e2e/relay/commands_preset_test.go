package relay_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// everything is what an init may make, as the catalogue shows it.
const everything = `SELECT coalesce(string_agg(o, E'\n' ORDER BY o), '') FROM (
	SELECT 'table ' || oid || ' ' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
	UNION ALL SELECT 'publication ' || oid || ' ' || pubname FROM pg_publication
	UNION ALL SELECT 'role ' || oid || ' ' || rolname FROM pg_roles
	UNION ALL SELECT 'slot ' || slot_name || ' ' || restart_lsn FROM pg_replication_slots) AS all_of_them(o)`

// From an empty database to a record, for each preset: the table's owner runs
// init, and a role that may do nothing but stream runs the relay. Seen red with an
// init that does not look for the publication.
func TestPresetsFromAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ preset, key, insert, topic, value, id string }{
		{
			preset: "default", topic: "order", key: "order-42", value: `{"n": 1}`, id: "ce_id",
			insert: `INSERT INTO outbox (aggregate_id, type, payload) VALUES ('order-42', 'order.placed.v1', '{"n":1}') RETURNING id::text`,
		},
		{
			preset: "debezium", topic: "outbox.event.Order", key: "42", value: `{"n": 1}`, id: "id",
			insert: `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('Order', '42', 'OrderPlaced', '{"n":1}') RETURNING id::text`,
		},
		{
			preset: "simple", topic: "order", value: `{"n": 1}`, id: "ce_id", // and no key
			insert: `INSERT INTO outbox (message_type, payload) VALUES ('order.placed.v1', '{"n":1}') RETURNING id::text`,
		},
	} {
		t.Run(c.preset, func(t *testing.T) {
			pg := postgres.New(t, postgres.Options{})
			fake := kafka.NewFake(t, kafka.FakeOptions{})
			pg.Exec(t, "CREATE DATABASE shop", "REVOKE CONNECT ON DATABASE shop FROM PUBLIC")
			owner := harness.Config{
				"postgres": harness.Config{"dsn": pg.DSN("shop")},
				"outbox":   harness.Config{"preset": c.preset},
				"kafka":    harness.Config{"brokers": fake.Addrs(), "topics": harness.Config{"create": true}},
				"schema":   harness.Config{"mode": "off"},
			}
			relay := owner.With("postgres.dsn", pg.UserDSN("relay", "", "shop"))

			empty := pg.Query1In(t, "shop", everything)
			printed := harness.Run(t, owner, "init", "--role", "relay")
			if after := pg.Query1In(t, "shop", everything); printed.Code != 0 || after != empty {
				t.Fatalf("printing the statements: exit code %d, and the database has\n%s", printed.Code, after)
			}
			applied := harness.Run(t, owner, "init", "--apply", "--role", "relay")
			if applied.Code != 0 {
				t.Fatalf("init --apply: exit code %d\n%s%s", applied.Code, applied.Stdout, applied.Stderr)
			}
			order := []string{"CREATE TABLE", "CREATE PUBLICATION", "CREATE ROLE", "GRANT CONNECT",
				`CREATE TABLE "public"."tailer_state" (`, `CREATE TABLE "public"."tailer_state_gaps" (`, "GRANT SELECT, INSERT, UPDATE", "pg_create_logical_replication_slot"}
			for _, output := range []string{printed.Stdout, applied.Stdout} {
				at := -1
				for _, statement := range order {
					if next := strings.Index(output, statement); next <= at {
						t.Fatalf("%s is missing or out of order in\n%s", statement, output)
					} else {
						at = next
					}
				}
			}
			made := pg.Query1In(t, "shop", everything)
			again := harness.Run(t, owner, "init", "--apply", "--role", "relay")
			if after := pg.Query1In(t, "shop", everything); again.Code != 0 || after != made {
				t.Errorf("init a second time: exit code %d, and the database went from\n%s\nto\n%s", again.Code, made, after)
			}
			if n := strings.Count(again.Stdout, "skipped"); n != len(order) {
				t.Errorf("the second init skipped %d of %d statements:\n%s", n, len(order), again.Stdout)
			}
			if got := pg.Query1In(t, "shop", "SELECT has_table_privilege('relay', 'outbox', 'SELECT')"); got != "f" {
				t.Fatal("the relay's role may read the table: the test shows nothing")
			}

			id := pg.Query1In(t, "shop", c.insert)
			process := harness.StartRelay(t, harness.RelayOptions{Config: relay}).Ready()
			record := harness.NewConsumer(t, fake.Addrs(), c.topic).WaitLen(1, waitLimit)[0]
			if got, _ := record.Header(c.id); got != id || string(record.Key) != c.key || (record.Key == nil) != (c.key == "") || string(record.Value) != c.value {
				t.Errorf("event %s arrived as %s, key %q, value %s", id, got, record.Key, record.Value)
			}
			// The monitor's queries and status need no more rights.
			var status struct {
				Slot struct {
					Exists, Active bool
					Problem        string
				}
				Publication, Table struct {
					Exists  bool
					Problem string
				}
			}
			told := harness.Run(t, relay, "status", "--json")
			if err := json.Unmarshal([]byte(told.Stdout), &status); err != nil || told.Code != 0 {
				t.Fatalf("status: exit code %d, %v\n%s%s", told.Code, err, told.Stdout, told.Stderr)
			}
			if !status.Slot.Exists || !status.Slot.Active || !status.Publication.Exists || !status.Table.Exists || status.Slot.Problem+status.Publication.Problem+status.Table.Problem != "" {
				t.Errorf("status: %s", told.Stdout)
			}
			if strings.Contains(process.Logs(), "cannot be watched") {
				t.Error("the relay's role could not watch its slot")
			}
			if code := process.Stop(); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}
			harness.StartRelay(t, harness.RelayOptions{Config: relay}).Ready()
			pg.ExecIn(t, "shop", c.insert[:strings.Index(c.insert, " RETURNING")])
			consumer := harness.NewConsumer(t, fake.Addrs(), c.topic)
			consumer.WaitDistinct(2, waitLimit)
			if n := len(consumer.CatchUp(waitLimit)); n != 2 {
				t.Errorf("%d records of two events after a clean stop", n)
			}
		})
	}
}
