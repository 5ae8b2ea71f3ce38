package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ledger holds what was written against what was seen, by the id of the event.
// The order service and the consumer share it.
type ledger struct {
	mu        sync.Mutex
	entries   map[string]*entry
	sequences map[string]string // last position seen, by topic and key
	latencies []time.Duration   // of the published events
	problems  []string
	tally     tally
}

// tally counts what happened on the way.
type tally struct {
	committed  int // transactions of the order service
	rolledBack int
	early      int // events of which the consumer knew first
}

// entry is one event, from before its COMMIT on.
type entry struct {
	event
	tx        *transaction
	published int // times seen in its topic
	dead      int // times seen as a dead letter
}

// transaction is the fate of the events written in it.
type transaction struct {
	done      chan struct{} // closed once the two below are known
	committed bool
	at        time.Time // right after COMMIT had returned
}

func newLedger() *ledger {
	return &ledger{entries: map[string]*entry{}, sequences: map[string]string{}}
}

// begin notes the events of a transaction that is about to commit: the
// consumer may see them before the order service hears that it has.
func (l *ledger) begin(ids []string, events []event) *transaction {
	tx := &transaction{done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, id := range ids {
		l.entries[id] = &entry{event: events[i], tx: tx}
	}
	return tx
}

// end notes how a transaction ended, and when.
func (l *ledger) end(tx *transaction, committed bool, at time.Time) {
	tx.committed, tx.at = committed, at
	close(tx.done)
	l.mu.Lock()
	defer l.mu.Unlock()
	if committed {
		l.tally.committed++
	} else {
		l.tally.rolledBack++
	}
}

// seen notes a record and returns its event with its latency: from the moment
// right after COMMIT had returned to the order service to the moment right
// after the consumer's fetch had returned. Both are read from this process's
// monotonic clock. Postgres hands out the log once it is flushed, a moment
// before it answers COMMIT, so the record can win that race on a busy machine:
// such an event counts as 0, and the account says how many there were.
func (l *ledger) seen(r *received) (event, time.Duration, bool) {
	l.mu.Lock()
	e := l.entries[r.id]
	l.mu.Unlock()
	if e == nil {
		l.problem("a record of an unknown event, id %q in %s", r.id, r.place())
		return event{}, 0, false
	}
	<-e.tx.done // bounded: it is closed whatever COMMIT says
	latency := r.fetched.Sub(e.tx.at)
	early := latency < 0
	latency = max(0, latency)

	l.mu.Lock()
	defer l.mu.Unlock()
	if r.dead {
		e.dead++
	} else {
		e.published++
	}
	if !r.dead && e.published == 1 {
		l.latencies = append(l.latencies, latency)
		if early {
			l.tally.early++
		}
		key := r.topic + "\x00" + r.key
		if last := l.sequences[key]; r.sequence <= last {
			l.problems = append(l.problems, fmt.Sprintf("%s %s came after one with position %s", r.key, r.sequence, last))
		}
		l.sequences[key] = r.sequence
	}
	return e.event, latency, true
}

// problem notes something that must not be.
func (l *ledger) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// missing counts the committed events that no topic has shown. It is for the
// end, when no transaction is open.
func (l *ledger) missing() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.tx.committed && e.published+e.dead == 0 {
			n++
		}
	}
	return n
}

// total is the account, once no transaction is open.
type total struct {
	tally
	events     int // published
	dead       int
	lost       int
	duplicated int // ids seen more than once
	keys       int
	p50, p99   time.Duration
	problems   []string
}

func (l *ledger) total() total {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := total{tally: l.tally, keys: len(l.sequences), problems: slices.Clone(l.problems)}
	for id, e := range l.entries {
		sum := e.published + e.dead
		switch {
		case !e.tx.committed && sum > 0:
			t.problems = append(t.problems, fmt.Sprintf("event %s was published though its transaction was rolled back", id))
		case !e.tx.committed:
		case sum == 0:
			t.lost++
		case sum > 1:
			t.duplicated++
		}
		switch {
		case e.published > 0:
			t.events++
			if e.reason != "" {
				t.problems = append(t.problems, fmt.Sprintf("event %s is invalid and was published all the same", id))
			}
		case e.dead > 0:
			t.dead++
			if e.reason == "" {
				t.problems = append(t.problems, fmt.Sprintf("event %s is valid and became a dead letter all the same", id))
			}
		}
	}
	sorted := slices.Sorted(slices.Values(l.latencies))
	if len(sorted) > 0 {
		t.p50, t.p99 = rank(sorted, 50), rank(sorted, 99)
	}
	return t
}

// rank is the nearest-rank percentile.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// String is the demo's last line.
func (t total) String() string {
	return fmt.Sprintf("%s, p50 %s, p99 %s, %s, %d lost, %d duplicated",
		plural(t.events, "event"), millis(t.p50), millis(t.p99), plural(t.dead, "dead letter"), t.lost, t.duplicated)
}

func (t total) err() error {
	switch {
	case t.lost > 0 || t.duplicated > 0:
		return fmt.Errorf("%d events lost, %d duplicated", t.lost, t.duplicated)
	case len(t.problems) > 0:
		return errors.New("something went wrong, see above")
	}
	return nil
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
