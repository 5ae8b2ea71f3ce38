package main

import (
	"context"
	"time"

	"github.com/tailer-relay/tailer/internal/backoff"
)

const (
	// firstRetry and lastRetry bound the pause before something is tried again.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// beatEvery is how often a loop that waits tells the watchdog that it is alive.
	beatEvery = time.Second
)

// retries counts failures in a row.
type retries struct{ failed int }

// next is the pause after one more failure.
func (r *retries) next() time.Duration {
	r.failed++
	return backoff.Pause(r.failed, firstRetry, lastRetry)
}

func (r *retries) reset() { r.failed = 0 }

// sleep waits for d or for the end of ctx, and calls beat at least every second.
func sleep(ctx context.Context, d time.Duration, beat func()) error {
	deadline := time.Now().Add(d)
	timer := time.NewTimer(min(d, beatEvery))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			beat()
			left := time.Until(deadline)
			if left <= 0 {
				return nil
			}
			timer.Reset(min(left, beatEvery))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
