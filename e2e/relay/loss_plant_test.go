// Package relay_test has the cases that run with every "make test": one
// Postgres, kfake, and the built relay between them.
package relay_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// senderTimeout is wal_sender_timeout in these tests. An outage of "minutes" is
// one of several times as long.
const senderTimeout = 2 * time.Second

// plant is a database with a ledger, a Kafka with a wire in front, a consumer
// and a sampler that look on from the first moment.
type plant struct {
	t        *testing.T
	pg       *postgres.Server
	wire     *kafka.Wire
	fake     *kafka.Fake
	ledger   *harness.Ledger
	consumer *harness.Consumer
	sampler  *harness.Sampler

	brokers []string       // what clients are told
	door    *harness.Proxy // in front of the first broker, with plantOptions.Door
}

type plantOptions struct {
	Settings map[string]string // of Postgres
	Ledger   harness.LedgerOptions
	Kafka    kafka.FakeOptions
	Blind    bool // no consumer: the test reads the topics itself
	Door     bool // clients begin at an address of which the brokers know nothing
}

func newPlant(t *testing.T, opt plantOptions) *plant {
	t.Helper()
	settings := map[string]string{"wal_sender_timeout": fmt.Sprint(senderTimeout.Milliseconds())}
	maps.Copy(settings, opt.Settings)
	p := &plant{t: t, pg: postgres.New(t, postgres.Options{Settings: settings}), wire: kafka.NewWire(t)}
	opt.Kafka.Options = append([]kfake.Opt{p.wire.Opt()}, opt.Kafka.Options...)
	p.fake = kafka.NewFake(t, opt.Kafka)
	p.brokers = p.fake.Addrs()
	if opt.Door {
		p.door = harness.NewProxy(t, p.brokers[0])
		p.brokers = []string{p.door.Addr()}
	}
	p.ledger = harness.NewLedger(t, p.pg, opt.Ledger)
	if !opt.Blind {
		p.consumer = harness.NewConsumer(t, p.brokers, p.ledger.Topics()...)
	}
	p.sampler = harness.StartSampler(t, p.ledger.DSN(), p.ledger.Slot(), harness.FakeEnds(p.fake.Cluster), p.ledger.Topics()...)
	return p
}

func (p *plant) config() harness.Config { return p.ledger.Config(p.brokers) }

func (p *plant) start() *harness.Relay {
	p.t.Helper()
	return p.startWith(p.config())
}

func (p *plant) startWith(config harness.Config) *harness.Relay {
	p.t.Helper()
	return harness.StartRelay(p.t, harness.RelayOptions{Config: config})
}

// end waits for delivery, stops the relay, which must drain, and judges: all
// there, in order, nothing confirmed too early, at most so many repeats.
func (p *plant) end(relay *harness.Relay, duplicates int) []harness.Record {
	p.t.Helper()
	p.ledger.WaitDelivered(p.t, p.consumer, time.Minute)
	if code := relay.Stop(); code != 0 {
		p.t.Errorf("exit code %d after SIGTERM", code)
	}
	records := p.consumer.CatchUp(time.Minute)
	p.ledger.Check(p.t, records).AssertAtLeastOnce(p.t, duplicates)
	harness.AssertAcks(p.t, p.sampler.Stop(), records)
	return records
}

// wal is the server's current position.
func (p *plant) wal() pglogrepl.LSN {
	p.t.Helper()
	return p.lsn("SELECT pg_current_wal_flush_lsn()::text")
}

func (p *plant) lsn(sql string, args ...any) pglogrepl.LSN {
	p.t.Helper()
	text := p.pg.Query1(p.t, sql, args...)
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		p.t.Fatalf("%s: %q: %v", sql, text, err)
	}
	return lsn
}

// waitHeard waits until the relay has heard of everything up to lsn, and has
// then spoken n times more with the server, keepalives and statuses: had it
// wanted to confirm any of that, it would have.
func (p *plant) waitHeard(lsn pglogrepl.LSN, n int) {
	p.t.Helper()
	conn := p.pg.Conn(p.t, "postgres")
	seen := map[time.Time]bool{}
	harness.Eventually(p.t, 30*time.Second, fmt.Sprintf("%d statuses after the server has sent up to %v", n, lsn), func() bool {
		var sent string
		var at time.Time
		err := conn.QueryRow(context.Background(), `SELECT sent_lsn::text, reply_time FROM pg_stat_replication
			WHERE application_name = 'tailer' AND sent_lsn IS NOT NULL AND reply_time IS NOT NULL`).Scan(&sent, &at)
		if err == pgx.ErrNoRows {
			return false
		}
		position, parseErr := pglogrepl.ParseLSN(sent)
		if err != nil || parseErr != nil {
			p.t.Fatal(err, parseErr)
		}
		if position >= lsn {
			seen[at] = true
		}
		return len(seen) > n
	})
}

// outlast waits until the relay has gone on speaking to that walsender for so long.
func (p *plant) outlast(sender int, d time.Duration) {
	p.t.Helper()
	conn := p.pg.Conn(p.t, "postgres")
	var begin time.Time
	harness.Eventually(p.t, d+time.Minute, fmt.Sprintf("statuses to walsender %d for %v", sender, d), func() bool {
		var at *time.Time
		err := conn.QueryRow(context.Background(), "SELECT reply_time FROM pg_stat_replication WHERE pid = $1", sender).Scan(&at)
		if err != nil {
			p.t.Fatalf("walsender %d: %v", sender, err)
		}
		if at == nil {
			return false
		}
		if begin.IsZero() {
			begin = *at
		}
		return at.Sub(begin) >= d
	})
}

// sender is the process of the walsender that serves the slot, 0 if there is none.
func (p *plant) sender() int {
	p.t.Helper()
	pid, err := strconv.Atoi(p.pg.Query1(p.t, "SELECT coalesce(max(active_pid), 0)::text FROM pg_replication_slots WHERE slot_name = $1", p.ledger.Slot()))
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

// waitConfirmed waits until the slot has confirmed at least lsn.
func (p *plant) waitConfirmed(lsn pglogrepl.LSN) {
	p.t.Helper()
	p.sampler.WaitConfirmed(lsn, 30*time.Second)
}

// assertHeld fails the test if one of the samples had confirmed the commit of
// the record: an end beyond it would have.
func assertHeld(t *testing.T, samples []harness.Sample, rec *harness.Record) {
	t.Helper()
	commit, err := rec.CommitLSN()
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) == 0 {
		t.Error("no sample")
	}
	for i, s := range samples {
		if s.Confirmed > commit {
			t.Errorf("sample %d of %d: %v confirmed, the event at %v was not acknowledged", i, len(samples), s.Confirmed, commit)
			return
		}
	}
}

// first is the first record of a topic.
func first(t *testing.T, records []harness.Record, topic string) *harness.Record {
	t.Helper()
	for i := range records {
		if records[i].Topic == topic {
			return &records[i]
		}
	}
	t.Fatalf("no record in %s", topic)
	return nil
}

// produces tells whether a request is one to produce.
func produces(r *kafka.Request) bool {
	_, ok := r.Request.(*kmsg.ProduceRequest)
	return ok
}
