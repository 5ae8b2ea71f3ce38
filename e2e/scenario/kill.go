package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// KillOptions describe rounds of kill -9.
type KillOptions struct {
	Rounds int
	Seed   uint64        // of the moments and of the load; 0: drawn, and logged
	Life   time.Duration // of a relay at most; default 1.8 s
	Write  harness.WriteOptions
}

const (
	// repeatWindow is how old an acknowledgement may be that a killed relay had
	// not confirmed: a status every 100 ms, the cycle it was in, and a machine
	// that is busy with all of this.
	repeatWindow = 500 * time.Millisecond
	// batchRecords makes batches smaller than the largest transactions, so that
	// kills also fall between the batches of one.
	batchRecords = 300
)

// KillRounds kills the relay at random moments under load, also while it
// starts, and then wants everything in order, and repeats only of what the
// guarantee names.
//
// Seen red with: a relay that confirms a batch before it is published (O2); one
// that sends its status every 3 s (repeats outside the window); one that turns
// a batch around (order).
func KillRounds(t testing.TB, env Env, opt KillOptions) {
	if opt.Seed == 0 {
		opt.Seed = rand.Uint64()
	}
	if opt.Life == 0 {
		opt.Life = 1800 * time.Millisecond
	}
	if opt.Write.MaxRows == 0 {
		opt.Write.MaxRows = 500
	}
	opt.Write.Seed = opt.Seed
	t.Logf("%d rounds with seed %d", opt.Rounds, opt.Seed)
	rng := rand.New(rand.NewPCG(opt.Seed, 1<<32))

	b := env.lay(t, bedOptions{})
	b.config = b.config.With("delivery.batch_records", batchRecords)
	if b.fake != nil {
		slowProduce(b, rng.Uint64(), 20*time.Millisecond)
	}
	writers := b.ledger.Write(t, opt.Write)
	var lives []life
	for range opt.Rounds {
		lives = append(lives, b.live(opt.Life, rng))
	}
	relay := b.start()
	writers.Stop()
	b.ledger.WaitDelivered(t, b.consumer, patience)
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	records := b.consumer.CatchUp(patience)
	harness.AssertAcks(t, b.sampler.Stop(), records)
	b.ledger.Check(t, records).AssertAtLeastOnce(t, len(records))
	for _, problem := range judgeRepeats(lives, records, opt.Write.MaxRows) {
		t.Error(problem)
	}
}

// slowProduce makes kfake think about each produce request for up to most, so
// that kills fall into cycles and not between them.
func slowProduce(b *bed, seed uint64, most time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 2)) // control functions run one at a time
	b.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.fake.KeepControl()
		think := time.Duration(rng.Int64N(int64(most)))
		b.fake.SleepControl(func() { time.Sleep(think) })
		return nil, nil, false
	})
}

// life is one run of a relay that ended by a kill.
type life struct {
	before    harness.Offsets // where the partitions ended repeatWindow before the kill
	end       harness.Offsets // and after it, before the next relay started
	confirmed pglogrepl.LSN   // by the slot, at the same time as end
}

// live runs a relay for a random time. Every eighth does not get beyond its start.
func (b *bed) live(most time.Duration, rng *rand.Rand) life {
	b.t.Helper()
	last := time.Duration(rng.Int64N(int64(most)))
	if rng.IntN(8) == 0 {
		last = time.Duration(rng.Int64N(int64(150 * time.Millisecond)))
	}
	l := life{before: b.endsNow()}
	relay := harness.StartRelay(b.t, harness.RelayOptions{Config: b.config})
	if last > repeatWindow {
		time.Sleep(last - repeatWindow)
		l.before = b.endsNow()
		last = repeatWindow
	}
	time.Sleep(last)
	if !relay.Running() {
		b.t.Fatalf("the relay exited by itself with %d", relay.ExitCode())
	}
	relay.Kill()
	l.end = b.endsNow()
	l.confirmed = b.confirmed()
	return l
}

// confirmed is what the slot has confirmed.
func (b *bed) confirmed() pglogrepl.LSN {
	b.t.Helper()
	return b.lsn(fmt.Sprintf("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '%s'", b.ledger.Slot()))
}

func (b *bed) endsNow() harness.Offsets {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ends, err := b.ends(ctx, b.ledger.Topics())
	if err != nil {
		b.t.Fatal(err)
	}
	return ends
}

// judgeRepeats checks what the guarantee says of a crash: it repeats what was
// acknowledged in the moments before it, and the transaction that was being
// sent (at most open rows) from its first row.
//
// What a life may repeat is a budget: that of the crash before it, and of the
// crashes before that one as long as the slot has not confirmed all that was
// written until then. A relay that is killed before it repeated anything
// leaves the repeats to the next.
func judgeRepeats(lives []life, records []harness.Record, open int) (problems []string) {
	repeats := make([]int, len(lives)+1)
	newest := make([]pglogrepl.LSN, len(lives)+1) // commit of the records until the life's end
	seen := map[string]bool{}
	for i := range records {
		rec := &records[i]
		p := harness.Partition{Topic: rec.Topic, Number: rec.Partition}
		at := 0
		for at < len(lives) && rec.Offset >= lives[at].end[p] {
			at++
		}
		if seen[rec.ID()] {
			repeats[at]++
		}
		seen[rec.ID()] = true
		commit, err := rec.CommitLSN()
		if err != nil {
			problems = append(problems, err.Error())
		}
		newest[at] = max(newest[at], commit)
	}
	for i := range newest {
		if i > 0 {
			newest[i] = max(newest[i], newest[i-1])
		}
	}
	budget := 0
	for at := range repeats {
		if at > 0 {
			crash := lives[at-1]
			if at >= 2 && newest[at-2] < crash.confirmed {
				budget = 0
			}
			for p, end := range crash.end {
				budget += int(end - crash.before[p])
			}
			budget += open
		}
		if repeats[at] > budget {
			problems = append(problems, fmt.Sprintf("life %d repeated %d records, and the crash before it may have left %d", at, repeats[at], budget))
		}
		budget -= min(repeats[at], budget)
	}
	return problems
}
