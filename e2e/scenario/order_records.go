package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// NullKeyCompacted relays an event without a key to a compacted topic. The
// broker refuses it, so it becomes a dead letter; its neighbours do not.
//
// Seen red with a relay that takes INVALID_RECORD for transient (it holds).
func NullKeyCompacted(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{topics: map[string]map[string]string{theTopic: {"cleanup.policy": "compact"}}})
	conn := b.conn()
	relay := b.start()
	b.insert(conn, "before")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var keyless string
	if err := conn.QueryRow(ctx, `INSERT INTO outbox (type, payload) VALUES ($1, '{"n": 1}') RETURNING id::text`, b.typ).Scan(&keyless); err != nil {
		t.Fatal(err)
	}
	b.insert(conn, "after")
	b.settle()
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	records := b.consumer.CatchUp(patience)
	harness.AssertAcks(t, b.sampler.Stop(), records)
	if rep := b.ledger.Check(t, records); len(rep.Problems) > 0 || rep.Delivered != 2 || rep.Dead != 1 {
		t.Errorf("want two delivered and one dead letter: %v", rep)
	}
	for i := range records {
		reason, dead := records[i].Header("dlq_reason")
		if dead != (records[i].ID() == keyless) || dead && (reason != "refused" || records[i].Key != nil) {
			t.Errorf("event %s has reason %q and key %q", records[i].ID(), reason, records[i].Key)
		}
	}
}

// Timestamps compares each record's timestamp, as the broker kept it, with its
// transaction's commit time, as the database kept it; also in a repeat, and
// where an event waited longer than the topic accepts, which is a dead letter.
//
// Seen red with a relay that stamps records with the present.
func Timestamps(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{
		settings: map[string]string{"track_commit_timestamp": "on"},
		topics:   map[string]map[string]string{theTopic: {"message.timestamp.before.max.ms": "86400000"}},
	})
	slot := b.ledger.Slot()
	b.pg.Exec(t, fmt.Sprintf("SELECT pg_copy_logical_replication_slot('%[1]s', '%[1]s_before')", slot))
	conn := b.conn()
	for i := range 20 { // a backlog: committed long before it is produced
		b.insert(conn, fmt.Sprint(i))
	}
	relay := b.start()
	b.ledger.WaitDelivered(t, b.consumer, patience)
	relay.Kill()
	// A slot that stands where this one began takes its place: all comes again.
	harness.Eventually(t, patience, "the slot to be free", func() bool {
		return b.pg.Run("postgres", fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", slot)) == nil
	})
	b.pg.Exec(t, fmt.Sprintf("SELECT pg_copy_logical_replication_slot('%[1]s_before', '%[1]s')", slot))
	relay = b.start()
	b.insert(conn, "last")
	b.settle()
	records := b.finish(relay, 20)

	rows, err := conn.Query(t.Context(), `SELECT id::text, floor(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000)::bigint FROM outbox`)
	if err != nil {
		t.Fatal(err)
	}
	committed := map[string]int64{}
	for rows.Next() {
		var id string
		var ms int64
		if err := rows.Scan(&id, &ms); err != nil {
			t.Fatal(err)
		}
		committed[id] = ms
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(records) <= 21 {
		t.Errorf("%d records: nothing was repeated", len(records))
	}
	for i := range records {
		if got, want := records[i].Timestamp.UnixMilli(), committed[records[i].ID()]; got != want {
			t.Errorf("%s has timestamp %d, committed at %d", records[i].ID(), got, want)
		}
	}

	// Now with a topic that takes nothing older than a moment.
	admin := b.admin()
	b.configure(admin, "message.timestamp.before.max.ms", "1")
	late := b.insert(conn, "late")
	relay = b.start()
	found := b.consumer.WaitLen(len(records)+1, patience)
	if reason, _ := found[len(found)-1].Header("dlq_reason"); reason != "refused" || found[len(found)-1].ID() != late.ID {
		t.Errorf("the late event %s: reason %q of %s", late.ID, reason, found[len(found)-1].ID())
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// TopicsCreated wants the topics that the relay makes to be as they were asked for.
//
// Seen red with a relay that leaves partitions, replicas or configuration to the broker.
func TopicsCreated(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{partitions: 5})
	b.config = b.config.With("kafka.topics.replication_factor", 3).
		With("kafka.topics.config", harness.Config{"retention.ms": "123456789", "min.insync.replicas": "2"})
	relay := b.start()
	b.ledger.Insert(t, 0, 10)
	b.ledger.WaitDelivered(t, b.consumer, patience)
	admin := b.admin()
	partitions, err := b.describe(admin)
	if err != nil || len(partitions) != 5 {
		t.Fatalf("%d partitions, not 5: %v", len(partitions), err)
	}
	for _, p := range partitions {
		if len(p.Replicas) != 3 {
			t.Errorf("partition %d has %d replicas, not 3", p.Partition, len(p.Replicas))
		}
	}
	configs, err := admin.DescribeTopicConfigs(t.Context(), b.topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []kgo.RecordHeader{{Key: "retention.ms", Value: []byte("123456789")}, {Key: "min.insync.replicas", Value: []byte("2")}} {
		found := false
		for _, c := range configs[0].Configs {
			found = found || c.Key == want.Key && c.MaybeValue() == string(want.Value)
		}
		if !found {
			t.Errorf("the topic does not have %s=%s", want.Key, want.Value)
		}
	}
	b.finish(relay, 0)
}

// ProducerExpires is the part of D05 that only time brings: the relay is idle
// for so long that the broker forgets its producer. It goes on all the same.
// What it holds is what Kafka's client and a real broker make of that.
func ProducerExpires(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{partitions: 1})
	relay := b.start()
	admin := b.admin()
	known := func() int {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var set kadm.TopicsSet
		set.Add(b.topic, 0)
		described, err := admin.DescribeProducers(ctx, set)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		described.EachProducer(func(kadm.DescribedProducer) { n++ })
		return n
	}
	for range 2 {
		b.ledger.Insert(t, 0, 50)
		b.settle()
		if known() == 0 {
			t.Error("the broker does not know the producer that has just written")
		}
		harness.Eventually(t, patience, "the broker to forget an idle producer", func() bool { return known() == 0 })
	}
	b.ledger.Insert(t, 0, 50)
	b.settle()
	b.finish(relay, 0)
	if n := strings.Count(relay.Logs(), `"msg":"streaming"`); n != 1 {
		t.Errorf("%d sessions with Postgres for a producer that expired", n)
	}
}
