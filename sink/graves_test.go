package sink

import (
	"testing"
	"time"
)

// The first dead letter of a reason is told at once, then one line a minute
// tells of all since; a reason does not hide another.
//
// Seen red without the pause, and with one pause for all reasons.
func TestGravesTellOncePerMinuteAndReason(t *testing.T) {
	g := graves{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, s := range []struct {
		after  time.Duration
		reason Reason
		want   int
	}{
		{0, ReasonInvalid, 1},
		{time.Second, ReasonInvalid, 0},
		{2 * time.Second, ReasonNoSchema, 1},
		{59 * time.Second, ReasonInvalid, 0},
		{60 * time.Second, ReasonInvalid, 3},
		{61 * time.Second, ReasonInvalid, 0},
		{62 * time.Second, ReasonNoSchema, 1},
	} {
		if n := g.due(s.reason, at.Add(s.after)); n != s.want {
			t.Errorf("%s after %v: a line for %d, want %d", s.reason, s.after, n, s.want)
		}
	}
}
