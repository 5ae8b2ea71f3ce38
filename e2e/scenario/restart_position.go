package scenario

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// boundary is where a position no longer fits into 32 bits.
const boundary = pglogrepl.LSN(1) << 32

// PositionBeyond4GiB is D12: the WAL passes 0/FFFFFFFF while the relay runs.
// Nothing is lost, repeated or out of order, no lag is negative, and the
// position is shown as the server shows it. It needs pg_resetwal, so Debian's server.
//
// Seen red with a relay that keeps the lower half of a position (events come
// again, and the slot stays behind).
func PositionBeyond4GiB(t testing.TB) {
	server := postgres.New(t, postgres.Options{Debian: true, Version: postgres.Debian(t)})
	if err := server.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	// Two segments before the boundary; the next free one has to be behind the
	// server's own, which begin at the first.
	reset := server.Command(context.Background(), "pg_resetwal", "-l", "0000000100000000000000FE", "-D", server.DataDir())
	if out, err := reset.CombinedOutput(); err != nil {
		t.Fatalf("pg_resetwal: %v\n%s", err, out)
	}
	if err := server.StartAgain(); err != nil {
		t.Fatal(err)
	}
	b := Env{}.lay(t, bedOptions{server: server})
	if at := b.current(); at >= boundary || at < boundary-(64<<20) {
		t.Fatalf("the server begins at %v, not a little below %v", at, boundary)
	}
	relay := b.start()
	b.ledger.Insert(t, 0, 100)
	b.settle()

	// Over the boundary with events before, in between and after.
	for key := 1; b.current() < boundary+(1<<20); key++ {
		b.pg.Exec(t, "DROP TABLE IF EXISTS junk",
			"CREATE TABLE junk AS SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 7000) g")
		b.ledger.Insert(t, key%20, 500)
		metrics := relay.Metrics()
		for _, name := range []string{"tailer_slot_lag_bytes", "tailer_retained_wal_bytes"} {
			if n, ok := metrics.Sum(name); ok && (n < 0 || n > float64(256<<20)) {
				t.Errorf("%s is %v at %v", name, n, b.current())
			}
		}
	}
	b.settle()
	if last := b.sampler.Last(); last.Confirmed < boundary {
		t.Errorf("confirmed %v, beyond %v was committed", last.Confirmed, boundary)
	}
	status := harness.Run(t, b.config, "status", "--json")
	if !json.Valid([]byte(status.Stdout)) || status.Code != 0 || !strings.Contains(status.Stdout, `"1/`) {
		t.Errorf("status does not show positions beyond 4 GiB: exit code %d\n%s%s", status.Code, status.Stdout, status.Stderr)
	}

	// The next relay starts from there.
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	b.ledger.Insert(t, 0, 100)
	relay = b.start()
	relay.WaitLog(`"msg":"streaming"`, patience) // what it logs arrives beside its readiness
	if start, err := pglogrepl.ParseLSN(lastStart(relay.Logs())); err != nil || start < boundary {
		t.Errorf("the second relay began at %v (%v)", start, err)
	}
	records := b.finish(relay, 0)
	var low, high int
	for i := range records {
		if lsn, err := records[i].CommitLSN(); err != nil || lsn < boundary {
			low++
		} else {
			high++
		}
	}
	if low < 100 || high < 100 {
		t.Errorf("%d events below %v and %d above: the boundary was not passed under events", low, boundary, high)
	}
}
