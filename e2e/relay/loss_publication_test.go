package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// Under a running relay the outbox stops being published: its rows are written,
// the slot goes on over them, and the server says not a word. The relay ends
// within ten seconds, says what to type, and goes on after that.
//
// Seen red without a look at the publication: everything stays green.
func TestCase_L10_NoLongerPublished(t *testing.T) {
	t.Parallel()
	pg := postgres.New(t, postgres.Options{})
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	const again = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_id text, type text NOT NULL,
		payload jsonb, headers jsonb, occurred_at timestamptz DEFAULT clock_timestamp(), sent_at timestamptz)`
	for _, c := range []struct {
		name, change, repair string
		code                 int
		says                 string
	}{
		{"taken_out", `ALTER PUBLICATION taken_out DROP TABLE outbox`, `ALTER PUBLICATION taken_out ADD TABLE outbox`, 2,
			`hint: ALTER PUBLICATION "taken_out" ADD TABLE "public"."outbox"`},
		{"made_again", `DROP TABLE outbox; ` + again, `ALTER PUBLICATION made_again ADD TABLE outbox`, 2,
			`hint: ALTER PUBLICATION "made_again" ADD TABLE "public"."outbox"`},
		{"renamed", `ALTER TABLE outbox RENAME TO old`, `ALTER TABLE old RENAME TO outbox`, 2, `there is no table "public"."outbox"`},
		{"no_inserts", `ALTER PUBLICATION no_inserts SET (publish = 'update')`, `ALTER PUBLICATION no_inserts SET (publish = 'insert')`, 2,
			`hint: ALTER PUBLICATION "no_inserts" SET (publish = 'insert')`},
		{"dropped", `DROP PUBLICATION dropped`, `CREATE PUBLICATION dropped FOR TABLE outbox WITH (publish = 'insert')`, 3, `publication "dropped": it does not exist`},
		{"exchanged", `BEGIN; ALTER TABLE outbox RENAME TO old; ALTER TABLE old RENAME CONSTRAINT outbox_pkey TO old_pkey; ` + again +
			`; ALTER PUBLICATION exchanged SET TABLE outbox; COMMIT`, ``, 0, ``},
	} {
		pg.Exec(t, "CREATE DATABASE "+c.name)
		ledger := harness.NewLedger(t, pg, harness.LedgerOptions{Database: c.name, Slot: c.name, Types: []string{c.name + ".placed.v1"}})
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			consumer := harness.NewConsumer(t, fake.Addrs(), ledger.Topics()...)
			number := 0
			flows := func() {
				t.Helper()
				number++
				id := pg.Query1In(t, c.name, `INSERT INTO outbox (aggregate_id, type, payload) VALUES ('k', $1, '{}') RETURNING id::text`, c.name+".placed.v1")
				harness.Eventually(t, 20*time.Second, fmt.Sprintf("event %d", number), func() bool {
					for _, r := range consumer.Records() {
						if r.ID() == id {
							return true
						}
					}
					return false
				})
			}
			relay := harness.StartRelay(t, harness.RelayOptions{Config: ledger.Config(fake.Addrs())}).Ready()
			flows()
			pg.ExecIn(t, c.name, c.change)
			if c.code != 0 {
				if code := relay.WaitExit(15 * time.Second); code != c.code || !strings.Contains(relay.Logs(), c.says) {
					t.Errorf("exit code %d, want %d and %q in\n%s", code, c.code, c.says, relay.Logs())
				}
				pg.ExecIn(t, c.name, c.repair)
				relay = harness.StartRelay(t, harness.RelayOptions{Config: ledger.Config(fake.Addrs())}).Ready()
			}
			flows()
			if code := relay.Stop(); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}
		})
	}
}
