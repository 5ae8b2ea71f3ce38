package harness

import "hash/maphash"

// Account judges a history that comes in parts, as Judge does one that is there
// whole: a run of hours keeps of each event a fingerprint of its first record,
// and of each key its newest.
type Account struct {
	dlq    string
	seed   maphash.Seed
	first  map[string]fingerprint // by the event's id
	newest map[place]last
}

// Part is what Post found in a part of a history.
type Part struct {
	Report
	First   []Record // those that were the first of their event
	Repeats []Repeat // the others of known events
}

// Repeat is a record whose event had one before.
type Repeat struct {
	Record Record
	First  Partition // where the event's first record is
	Offset int64
}

type place struct{ topic, key string }

// last is the newest of the first records of a key in a topic.
type last struct {
	n     int64
	seq   string
	where string
}

// fingerprint is what an honest repeat of a record shares with it, and where the
// record is.
type fingerprint struct {
	partition           Partition
	offset, timestamp   int64
	headers             int
	seq, key, value, by uint64
}

// NewAccount begins an account; dlq names the dead letter topic.
func NewAccount(dlq string) *Account {
	return &Account{dlq: dlq, seed: maphash.MakeSeed(), first: map[string]fingerprint{}, newest: map[place]last{}}
}

// Post judges what was committed and what was read since the last call. All of
// that must have been read: an event without a record is lost, and a record
// whose event is neither in this part nor in one before was never committed.
func (a *Account) Post(committed []Event, records []Record) Part {
	rep := Part{Report: Report{Committed: len(committed)}}
	truth := make(map[string]*Event, len(committed))
	for i := range committed {
		truth[committed[i].ID] = &committed[i]
	}
	for i := range records {
		rec := &records[i]
		id := rec.ID()
		if id == "" {
			rep.problem("%s has no id", rec.where())
			continue
		}
		print := a.print(rec)
		if earlier, seen := a.first[id]; seen {
			rep.Duplicates++
			if ev := truth[id]; ev != nil && string(rec.Key) != ev.Key {
				rep.problem("%s is event %s with key %q, committed with %q", rec.where(), id, rec.Key, ev.Key)
			} else if what := earlier.difference(print); what != "" {
				rep.problem("%s repeats event %s of %s with another %s", rec.where(), id, where(earlier.partition, earlier.offset), what)
			}
			rep.Repeats = append(rep.Repeats, Repeat{Record: *rec, First: earlier.partition, Offset: earlier.offset})
			continue
		}
		ev := truth[id]
		if ev == nil {
			rep.problem("%s is event %s, which was never committed", rec.where(), id)
			continue
		}
		if string(rec.Key) != ev.Key {
			rep.problem("%s is event %s with key %q, committed with %q", rec.where(), id, rec.Key, ev.Key)
		}
		a.first[id] = print
		rep.First = append(rep.First, *rec)
		if rec.Topic == a.dlq {
			rep.Dead++
			continue
		}
		rep.Delivered++
		a.order(&rep.Report, rec, ev)
	}
	for i := range committed {
		ev := &committed[i]
		if _, seen := a.first[ev.ID]; !seen {
			rep.problem("event %s was lost: key %q, its event %d", ev.ID, ev.Key, ev.N)
		}
	}
	return rep
}

// order checks an event's first record against those of its key before.
func (a *Account) order(rep *Report, rec *Record, ev *Event) {
	p := place{rec.Topic, ev.Key}
	before, seen := a.newest[p]
	switch {
	case seen && ev.N < before.n:
		rep.problem("order of key %q: %s is its event %d, after %d at %s", ev.Key, rec.where(), ev.N, before.n, before.where)
		return
	case seen && rec.Sequence() <= before.seq && rec.Sequence() != "":
		rep.problem("order of key %q: sequence %s of %s is not above %s of %s", ev.Key, rec.Sequence(), rec.where(), before.seq, before.where)
	}
	a.newest[p] = last{ev.N, rec.Sequence(), rec.where()}
}

func (a *Account) print(rec *Record) fingerprint {
	f := fingerprint{
		partition: Partition{rec.Topic, rec.Partition}, offset: rec.Offset,
		timestamp: rec.Timestamp.UnixNano(), headers: len(rec.Headers),
		seq: maphash.String(a.seed, rec.Sequence()), key: a.hash(rec.Key), value: a.hash(rec.Value),
	}
	var h maphash.Hash
	h.SetSeed(a.seed)
	for _, header := range rec.Headers {
		maphash.WriteComparable(&h, header.Key)
		maphash.WriteComparable(&h, a.hash(header.Value))
	}
	f.by = h.Sum64()
	return f
}

// hash tells nil from empty.
func (a *Account) hash(b []byte) uint64 {
	if b == nil {
		return 0
	}
	return maphash.Bytes(a.seed, b)
}

// difference names what two records of one event do not share; empty for an
// honest repeat.
func (f fingerprint) difference(of fingerprint) string {
	switch {
	case f.partition != of.partition:
		return "partition"
	case f.seq != of.seq:
		return "sequence"
	case f.key != of.key:
		return "key"
	case f.value != of.value:
		return "value"
	case f.timestamp != of.timestamp:
		return "timestamp"
	case f.headers != of.headers:
		return "number of headers"
	case f.by != of.by:
		return "header"
	}
	return ""
}
