package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// patience bounds every wait for something that must happen.
const patience = 90 * time.Second

// bed is what most cases about order and restarts lie on: an outbox that keeps
// books, a broker, a consumer of its topics and a sampler of its slot.
type bed struct {
	t        testing.TB
	pg       *postgres.Server
	fake     *kafka.Fake // nil on another Kafka
	addrs    []string
	ends     harness.Ends
	ledger   *harness.Ledger
	consumer *harness.Consumer
	sampler  *harness.Sampler
	config   harness.Config
	topic    string // of the ledger's first type, which is that of key-0
	typ      string
	other    string // topic of its second type, that of key-1, where it has two
}

// bedOptions are what a case wants otherwise.
type bedOptions struct {
	settings   map[string]string // of Postgres
	partitions int               // of the topic; default 3
	topics     map[string]map[string]string
	server     *postgres.Server // instead of one of the environment
	brokers    int              // of kfake
	two        bool             // types and so topics: even keys have the first, odd ones the second
}

// lay makes a bed. Where the broker serves several tests, slot and topics have
// names of their own.
func (e Env) lay(t testing.TB, opt bedOptions) *bed {
	t.Helper()
	b := &bed{t: t, pg: opt.server}
	slot, domain := "tailer", "order"
	if e.Brokers == nil {
		b.fake = kafka.NewFake(t, kafka.FakeOptions{Brokers: opt.brokers})
		b.addrs, b.ends = b.fake.Addrs(), harness.FakeEnds(b.fake.Cluster)
	} else {
		b.addrs = e.Brokers(t)
		b.ends = harness.BrokerEnds(t, b.addrs)
		slot = fmt.Sprintf("t%08x", rand.Uint32())
		domain = slot + "-order"
	}
	if b.pg == nil {
		b.pg = e.postgres(t, opt.settings)
	}
	b.topic, b.typ = domain, domain+".placed.v1"
	types := []string{b.typ}
	if opt.two {
		b.other = strings.Replace(domain, "order", "payment", 1)
		types = append(types, b.other+".made.v1")
	}
	b.ledger = harness.NewLedger(t, b.pg, harness.LedgerOptions{Slot: slot, Types: types, Partitions: opt.partitions})
	for name, config := range opt.topics {
		kafka.CreateTopic(t, b.addrs, b.named(name), int32(max(opt.partitions, 1)), -1, config)
	}
	b.config = b.ledger.Config(b.addrs)
	b.consumer = harness.NewConsumer(t, b.addrs, b.ledger.Topics()...)
	b.sampler = harness.StartSampler(t, b.ledger.DSN(), slot, b.ends, b.ledger.Topics()...)
	return b
}

// The topics of a bed, for bedOptions.topics.
const (
	theTopic = "topic"
	theOther = "other"
	theDLQ   = "dlq"
)

func (b *bed) named(topic string) string {
	switch topic {
	case theDLQ:
		return b.ledger.DLQ()
	case theOther:
		return b.other
	}
	return b.topic
}

// start starts a relay and waits until it streams.
func (b *bed) start() *harness.Relay {
	b.t.Helper()
	return harness.StartRelay(b.t, harness.RelayOptions{Config: b.config}).Ready()
}

// conn is a connection to the ledger's database.
func (b *bed) conn() *pgx.Conn { b.t.Helper(); return b.pg.Conn(b.t, "postgres") }

// insertSQL commits the next event of a key, with padding that a test knows it by.
const insertSQL = `WITH drawn AS (UPDATE counter SET n = n + 1 WHERE key = $1 RETURNING n)
	INSERT INTO outbox (aggregate_id, type, payload)
	SELECT $1, $2, jsonb_build_object('key', $1::text, 'n', n, 'pad', $3::text) FROM drawn
	RETURNING id::text, (payload->>'n')::bigint`

// insert writes an event of key-0, in a transaction of its own unless q is one.
func (b *bed) insert(q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, pad string) harness.Event {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	event := harness.Event{Key: "key-0"}
	if err := q.QueryRow(ctx, insertSQL, event.Key, b.typ, pad).Scan(&event.ID, &event.N); err != nil {
		b.t.Fatalf("insert an event: %v", err)
	}
	return event
}

// settle waits until all that was committed is delivered, and the slot has
// confirmed it.
func (b *bed) settle() {
	b.t.Helper()
	b.ledger.WaitDelivered(b.t, b.consumer, patience)
	b.sampler.WaitConfirmed(b.current(), patience)
}

// current is where the server's WAL ends.
func (b *bed) current() pglogrepl.LSN {
	b.t.Helper()
	return b.lsn("SELECT pg_current_wal_lsn()::text")
}

func (b *bed) lsn(query string) pglogrepl.LSN {
	b.t.Helper()
	lsn, err := pglogrepl.ParseLSN(b.pg.Query1(b.t, query))
	if err != nil {
		b.t.Fatal(err)
	}
	return lsn
}

// finish stops the relay in order, reads to the end and judges what a consumer
// saw: completeness, order, at most so many repeats, nothing confirmed early.
func (b *bed) finish(relay *harness.Relay, duplicates int) []harness.Record {
	b.t.Helper()
	b.ledger.WaitDelivered(b.t, b.consumer, patience)
	if code := relay.Stop(); code != 0 {
		b.t.Errorf("exit code %d after SIGTERM", code)
	}
	records := b.consumer.CatchUp(patience)
	harness.AssertAcks(b.t, b.sampler.Stop(), records)
	b.ledger.Check(b.t, records).AssertAtLeastOnce(b.t, duplicates)
	return records
}

// waitMore waits until the relay has delivered so many more events: that it goes on.
func (b *bed) waitMore(n int) {
	b.t.Helper()
	b.consumer.WaitDistinct(b.consumer.Distinct()+n, patience)
}

// logged says whether a relay's log holds each of the texts.
func logged(relay *harness.Relay, texts ...string) bool {
	log := relay.Logs()
	for _, text := range texts {
		if !strings.Contains(log, text) {
			return false
		}
	}
	return true
}
