package relay_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// Behind the same address stands another server, whose positions are all below
// those of the first: under a running relay, and then for one that is started
// again. A position that was carried over would hide everything.
//
// Seen red with a relay that keeps its highest position from session to session.
func TestCase_L08_PositionOfAnotherServer(t *testing.T) {
	t.Parallel()
	first := postgres.New(t, postgres.Options{})
	second := postgres.New(t, postgres.Options{Fresh: true})
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	for range 8 {
		first.Exec(t, "CREATE TABLE filler ()", "DROP TABLE filler", "SELECT pg_switch_wal()")
	}
	before := harness.NewLedger(t, first, harness.LedgerOptions{Types: []string{"order.placed.v1"}})
	after := harness.NewLedger(t, second, harness.LedgerOptions{Types: []string{"payment.made.v1"}})
	consumer := harness.NewConsumer(t, fake.Addrs(), "order", "payment", before.DLQ())
	ends := harness.FakeEnds(fake.Cluster)
	samplers := map[string]*harness.Sampler{
		"order":   harness.StartSampler(t, before.DSN(), before.Slot(), ends, "order"),
		"payment": harness.StartSampler(t, after.DSN(), after.Slot(), ends, "payment"),
	}

	proxy := harness.NewProxy(t, first.Addr())
	options := harness.RelayOptions{Config: before.Config(fake.Addrs()).
		With("postgres.dsn", "postgres://postgres@"+proxy.Addr()+"/postgres?sslmode=disable")}
	relay := harness.StartRelay(t, options).Ready()
	before.Insert(t, 0, 10)
	consumer.WaitDistinct(10, 30*time.Second)
	high := first.Query1(t, "SELECT pg_current_wal_lsn()::text")
	low := second.Query1(t, "SELECT pg_current_wal_lsn()::text")
	if second.Query1(t, "SELECT ($1::pg_lsn < $2::pg_lsn)::text", low, high) != "true" {
		t.Fatalf("the second server is at %s, which is not below %s", low, high)
	}

	proxy.Redirect(second.Addr())
	after.Insert(t, 0, 10)
	consumer.WaitDistinct(20, 30*time.Second)
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	after.Insert(t, 0, 10)
	relay = harness.StartRelay(t, options).Ready()
	consumer.WaitDistinct(30, 30*time.Second)
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	records := consumer.CatchUp(30 * time.Second)
	// The first server's last acknowledgement may have been on its way when the
	// relay was moved, but it is not asked again.
	harness.Judge(append(before.Committed(t), after.Committed(t)...), records, before.DLQ()).AssertExact(t)
	for topic, sampler := range samplers {
		var mine []harness.Record
		for _, r := range records {
			if r.Topic == topic {
				mine = append(mine, r)
			}
		}
		harness.AssertAcks(t, sampler.Stop(), mine)
	}
}

// Writers whose commits return before their WAL is flushed, so that the server
// tells of positions around commits that decoding has not seen; pauses, in which
// the relay has nothing to do and advances by keepalives; kills at random moments.
//
// Seen red with a relay that confirms the server's current position when idle.
func TestCase_L20_IdleAdvanceBesideUnseenCommits(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{Settings: map[string]string{"synchronous_commit": "off"}})
	writers := p.ledger.Write(t, harness.WriteOptions{Writers: 8, MaxRows: 1, Plain: true, Pause: 15 * time.Millisecond})
	kills := 12
	if harness.Soaking() {
		kills = 120
	}
	for range kills {
		relay := p.start().Ready()
		writers.WaitRows(writers.Rows()+1+rand.Int64N(300), time.Minute)
		relay.Kill()
	}
	relay := p.start().Ready()
	writers.WaitRows(writers.Rows()+200, time.Minute)
	writers.Stop()
	p.ledger.WaitDelivered(t, p.consumer, time.Minute)
	p.waitConfirmed(p.wal()) // and idle at last, it confirms what is not its own
	p.end(relay, p.consumer.Len())
}
