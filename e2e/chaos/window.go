package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// spell is the time of a fault.
type spell struct {
	kind     Kind
	from, to time.Time
}

const (
	// unconfirmed is how old an acknowledgement may be, when a fault begins, that
	// was not confirmed yet: a status every 100 ms, the cycle it was in, and a
	// machine that is busy with all of this.
	unconfirmed = time.Second
	// aftermath is how long after its end a fault may still end a session.
	aftermath = 3 * time.Second
	// convalescence is how long after a fault of Kafka's a topic may still wait,
	// for the next try and until it has caught up: the others have gone on, and
	// what was sent of them since it fell sick is not confirmed.
	convalescence = 10 * time.Second
)

// lasts is when the consequences of a fault end.
func (s spell) lasts() time.Time {
	if strings.Contains(string(s.kind), "Kafka") {
		return s.to.Add(convalescence)
	}
	return s.to.Add(aftermath)
}

// window is what the guarantee about repeats hangs on, in a round.
//
// A session sends what the slot has not confirmed. So what may come again is what
// was acknowledged shortly before the disturbance that the session follows, or
// in it, and the transaction that was open, from its first row. A server that
// crashed has forgotten confirmations since they were last written down: then
// whatever lies behind the position that the session found may come again. And a
// topic that cannot be written to holds the position for all of them, while they go on.
type window struct {
	spells   []spell
	sessions []session // by time
	samples  []harness.Sample
	first    []harness.Record // the events' first records
	forgets  bool             // the server forgets at every restart: up to 16
}

// judge returns what repeats the window does not allow.
func (w *window) judge(repeats []harness.Repeat) (problems []string) {
	if len(repeats) == 0 {
		return nil
	}
	written := map[pglogrepl.LSN]time.Time{} // when the last record of a transaction was there
	for i := range w.first {
		rec := &w.first[i]
		commit, err := rec.CommitLSN()
		if err != nil {
			return []string{err.Error()}
		}
		if at := w.writtenBy(harness.Partition{Topic: rec.Topic, Number: rec.Partition}, rec.Offset); at.After(written[commit]) {
			written[commit] = at
		}
	}
	outside := 0
	for i := range repeats {
		rec := &repeats[i].Record
		commit, err := rec.CommitLSN()
		if err != nil {
			return []string{err.Error()}
		}
		again := w.writtenBy(harness.Partition{Topic: rec.Topic, Number: rec.Partition}, rec.Offset)
		if why := w.outside(commit, written[commit], again); why != "" {
			if outside++; outside <= 3 {
				problems = append(problems, fmt.Sprintf("event %s, sequence %s, was repeated at %s/%d@%d outside the window: %s",
					rec.ID(), rec.Sequence(), rec.Topic, rec.Partition, rec.Offset, why))
			}
		}
	}
	if outside > 3 {
		problems = append(problems, fmt.Sprintf("%d repeats outside the window in all", outside))
	}
	return problems
}

// outside says why a repeat is not allowed. written is when its transaction was
// acknowledged; zero: in a round before.
func (w *window) outside(commit pglogrepl.LSN, written, again time.Time) string {
	cause := again // a producer that had to send a cycle again needs no new session
	found := false
	for _, s := range w.sessions {
		if s.at.After(written) && s.start <= commit {
			cause, found = s.at, true
			break
		}
	}
	from, forgot := w.disturbance(cause)
	switch {
	case written.IsZero() && !found:
		return "it was judged in a round before, and no session began at or before it"
	case forgot:
		return ""
	case written.IsZero():
		return "it was judged in a round before, and the server forgot nothing"
	case from.IsZero():
		return "nothing was disturbed then"
	case written.Before(from.Add(-unconfirmed)):
		return fmt.Sprintf("it was acknowledged at %s, and the disturbance began %v later", stamp(written), from.Sub(written).Round(time.Millisecond))
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// disturbance is the begin of the unbroken row of faults that lasts until at, and
// whether the server forgot in it. Zero: there was none.
func (w *window) disturbance(at time.Time) (from time.Time, forgot bool) {
	byEnd := slices.SortedFunc(slices.Values(w.spells), func(a, b spell) int { return cmp.Compare(b.from.UnixNano(), a.from.UnixNano()) })
	edge := at
	for again := true; again; {
		again = false
		for _, s := range byEnd {
			if s.from.After(edge) || s.lasts().Before(edge) {
				continue
			}
			if from.IsZero() || s.from.Before(from) {
				from, edge, again = s.from, s.from, true
			}
		}
	}
	// Any fault in that time, also one that the row does not need to be unbroken.
	for _, s := range w.spells {
		forgot = forgot || w.forgetful(s.kind) && !s.from.After(at) && !from.IsZero() && !s.lasts().Before(from)
	}
	return from, forgot
}

func (w *window) forgetful(kind Kind) bool {
	switch kind {
	case "Postgres: immediate stop", "Postgres: kill -9", "Postgres: disk of the WAL full":
		return true
	case "Postgres: fast restart":
		return w.forgets
	}
	return false
}

// writtenBy is when a record was surely there: the first look that saw it.
func (w *window) writtenBy(p harness.Partition, offset int64) time.Time {
	i, _ := slices.BinarySearchFunc(w.samples, offset, func(s harness.Sample, offset int64) int {
		if s.End[p] > offset {
			return 1
		}
		return -1
	})
	if i == len(w.samples) {
		return time.Now()
	}
	return w.samples[i].EndAt
}
