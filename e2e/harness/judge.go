package harness

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// Event is a committed outbox row, as the database tells it.
type Event struct {
	ID  string
	Key string
	// N counts the key's events in the order of their commits, from 1,
	// without gaps: it was drawn under a row lock that lasts until the commit.
	N int64
}

// Report is what Judge found. The lists hold sentences, at most a few of each
// kind; the counts are whole.
type Report struct {
	Committed  int // events in the database
	Delivered  int // different events in topics
	Dead       int // different events in the dead letter topic
	Duplicates int // records beyond the first of an event
	Problems   []string
	hidden     int // problems beyond those in Problems
}

// Judge compares what was committed with what a consumer read: completeness
// (O1), and order and repeats (O3). Records must stand in the order of their
// partitions; dlq names the dead letter topic, whose records count as outcome
// of their event, out of the order of their key.
func Judge(committed []Event, records []Record, dlq string) Report {
	return NewAccount(dlq).Post(committed, records).Report
}

// problem notes a finding; a broken relay makes them by the thousand.
func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) >= 20 {
		r.hidden++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

func (r Report) String() string {
	s := fmt.Sprintf("%d committed, %d delivered, %d dead letters, %d duplicates", r.Committed, r.Delivered, r.Dead, r.Duplicates)
	for _, p := range r.Problems {
		s += "\n  " + p
	}
	if r.hidden > 0 {
		s += fmt.Sprintf("\n  and %d more", r.hidden)
	}
	return s
}

// AssertAtLeastOnce fails the test unless every event was delivered, in order,
// with at most so many duplicates, and none became a dead letter.
func (r Report) AssertAtLeastOnce(t testing.TB, duplicates int) {
	t.Helper()
	if len(r.Problems) > 0 || r.Dead > 0 || r.Duplicates > duplicates {
		t.Errorf("at most %d duplicates and no dead letters allowed: %v", duplicates, r)
		return
	}
	t.Log(r)
}

// AssertExact fails the test unless every event was delivered once and in order.
func (r Report) AssertExact(t testing.TB) { t.Helper(); r.AssertAtLeastOnce(t, 0) }

// Sample is one look at what a slot has confirmed, and then at where Kafka's
// partitions ended: End was read after Confirmed.
type Sample struct {
	At, EndAt                   time.Time // when Confirmed and when End was read
	Confirmed, Restart, Current pglogrepl.LSN
	End                         Offsets
}

// JudgeAcks checks the rule of acknowledgement (O2): what Postgres was allowed
// to forget is in Kafka. A slot confirmed up to x never sends a transaction
// again whose commit is below x. So at each sample every event with a commit
// below Confirmed must already have stood in its partition, before End.
//
// It is fair to the relay: End is the later of the two looks, so a record
// that arrived in between counts in its favour. It is not blind, because what
// is confirmed too early stays missing for as long as the fault lasts that the
// test makes, and every sample in that time says so.
func JudgeAcks(samples []Sample, records []Record) []string {
	var problems []string
	byPartition := map[Partition][]placed{}
	seen := map[string]bool{}
	for i := range records {
		rec := &records[i]
		if seen[rec.ID()] {
			continue // the first one made it safe
		}
		seen[rec.ID()] = true
		lsn, err := rec.CommitLSN()
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		p := Partition{rec.Topic, rec.Partition}
		byPartition[p] = append(byPartition[p], placed{lsn, rec})
	}
	for p, list := range byPartition {
		// By commit, each with the record of the highest offset among it and
		// all before: one comparison a sample tells whether any is missing.
		slices.SortStableFunc(list, func(a, b placed) int { return cmp.Compare(a.commit, b.commit) })
		for i := 1; i < len(list); i++ {
			if list[i-1].rec.Offset > list[i].rec.Offset {
				list[i].rec = list[i-1].rec
			}
		}
		for i, s := range samples {
			below := sort.Search(len(list), func(k int) bool { return list[k].commit >= s.Confirmed })
			if below == 0 {
				continue
			}
			if rec := list[below-1].rec; rec.Offset >= s.End[p] {
				problems = append(problems, fmt.Sprintf("sample %d: %v was confirmed while event %s, sequence %s, was not in Kafka: it came to %s, and the partition ended at %d",
					i, s.Confirmed, rec.ID(), rec.Sequence(), rec.where(), s.End[p]))
				break // one for each partition is enough to read
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// placed is a record under a commit position.
type placed struct {
	commit pglogrepl.LSN
	rec    *Record
}

// AssertAcks fails the test if something was confirmed too early.
func AssertAcks(t testing.TB, samples []Sample, records []Record) {
	t.Helper()
	if len(samples) == 0 {
		t.Error("no sample of the slot was taken")
	}
	if problems := JudgeAcks(samples, records); len(problems) > 0 {
		t.Errorf("of %d samples: %s", len(samples), strings.Join(problems, "\n"))
	}
}
