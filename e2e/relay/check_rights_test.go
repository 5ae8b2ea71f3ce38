package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// A role that loses its rights under a running relay: Postgres lets the stream
// go on and refuses the next one. The relay is not ready before that happens,
// and ready again when the rights are back, all in one session.
//
// Seen red without a look at the rights: ready until the next failover.
func TestRightsWithdrawn(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.pg.Exec(t, "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
	if got := harness.Run(t, o.config, "init", "--role", "relay", "--apply"); got.Code != 0 {
		t.Fatalf("init --role: %s", got.Stderr)
	}
	relay := o.run(o.config.With("postgres.dsn", o.pg.UserDSN("relay", "", "postgres")))
	for _, c := range []struct{ withdraw, grant, says string }{
		{`ALTER ROLE relay NOREPLICATION`, `ALTER ROLE relay REPLICATION`, "REPLICATION"},
		{`REVOKE CONNECT ON DATABASE postgres FROM relay`, `GRANT CONNECT ON DATABASE postgres TO relay`, "permission denied for database"},
	} {
		// Beyond the first look, which is what the later ones are compared with.
		o.header(o.order(), "id")
		harness.Eventually(t, waitLimit, "a look at the slot", func() bool {
			_, metrics := relay.Probe("/metrics")
			return strings.Contains(metrics, "tailer_retained_wal_bytes{")
		})
		o.pg.Exec(t, c.withdraw)
		relay.WaitNotReady("the stream goes on, and the next one would be refused", loudness+5*time.Second)
		if _, body := relay.Probe("/readyz"); !strings.Contains(body, c.says) {
			t.Errorf("/readyz does not name %s: %s", c.says, body)
		}
		o.header(o.order(), "id") // it does go on
		o.pg.Exec(t, c.grant)
		relay.WaitReady("active", loudness+5*time.Second)
	}
	if n := strings.Count(relay.Logs(), "rights were withdrawn"); n != 2 {
		t.Errorf("said %d times", n)
	}
	if n := strings.Count(relay.Logs(), `"msg":"streaming"`); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}
