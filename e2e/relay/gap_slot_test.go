package relay_test

import (
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// accepted checks the one gap that is recorded.
func (o *outbox) accepted(from, to, by, reason string) {
	o.t.Helper()
	got := o.text(`SELECT string_agg(concat_ws(', ', slot, from_lsn, coalesce(to_lsn::text, 'open'), accepted_by, reason, accepted_at BETWEEN now() - interval '1 minute' AND now()), E'\n') FROM tailer_state_gaps`)
	want := strings.Join([]string{"tailer", from, to, by, reason, "t"}, ", ")
	if got != want {
		o.t.Errorf("recorded\n%s\nwant\n%s", got, want)
	}
}

// Case L05: the slot of a relay that ran is gone. Nobody makes a new one, in no
// way, before a person has accepted the gap; then create does.
//
// Seen red with a Decide that creates whenever there is no slot, and with an
// init that does not ask it.
func TestCase_L05_SlotMissing(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.ran()
	position, inOrder := o.state()
	if !inOrder || position != o.slotAt() {
		t.Errorf("stopped at %s, in order: %t; the slot is at %s", position, inOrder, o.slotAt())
	}
	if dropped := o.slotCommand("drop"); !dropped.Done || dropped.Confirmed != position {
		t.Errorf("drop: %+v", dropped)
	}
	lost := map[string]bool{}
	for range 10 {
		lost[o.order()] = true
	}

	what := `check slot "tailer": it does not exist, and this relay confirmed up to LSN at TIME: events from LSN up to now, LSN, may be missing`
	hint := mayBeMissing + "go on from now: tailer slot accept-gap, and then tailer slot create"
	for _, config := range []harness.Config{o.config, o.config.With("postgres.create", true)} {
		_, positions := o.stops(config, 3, what, hint)
		if positions[0] != position || positions[1] != position {
			t.Errorf("the error names %v, the state %s", positions, position)
		}
	}
	for _, command := range [][]string{{"init", "--apply"}, {"slot", "create"}} {
		got := harness.Run(t, o.config, command...)
		if got.Code != 3 {
			t.Errorf("%v: exit code %d\n%s", command, got.Code, got.Stdout)
		}
		o.says(got.Stderr, what, hint)
	}
	if n := o.text("SELECT count(*)::text FROM pg_replication_slots"); n != "0" {
		t.Fatalf("%s slots", n)
	}

	shown := o.shown()
	if s := shown.State; !s.Stored || s.Confirmed != position || !s.InOrder || s.Accepted || shown.Slot.Problem == "" ||
		masked(shown.Slot.Problem) != strings.TrimPrefix(what, `check slot "tailer": `)+"; the ways out: tailer slot --help" {
		t.Errorf("status: %+v", shown)
	}

	said := o.slotCommand("accept-gap", "--by", "alice", "--reason", "dropped by mistake")
	if !said.Done || said.From != position || said.To != "" || said.By != "alice" || said.Reason != "dropped by mistake" {
		t.Errorf("accept-gap: %+v", said)
	}
	if said.Says != "gap accepted from "+position+" to the start of the slot made next by alice; now: tailer slot create" {
		t.Errorf("accept-gap says: %s", said.Says)
	}
	if again := o.slotCommand("accept-gap"); again.Done || again.Says != "the gap is accepted already; now: tailer slot create" {
		t.Errorf("accept-gap again: %+v", again)
	}
	o.accepted(position, "open", "alice", "dropped by mistake")
	o.stops(o.config, 2, `check slot "tailer": it does not exist, and the gap to a new one is accepted`,
		"tailer slot create makes it; so does postgres.create: true")
	if shown = o.shown(); !shown.State.Accepted || shown.Slot.Problem != "missing, and the gap is accepted: tailer slot create" {
		t.Errorf("status: %+v", shown)
	}
	made := o.slotCommand("create")
	if !made.Done || made.Confirmed != o.slotAt() {
		t.Errorf("create: %+v", made)
	}
	if again := o.slotCommand("create"); again.Done || again.Says != "exists, nothing to do" {
		t.Errorf("create again: %+v", again)
	}

	relay := o.run(o.config)
	relay.WaitLog("going on behind an accepted gap: events in it are not in Kafka", soon)
	o.accepted(position, made.Confirmed, "alice", "dropped by mistake")
	relay.Stop()
	o.recovers(o.config, o.order())
	consumer := harness.NewConsumer(t, o.fake.Addrs(), "order")
	for _, r := range consumer.CatchUp(soon) {
		if lost[r.ID()] {
			t.Errorf("event %s of the gap is in Kafka: the test shows nothing", r.ID())
		}
	}
}

// A slot that somebody made anew or moved is ahead of what the relay stored:
// after a stop in order by anything, after a crash by more than it can have
// confirmed.
//
// Seen red with a Decide that never looks, and with one that gives slack also
// after a stop in order.
func TestGapSlotAhead(t *testing.T) {
	t.Parallel()
	const what = `check slot "tailer": it stands at LSN, and this relay confirmed up to LSN at TIME: it was made anew or moved; events from LSN to LSN may be missing`
	for name, c := range map[string]struct {
		end  func(*harness.Relay)
		move func(*outbox)
	}{
		"made anew after a stop": {func(r *harness.Relay) { r.Stop() }, func(o *outbox) {
			o.pg.Exec(o.t, "SELECT pg_drop_replication_slot('tailer')")
			o.order()
			o.pg.Exec(o.t, "SELECT pg_create_logical_replication_slot('tailer', 'pgoutput')")
		}},
		"moved after a stop": {func(r *harness.Relay) { r.Stop() }, func(o *outbox) {
			o.order()
			o.pg.Exec(o.t, "SELECT pg_replication_slot_advance('tailer', pg_current_wal_lsn())")
		}},
		"made anew after a crash": {func(r *harness.Relay) { r.Kill() }, func(o *outbox) {
			o.released()
			o.pg.Exec(o.t, "SELECT pg_drop_replication_slot('tailer')")
			o.order()
			o.wal(17 << 20)
			o.pg.Exec(o.t, "SELECT pg_create_logical_replication_slot('tailer', 'pgoutput')")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutbox(t, outboxOptions{})
			relay := o.run(o.config)
			o.order()
			harness.NewConsumer(t, o.fake.Addrs(), "order").WaitLen(1, soon)
			c.end(relay)
			position, _ := o.state()
			c.move(o)
			stands := o.slotAt()
			hint, positions := o.stops(o.config, 3, what, goOn)
			if want := []string{stands, position, position, stands}; strings.Join(positions, " ") != strings.Join(want, " ") {
				t.Errorf("the error names %v, want %v", positions, want)
			}
			o.typed(o.config, hint)
			if now, _ := o.state(); now != stands {
				t.Errorf("the state is at %s, the slot at %s", now, stands)
			}
			o.recovers(o.config, o.order())
			if again := o.slotCommand("accept-gap"); again.Done || again.Says != "no gap, nothing to accept" {
				t.Errorf("accept-gap without a gap: %+v", again)
			}
			if n := o.text("SELECT count(*)::text FROM tailer_state_gaps WHERE accepted_by LIKE '%@%' AND to_lsn IS NOT NULL"); n != "1" {
				t.Errorf("%s gaps are recorded", n)
			}
		})
	}
}

// released waits until the server has noticed that the relay is gone.
func (o *outbox) released() {
	o.t.Helper()
	harness.Eventually(o.t, soon, "the slot is free", func() bool {
		return o.text("SELECT active::text FROM pg_replication_slots WHERE slot_name = 'tailer'") == "false"
	})
}

// Case L06: the slot outgrew its limit, before a start, and under a relay that
// was frozen. One message, with the positions; no loop, and nothing is made anew.
//
// Seen red with a check that does not look at wal_status.
func TestCase_L06_SlotLost(t *testing.T) {
	t.Parallel()
	limits := outboxOptions{settings: map[string]string{"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "48MB", "wal_sender_timeout": "5s"}}
	outgrow := func(o *outbox) {
		harness.Eventually(o.t, waitLimit, "the slot is lost", func() bool {
			o.wal(4 << 20)
			o.pg.Exec(o.t, "SELECT pg_switch_wal()", "CHECKPOINT")
			return o.text("SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'tailer'") == "lost"
		})
	}
	const (
		what = `check slot "tailer": it is lost (the server removed WAL that it still needed); events from LSN up to now, LSN, are missing`
		hint = "a person must decide: events written after LSN are not in Kafka. To go on from now: tailer slot accept-gap, tailer slot drop, and then tailer slot create"
	)
	for name, lose := range map[string]func(o *outbox) (logs string){
		"before a start": func(o *outbox) string {
			o.order()
			outgrow(o)
			relay := harness.StartRelay(o.t, harness.RelayOptions{Config: o.config.With("postgres.create", true)})
			if code := relay.WaitExit(loudness); code != 3 {
				o.t.Fatalf("exit code %d", code)
			}
			return relay.Logs()
		},
		"frozen": func(o *outbox) string {
			relay := o.run(o.config)
			relay.Pause()
			o.order()
			outgrow(o)
			relay.Resume()
			if code := relay.WaitExit(loudness); code != 3 {
				o.t.Fatalf("exit code %d", code)
			}
			return relay.Logs()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutbox(t, limits)
			o.ran()
			logs := lose(o)
			remedy, positions := o.says(logs, what, hint)
			if positions[0] != o.slotAt() {
				t.Errorf("the error names %v, the slot stands at %s", positions, o.slotAt())
			}
			if n := strings.Count(logs, "session ended"); n > 3 {
				t.Errorf("%d sessions were tried", n)
			}
			if got := harness.Run(t, o.config, "init", "--apply"); got.Code != 3 {
				t.Errorf("init over a lost slot: exit code %d\n%s", got.Code, got.Stderr)
			}
			o.typed(o.config, remedy)
			o.recovers(o.config, o.order())
			if got := o.text("SELECT count(*)::text FROM tailer_state_gaps WHERE to_lsn > from_lsn"); got != "1" {
				t.Errorf("%s gaps are recorded", got)
			}
		})
	}
}

// drop leaves a slot alone that is in use.
//
// Seen red without the look at the holder: the server's own error says less.
func TestGapDropRefuses(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	relay := o.run(o.config)
	got := harness.Run(t, o.config, "slot", "drop")
	pid := o.text("SELECT active_pid::text FROM pg_replication_slots")
	if got.Code != 2 {
		t.Errorf("exit code %d: %s", got.Code, got.Stdout)
	}
	o.says(got.Stderr, `slot "tailer" is in use by server process `+pid+", and is not dropped",
		"stop the relay that streams from it; SELECT client_addr, application_name FROM pg_stat_replication says which")
	if r := o.slotCommand("accept-gap"); r.Done || r.Says != "a relay streams from it: no gap, nothing to accept" {
		t.Errorf("accept-gap: %+v", r)
	}
	relay.Stop()
	if r := o.slotCommand("drop"); !r.Done {
		t.Errorf("drop: %+v", r)
	}
	if r := o.slotCommand("drop"); r.Done || r.Says != "does not exist, nothing to do" {
		t.Errorf("drop again: %+v", r)
	}
}
