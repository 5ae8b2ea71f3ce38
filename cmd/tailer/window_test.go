package main

import (
	"math/rand/v2"
	"testing"

	"github.com/tailer-relay/tailer/checkpoint"
)

// The window against the plain way to say it: the bytes of all batches from the
// oldest one on that is not settled.
//
// Seen red with a window that forgets what passed behind a batch that waits, and
// with one that counts a batch in the middle no more when it is settled.
func TestWindow(t *testing.T) {
	type batch struct {
		bytes   int
		settled bool
	}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := window{limit: 5000}
		var all []batch // by number, from 1
		oldest := func() int {
			for i, b := range all {
				if !b.settled {
					return i
				}
			}
			return len(all)
		}
		for range 500 {
			if r.IntN(3) > 0 && len(all) > 0 { // any of the last ones, settled or not
				n := len(all) - r.IntN(min(len(all), 20))
				ticket, ok := w.settle(uint64(n))
				if ok != !all[n-1].settled || ok && ticket != checkpoint.Ticket(n*7) {
					t.Fatalf("batch %d: ticket %d, %v", n, ticket, ok)
				}
				all[n-1].settled = true
			} else {
				b := batch{bytes: r.IntN(1000), settled: r.IntN(2) == 0}
				all = append(all, b)
				if n := w.next(); n != uint64(len(all)) {
					t.Fatalf("number %d of %d batches", n, len(all))
				}
				if b.settled {
					w.passed(b.bytes)
				} else {
					w.left(checkpoint.Ticket(len(all)*7), b.bytes)
				}
			}
			span, pinned := 0, 0
			for _, b := range all[oldest():] {
				span += b.bytes
				if !b.settled {
					pinned += b.bytes
				}
			}
			if w.span != span || w.pinned() != pinned || w.empty() != (oldest() == len(all)) || w.full() != (span >= 5000) {
				t.Fatalf("span %d pinned %d empty %v full %v, want %d %d", w.span, w.pinned(), w.empty(), w.full(), span, pinned)
			}
		}
	}
	if w := (window{}); w.full() {
		t.Error("a window without a limit is full")
	}
}
