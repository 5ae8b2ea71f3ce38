package harness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"
)

// history is a small world: two keys with three events each, committed in the
// order a1 b1 a2 b2 a3 b3 at positions 0x10, 0x20 …, key a in partition 0 and b
// in 1 of one topic, delivered once each.
func history() (events []Event, records []Record) {
	for n := int64(1); n <= 3; n++ {
		for p, key := range []string{"a", "b"} {
			id := fmt.Sprintf("%s%d", key, n)
			events = append(events, Event{ID: id, Key: key, N: n})
			commit := (n-1)*0x20 + int64(p)*0x10 + 0x10
			records = append(records, Record{Topic: "t", Partition: int32(p), Offset: n - 1, Key: []byte(key), Value: []byte(id),
				Timestamp: time.UnixMilli(1000 + commit),
				Headers:   []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}, {Key: "ce_sequence", Value: fmt.Appendf(nil, "%016X-%010d", commit, 0)}}})
		}
	}
	return events, records
}

// setHeader gives a record its own headers with one of them changed.
func setHeader(r *Record, name, value string) {
	headers := make([]kgo.RecordHeader, 0, len(r.Headers))
	for _, h := range r.Headers {
		if h.Key == name {
			h.Value = []byte(value)
		}
		headers = append(headers, h)
	}
	r.Headers = headers
}

// Each judge is shown a good history and one of every bad kind.
func TestJudge(t *testing.T) {
	again := func(records []Record, i int, change func(*Record)) []Record {
		r := records[i]
		r.Offset = 3
		if change != nil {
			change(&r)
		}
		return append(records, r)
	}
	for _, c := range []struct {
		name    string
		bend    func(e []Event, r []Record) ([]Event, []Record)
		problem string // part of the one problem; empty: none
		dups    int
		dead    int
	}{
		{name: "good", bend: func(e []Event, r []Record) ([]Event, []Record) { return e, r }},
		{name: "late repeat", dups: 1, bend: func(e []Event, r []Record) ([]Event, []Record) { return e, again(r, 0, nil) }},
		{name: "dead letter", dead: 1, bend: func(e []Event, r []Record) ([]Event, []Record) {
			r[2].Topic, r[2].Partition, r[2].Offset = "dlq", 0, 0
			return e, r
		}},
		{name: "lost", problem: "event a2 was lost", bend: func(e []Event, r []Record) ([]Event, []Record) {
			return e, append(r[:2:2], r[3:]...)
		}},
		{name: "last one lost", problem: "event b3 was lost", bend: func(e []Event, r []Record) ([]Event, []Record) { return e, r[:5] }},
		{name: "rolled back but delivered", problem: "never committed", bend: func(e []Event, r []Record) ([]Event, []Record) {
			return append(e[:4:4], e[5]), r
		}},
		{name: "swapped", problem: `order of key "a"`, bend: func(e []Event, r []Record) ([]Event, []Record) {
			r[0], r[2] = r[2], r[0]
			return e, r
		}},
		{name: "sequence does not rise", problem: "is not above", bend: func(e []Event, r []Record) ([]Event, []Record) {
			setHeader(&r[2], "ce_sequence", r[0].Sequence())
			return e, r
		}},
		{name: "another key", problem: `with key "b"`, bend: func(e []Event, r []Record) ([]Event, []Record) {
			r[4].Key = []byte("b")
			return e, r
		}},
		{name: "no id", problem: "has no id", bend: func(e []Event, r []Record) ([]Event, []Record) {
			return e, append(r, Record{Topic: "t", Offset: 9})
		}},
		{name: "repeat with other bytes", problem: "another value", dups: 1, bend: func(e []Event, r []Record) ([]Event, []Record) {
			return e, again(r, 0, func(r *Record) { r.Value = []byte("x") })
		}},
		{name: "repeat with other sequence", problem: "another sequence", dups: 1, bend: func(e []Event, r []Record) ([]Event, []Record) {
			return e, again(r, 0, func(r *Record) { setHeader(r, "ce_sequence", "0000000000000FFF-0000000000") })
		}},
		{name: "repeat with other time", problem: "another timestamp", dups: 1, bend: func(e []Event, r []Record) ([]Event, []Record) {
			return e, again(r, 0, func(r *Record) { r.Timestamp = r.Timestamp.Add(time.Millisecond) })
		}},
		{name: "repeat in another partition", problem: "another partition", dups: 1, bend: func(e []Event, r []Record) ([]Event, []Record) {
			return e, again(r, 0, func(r *Record) { r.Partition = 1 })
		}},
		{name: "repeat with one header more", problem: "number of headers", dups: 1, bend: func(e []Event, r []Record) ([]Event, []Record) {
			return e, again(r, 0, func(r *Record) { r.Headers = append(r.Headers[:2:2], kgo.RecordHeader{Key: "x"}) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, records := c.bend(history())
			rep := Judge(events, records, "dlq")
			switch {
			case c.problem == "" && len(rep.Problems) > 0:
				t.Errorf("found %v", rep)
			case c.problem != "" && (len(rep.Problems) != 1 || !strings.Contains(rep.Problems[0], c.problem)):
				t.Errorf("found %v, want one problem with %q", rep, c.problem)
			}
			if rep.Duplicates != c.dups || rep.Dead != c.dead {
				t.Errorf("found %v, want %d duplicates and %d dead letters", rep, c.dups, c.dead)
			}
		})
	}
}

// The judge of acknowledgements follows a relay that confirms what is in Kafka,
// and one that is a record ahead.
func TestJudgeAcks(t *testing.T) {
	_, records := history()
	end := func(a, b int64) Offsets { return Offsets{{"t", 0}: a, {"t", 1}: b} }
	for _, c := range []struct {
		name    string
		samples []Sample
		problem string
	}{
		{"nothing confirmed", []Sample{{Confirmed: 0x10, End: end(0, 0)}}, ""},
		// The end of a1's transaction, commit 0x10, is above its commit.
		{"a1 confirmed and there", []Sample{{Confirmed: 0x18, End: end(1, 0)}}, ""},
		{"a1 confirmed and not there", []Sample{{Confirmed: 0x18, End: end(0, 0)}}, "event a1"},
		{"all there", []Sample{{Confirmed: 0x18, End: end(1, 0)}, {Confirmed: 0x1000, End: end(3, 3)}}, ""},
		// Another partition's progress confirms nothing.
		{"b ahead of a", []Sample{{Confirmed: 0x48, End: end(2, 3)}}, ""},
		{"a held, all confirmed", []Sample{{Confirmed: 0x68, End: end(2, 3)}}, "event a3"},
		{"back after a crash, then ahead", []Sample{{Confirmed: 0x68, End: end(3, 3)}, {Confirmed: 0x10, End: end(3, 3)}, {Confirmed: 0x68, End: end(3, 2)}}, "event b3"},
		{"a topic that did not exist yet", []Sample{{Confirmed: 0x18}}, "event a1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := JudgeAcks(c.samples, records)
			if c.problem == "" && len(problems) > 0 || c.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.problem)) {
				t.Errorf("found %q, want %q", problems, c.problem)
			}
		})
	}

	// A repeat does not count: the first occurrence was what made it safe.
	late := records[0]
	late.Offset = 7
	if problems := JudgeAcks([]Sample{{Confirmed: 0x18, End: end(1, 0)}}, append(records, late)); len(problems) > 0 {
		t.Errorf("a late repeat: %q", problems)
	}
	bare := Record{Topic: "t"}
	if problems := JudgeAcks(nil, []Record{bare}); len(problems) != 1 {
		t.Errorf("a record without a position: %q", problems)
	}
}

