package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// loop is a goroutine of the pipeline that the watchdog looks after.
type loop int

const (
	loopReader loop = iota
	loopPublisher
	loopLanes // all that publish what waits for sick topics; they beat as one
	loops     // how many there are
)

func (l loop) String() string {
	return [...]string{"reader", "publisher", "publisher of a sick topic"}[l]
}

// health answers two questions that must not be mixed: is a loop wedged, so
// that only a restart helps (healthz), and do events flow, or would they at
// once if the holder of the slot went away (readyz). A peer that is down is
// never a reason to restart.
type health struct {
	m *metrics
	// limit is how long an armed loop may go without a beat.
	limit time.Duration
	now   func() time.Time

	beats [loops]struct {
		n atomic.Uint64
		_ [56]byte // reader and publisher beat often: not on one cache line
	}

	mu    sync.Mutex
	watch [loops]struct { // guarded by mu
		armed bool
		seen  uint64    // the count when it last moved
		since time.Time // and when that was noticed
	}
	state string // "active", "standby", "" when not ready; guarded by mu
	cause string // why not ready; "" before the first word; guarded by mu
	fault string // what is wrong although the stream flows; guarded by mu
	doubt string // why it may not flow although it is open; guarded by mu
}

func newHealth(m *metrics) *health {
	h := &health{m: m, limit: 30 * time.Second, now: time.Now}
	m.health.Store(h)
	return h
}

// Active says that the stream flows.
func (h *health) Active() { h.set("active", "") }

// Standby says that another process holds the slot.
func (h *health) Standby() { h.set("standby", "") }

// NotReady says why events do not flow.
func (h *health) NotReady(cause string) { h.set("", strings.Join(strings.Fields(cause), " ")) }

// Fault says why events may be missing or soon will although the stream flows;
// "" takes it back.
func (h *health) Fault(cause string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = strings.Join(strings.Fields(cause), " ")
}

// Doubt says why a stream that is open may end where the one before it did; ""
// takes it back.
func (h *health) Doubt(cause string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt = strings.Join(strings.Fields(cause), " ")
}

func (h *health) set(state, cause string) {
	h.mu.Lock()
	h.state, h.cause = state, cause
	h.mu.Unlock()
	h.m.SetActive(state == "active")
}

// ready returns readyz's answer, one line. While streaming, a topic that is
// blocked or a fault makes it false; while standing by, what an earlier session left is
// the holder's business. Where the session itself cannot run, its cause comes first.
func (h *health) ready() (bool, string) {
	blocked := h.m.blockedTopics()
	slices.Sort(blocked)
	h.mu.Lock()
	state, cause := h.state, h.cause
	if state == "active" {
		if cause = h.fault; cause == "" {
			cause = h.doubt
		}
	}
	h.mu.Unlock()
	if state == "standby" || (state == "active" && cause == "" && len(blocked) == 0) {
		return true, state
	}
	causes := blocked
	if cause != "" {
		causes = append([]string{cause}, blocked...)
	}
	switch len(causes) {
	case 0:
		return false, "starting"
	case 1:
		return false, causes[0]
	}
	return false, fmt.Sprintf("%s (and %d more)", causes[0], len(causes)-1)
}

// Start arms the watchdog for a loop, Stop disarms it.
func (h *health) Start(l loop) { h.arm(l, true) }

// Stop disarms the watchdog for a loop.
func (h *health) Stop(l loop) { h.arm(l, false) }

func (h *health) arm(l loop, armed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &h.watch[l]
	w.armed, w.seen, w.since = armed, h.beats[l].n.Load(), h.now()
}

// Beat is called by the loop itself, for every frame if it likes: it is one
// addition, the clock is read only by those who ask.
func (h *health) Beat(l loop) { h.beats[l].n.Add(1) }

// Alive is false while a loop is wedged.
func (h *health) Alive() bool { return h.wedged() == "" }

// wedged names the loop that does not beat, "" when all do.
func (h *health) wedged() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for l := loop(0); l < loops; l++ {
		w := &h.watch[l]
		if n := h.beats[l].n.Load(); n != w.seen {
			w.seen, w.since = n, now
			continue
		}
		if quiet := now.Sub(w.since); w.armed && quiet > h.limit {
			return fmt.Sprintf("the %s has not moved for %s", l, quiet.Round(time.Second))
		}
	}
	return ""
}
