package relay_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// busyNeighbours writes some 60 MB of WAL into another table and another
// database, and returns where the WAL ends then.
func (p *plant) busyNeighbours() pglogrepl.LSN {
	p.t.Helper()
	fill := "INSERT INTO neighbour SELECT g, repeat('x', 900) FROM generate_series(1, 30000) g"
	p.pg.Exec(p.t, "CREATE TABLE IF NOT EXISTS neighbour (n bigint, pad text)", fill, "TRUNCATE neighbour")
	p.pg.ExecIn(p.t, "elsewhere", "CREATE TABLE IF NOT EXISTS neighbour (n bigint, pad text)", fill, "TRUNCATE neighbour")
	return p.wal()
}

// An outbox without events on a server that is busy otherwise: the slot
// follows, and the server may remove its WAL, with no heartbeat table. With an
// event on its way that nobody acknowledges it does not move, and when that is
// acknowledged it does.
//
// Seen red with a relay that confirms only what its own events end at, and with
// one that confirms keepalives whatever is outstanding.
func TestCase_S11_QuietOutboxOnABusyServer(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{Settings: map[string]string{"max_wal_size": "64MB", "min_wal_size": "32MB"}})
	p.pg.Exec(t, "CREATE DATABASE elsewhere")
	relay := p.start().Ready()

	quiet := p.busyNeighbours()
	p.waitFreed(quiet)

	var lost atomic.Int32
	p.wire.On(func(r *kafka.Request) kafka.Fate {
		if produces(r) {
			lost.Add(1)
			return kafka.LoseRequest
		}
		return kafka.Pass
	})
	p.ledger.Insert(t, 0, 1)
	harness.Eventually(t, 10*time.Second, "a produce request", func() bool { return lost.Load() > 0 })
	committed := p.wal()
	stalled := p.busyNeighbours()
	p.pg.Exec(t, "CHECKPOINT")
	p.waitHeard(stalled, 4)
	held := p.sampler.Samples()
	if last := held[len(held)-1]; last.Restart > committed || int64(stalled-last.Restart) < 50<<20 {
		t.Errorf("the WAL is kept from %v, the event that is outstanding was committed before %v, the WAL ends at %v", last.Restart, committed, stalled)
	}
	harness.Eventually(t, 10*time.Second, "lag and retained WAL in the metrics", func() bool {
		metrics := relay.Metrics()
		lag, _ := metrics.Sum("tailer_slot_lag_bytes")
		retained, _ := metrics.Sum("tailer_retained_wal_bytes")
		return lag > 50<<20 && retained > 50<<20
	})

	p.wire.On(nil)
	p.wire.Cut() // what the network swallowed is never answered
	p.waitFreed(stalled)
	records := p.end(relay, 0)
	event := first(t, records, "order")
	var outstanding []harness.Sample
	commit, err := event.CommitLSN()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range held {
		if s.Current > commit {
			outstanding = append(outstanding, s)
		}
	}
	assertHeld(t, outstanding, event)
}

// waitFreed waits until the slot needs nothing before lsn. restart_lsn moves
// where the server notes which transactions run, which a checkpoint does.
func (p *plant) waitFreed(lsn pglogrepl.LSN) {
	p.t.Helper()
	harness.Eventually(p.t, 30*time.Second, "restart_lsn to reach "+lsn.String(), func() bool {
		p.pg.Exec(p.t, "CHECKPOINT")
		return p.sampler.Last().Restart >= lsn
	})
}
