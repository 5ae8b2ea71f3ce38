package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// load is a steady one that leaves a relay time to breathe.
var load = harness.WriteOptions{Pause: 30 * time.Millisecond, MaxRows: 100}

// ServerRestarts is S18: under load the server is restarted, fast and at once,
// its walsender terminated, and it takes its time to start. The relay comes
// back each time by itself, with all events and in order.
//
// Seen red with a relay that takes 57P01 or 57P03 for permanent (it exits).
func ServerRestarts(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{})
	relay := b.start()
	writers := b.ledger.Write(t, load)
	b.waitMore(300)

	for _, mode := range []string{"fast", "immediate"} {
		if err := b.pg.Restart(mode); err != nil {
			t.Fatalf("restart %s: %v", mode, err)
		}
		relay.WaitReady("active", patience)
		b.waitMore(300)
	}

	sessions := strings.Count(relay.Logs(), `"msg":"streaming"`)
	if n := b.pg.Query1(t, "SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE active"); n != "1" {
		t.Errorf("terminated %s walsenders", n)
	}
	harness.Eventually(t, patience, "a new session after the walsender was terminated", func() bool {
		return strings.Count(relay.Logs(), `"msg":"streaming"`) > sessions
	})
	b.waitMore(300)

	b.startSlowly(relay)
	relay.WaitReady("active", patience)
	b.waitMore(300)

	writers.Stop()
	if !relay.Running() {
		t.Fatalf("the relay exited with %d", relay.ExitCode())
	}
	// Each crash and each restart repeats what the slot had not written down.
	b.finish(relay, b.consumer.Len())
}

// startSlowly crashes the server and holds its start in recovery until the
// relay was told so (57P03, "starting up"). What holds it is an archive that
// does not answer; the server then goes on along a new timeline.
func (b *bed) startSlowly(relay *harness.Relay) {
	t := b.t
	t.Helper()
	gate := filepath.Join(b.pg.DataDir(), "gate")
	b.pg.Exec(t,
		"ALTER SYSTEM SET hot_standby = off",
		"ALTER SYSTEM SET restore_command = 'while [ ! -e gate ]; do sleep 0.05; done; false'",
		"COPY (SELECT) TO '"+filepath.Join(b.pg.DataDir(), "recovery.signal")+"'")
	if err := b.pg.Crash(); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- b.pg.StartAgain() }()
	harness.Eventually(t, patience, "the relay to hear that the server is starting up", func() bool {
		return logged(relay, "57P03", "the database system is starting up")
	})
	relay.WaitNotReady("starting up", patience)
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
}

// CleanStop is D02: a relay that is stopped in order has confirmed what it
// delivered, and the next one repeats nothing. Also not when the server is
// restarted in between, which up to 16 forgets what was merely confirmed.
//
// Seen red with: no pg_replication_slot_advance at the end (up to 16: 1,000
// duplicates); no status at the end (duplicates under load).
func CleanStop(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{})
	relay := b.start()
	b.ledger.Insert(t, 0, 1000)
	b.ledger.WaitDelivered(t, b.consumer, patience)
	stop := func() {
		t.Helper()
		if code := relay.Stop(); code != 0 {
			t.Fatalf("exit code %d after SIGTERM", code)
		}
	}
	stop()
	// Its position is the server's: everything that was delivered is confirmed.
	if confirmed, ok := b.confirmedAbove(); !ok {
		t.Errorf("confirmed at the end: %s, with later events in Kafka", confirmed)
	}

	relay = b.start()
	b.ledger.Insert(t, 1, 10)
	b.ledger.WaitDelivered(t, b.consumer, patience)
	stop()

	if err := b.pg.Restart("fast"); err != nil {
		t.Fatal(err)
	}
	relay = b.start()
	writers := b.ledger.Write(t, load)
	for range 3 {
		b.waitMore(200)
		stop()
		if confirmed, ok := b.confirmedAbove(); !ok {
			t.Errorf("confirmed at a stop under load: %s, with later events in Kafka", confirmed)
		}
		relay = b.start()
	}
	writers.Stop()
	b.finish(relay, 0)
}

// confirmedAbove says whether the slot has confirmed beyond the last commit in Kafka.
func (b *bed) confirmedAbove() (string, bool) {
	b.t.Helper()
	confirmed := b.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
	records := b.consumer.CatchUp(patience)
	for i := range records {
		if lsn, err := records[i].CommitLSN(); err != nil || lsn >= confirmed {
			return confirmed.String(), false
		}
	}
	return confirmed.String(), true
}

// ServerForgets is D04: a crash of the server moves the confirmed position
// back. The relay takes the repeats and loses nothing behind them.
//
// Seen red with a relay that refuses a start below what it had confirmed.
func ServerForgets(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{})
	relay := b.start()
	b.ledger.Insert(t, 0, 10)
	b.settle()
	for round := range 3 {
		b.pg.Exec(t, "CHECKPOINT")
		b.ledger.Insert(t, 1+round, 20)
		b.settle()
		before := b.sampler.Last().Confirmed
		if err := b.pg.Restart("immediate"); err != nil {
			t.Fatal(err)
		}
		relay.WaitReady("active", patience)
		t.Logf("round %d: confirmed %v before the crash, %s is what the next session began with", round, before, lastStart(relay.Logs()))
		b.ledger.Insert(t, 10+round, 5)
		b.settle()
	}
	if logged(relay, "panic") {
		t.Error("the log speaks of a panic")
	}
	b.finish(relay, 3*20) // nothing but what followed a checkpoint
}

// lastStart is the position that a relay's newest session began with.
func lastStart(log string) string {
	_, rest, ok := cutLast(log, `"msg":"streaming"`)
	if !ok {
		return ""
	}
	_, rest, _ = strings.Cut(rest, `"lsn":"`)
	lsn, _, _ := strings.Cut(rest, `"`)
	return lsn
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
