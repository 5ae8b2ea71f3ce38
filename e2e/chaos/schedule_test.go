package chaos

import (
	"reflect"
	"testing"
)

func TestPlanIsOfTheSeedAlone(t *testing.T) {
	kinds := kindsFor(surroundings{disk: true, cache: true})
	for round := range 50 {
		if a, b := Plan(7, round, kinds), Plan(7, round, kinds); !reflect.DeepEqual(a, b) {
			t.Fatalf("round %d: %v, then %v", round, a, b)
		}
	}
	if reflect.DeepEqual(Plan(7, 1, kinds), Plan(8, 1, kinds)) || reflect.DeepEqual(Plan(7, 1, kinds), Plan(7, 2, kinds)) {
		t.Error("another seed or round has the same schedule")
	}
}

// No two faults of one resource at one time, each healed after it began, and in
// a few hundred rounds each kind at least once.
func TestPlan(t *testing.T) {
	for name, s := range map[string]surroundings{
		"fake":                   {disk: true, cache: true},
		"real":                   {real: true, disk: true, cache: true},
		"without a disk to fill": {},
		"exactly once":           {exactlyOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := kindsFor(s)
			seen := map[Kind]int{}
			overlaps := 0
			for round := range 400 {
				plan := Plan(1, round, kinds)
				if len(plan.Faults) == 0 {
					t.Fatalf("round %d has no fault", round)
				}
				for i, f := range plan.Faults {
					seen[f.Kind]++
					for _, other := range plan.Faults[:i] {
						if collide(kinds, f, other) {
							t.Errorf("round %d: %v collides with %v", round, f, other)
						}
						if f.At < other.At+other.For {
							overlaps++
						}
					}
				}
				active := map[int]bool{}
				for _, s := range plan.steps() {
					if s.heal != active[s.fault] {
						t.Fatalf("round %d: %v out of order", round, s)
					}
					active[s.fault] = !s.heal
				}
			}
			for _, k := range kinds {
				if seen[k.kind] == 0 {
					t.Errorf("no %s", k.kind)
				}
			}
			if len(seen) != len(kinds) || overlaps == 0 {
				t.Errorf("%d kinds of %d, %d overlaps", len(seen), len(kinds), overlaps)
			}
		})
	}
}
