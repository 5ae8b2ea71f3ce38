package main

import "testing"

// A relay whose sessions end at the same place again and again is never ready in
// between; one that has come further, or to the end of the WAL, is.
func TestDoubt(t *testing.T) {
	h := newHealth(newMetrics("doubt"))
	var d doubt
	ready := func(what string, want bool) {
		t.Helper()
		if got, line := h.ready(); got != want {
			t.Errorf("%s: ready is %t: %s", what, got, line)
		}
	}
	streams := func() { d.begin(200, 100, h); h.Active() }
	ends := func() { h.NotReady("it broke"); d.raise("it broke") }

	streams()
	ready("the first session", true)
	ends()
	d.raise("no connection")
	streams()
	ready("the one after it", false)
	if _, line := h.ready(); line != "this session is not yet past where the one before ended: it broke" {
		t.Errorf("the cause is %q", line)
	}
	d.confirmed(100)
	d.decoded(199)
	ready("not further, not at the end", false)
	ends()
	streams()
	ready("the third", false)
	d.decoded(200)
	ready("at the end of the WAL", true)
	ends()
	streams()
	d.confirmed(101)
	ready("further", true)
	ends()
	streams()
	d.confirmed(101)
	ready("no further than the last one", false)
}
