package scenario

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// one is a bed with a single partition, whose records a fault can see: they
// are sent as they are.
func (e Env) one(t testing.TB) *bed {
	t.Helper()
	b := e.lay(t, bedOptions{partitions: 1})
	b.config = b.config.With("kafka.compression", "none")
	return b
}

// holding selects produce requests whose records hold any of the texts.
func holding(texts ...string) func(kmsg.Request) bool {
	return func(req kmsg.Request) bool {
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				for _, text := range texts {
					if bytes.Contains(p.Records, []byte(text)) {
						return true
					}
				}
			}
		}
		return false
	}
}

var produce = []kmsg.Key{kmsg.Produce}

// ProducerForgotten is D05: the broker forgets the producer, or says that it
// does not know its sequence, in the middle of a stream. The relay goes on
// without a restart, without a gap and in order.
//
// Seen red with a relay that takes what failed for acknowledged (losses, and no
// metric moves).
func ProducerForgotten(t testing.TB, env Env) {
	b := env.one(t)
	relay := b.start()
	writers := b.ledger.Write(t, load)
	b.waitMore(200)
	for _, code := range []*kerr.Error{
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch,
		kerr.InvalidProducerIDMapping, kerr.InvalidRecord,
	} {
		before := faults(relay.Metrics())
		fault := b.fake.Fault(kfake.Fault{Keys: produce, Topic: b.topic, Err: code})
		b.answered(fault, 1)
		b.waitMore(200)
		if after := faults(relay.Metrics()); after <= before {
			t.Errorf("%s is in no metric: %v retries before and after", code.Message, after)
		}
	}
	// A batch that was written, answered with an error, sent again and then
	// refused as a repeat is there: no reason for a third attempt.
	fault := b.fake.Fault(
		kfake.Fault{Keys: produce, Topic: b.topic, Err: kerr.NotEnoughReplicasAfterAppend},
		kfake.Fault{Keys: produce, Topic: b.topic, Err: kerr.DuplicateSequenceNumber})
	b.answered(fault, 2)
	b.waitMore(200)
	writers.Stop()
	// A new producer cannot tell the broker that it repeats something.
	b.finish(relay, b.consumer.Len())
	if n := strings.Count(relay.Logs(), `"msg":"streaming"`); n != 1 {
		t.Errorf("%d sessions with Postgres for troubles with Kafka", n)
	}
}

// faults counts what the relay tried again on Kafka's account.
func faults(m harness.Metrics) float64 {
	n, _ := m.Sum("tailer_retries_total", `peer="kafka"`)
	return n
}

// answered waits until a fault was met so many times.
func (b *bed) answered(fault *kfake.FaultHandle, n int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := fault.Wait(ctx, n); err != nil {
		b.t.Fatalf("the broker met %d requests to fail, not %d: %v", fault.Hits(), n, err)
	}
}

// FailureInsidePartition is D06: of a hundred events of one key, the batch with
// the tenth to the twentieth fails once, and the fifteenth can never be
// written. It alone becomes a dead letter, and the order of the rest holds.
//
// Seen red with: a relay that makes dead letters of all that kgo failed with
// the refused record; one that writes what follows before what failed (order).
func FailureInsidePartition(t testing.TB, env Env) {
	b := env.one(t)
	// With small batches, later ones wait behind the failing one.
	b.config = b.config.With("delivery.batch_records", 25)
	var once []string
	for i := 10; i <= 19; i++ {
		once = append(once, fmt.Sprintf("e%03d", i))
	}
	b.fake.Fault(
		kfake.Fault{Keys: produce, Topic: b.topic, Err: kerr.NotLeaderForPartition, Count: 3, When: holding(once...)},
		kfake.Fault{Keys: produce, Topic: b.topic, Err: kerr.InvalidRecord, Count: -1, When: holding("e015")})

	conn := b.conn()
	var poison harness.Event
	for i := 1; i <= 100; i++ {
		event := b.insert(conn, fmt.Sprintf("e%03d", i))
		if i == 15 {
			poison = event
		}
	}
	relay := b.start()
	b.ledger.WaitDelivered(t, b.consumer, patience)
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	records := b.consumer.CatchUp(patience)
	harness.AssertAcks(t, b.sampler.Stop(), records)
	rep := b.ledger.Check(t, records)
	if len(rep.Problems) > 0 || rep.Delivered != 99 || rep.Dead != 1 || rep.Duplicates > 0 {
		t.Errorf("want 99 delivered in order and one dead letter: %v", rep)
	}
	for i := range records {
		if reason, dead := records[i].Header("dlq_reason"); dead && (records[i].ID() != poison.ID || reason != "refused") {
			t.Errorf("dead letter %s, reason %s, is not %s, refused", records[i].ID(), reason, poison.ID)
		}
	}
}

// InsertAndDelete is D07: what is inserted and deleted in one transaction is
// published once; deletes and truncates, also where the publication has them,
// are no tombstones.
//
// Seen red with a relay that takes a delete's old tuple for a row.
func InsertAndDelete(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{})
	b.pg.Exec(t, "ALTER PUBLICATION tailer SET (publish = 'insert, update, delete, truncate')")
	relay := b.start()
	conn := b.conn()
	var committed []harness.Event
	for i := range 20 {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		event := b.insert(tx, "brief")
		if _, err := tx.Exec(t.Context(), "DELETE FROM outbox WHERE id = $1", event.ID); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		committed = append(committed, event, b.insert(conn, "kept for a while"))
		switch i % 5 {
		case 3:
			b.pg.Exec(t, "DELETE FROM outbox")
		case 4:
			b.pg.Exec(t, "TRUNCATE outbox")
		}
	}
	b.consumer.WaitDistinct(len(committed), patience)
	b.sampler.WaitConfirmed(b.current(), patience)
	metrics := relay.Metrics()
	for op, least := range map[string]float64{"delete": 24, "truncate": 4} {
		if n, _ := metrics.Sum("tailer_ignored_changes_total", fmt.Sprintf("op=%q", op)); n < least {
			t.Errorf("%v ignored changes of kind %s, at least %v were made", n, op, least)
		}
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	records := b.consumer.CatchUp(patience)
	for i := range records {
		if records[i].Value == nil {
			t.Errorf("record %d of %s is a tombstone", records[i].Offset, records[i].Topic)
		}
	}
	harness.Judge(committed, records, b.ledger.DLQ()).AssertExact(t)
}

