package main

import (
	"sync"

	"github.com/jackc/pglogrepl"
)

// doubt is what a session that failed leaves to the next one. What ended a
// stream may end it again at the same place, and a relay that is ready in
// between would hide that nothing flows. So the next session is ready only when
// it has come further than the one before, or to where the server's WAL ended
// when it began: then nothing is left that could end it.
type doubt struct {
	mu     sync.Mutex
	open   bool   // a session streams
	cause  string // why the last one that streamed ended; "" when that is overcome
	before pglogrepl.LSN
	end    pglogrepl.LSN
	health *health
}

// raise notes why a session has ended. One that did not come to stream changes
// nothing.
func (d *doubt) raise(cause string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open {
		d.open, d.cause = false, cause
	}
}

// begin notes that a session streams from start on; end is where the WAL ends.
func (d *doubt) begin(end, start pglogrepl.LSN, h *health) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.end, d.before, d.health = true, end, max(d.before, start), h
	cause := ""
	if d.cause != "" {
		cause = "this session is not yet past where the one before ended: " + d.cause
	}
	h.Doubt(cause)
}

// confirmed notes that events up to lsn are settled. Positions without events do
// not count: the server tells of many on its way to a change that it cannot send.
func (d *doubt) confirmed(lsn pglogrepl.LSN) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lsn > d.before {
		d.before = lsn
		d.overcome()
	}
}

// decoded notes that the server has decoded everything up to lsn, and that
// nothing of it is with the publisher.
func (d *doubt) decoded(lsn pglogrepl.LSN) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lsn >= d.end {
		d.overcome()
	}
}

func (d *doubt) overcome() {
	if d.open && d.cause != "" {
		d.cause = ""
		d.health.Doubt("")
	}
}
