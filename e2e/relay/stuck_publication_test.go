package relay_test

import (
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

const olderSlot = `the slot is older than publication "tailer"`

// A row was written before the publication was made: it plainly exists, and the
// slot cannot be read with it. The relay says so, with the position, and the two
// ways on; each is typed as it stands there. Without any publication it says
// that, and what init makes first.
//
// Seen red with that error taken for one that passes.
func TestCase_S01_SlotOlderThanThePublication(t *testing.T) {
	t.Parallel()
	for name, onward := range map[string]func(o *outbox, hint string){
		"advanced": func(o *outbox, hint string) {
			o.pg.Exec(o.t, o.statement(hint, "SELECT pg_replication_slot_advance"))
		},
		"made anew": func(o *outbox, hint string) {
			_, anew, _ := strings.Cut(hint, "or go on from now with a new slot: ")
			o.typed(o.config, anew)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutbox(t, outboxOptions{})
			o.pg.Exec(t, "DROP PUBLICATION tailer")
			o.order()
			o.named(o.exits(o.config, 3, `publication "tailer"`, "does not exist"), "tailer init --apply")
			o.init(o.config)
			hint := o.exits(o.config, 3, olderSlot, "in the WAL, and rows written before it cannot be read through it", "SQLSTATE")
			harness.Eventually(t, soon, "the slot is free", func() bool { return o.text("SELECT active::text FROM pg_replication_slots") == "false" })
			if got := o.doctor(o.config, 3); len(got) != 1 || !strings.HasPrefix(got[0], "fail postgres.slot: ") || !strings.Contains(got[0], olderSlot) || !strings.HasSuffix(got[0], "\n> "+hint) {
				t.Errorf("doctor finds %q", got)
			}
			onward(o, hint)
			o.finds(o.config, 0)
			o.recovers(o.config, o.order())
		})
	}
}

// While the relay runs the publication is dropped, a row is written, and the
// publication is made again. What came before is in Kafka once and confirmed,
// however often the relay is started afterwards; then it stops as for a slot that
// is older than its publication.
//
// Seen red with that error taken for one that passes.
func TestCase_S02_PublicationDroppedAndMadeAgain(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	relay := o.run(o.config)
	first := o.order()
	o.read(1, "order")
	end := o.lsn("SELECT pg_current_wal_flush_lsn()::text")
	harness.Eventually(t, soon, "the first event is confirmed", func() bool {
		return o.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots") >= end
	})
	o.pg.Exec(t, "DROP PUBLICATION tailer")
	o.order()
	o.init(o.config) // makes the publication, and nothing else is absent
	o.order()
	if code := relay.WaitExit(loudness); code != 3 {
		t.Fatalf("exit code %d\n%s", code, relay.Logs())
	}
	for range 2 {
		hint := o.exits(o.config, 3, `publication "tailer"`)
		o.named(hint, "pg_replication_slot_advance")
	}
	if records := o.read(1, "order"); records[first] == nil {
		t.Errorf("the records are %v, not that of %s alone", records, first)
	}
	o.pg.Exec(t, o.statement(o.exits(o.config, 3, olderSlot), "SELECT pg_replication_slot_advance"))
	next := o.order()
	relay = harness.StartRelay(t, harness.RelayOptions{Config: o.config})
	harness.Eventually(t, soon, "ready, or an exit", func() bool {
		code, _ := relay.Probe("/readyz")
		return code == 200 || !relay.Running()
	})
	if !relay.Running() {
		o.named(o.ended(relay, `slot "tailer"`), "tailer slot accept-gap")
		o.typed(o.config, "tailer slot accept-gap")
	} else {
		relay.Stop()
	}
	o.recovers(o.config, next)
}

// A message that an application writes into the WAL is no event, in a
// transaction or outside of one: nothing is published, and the position goes on
// past it.
//
// Seen red with a relay that confirms only where its own events end.
func TestCase_S12_LogicalMessagesAreNoEvents(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{settings: map[string]string{"wal_sender_timeout": "2s"}})
	relay := o.run(o.config)
	o.order()
	for _, transactional := range []string{"true", "false"} {
		o.pg.Exec(t, "SELECT pg_logical_emit_message("+transactional+", 'heartbeat', 'x')",
			"BEGIN; SELECT pg_logical_emit_message("+transactional+", 'outbox', '{}'); ROLLBACK")
	}
	end := o.lsn("SELECT pg_current_wal_flush_lsn()::text")
	harness.Eventually(t, soon, "the position beyond the messages", func() bool {
		return o.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots") >= end
	})
	o.read(1, "order", "tailer.dlq")
	if n := strings.Count(relay.Logs(), `"msg":"streaming"`); n != 1 {
		t.Errorf("%d sessions", n)
	}
}