func TestCommitLSN(t *testing.T) {
	r := Record{Headers: []kgo.RecordHeader{{Key: "sequence", Value: []byte("00000001FFFFFFFF-0000000002")}}}
	if lsn, err := r.CommitLSN(); err != nil || lsn != pglogrepl.LSN(0x1FFFFFFFF) {
		t.Errorf("got %v, %v", lsn, err)
	}
}

// A history in parts is judged as one that is whole: what an earlier part had is
// neither lost nor unknown in a later one, and a key's order goes on.
func TestAccountInParts(t *testing.T) {
	events, records := history()
	a := NewAccount("dlq")
	if part := a.Post(events[:4], records[:4]); len(part.Problems) > 0 || len(part.First) != 4 || len(part.Repeats) > 0 {
		t.Errorf("first part: %v", part.Report)
	}
	late := records[0]
	late.Offset = 3
	part := a.Post(events[4:], append(records[4:6:6], late))
	if len(part.Problems) > 0 || part.Delivered != 2 || part.Duplicates != 1 || len(part.Repeats) != 1 || part.Repeats[0].Offset != 0 {
		t.Errorf("second part: %v, repeats %v", part.Report, part.Repeats)
	}
	late.Value = []byte("x")
	if part := a.Post(nil, []Record{late}); len(part.Problems) != 1 || !strings.Contains(part.Problems[0], "another value") {
		t.Errorf("a repeat with other bytes: %v", part.Report)
	}
	before := records[0]
	setHeader(&before, "ce_id", "a0")
	if part := a.Post([]Event{{ID: "a0", Key: "a", N: 0}}, []Record{before}); len(part.Problems) != 1 || !strings.Contains(part.Problems[0], "order of key") {
		t.Errorf("an event that comes after its successor: %v", part.Report)
	}
}
