package checkpoint

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"
)

// Slack is how much WAL a running relay may confirm beyond the position that it
// has stored: it stores before it confirms more. A slot further ahead was moved
// by somebody else, or made anew.
const Slack = 16 << 20

// Slot is what the server says about the relay's slot.
type Slot struct {
	Exists    bool
	Lost      bool // the server removed WAL that it needed
	Held      bool // another client streams from it
	Confirmed pglogrepl.LSN
}

// State is what a relay stored when it last ran.
type State struct {
	System    string
	Timeline  int32
	Confirmed pglogrepl.LSN
	// Running: the relay has not stopped in order since, so it may have confirmed
	// up to Slack more. After a stop in order the position is exact.
	Running bool
	// Accepted: a person has accepted a gap whose end was not known then, and the
	// relay may go on from wherever the slot stands.
	Accepted bool
}

// Server is the server that was reached.
type Server struct {
	System   string
	Timeline int32
	Flushed  pglogrepl.LSN // where its WAL ends
	History  []Branch      // of Timeline; needed where State has another one
}

// Branch tells where a timeline ended for the server that went on from it.
type Branch struct {
	Timeline int32
	At       pglogrepl.LSN
}

// Action is what a relay does at its start.
type Action int

// The actions, and what From and To of the verdict are.
const (
	Start  Action = iota // go on where the slot stands
	Adopt                // the same, for a slot of which no state tells, or behind an accepted gap
	Wait                 // another relay has the slot
	Create               // there is neither slot nor state, or the gap to a new slot is accepted
	Stop                 // events from From to To may be missing: a person must decide
)

func (a Action) String() string {
	return [...]string{"start", "adopt", "wait", "create", "stop"}[a]
}

// Reason is why.
type Reason int

// The reasons. Those from SlotMissing on stop the relay.
const (
	Continues     Reason = iota // the slot stands where the state says
	Repeats                     // the slot is behind the state: events from From to To come again
	NoState                     // this relay never ran here
	GapAccepted                 // a person has decided
	HeldElsewhere               // another client streams

	SlotMissing  // the relay ran, and its slot is gone
	SlotLost     // the server removed WAL that the slot needed
	OtherSystem  // the state was written on another server; its positions mean nothing here
	OtherHistory // the server went on from a point before the state's position, or from elsewhere
	SlotNewer    // the slot began on this timeline, after the state was written on another
	ServerBehind // the server's WAL ends before the state's position
	SlotAhead    // the slot is ahead of what the relay can have confirmed
)

func (r Reason) String() string {
	return [...]string{"continues", "repeats", "no state", "gap accepted", "held elsewhere", "slot missing", "slot lost",
		"other system", "other history", "slot newer", "server behind", "slot ahead"}[r]
}

// Verdict is what Decide found.
type Verdict struct {
	Action   Action
	Reason   Reason
	From, To pglogrepl.LSN
}

// Decide compares the slot with what the relay remembers. It is the one place
// where that is done, and knows nothing of configuration: whether Create is
// allowed is the caller's question. state is nil where none is stored.
//
// A slot behind the state is no gap: Postgres sends again from there, as after
// each of its crashes. A slot ahead of the state is one: a slot never moves by
// itself, and a new one begins at the end of the WAL.
func Decide(slot Slot, state *State, server Server) Verdict {
	stop := func(r Reason, from, to pglogrepl.LSN) Verdict { return Verdict{Stop, r, from, to} }
	if !slot.Exists {
		switch {
		case state == nil:
			return Verdict{Action: Create, Reason: NoState}
		case state.Accepted:
			return Verdict{Create, GapAccepted, state.Confirmed, server.Flushed}
		case state.System != server.System:
			return stop(OtherSystem, state.Confirmed, server.Flushed)
		}
		return stop(SlotMissing, state.Confirmed, server.Flushed)
	}
	switch {
	case slot.Lost:
		return stop(SlotLost, slot.Confirmed, server.Flushed)
	case slot.Held:
		return Verdict{Action: Wait, Reason: HeldElsewhere}
	case state == nil:
		return Verdict{Adopt, NoState, slot.Confirmed, slot.Confirmed}
	case state.Accepted:
		return Verdict{Adopt, GapAccepted, state.Confirmed, slot.Confirmed}
	case state.System != server.System:
		return stop(OtherSystem, state.Confirmed, slot.Confirmed)
	}
	if state.Timeline != server.Timeline {
		branch, found := branchOf(server.History, state.Timeline)
		switch {
		case !found:
			return stop(OtherHistory, state.Confirmed, slot.Confirmed)
		case state.Confirmed > branch:
			return stop(OtherHistory, branch, slot.Confirmed)
		case slot.Confirmed > branch:
			return stop(SlotNewer, state.Confirmed, slot.Confirmed)
		}
	}
	slack := pglogrepl.LSN(0)
	if state.Running {
		slack = Slack
	}
	switch {
	case state.Confirmed > server.Flushed:
		return stop(ServerBehind, server.Flushed, state.Confirmed)
	case slot.Confirmed > state.Confirmed+slack:
		return stop(SlotAhead, state.Confirmed, slot.Confirmed)
	case slot.Confirmed < state.Confirmed:
		return Verdict{Start, Repeats, slot.Confirmed, state.Confirmed}
	}
	return Verdict{Start, Continues, slot.Confirmed, slot.Confirmed}
}

func branchOf(history []Branch, timeline int32) (pglogrepl.LSN, bool) {
	for _, b := range history {
		if b.Timeline == timeline {
			return b.At, true
		}
	}
	return 0, false
}

// ParseHistory reads a timeline's history file: for each timeline before it a
// line of its number, the position where it was left, and why.
func ParseHistory(text []byte) ([]Branch, error) {
	var history []Branch
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("timeline history: %q has no position", bytes.TrimSpace(line))
		}
		n, err := strconv.ParseInt(string(fields[0]), 10, 32)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("timeline history: %q is no timeline", fields[0])
		}
		at, err := pglogrepl.ParseLSN(string(fields[1]))
		if err != nil {
			return nil, fmt.Errorf("timeline history: %w", err)
		}
		history = append(history, Branch{int32(n), at})
	}
	return history, nil
}
