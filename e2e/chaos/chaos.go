// Package chaos breaks everything around two relays of one configuration, in an
// order that a seed gives, and holds what a consumer reads against what was
// committed.
//
//	make chaos ROUNDS=20 SEED=7 BROKER=real
//
// A round: writers begin, faults come and go and overlap, an operator changes
// the table, all is healed. Then the relays must be ready by themselves and
// drain to the end of the WAL within patience, and everything up to there is
// judged: completeness (O1), nothing confirmed before it was acknowledged (O2),
// order per key (O3), repeats only where the guarantee allows them and with the
// same bytes, none for a consumer that reads committed records in exactly once.
// The next round goes on with the same servers.
//
// The truth is the table: what a writer believes, whose COMMIT got no answer,
// counts for nothing. What was judged is forgotten but for fingerprints, so a
// run may take hours.
//
// The schedule (schedule.go) is a function of seed and round alone. What it
// meets is not: processes, network and disk are real, and a moment is theirs. A
// round that failed is played again with its seed and number, a few times where
// need be.
//
// The machine runs in the test's goroutine; one more changes the table, and
// those of the harness write, read and sample.
package chaos

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

const (
	// patience bounds everything that must happen by itself once all is healed.
	patience = 90 * time.Second
	// senderTimeout is the server's wal_sender_timeout: what a frozen relay keeps
	// the slot for.
	senderTimeout = 2 * time.Second
	// batchRecords makes batches smaller than the larger transactions, so that
	// faults also fall between the batches of one.
	batchRecords = 300
)

// Options say what is broken, and for how long.
type Options struct {
	Seed        uint64
	First       int           // the first round's number
	Rounds      int           // 0: no bound
	For         time.Duration // no round begins later; 0: no bound
	Real        bool          // a real Kafka of three brokers instead of kfake
	ExactlyOnce bool
	Postgres    postgres.Options
	Replay      string // what to type to play a round again, for fmt with its number
	Logs        string // folder for the logs; empty: a new one, which only a failure keeps
}

// machine is what a run has. The faults break what is here.
type machine struct {
	t    testing.TB // speaks to the log only
	opt  Options
	log  *report
	with surroundings

	pg       *postgres.Server
	link     *harness.Proxy // relays to Postgres
	registry *harness.Proxy // relays to the registry
	wal      *disk          // nil: none
	cache    *disk          // nil: none
	config   harness.Config
	journal  *journal
	relays   [2]*instance

	brokers, direct []string // addresses for the relays, and for everybody else
	ends            harness.Ends
	fake            *kafka.Fake // nil: a real one
	wire            *kafka.Wire
	nodes           []string // kfake's addresses by node
	thought         atomic.Int64
	real            *kafka.Real // nil: kfake
	fronts          map[int]*harness.Proxy
	admin           *kadm.Client

	ledger   *harness.Ledger
	consumer *harness.Consumer
	sampler  *harness.Sampler
	account  *harness.Account
	parts    int // of the outbox: the number of the last one that was tried; belongs to who changes the table
}

// Run breaks and judges until the rounds or the time are used up. The first
// thing that is wrong ends it.
func Run(t testing.TB, opt Options) {
	log := newReport(t, opt.Logs)
	m := &machine{t: quiet{t, log}, opt: opt, log: log}
	kafkaName := "kfake"
	if opt.Real {
		kafkaName = "Apache Kafka, three brokers"
	}
	mode := "at_least_once"
	if opt.ExactlyOnce {
		mode = "exactly_once"
	}
	log.say("chaos: seed %d, %s, %s; logs in %s", opt.Seed, kafkaName, mode, log.dir)
	if err := m.lay(); err != nil {
		t.Fatal(err)
	}
	kinds := kindsFor(m.with)
	log.say("%s, %d kinds of faults", m.pg.Query1(m.t, "SELECT split_part(version(), ' on ', 1)"), len(kinds))

	round := opt.First
	ended := false // else a fatal error of the harness ends the goroutine
	defer func() {
		log.figures()
		if !ended || t.Failed() {
			log.say("FAILED in round %d; its faults again: %s", round, fmt.Sprintf(opt.Replay, round))
		}
	}()
	for n := 0; (opt.Rounds == 0 || n < opt.Rounds) && (opt.For == 0 || time.Since(log.began) < opt.For); n++ {
		round = opt.First + n
		if err := m.round(round, Plan(opt.Seed, round, kinds)); err != nil {
			t.Errorf("round %d: %v", round, err)
			break
		}
	}
	if !t.Failed() {
		if err := m.end(); err != nil {
			t.Errorf("at the end: %v", err)
		}
	}
	ended = true
}

