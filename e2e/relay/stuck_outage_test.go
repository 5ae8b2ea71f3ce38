package relay_test

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// All brokers are away for several times wal_sender_timeout, under load, and
// come back with other node ids and ports behind the same bootstrap address.
// The session with Postgres lasts, memory stays where it is, and all that was
// written meanwhile comes in order, none of it as a dead letter.
//
// Seen red with a relay that sends no status while its reader is held back.
func TestCase_S09_BrokersAway(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{Door: true})
	relay := p.startWith(p.config().With("delivery.batch_bytes", "1MiB")).Ready()
	writers := p.ledger.Write(t, harness.WriteOptions{Pause: 10 * time.Millisecond, Bytes: 500})
	p.consumer.WaitDistinct(1000, time.Minute)
	sender := p.sender()

	p.wire.Down()
	relay.WaitNotReady("order", 10*time.Second)
	early := relay.Usage().RSS
	p.outlast(sender, harness.Span(3*senderTimeout, 10*time.Minute))
	if now := p.sender(); now != sender {
		t.Errorf("walsender %d has become %d", sender, now)
	}
	late := relay.Usage()
	t.Logf("%d MiB when the outage was noticed, %d MiB at its end, %d MiB at most", early>>20, late.RSS>>20, late.PeakRSS>>20)
	if late.RSS > early+16<<20 || late.PeakRSS > memoryBound {
		t.Errorf("memory grew in the outage, or beyond %d MiB", memoryBound>>20)
	}

	p.replaceBroker()
	p.wire.Up()
	relay.WaitReady("active", 30*time.Second)
	writers.WaitRows(writers.Rows()+1000, time.Minute)
	writers.Stop()
	p.ledger.WaitDelivered(t, p.consumer, time.Minute)
	if now := p.sender(); now != sender {
		t.Errorf("walsender %d has become %d", sender, now)
	}
	// kfake has moved the partitions and forgotten nothing: a batch whose
	// answer was lost is known there.
	p.end(relay, 0)
}

// replaceBroker puts a broker with another id and port in the place of the
// first and only one.
func (p *plant) replaceBroker() {
	p.t.Helper()
	if _, _, err := p.fake.AddNode(7, 0); err != nil {
		p.t.Fatal(err)
	}
	if err := p.fake.RemoveNode(0); err != nil {
		p.t.Fatal(err)
	}
	p.door.Redirect(p.fake.Addrs()[0])
}

// A stop in the outage ends within the drain timeout and what follows it,
// says by its exit code that something was left, and confirms none of that.
//
// Seen red with a relay that confirms what it gives up.
func TestCase_S09_StopWhileBrokersAreAway(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{Door: true})
	const batch, drain = 500, 2 * time.Second
	config := p.config().With("delivery.batch_records", batch).With("delivery.drain_timeout", drain.String())
	relay := p.startWith(config).Ready()
	writers := p.ledger.Write(t, harness.WriteOptions{Pause: 10 * time.Millisecond})
	p.consumer.WaitDistinct(1000, time.Minute)

	p.wire.Down()
	relay.WaitNotReady("order", 10*time.Second)
	began := time.Now()
	if code := relay.Stop(); code != 1 {
		t.Errorf("exit code %d for a drain that could not end", code)
	}
	if took := time.Since(began); took > drain+6*time.Second {
		t.Errorf("the stop took %v", took)
	}
	// What is confirmed now was acknowledged; the judge sees it in the end.
	var stopped pglogrepl.LSN
	harness.Eventually(t, 10*time.Second, "the slot to be free", func() bool {
		stopped = p.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", p.ledger.Slot())
		return p.sender() == 0
	})
	if wal := p.wal(); stopped >= wal {
		t.Errorf("%v is confirmed, and the WAL ends at %v", stopped, wal)
	}

	p.wire.Up()
	relay = p.startWith(config).Ready()
	writers.WaitRows(writers.Rows()+500, time.Minute)
	writers.Stop()
	// The cycle that was cut off, and its transaction from the first row.
	p.end(relay, batch+500)
}
