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
// the slot goes on over them, and the server says not a word. Within ten seconds
// the relay is not ready and says what to type, once; put right, it is ready by
// itself and says between which positions rows may be missing. Only a publication
// that is gone ends it: no other one can read the WAL of that time.
//
// Seen red without a look at the publication (everything stays green), and with
// a fault that nobody takes back.
func TestCase_L10_NoLongerPublished(t *testing.T) {
	t.Parallel()
	pg := postgres.New(t, postgres.Options{})
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	const again = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_id text, type text NOT NULL,
		payload jsonb, headers jsonb, occurred_at timestamptz DEFAULT clock_timestamp(), sent_at timestamptz)`
	for _, c := range []struct {
		name, change, repair string
		code                 int    // 0: it does not exit
		says                 string // by /readyz, or as the last words
	}{
		{"taken_out", `ALTER PUBLICATION taken_out DROP TABLE outbox`, `ALTER PUBLICATION "taken_out" ADD TABLE "public"."outbox"`, 0,
			`check publication "taken_out": it does not contain "public"."outbox"; ALTER PUBLICATION "taken_out" ADD TABLE "public"."outbox";`},
		{"made_again", `DROP TABLE outbox; ` + again, `ALTER PUBLICATION "made_again" ADD TABLE "public"."outbox"`, 0,
			`check publication "made_again": it does not contain "public"."outbox"; ALTER PUBLICATION "made_again" ADD TABLE "public"."outbox";`},
		{"renamed", `ALTER TABLE outbox RENAME TO old`, `ALTER TABLE old RENAME TO outbox`, 0,
			`check publication "renamed": there is no table "public"."outbox"; check outbox.table (names stand as in the catalogue, without case folding), or create it: tailer init --apply`},
		{"no_inserts", `ALTER PUBLICATION no_inserts SET (publish = 'update')`, `ALTER PUBLICATION "no_inserts" SET (publish = 'insert')`, 0,
			`check publication "no_inserts": it does not publish inserts; ALTER PUBLICATION "no_inserts" SET (publish = 'insert');`},
		{"filtered", `ALTER PUBLICATION filtered SET TABLE outbox WHERE (type = 'x')`, `ALTER PUBLICATION "filtered" SET TABLE "public"."outbox"`, 0,
			`check publication "filtered": its row filter hides rows of "public"."outbox": WHERE (type = 'x'::text); ` +
				`ALTER PUBLICATION "filtered" SET TABLE "public"."outbox"; publishes every row of that table, and no other table`},
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
			switch {
			case c.code != 0:
				if code := relay.WaitExit(15 * time.Second); code != c.code || !strings.Contains(relay.Logs(), c.says) {
					t.Errorf("exit code %d, want %d and %q in\n%s", code, c.code, c.says, relay.Logs())
				}
				pg.ExecIn(t, c.name, c.repair)
				relay = harness.StartRelay(t, harness.RelayOptions{Config: ledger.Config(fake.Addrs())}).Ready()
			case c.says != "":
				relay.WaitNotReady(c.says, loudness+5*time.Second) // five for a busy machine
				if _, body := relay.Probe("/readyz"); strings.TrimSpace(body) != c.says {
					t.Errorf("/readyz says\n%s\nwant\n%s", body, c.says)
				}
				if code, body := relay.Probe("/healthz"); code != 200 {
					t.Errorf("/healthz: %d %s", code, body)
				}
				if c.name == "taken_out" { // a session that ends meanwhile does not end the relay
					pg.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'taken_out'")
					relay.WaitLog("session ended", loudness)
					relay.WaitNotReady(c.says, loudness)
				}
				pg.ExecIn(t, c.name, c.repair)
				relay.WaitReady("active", loudness+5*time.Second)
				for _, once := range []string{"the outbox is not published as it was", "the outbox is published again"} {
					if n := strings.Count(relay.Logs(), once); n != 1 {
						t.Errorf("%q is said %d times", once, n)
					}
				}
			}
			flows()
			if code := relay.Stop(); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}
		})
	}
}
