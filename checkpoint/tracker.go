// Package checkpoint decides what may be confirmed to Postgres.
//
// The reader meets positions behind which nothing is left to do: the end of a
// transaction, or a keepalive outside one. Such a position is a mark. It may be
// confirmed when every record read before it is acknowledged or dead-lettered.
// Marks travel with the batches of records, so the question reduces to one
// about batches: the watermark is the last mark of the longest prefix of
// batches that are done.
//
// The package does no I/O and starts no goroutine. A Tracker belongs to one
// session and is dropped with it: after a reconnect the truth is the slot's
// confirmed_flush_lsn, not what was remembered.
package checkpoint

import (
	"sync"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
)

// slots is how many tickets can be outstanding apart. Two batches are in flight
// today; the rest is room for more of them. Past it batches share a ticket, so
// the tracker never grows and never allocates.
const slots = 1024

// Ticket stands for a batch handed to the publisher. The zero Ticket was never
// handed out.
type Ticket uint64

// Tracker computes the watermark. Accept belongs to the reader; Hand is called by
// one goroutine, in batch order: by the publisher as it takes a batch, because
// until then the reader may still take it back and append; Done by whoever
// settled a batch; Watermark is free for all.
//
// A mutex guards the ring: Hand and Done are called once a batch, not once a
// row, and it is held for nanoseconds. The two positions are atomic: the status
// writer and the metrics look at the watermark far more often than it moves, and
// Accept runs once a transaction and takes no lock.
type Tracker struct {
	// accepted is the highest mark let through, at first the session's start.
	// Written by the reader alone.
	accepted atomic.Uint64

	// watermark only rises. Invariant: start <= watermark <= accepted.
	watermark atomic.Uint64

	mu   sync.Mutex
	ring []slot // by ticket modulo its length
	// [head, next) are the tickets not released yet.
	// Invariant: next-head <= len(ring), and ring[head].open > 0 unless head == next.
	head, next Ticket
	open       int // Invariant: the sum of slot.open over [head, next)
}

// slot is what is known about one ticket.
type slot struct {
	mark pglogrepl.LSN // 0: none
	open int           // batches under this ticket that are not done
}

// NewTracker starts at the slot's confirmed_flush_lsn.
func NewTracker(start pglogrepl.LSN) *Tracker { return newTracker(start, slots) }

func newTracker(start pglogrepl.LSN, size int) *Tracker {
	t := &Tracker{ring: make([]slot, size), head: 1, next: 1}
	t.accepted.Store(uint64(start))
	t.watermark.Store(uint64(start))
	return t
}

// Accept reports whether a mark is news: above the session's start and above
// every mark accepted before. After a reconnect the server's keepalives start
// again near restart_lsn, below what is confirmed; such marks are dropped here,
// before a batch sees them. Reader only.
func (t *Tracker) Accept(lsn pglogrepl.LSN) bool {
	if lsn <= pglogrepl.LSN(t.accepted.Load()) {
		return false
	}
	t.accepted.Store(uint64(lsn))
	return true
}

// Hand records that a batch leaves for the publisher, in batch order. mark is
// the batch's last one, or 0 if it has none because it ended inside a
// transaction. A mark above every accepted one is cut down to that: what Accept
// did not let through is never confirmed.
func (t *Tracker) Hand(mark pglogrepl.LSN) Ticket {
	mark = min(mark, pglogrepl.LSN(t.accepted.Load()))

	t.mu.Lock()
	defer t.mu.Unlock()
	if int(t.next-t.head) < len(t.ring) {
		t.ring[t.next%Ticket(len(t.ring))] = slot{}
		t.next++
	}
	// With the ring full the batch joins the newest ticket, which is then done
	// when all of its batches are: the watermark may move later, never earlier.
	k := t.next - 1
	s := &t.ring[k%Ticket(len(t.ring))]
	s.mark = max(s.mark, mark)
	s.open++
	t.open++
	return k
}

// Done records that every record of a batch is acknowledged or dead-lettered,
// once for each Hand and in any order, and returns the watermark. A ticket that
// is not outstanding changes nothing.
func (t *Tracker) Done(k Ticket) pglogrepl.LSN {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k < t.head || k >= t.next {
		return t.Watermark()
	}
	s := &t.ring[k%Ticket(len(t.ring))]
	if s.open == 0 {
		return t.Watermark()
	}
	s.open--
	t.open--

	low := t.Watermark()
	for ; t.head < t.next; t.head++ {
		s := &t.ring[t.head%Ticket(len(t.ring))]
		if s.open > 0 {
			break
		}
		low = max(low, s.mark)
	}
	t.watermark.Store(uint64(low))
	return low
}

// Watermark is what may be confirmed: at first the session's start, then the
// last mark of the longest prefix of batches that are done. It never falls.
func (t *Tracker) Watermark() pglogrepl.LSN { return pglogrepl.LSN(t.watermark.Load()) }

// Outstanding is how many batches were handed out and are not done.
func (t *Tracker) Outstanding() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}
