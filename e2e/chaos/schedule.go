package chaos

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Planned is a fault of a schedule.
type Planned struct {
	Kind Kind
	At   time.Duration // after the round's begin
	For  time.Duration // until it is healed
	Pick uint64        // whatever else the fault has to choose
}

// Change is something that an operator does to the database while all goes on.
type Change struct {
	Kind string
	At   time.Duration
}

// Load is what the writers of a round do.
type Load struct {
	Seed    uint64
	Writers int
	MaxRows int // of a transaction
	Bytes   int // of padding
	Pause   time.Duration
}

// Round is the schedule of a round.
type Round struct {
	Faults  []Planned // by At
	Changes []Change  // by At
	Load    Load
}

// The lengths of a round: its faults begin within span, after the calm in which
// the writers get going.
const (
	calm = 300 * time.Millisecond
	span = 5 * time.Second
)

var changes = []string{"analyze", "add column", "drop column", "new partition", "checkpoint", "switch wal", "index"}

// Plan makes the schedule of a round: of seed, round and kinds alone, so that a
// round can be played again without those before it. Two faults on one resource
// never overlap; all others may.
func Plan(seed uint64, round int, kinds []trait) Round {
	rng := rand.New(rand.NewPCG(seed, uint64(round)))
	var r Round
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for range 5 + rng.IntN(8) {
		// A place that is taken is drawn again, but not for ever.
		for range 10 {
			k := draw(kinds, rng.IntN(total))
			p := Planned{Kind: k.kind, At: calm + between(rng, 0, span), For: between(rng, k.least, k.most), Pick: rng.Uint64()}
			if !slices.ContainsFunc(r.Faults, func(other Planned) bool { return collide(kinds, p, other) }) {
				r.Faults = append(r.Faults, p)
				break
			}
		}
	}
	slices.SortStableFunc(r.Faults, func(a, b Planned) int { return int(a.At - b.At) })
	for range rng.IntN(4) {
		r.Changes = append(r.Changes, Change{Kind: changes[rng.IntN(len(changes))], At: between(rng, 0, calm+span)})
	}
	slices.SortStableFunc(r.Changes, func(a, b Change) int { return int(a.At - b.At) })
	r.Load = Load{
		Seed:    rng.Uint64() | 1, // 0 would be drawn anew
		Writers: 2 + rng.IntN(3),
		MaxRows: []int{3, 50, 50, 300, 300, 3000}[rng.IntN(6)],
		Bytes:   []int{0, 100, 1000}[rng.IntN(3)],
		Pause:   between(rng, 40*time.Millisecond, 200*time.Millisecond),
	}
	return r
}

func draw(kinds []trait, at int) trait {
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	panic("unreachable: at is below the sum of the weights")
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(rng.Int64N(int64(most-least)+1))).Round(time.Millisecond)
}

// collide tells whether two faults would be on one resource at one time, with a
// moment between them.
func collide(kinds []trait, a, b Planned) bool {
	const apart = 100 * time.Millisecond
	if a.At > b.At+b.For+apart || b.At > a.At+a.For+apart {
		return false
	}
	on := func(p Planned) []string {
		return kinds[slices.IndexFunc(kinds, func(k trait) bool { return k.kind == p.Kind })].on
	}
	return slices.ContainsFunc(on(a), func(resource string) bool { return slices.Contains(on(b), resource) })
}

// step is a beginning or an end of a fault.
type step struct {
	at    time.Duration
	fault int // index in Round.Faults
	heal  bool
}

// steps are all of them, by time.
func (r Round) steps() []step {
	var steps []step
	for i, f := range r.Faults {
		steps = append(steps, step{f.At, i, false}, step{f.At + f.For, i, true})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return steps
}