// UpsertAndCopy is D09: with a publication that publishes updates, an upsert
// that updates publishes nothing and is counted, one that inserts is an event,
// and COPY's rows, which share a position in the WAL, are all there.
//
// Seen red with a relay that publishes updates as inserts (a duplicate), and
// one that takes a row's position in the WAL for its identity (COPY's rows).
func UpsertAndCopy(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{})
	b.pg.Exec(t, "ALTER PUBLICATION tailer SET (publish = 'insert, update')")
	relay := b.start()
	conn := b.conn()
	existing := b.insert(conn, "first")
	upsert := `INSERT INTO outbox AS o (id, aggregate_id, type, payload) VALUES ($1, $2, $3, jsonb_build_object('key', $2::text, 'n', $4::bigint, 'pad', 'upserted'))
		ON CONFLICT (id) DO UPDATE SET sent_at = now()`
	for range 3 {
		if _, err := conn.Exec(t.Context(), upsert, existing.ID, existing.Key, b.typ, existing.N); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 10 { // of another key, whose events have no other writer
		if _, err := conn.Exec(t.Context(), upsert, fmt.Sprintf("00000000-0000-4000-8000-%012d", n+1), "key-1", b.typ, int64(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	const rows = 10_000
	b.copy(rows)
	b.settle()
	if n, _ := relay.Metrics().Sum("tailer_ignored_changes_total", `op="update"`); n != 3 {
		t.Errorf("%v ignored updates, 3 were made", n)
	}
	records := b.finish(relay, 0)
	if len(records) != 1+10+rows {
		t.Errorf("%d records of %d events", len(records), 1+10+rows)
	}
}

// copy commits the first n events of key-2 by one COPY. It fills the columns
// whose defaults are volatile itself: only then does the server write many rows
// in one record of the WAL.
func (b *bed) copy(n int) {
	b.t.Helper()
	conn := b.conn()
	copied, err := conn.CopyFrom(b.t.Context(), pgx.Identifier{"outbox"}, []string{"id", "occurred_at", "aggregate_id", "type", "payload"},
		pgx.CopyFromSlice(n, func(i int) ([]any, error) {
			id := fmt.Sprintf("00000000-0000-4000-9000-%012d", i)
			return []any{id, time.Now(), "key-2", b.typ, map[string]any{"key": "key-2", "n": i + 1, "pad": "copied"}}, nil
		}))
	if err != nil || copied != int64(n) {
		b.t.Fatalf("copied %d rows of %d: %v", copied, n, err)
	}
}

// OddMessages is S31: an origin, an enum column (whose type is announced),
// TRUNCATE, logical messages inside and outside of transactions: nothing ends
// the stream, rows of an origin are events, and the position moves past all.
//
// Seen red with a decoder that does not know Type, and one that takes an origin's
// transactions for somebody else's.
func OddMessages(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{})
	b.pg.Exec(t,
		"ALTER PUBLICATION tailer SET (publish = 'insert, truncate')",
		"CREATE TYPE mood AS ENUM ('calm', 'wild')",
		"ALTER TABLE outbox ADD COLUMN mood mood DEFAULT 'wild'",
		"SELECT pg_replication_origin_create('elsewhere')")
	relay := b.start()
	conn := b.conn()
	exec := func(sql string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var committed []harness.Event
	add := func() { t.Helper(); committed = append(committed, b.insert(conn, "x")) }
	add()
	exec("SELECT pg_replication_origin_session_setup('elsewhere')")
	exec("BEGIN")
	exec("SELECT pg_replication_origin_xact_setup('0/12345', now())")
	add()
	exec("SELECT pg_logical_emit_message(true, 'x', 'inside')")
	exec("SELECT pg_logical_emit_message(false, 'x', 'at once')")
	add()
	exec("COMMIT")
	exec("SELECT pg_replication_origin_session_reset()")
	exec("SELECT pg_logical_emit_message(false, 'x', 'outside')")
	exec("SELECT pg_logical_emit_message(true, 'x', 'alone')")
	exec("BEGIN")
	exec("SELECT pg_logical_emit_message(false, 'x', 'of a transaction that is rolled back')")
	exec("ROLLBACK")
	add()
	exec("TRUNCATE outbox")
	exec("ALTER TYPE mood ADD VALUE 'wary'")
	add()

	b.consumer.WaitDistinct(len(committed), patience)
	b.sampler.WaitConfirmed(b.current(), patience)
	if n, _ := relay.Metrics().Sum("tailer_ignored_changes_total", `op="truncate"`); n != 1 {
		t.Errorf("%v truncates counted, one was made", n)
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if n := strings.Count(relay.Logs(), `"msg":"streaming"`); n != 1 {
		t.Errorf("%d sessions, one was wanted", n)
	}
	records := b.consumer.CatchUp(10 * time.Second)
	harness.AssertAcks(t, b.sampler.Stop(), records)
	harness.Judge(committed, records, b.ledger.DLQ()).AssertExact(t)
}
