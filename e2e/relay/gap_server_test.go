package relay_test

import (
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// Case L08 with the state: the database was moved to another server by a dump,
// and its positions mean nothing there.
//
// Seen red with a Decide that compares positions only.
func TestCase_L08_StateOfAnotherServer(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.ran()
	first := o.text("SELECT system_identifier FROM tailer_state")
	row := o.text("SELECT format('INSERT INTO tailer_state VALUES (%L, %L, %L, %L, %L, %L)', slot, system_identifier, timeline, confirmed_lsn, updated_at, session) FROM tailer_state")

	for name, slot := range map[string]bool{"with a slot": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			second := &outbox{t: t, pg: postgres.New(t, postgres.Options{Fresh: true}), fake: o.fake}
			second.config = o.config.With("postgres.dsn", second.pg.DSN("postgres"))
			second.conn = second.pg.Conn(t, "postgres")
			second.init(second.config)
			second.pg.Exec(t, row)
			if !slot {
				second.pg.Exec(t, "SELECT pg_drop_replication_slot('tailer')")
			}
			if second.text("SELECT system_identifier::text FROM pg_control_system()") == first {
				t.Fatal("the second server has the first one's identifier")
			}
			hint, _ := second.stops(second.config, 3, `check slot "tailer": the server is another one: its system identifier is SYSTEM, and this relay confirmed up to LSN at TIME on SYSTEM, whose positions mean nothing here; events may be missing`,
				"if postgres.dsn is wrong, correct it. If the data was moved here: "+mayBeMissing+"go on from where this server's slot stands: tailer slot accept-gap, and where there is no slot, tailer slot create")
			second.typed(second.config, hint)
			second.ran()
			if second.text("SELECT system_identifier FROM tailer_state") == first {
				t.Error("the state still names the first server")
			}
		})
	}
}

// Case L07: a failover to a server that has the slot goes on; to one that has
// none, or one that was made there, does not. A new timeline of the same cluster
// is what a promoted standby is to the relay.
//
// Seen red with a Decide that takes any timeline for the same, and with one that
// does not look where the timelines part.
func TestCase_L07_Failover(t *testing.T) {
	t.Parallel()
	slotKept := func(t *testing.T) *outbox {
		t.Parallel()
		o := newOutbox(t, outboxOptions{settings: promotable})
		o.ran()
		o.timeline()
		return o
	}
	t.Run("with the slot", func(t *testing.T) {
		o := slotKept(t)
		o.recovers(o.config, o.order())
		o.timeline()
		o.recovers(o.config, o.order())
		if got := o.text("SELECT timeline::text FROM tailer_state"); got != "3" {
			t.Errorf("the state is of timeline %s", got)
		}
	})
	t.Run("without a slot", func(t *testing.T) {
		o := slotKept(t)
		o.pg.Exec(t, "SELECT pg_drop_replication_slot('tailer')")
		o.order()
		hint, _ := o.stops(o.config, 3, `check slot "tailer": it does not exist, and this relay confirmed up to LSN at TIME: events from LSN up to now, LSN, may be missing`,
			mayBeMissing+"go on from now: tailer slot accept-gap, and then tailer slot create")
		o.typed(o.config, hint)
		o.recovers(o.config, o.order())
	})
	t.Run("slot made on the new primary", func(t *testing.T) {
		o := slotKept(t)
		position, _ := o.state()
		o.pg.Exec(t, "UPDATE tailer_state SET session = 'crashed'", "SELECT pg_drop_replication_slot('tailer')",
			"SELECT pg_create_logical_replication_slot('tailer', 'pgoutput')")
		hint, positions := o.stops(o.config, 3, `check slot "tailer": it was made after a failover: it begins at LSN on timeline 2, and this relay confirmed up to LSN at TIME on timeline 1; events from LSN to LSN may be missing`, goOn)
		if positions[0] != o.slotAt() || positions[2] != position || positions[3] != o.slotAt() {
			t.Errorf("the error names %v", positions)
		}
		o.typed(o.config, hint)
		o.recovers(o.config, o.order())
	})
	t.Run("the state went further", func(t *testing.T) {
		o := slotKept(t)
		branch := o.text("SELECT split_part(pg_read_file('pg_wal/00000002.history'), E'\\t', 2)")
		o.pg.Exec(t, "UPDATE tailer_state SET confirmed_lsn = '"+branch+"'::pg_lsn + 1")
		hint, positions := o.stops(o.config, 3, `check slot "tailer": the server went another way: this relay confirmed up to LSN at TIME on timeline 1, and the server's timeline 2 left that one before; events from LSN to LSN may be missing`,
			"what was published beyond that point is not in this database. "+goOn)
		if positions[1] != branch {
			t.Errorf("the error names %v, the timelines part at %s", positions, branch)
		}
		o.typed(o.config, hint)
		o.recovers(o.config, o.order())
	})
}

// A server that forgot the newest position sends again; one whose WAL ends
// before it is not the one that it was.
//
// Seen red with a Decide that stops at a slot behind the state, and with one
// that does not look where the WAL ends.
func TestGapRestored(t *testing.T) {
	t.Parallel()
	t.Run("slot behind", func(t *testing.T) {
		t.Parallel()
		o := newOutbox(t, outboxOptions{})
		o.pg.Exec(t, "CHECKPOINT")
		old := o.slotAt()
		o.ran()
		position, _ := o.state()
		if err := o.pg.Restart("immediate"); err != nil {
			t.Fatal(err)
		}
		o.again()
		if o.slotAt() != old || old == position {
			t.Fatalf("the slot is at %s, was at %s, and the state at %s", o.slotAt(), old, position)
		}
		relay := o.run(o.config)
		relay.WaitLog("the slot is behind what was acknowledged: events come again, with the same ids", soon)
		harness.NewConsumer(t, o.fake.Addrs(), "order").WaitLen(2, soon)
		if now, _ := o.state(); now < position {
			t.Errorf("the state went back to %s", now)
		}
		relay.Stop()
		o.recovers(o.config, o.order())
	})
	t.Run("server behind", func(t *testing.T) {
		t.Parallel()
		o := newOutbox(t, outboxOptions{})
		o.ran()
		o.pg.Exec(t, "UPDATE tailer_state SET confirmed_lsn = pg_current_wal_lsn() + 100000000")
		hint, _ := o.stops(o.config, 3, `check slot "tailer": the server's WAL ends at LSN, and this relay confirmed up to LSN at TIME: it was restored or reset; events may be missing`, goOn)
		o.typed(o.config, hint)
		o.recovers(o.config, o.order())
	})
}
