package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/e2e/harness"
)

// ahead is how far the slot is ahead of what is stored.
func (o *outbox) ahead() int64 {
	o.t.Helper()
	return int64(o.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")) - int64(o.lsn("SELECT confirmed_lsn::text FROM tailer_state"))
}

// A relay stores its position before it confirms more than it may be ahead: also
// where one transaction is larger than that. Killed at any moment it starts again.
//
// Seen red with a keeper that stores after confirming.
func TestGapStoresBeforeItConfirms(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.ran()
	for range 3 {
		relay := o.run(o.config)
		goal := o.lsn("SELECT pg_current_wal_lsn()::text")
		o.text(`WITH many AS (INSERT INTO outbox (aggregate_id, type, payload)
			SELECT 'order-' || n % 7, 'order.placed.v1', jsonb_build_object('pad', repeat('x', 1500)) FROM generate_series(1, 15000) AS n RETURNING 1)
			SELECT count(*)::text FROM many`)
		most := int64(0)
		harness.Eventually(t, waitLimit, "all confirmed", func() bool {
			most = max(most, o.ahead())
			return o.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots") > goal
		})
		if most = max(most, o.ahead()); most > checkpoint.Slack {
			t.Errorf("the slot was %d bytes ahead of what is stored", most)
		}
		relay.Kill()
		o.released()
	}
	o.recovers(o.config, o.order())
}

// An idle relay writes nothing, whatever its own writes cause; beside a busy
// neighbour it writes once in so much WAL.
//
// Seen red with a keeper that stores every position, and with one that stores
// only where events are.
func TestGapIdleWritesNothing(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{settings: map[string]string{"wal_sender_timeout": "2s", "autovacuum": "off"}})
	relay := o.run(o.config)
	caughtUp := func() {
		t.Helper()
		goal := o.lsn("SELECT pg_current_wal_lsn()::text")
		harness.Eventually(t, waitLimit, "the relay has confirmed what there is", func() bool {
			return o.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots") >= goal
		})
	}
	row := func() string { t.Helper(); return o.text("SELECT xmin::text || ' ' || updated_at FROM tailer_state") }
	caughtUp()
	before := row()
	for range 8 { // less than the slack in all
		o.wal(1 << 20)
		caughtUp()
	}
	if after := row(); after != before {
		t.Errorf("written without need: %s, then %s", before, after)
	}
	for range 10 {
		o.wal(1 << 20)
		caughtUp()
	}
	if after := row(); after == before {
		t.Error("not written for 18 MiB of WAL")
	}
	before = row()
	o.wal(1 << 20)
	caughtUp()
	if after := row(); after != before {
		t.Errorf("written again at once: %s, then %s", before, after)
	}
	relay.Stop()
	if _, inOrder := o.state(); !inOrder || o.ahead() != 0 {
		t.Errorf("after a stop: in order %t, the slot is %d bytes ahead", inOrder, o.ahead())
	}
}

// A write that fails is loud, and the stream goes on.
//
// Seen red with a keeper whose error ends the session.
func TestGapWriteFails(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	relay := o.run(o.config)
	lock := o.pg.Conn(t, "postgres")
	if _, err := lock.Exec(context.Background(), "BEGIN; LOCK tailer_state"); err != nil {
		t.Fatal(err)
	}
	o.wal(17 << 20)
	id := o.order()
	relay.WaitLog("the position is not stored: after a crash the relay may take what it confirmed since for a gap, and exit", soon)
	harness.NewConsumer(t, o.fake.Addrs(), "order").WaitLen(1, soon)
	if _, err := lock.Exec(context.Background(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, waitLimit, "the position is stored again", func() bool {
		o.order()
		time.Sleep(100 * time.Millisecond)
		return o.ahead() < 1<<20
	})
	relay.WaitLog("the position is stored again", soon)
	relay.Stop()
	o.recovers(o.config, id)
}
