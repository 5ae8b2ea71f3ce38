package main

import (
	"slices"

	"github.com/tailer-relay/tailer/checkpoint"
)

// window is what was handed to the publisher from the oldest batch on that is
// not settled: what a crash now would make the server send again. While no topic
// is sick it is empty between two batches.
//
// The publisher's loop owns it.
type window struct {
	// limit is the number of bytes from which on no further batch is taken; 0 is
	// none.
	limit int
	last  uint64
	// open begins with the oldest batch that is not settled.
	// Invariant: numbers rise, and open is empty or its first is not settled.
	open []outstanding
	span int // Invariant: the sum of own and after over open
	own  int // Invariant: the sum of own over open, settled ones left out
}

// outstanding is a batch that was left out, whatever became of it since.
type outstanding struct {
	number  uint64
	ticket  checkpoint.Ticket
	settled bool
	own     int // its bytes
	after   int // bytes of the batches between it and the next one in open
}

// next numbers the batch that is handed over now.
func (w *window) next() uint64 {
	w.last++
	return w.last
}

// passed notes that the batch was settled at once. It counts where an older one is not.
func (w *window) passed(bytes int) {
	if n := len(w.open); n > 0 {
		w.open[n-1].after += bytes
		w.span += bytes
	}
}

// left notes that the batch numbered last is not settled.
func (w *window) left(t checkpoint.Ticket, bytes int) {
	w.open = append(w.open, outstanding{number: w.last, ticket: t, own: bytes})
	w.own += bytes
	w.span += bytes
}

// settle takes a batch that was left and returns its ticket. What lies before the
// oldest one that is not settled counts no more.
func (w *window) settle(number uint64) (checkpoint.Ticket, bool) {
	i, found := slices.BinarySearchFunc(w.open, number, func(o outstanding, n uint64) int {
		switch {
		case o.number < n:
			return -1
		case o.number > n:
			return 1
		}
		return 0
	})
	if !found || w.open[i].settled {
		return 0, false
	}
	w.open[i].settled = true
	w.own -= w.open[i].own
	ticket := w.open[i].ticket
	for len(w.open) > 0 && w.open[0].settled {
		w.span -= w.open[0].own + w.open[0].after
		w.open = w.open[1:]
	}
	return ticket, true
}

func (w *window) full() bool  { return w.limit > 0 && w.span >= w.limit }
func (w *window) empty() bool { return len(w.open) == 0 }

// pinned is how many bytes are not settled.
func (w *window) pinned() int { return w.own }
