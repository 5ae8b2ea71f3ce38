package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// hugeBound is what a relay may use at its default of 8 MiB for a batch.
const hugeBound = 96 << 20

// One transaction of a million events, and one of a million rows of a table
// that is not published. Memory stays bounded, nothing is read twice, and the
// big one is confirmed only when the last of its events is in Kafka.
//
// Seen red with a relay whose batches have no bounds, and with one that marks
// the open transaction where a batch is full.
func TestCase_S26_HugeTransaction(t *testing.T) {
	t.Parallel()
	const rows = 1_000_000
	p := newPlant(t, plantOptions{Blind: true, Ledger: harness.LedgerOptions{Partitions: 1, Keys: 2},
		Settings: map[string]string{"wal_sender_timeout": "10s", "max_wal_size": "4GB"}})
	relay := p.start().Ready()
	sender := p.sender()
	p.pg.Exec(t, "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey") // half of the time to write them
	p.ledger.Insert(t, 0, rows)
	transaction := p.readHuge(rows)
	p.pg.Exec(t, "CREATE TABLE another (n bigint)", fmt.Sprintf("INSERT INTO another SELECT generate_series(1, %d)", rows))
	p.ledger.Insert(t, 1, 1)
	p.waitConfirmed(p.wal())

	usage := relay.Usage()
	t.Logf("peak RSS %d MiB, CPU %v", usage.PeakRSS>>20, usage.CPU)
	if usage.PeakRSS > hugeBound {
		t.Errorf("%d MiB of memory at most, %d MiB were used", hugeBound>>20, usage.PeakRSS>>20)
	}
	if now := p.sender(); now != sender {
		t.Errorf("walsender %d has become %d", sender, now)
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	samples := p.sampler.Stop()
	var during int
	for _, s := range samples {
		end := s.End[harness.Partition{Topic: "order", Number: 0}]
		if end > 0 && end < rows {
			during++
		}
		if s.Confirmed > transaction.lsn && end < rows {
			t.Fatalf("%v was confirmed with %d of %d events in Kafka", s.Confirmed, end, rows)
		}
	}
	if during == 0 {
		t.Error("no sample from the time in which the transaction was published")
	}
	if end := samples[len(samples)-1].End[harness.Partition{Topic: "order", Number: 0}]; end != rows+1 {
		t.Errorf("the topic ends at %d", end)
	}
	if got := p.pg.Query1(t, "SELECT count(*)::text FROM outbox"); got != fmt.Sprint(rows+1) || len(transaction.ids) != rows {
		t.Errorf("%s events were committed, %d different ids read of the transaction", got, len(transaction.ids))
	}
}

// huge is what is kept of a transaction that is too large to keep.
type huge struct {
	lsn pglogrepl.LSN // of its commit
	ids map[string]struct{}
}

// readHuge reads the events of one transaction of key-0, which must be numbered
// from 1 without a gap or a repeat, in the order of their positions.
func (p *plant) readHuge(rows int) huge {
	p.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.brokers...), kgo.ConsumeTopics("order"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(50*time.Millisecond), kgo.MetadataMaxAge(500*time.Millisecond))
	if err != nil {
		p.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	h := huge{ids: make(map[string]struct{}, rows)}
	for n := 0; n < rows; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			p.t.Fatalf("read %d of %d events: %v", n, rows, ctx.Err())
		}
		fetches.EachRecord(func(r *kgo.Record) {
			rec := harness.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Headers: r.Headers}
			lsn, err := rec.CommitLSN()
			if err != nil {
				p.t.Fatal(err)
			}
			if h.lsn == 0 {
				h.lsn = lsn
			}
			var payload struct{ N int }
			if err := json.Unmarshal(r.Value, &payload); err != nil {
				p.t.Fatal(err)
			}
			h.ids[rec.ID()] = struct{}{}
			if want := fmt.Sprintf("%016X-%010d", uint64(h.lsn), n); rec.Sequence() != want || payload.N != n+1 {
				p.t.Fatalf("event %d of the transaction has number %d and position %s, want %s", n, payload.N, rec.Sequence(), want)
			}
			n++
		})
	}
	return h
}