// round plays a schedule, heals, waits and judges.
func (m *machine) round(number int, plan Round) error {
	m.log.say("round %d: %d faults, %d changes, %d writers with up to %d rows a transaction",
		number, len(plan.Faults), len(plan.Changes), plan.Load.Writers, plan.Load.MaxRows)
	load := plan.Load
	writers := m.ledger.Write(m.t, harness.WriteOptions{Seed: load.Seed, Writers: load.Writers, MaxRows: load.MaxRows, Bytes: load.Bytes, Pause: load.Pause})
	changed := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(changed)
		m.change(began, plan.Changes)
	}()
	spans, err := m.play(began, plan)
	<-changed
	if err != nil {
		return err
	}
	ready, err := m.ready()
	if err != nil {
		return err
	}
	writers.Stop()
	drained, err := m.drain()
	if err != nil {
		return err
	}
	if err := m.insync(); err != nil {
		return err
	}
	for _, i := range m.relays {
		i.peak = max(i.peak, i.relay.Usage().PeakRSS)
		m.log.peak = max(m.log.peak, i.peak)
	}
	return m.judge(spans, ready, drained)
}

// play breaks and heals by the schedule, and heals all even where it fails.
func (m *machine) play(began time.Time, plan Round) (spans []spell, err error) {
	faults := make([]fault, len(plan.Faults))
	healed := make([]bool, len(plan.Faults))
	spans = make([]spell, 0, len(plan.Faults))
	at := make([]int, len(plan.Faults)) // a fault's place in spans
	defer func() {
		for i, f := range faults {
			if f != nil && !healed[i] {
				_ = f.heal() // the run has failed already
			}
		}
	}()
	for _, s := range plan.steps() {
		time.Sleep(time.Until(began.Add(s.at)))
		p := plan.Faults[s.fault]
		if s.heal {
			err := faults[s.fault].heal()
			healed[s.fault] = true
			spans[at[s.fault]].to = time.Now()
			if err != nil {
				return spans, fmt.Errorf("heal %q: %w", p.Kind, err)
			}
			continue
		}
		k := catalogueOf(p.Kind, m.with)
		faults[s.fault] = k.make(m, p.Pick)
		at[s.fault] = len(spans)
		spans = append(spans, spell{kind: p.Kind, from: time.Now()})
		err := faults[s.fault].start()
		m.log.fault(p, err)
		if err != nil && !isMissed(err) {
			return spans, fmt.Errorf("%q: %w", p.Kind, err)
		}
	}
	return spans, nil
}

func catalogueOf(kind Kind, s surroundings) trait {
	kinds := kindsFor(s)
	return kinds[slices.IndexFunc(kinds, func(k trait) bool { return k.kind == kind })]
}

// drain waits until the slot has confirmed all that was committed, and returns
// how long that took.
func (m *machine) drain() (time.Duration, error) {
	began := time.Now()
	target, err := m.current()
	if err != nil {
		return 0, err
	}
	for m.sampler.Last().Confirmed < target {
		for _, i := range m.relays {
			if err := m.exited(i); err != nil {
				return 0, err
			}
		}
		if time.Since(began) > patience {
			return 0, fmt.Errorf("%v after everything was healed, the slot has confirmed %v of %v", patience, m.sampler.Last().Confirmed, target)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began), nil
}

// end stops both relays in order, which must repeat nothing, and looks once more.
func (m *machine) end() error {
	for _, i := range []*instance{m.other(m.holder(0)), m.holder(0)} {
		if code := i.relay.Stop(); code != 0 {
			return fmt.Errorf("relay %s exited with %d after SIGTERM", i.name, code)
		}
	}
	m.sampler.Stop()
	return m.judge(nil, 0, 0)
}

// missedError is a fault that could not be made where it was planned; it does
// not count.
type missedError struct{ error }

func missed(err error) error { return missedError{err} }

func isMissed(err error) bool {
	_, is := err.(missedError)
	return is
}

// quiet keeps what the harness tells of each round out of the report.
type quiet struct {
	testing.TB
	log *report
}

func (q quiet) Logf(format string, args ...any) { q.log.note(fmt.Sprintf(format, args...)) }
func (q quiet) Log(args ...any)                 { q.log.note(fmt.Sprint(args...)) }

// tempDir is a folder that all may enter.
func tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "tailer-chaos-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}
