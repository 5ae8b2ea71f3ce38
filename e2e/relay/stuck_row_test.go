package relay_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// A row is stored that Postgres cannot send: its text would be longer than a
// message can be. Each session ends at it. The relay is not ready, between two
// tries neither, and says where the row is and what leads out; typed, the events
// behind it come.
//
// Seen red with a relay that is ready whenever it streams, and with a hint that
// names the position of the row itself.
func TestCase_S28_RowThatPostgresCannotSend(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{
		before: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), occurred_at timestamptz DEFAULT now(),
			aggregate_id text, type text NOT NULL, payload bytea, headers jsonb, sent_at timestamptz)`},
		config: map[string]any{"kafka.brokers": nil},
	})
	o.config = o.config.With("kafka.brokers", o.fake.Addrs())
	relay := o.run(o.config)
	o.text(`INSERT INTO outbox (type, payload) VALUES ('order.placed.v1', 'before') RETURNING id::text`)
	o.read(1, "order")
	o.text(`INSERT INTO outbox (type, payload) VALUES ('order.placed.v1', convert_to(repeat('x', 540000000), 'UTF8')) RETURNING id::text`)
	o.text(`INSERT INTO outbox (type, payload) VALUES ('order.placed.v1', 'behind') RETURNING id::text`)

	harness.Eventually(t, time.Minute, "two sessions that ended", func() bool { return strings.Count(relay.Logs(), `"msg":"session ended"`) >= 2 })
	for ended := strings.Count(relay.Logs(), `"msg":"session ended"`); strings.Count(relay.Logs(), `"msg":"session ended"`) < ended+2 && relay.Running(); {
		if code, body := relay.Probe("/readyz"); code == 200 {
			t.Fatalf("ready between two tries: %s", body)
		}
		if code, body := relay.Probe("/healthz"); code != 200 && code != 0 {
			t.Fatalf("/healthz: %d %s", code, body)
		}
	}
	step := regexp.MustCompile(`SELECT pg_replication_slot_advance\('tailer', '[0-9A-F]+/[0-9A-F]+'\);`).FindString(relay.Logs())
	if step == "" {
		t.Fatalf("no statement leads out:\n%s", relay.Logs())
	}
	relay.Stop()
	if _, err := o.conn.Exec(context.Background(), step); err != nil {
		t.Fatalf("%s: %v", step, err)
	}
	next := harness.StartRelay(t, harness.RelayOptions{Config: o.config})
	harness.Eventually(t, 30*time.Second, "the next relay's word", func() bool {
		code, _ := next.Probe("/readyz")
		return code == 200 || !next.Running()
	})
	if !next.Running() {
		if code := next.ExitCode(); code != 3 {
			t.Fatalf("exit code %d", code)
		}
		harness.Run(t, o.config, "slot", "accept-gap", "--yes")
		o.run(o.config)
	}
	o.read(2, "order")
}
