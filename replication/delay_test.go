package replication

import (
	"testing"
	"time"
)

// What is read late is known to be old, however the clocks differ.
func TestDelayMeter(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Hour, -time.Hour, 26 * 365 * 24 * time.Hour} {
		var m delayMeter
		at := func(read, sent time.Duration) time.Duration {
			return time.Duration(m.sentAt(int64(read), (sent + apart).Microseconds()))
		}
		for i, step := range []struct{ read, sent, want time.Duration }{
			{10 * time.Millisecond, 8 * time.Millisecond, 10 * time.Millisecond},                       // nothing to compare with
			{21 * time.Millisecond, 20 * time.Millisecond, 21 * time.Millisecond},                      // the shortest way so far
			{35 * time.Millisecond, 30 * time.Millisecond, 31 * time.Millisecond},                      // 4 ms late
			{10 * time.Second, 40 * time.Millisecond, 41 * time.Millisecond},                           // frozen for ten seconds
			{10 * time.Second, 9999 * time.Millisecond, 10 * time.Second},                              // and then news
			{11 * time.Second, 11*time.Second - 500*time.Microsecond, 11 * time.Second},                // a shorter way yet
			{12 * time.Second, 12*time.Second - time.Millisecond, 12*time.Second - time.Millisecond/2}, // by which the others are judged
		} {
			if got := at(step.read, step.sent); got != step.want {
				t.Errorf("clocks %v apart, step %d: sent at %v, want %v", apart, i, got, step.want)
			}
		}
	}
}
