package relay_test

import (
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// A transaction that stays open keeps the server's WAL from where it began, and
// the slot's restart_lsn there. That is not the relay's lag: events flow, the
// confirmed position follows, and the two figures are apart. A relay that starts
// again lets the server decode from that old point, and repeats nothing.
//
// Seen red with a lag that is counted from restart_lsn.
func TestCase_S13_OpenTransactionPinsTheWAL(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{Settings: map[string]string{"max_wal_size": "64MB", "min_wal_size": "32MB"}})
	p.pg.Exec(t, "CREATE DATABASE elsewhere", "CREATE TABLE pin (n bigint)")
	relay := p.start().Ready()

	open := p.pg.Conn(t, "postgres")
	for _, sql := range []string{"BEGIN", "INSERT INTO pin VALUES (1)"} {
		if _, err := open.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	pinned := p.wal()
	flows := func(events int) {
		t.Helper()
		for range events {
			p.ledger.Insert(t, 0, 1)
		}
		p.ledger.WaitDelivered(t, p.consumer, time.Minute)
	}
	flows(20)
	quiet := p.busyNeighbours()
	flows(20)
	p.pg.Exec(t, "CHECKPOINT")
	p.sampler.WaitConfirmed(quiet, 30*time.Second)
	if restart := p.sampler.Last().Restart; restart > pinned {
		t.Fatalf("restart_lsn went on to %s, the transaction that is open began before %s", restart, pinned)
	}
	harness.Eventually(t, 10*time.Second, "a small lag and much retained WAL in the metrics", func() bool {
		metrics := relay.Metrics()
		lag, _ := metrics.Sum("tailer_slot_lag_bytes")
		retained, _ := metrics.Sum("tailer_retained_wal_bytes")
		return lag < 1<<20 && retained > 50<<20
	})

	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	relay = p.start().Ready()
	flows(20)
	if _, err := open.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	p.waitFreed(quiet)
	p.end(relay, 0)
}
