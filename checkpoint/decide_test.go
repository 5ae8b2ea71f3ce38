package checkpoint

import (
	"reflect"
	"testing"

	"github.com/jackc/pglogrepl"
)

// TestDecide has every case of the law. Seen red: without the clause of a case
// (each in turn), with >= for > and < for > in each comparison, and with the
// slack also after a stop in order.
func TestDecide(t *testing.T) {
	const at = pglogrepl.LSN(0x10_0000_0000)
	here := Server{System: "1", Timeline: 3, Flushed: at + 2*Slack, History: []Branch{{1, at - 100}, {2, at}}}
	slot := func(lsn pglogrepl.LSN) Slot { return Slot{Exists: true, Confirmed: lsn} }
	state := func(lsn pglogrepl.LSN, change ...func(*State)) *State {
		s := &State{System: "1", Timeline: 3, Confirmed: lsn, Running: true}
		for _, c := range change {
			c(s)
		}
		return s
	}
	stopped := func(s *State) { s.Running = false }
	accepted := func(s *State) { s.Accepted = true }
	elsewhere := func(s *State) { s.System = "2" }
	on := func(timeline int32) func(*State) { return func(s *State) { s.Timeline = timeline } }

	for _, c := range []struct {
		name  string
		slot  Slot
		state *State
		want  Verdict
	}{
		{"first start", Slot{}, nil, Verdict{Create, NoState, 0, 0}},
		{"slot dropped", Slot{}, state(at), Verdict{Stop, SlotMissing, at, here.Flushed}},
		{"slot dropped after a stop in order", Slot{}, state(at, stopped), Verdict{Stop, SlotMissing, at, here.Flushed}},
		{"promoted standby without the slot", Slot{}, state(at, on(2)), Verdict{Stop, SlotMissing, at, here.Flushed}},
		{"slot dropped and accepted", Slot{}, state(at, accepted), Verdict{Create, GapAccepted, at, here.Flushed}},
		{"no slot on another server", Slot{}, state(at, elsewhere), Verdict{Stop, OtherSystem, at, here.Flushed}},
		{"no slot on another server, accepted", Slot{}, state(at, elsewhere, accepted), Verdict{Create, GapAccepted, at, here.Flushed}},

		{"slot lost", Slot{Exists: true, Lost: true, Confirmed: at}, state(at), Verdict{Stop, SlotLost, at, here.Flushed}},
		{"slot lost before the first start", Slot{Exists: true, Lost: true, Confirmed: at}, nil, Verdict{Stop, SlotLost, at, here.Flushed}},
		{"slot lost, accepted, not dropped yet", Slot{Exists: true, Lost: true, Confirmed: at}, state(at, accepted), Verdict{Stop, SlotLost, at, here.Flushed}},
		{"standby", Slot{Exists: true, Held: true, Confirmed: at}, state(at), Verdict{Wait, HeldElsewhere, 0, 0}},
		{"standby at its first start", Slot{Exists: true, Held: true, Confirmed: at}, nil, Verdict{Wait, HeldElsewhere, 0, 0}},
		{"standby that cannot judge yet", Slot{Exists: true, Held: true, Confirmed: at + 2*Slack}, state(at), Verdict{Wait, HeldElsewhere, 0, 0}},

		{"slot of another relay", slot(at), nil, Verdict{Adopt, NoState, at, at}},
		{"new slot behind an accepted gap", slot(at + 2*Slack), state(at, accepted), Verdict{Adopt, GapAccepted, at, at + 2*Slack}},
		{"another server, accepted", slot(at), state(at+5, elsewhere, accepted), Verdict{Adopt, GapAccepted, at + 5, at}},

		{"as it was", slot(at), state(at), Verdict{Start, Continues, at, at}},
		{"as it was after a stop in order", slot(at), state(at, stopped), Verdict{Start, Continues, at, at}},
		{"confirmed more before a crash", slot(at + 1), state(at), Verdict{Start, Continues, at + 1, at + 1}},
		{"confirmed all it can have", slot(at + Slack), state(at), Verdict{Start, Continues, at + Slack, at + Slack}},
		{"one byte more", slot(at + Slack + 1), state(at), Verdict{Stop, SlotAhead, at, at + Slack + 1}},
		{"moved after a stop in order", slot(at + 1), state(at, stopped), Verdict{Stop, SlotAhead, at, at + 1}},
		{"server crashed", slot(at - 1), state(at), Verdict{Start, Repeats, at - 1, at}},
		{"server restarted, up to 16", slot(at - 1), state(at, stopped), Verdict{Start, Repeats, at - 1, at}},
		{"backup, the state is from later", slot(at), state(here.Flushed + 1), Verdict{Stop, ServerBehind, here.Flushed, here.Flushed + 1}},
		{"at the end of the WAL", slot(at), state(here.Flushed), Verdict{Start, Repeats, at, here.Flushed}},

		{"another server", slot(at), state(at, elsewhere), Verdict{Stop, OtherSystem, at, at}},
		{"another server with the same timeline and a higher position", slot(at), state(0xFFFF_0000_0000, elsewhere), Verdict{Stop, OtherSystem, 0xFFFF_0000_0000, at}},
		{"failover at the position", slot(at), state(at, on(2)), Verdict{Start, Continues, at, at}},
		{"failover after the position", slot(at - 10), state(at-10, on(2)), Verdict{Start, Continues, at - 10, at - 10}},
		{"failover, slot synchronised late", slot(at - 20), state(at-10, on(2)), Verdict{Start, Repeats, at - 20, at - 10}},
		{"failover before the position", slot(at), state(at+1, on(2)), Verdict{Stop, OtherHistory, at, at}},
		{"failover, slot made on the new primary", slot(at + 1), state(at, on(2)), Verdict{Stop, SlotNewer, at, at + 1}},
		{"two failovers", slot(at - 100), state(at-100, on(1)), Verdict{Start, Continues, at - 100, at - 100}},
		{"two failovers, before the first", slot(at - 100), state(at-99, on(1)), Verdict{Stop, OtherHistory, at - 100, at - 100}},
		{"a timeline that is no ancestor", slot(at), state(at, on(4)), Verdict{Stop, OtherHistory, at, at}},
		{"moved after a stop in order, then failover", slot(at), state(at-5, on(2), stopped), Verdict{Stop, SlotAhead, at - 5, at}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Decide(c.slot, c.state, here); got != c.want {
				t.Errorf("%v, %v, %v to %v; want %v, %v, %v to %v", got.Action, got.Reason, got.From, got.To,
					c.want.Action, c.want.Reason, c.want.From, c.want.To)
			}
		})
	}
}

func TestParseHistory(t *testing.T) {
	for _, c := range []struct {
		text string
		want []Branch
		bad  bool
	}{
		{text: ""},
		{text: "1\t0/3000060\tno recovery target specified\n", want: []Branch{{1, 0x3000060}}},
		{text: "# a comment\n\n1\t0/3000060\tbefore 2026-01-01\n2\t1/AB\tno recovery target specified", want: []Branch{{1, 0x3000060}, {2, 0x1000000AB}}},
		{text: "1\n", bad: true},
		{text: "one\t0/1\tx\n", bad: true},
		{text: "0\t0/1\tx\n", bad: true},
		{text: "1\tnowhere\tx\n", bad: true},
	} {
		got, err := ParseHistory([]byte(c.text))
		if (err != nil) != c.bad || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
	}
}

func FuzzParseHistory(f *testing.F) {
	f.Add([]byte("1\t0/3000060\tno recovery target specified\n"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = ParseHistory(text) })
}
