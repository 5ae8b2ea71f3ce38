// Package backoff says how long to wait before the next try.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Pause is the wait after so many failures in a row, counted from 1: least,
// doubled by every further one up to most, give or take a fifth. The spread keeps
// a fleet that lost the same server from coming back in step.
func Pause(failures int, least, most time.Duration) time.Duration {
	d := min(least, most)
	for ; failures > 1 && d < most; failures-- {
		d = min(2*d, most)
	}
	return d*4/5 + rand.N(d*2/5+1)
}
