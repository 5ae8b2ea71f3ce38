package scenario

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// crash is a place at which a relay is killed: when it passes a boundary of the
// pipeline for the nth time.
type crash struct {
	boundary string
	passes   []int
	stopping bool // the boundary lies on the way out: the relay is told to stop
}

// crashes are all of them. A relay meets a backlog when it starts, so that the
// numbers fall at the start, inside a transaction that fills several batches, and
// into what follows.
var crashes = []crash{
	{boundary: "receive.before", passes: []int{1, 9, 60}},
	{boundary: "receive.after", passes: []int{1, 10, 61}},
	{boundary: "decode.before", passes: []int{1, 11, 62}},
	{boundary: "decode.after", passes: []int{2, 12, 63}},
	{boundary: "produce.before", passes: []int{1, 2, 4}},
	{boundary: "produce.after", passes: []int{1, 2, 4}},
	{boundary: "ack.before", passes: []int{1, 13, 40}},
	{boundary: "ack.after", passes: []int{1, 2, 4}},
	{boundary: "status.before", passes: []int{1, 2, 3}},
	{boundary: "status.after", passes: []int{1, 2, 3}},
	{boundary: "state.before", passes: []int{1}, stopping: true},
	{boundary: "state.after", passes: []int{1}, stopping: true},
}

// crashBatch makes batches smaller than the backlog's largest transaction.
const crashBatch = 20

// CrashPoints kills the relay at each boundary of the pipeline, one life after
// another on one history: nothing is lost, first occurrences are in order, and
// nothing was confirmed before it was acknowledged. In the end all is delivered
// and confirmed, and a relay that starts then repeats nothing.
//
// Seen red, at the first run each, with: a relay that confirms a batch before it
// is published (events are lost); one that marks where a commit begins instead of where it
// ends. Not with one that confirms what a keepalive says while records are
// outstanding, for no keepalive comes here, nor with one that drops what a promise
// says, for no answer is bad here: chaos sees those.
//
// binary is a tailer built with the tag crashpoints.
func CrashPoints(t testing.TB, env Env, binary string) {
	b := env.lay(t, bedOptions{})
	b.config = b.config.With("delivery.batch_records", crashBatch)
	if b.fake != nil {
		slowProduce(b, 1, 60*time.Millisecond) // long enough for a position that is sent too early
	}
	lives := 0
	confirmed := map[string]pglogrepl.LSN{} // what each life left
	var looks []harness.Sample              // at its end
	for _, c := range crashes {
		for _, n := range c.passes {
			b.backlog()
			at := fmt.Sprintf("%s:%d", c.boundary, n)
			relay := harness.StartRelay(t, harness.RelayOptions{Config: b.config, Binary: binary, Env: []string{"TAILER_CRASHPOINT=" + at}})
			if c.stopping {
				relay.Ready()
				relay.Signal(syscall.SIGTERM) // it drains first
			}
			// Were it not for the steady ones, the later passes might never come.
			for end := time.Now().Add(patience); relay.Running(); {
				if time.Now().After(end) {
					t.Fatalf("no relay died at %s", at)
				}
				if !c.stopping {
					b.ledger.Insert(t, lives%3, 1)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if code := relay.ExitCode(); code != -1 {
				t.Fatalf("at %s the relay exited with %d: not killed", at, code)
			}
			confirmed[at] = b.confirmed()
			looks = append(looks, harness.Sample{Confirmed: confirmed[at], End: b.endsNow()})
			lives++
		}
	}
	b.backlog()
	relay := b.start()
	b.sampler.WaitConfirmed(b.current(), patience) // and not for events: one that is lost never comes
	repeats := b.ledger.Check(t, b.consumer.CatchUp(patience)).Duplicates
	relay.Kill()
	relay = b.start()
	records := b.finish(relay, b.consumer.Len())
	if again := b.ledger.Check(t, records).Duplicates - repeats; again != 0 {
		t.Errorf("%d repeats by a relay whose predecessor had confirmed everything", again)
	}
	harness.AssertAcks(t, looks, records)
	// Transactions come one after another here, so the end of one is never the
	// begin of another one's commit: who confirms that begin gets the transaction
	// once more.
	commits := map[pglogrepl.LSN]bool{}
	for i := range records {
		commit, err := records[i].CommitLSN()
		if err != nil {
			t.Fatal(err)
		}
		commits[commit] = true
	}
	for at, lsn := range confirmed {
		if commits[lsn] {
			t.Errorf("killed at %s, the relay had confirmed %v, where a commit begins and not where it ends", at, lsn)
		}
	}
	t.Logf("killed at %d places", lives)
}

// backlog commits a small transaction, one of several batches, and small ones of
// the same keys.
func (b *bed) backlog() {
	b.t.Helper()
	for _, rows := range []struct{ key, n int }{{0, 1}, {1, 3*crashBatch + 5}, {0, 4}, {1, 1}, {2, 1}} {
		b.ledger.Insert(b.t, rows.key, rows.n)
	}
}
