package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
)

// How a relay ends that was told to: 0 says that nothing is left, so whatever
// was left must not end so.
//
// Seen red with a session that fails in mid drain and exits with 0.
func TestStoppedTellsWhatWasLeft(t *testing.T) {
	r := &relay{health: newHealth(newMetrics("stop")), log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		name string
		err  error
		code int
	}{
		{"drained", nil, exitDone},
		{"while connecting", context.Canceled, exitDone},
		{"while connecting, refused", io.ErrUnexpectedEOF, exitDone},
		{"deadline", fmt.Errorf("publish: %w", errDrain), exitRetry},
		{"stream lost in mid drain", fmt.Errorf("%w: %w", errUndrained, io.ErrUnexpectedEOF), exitRetry},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := r.stopped(c.err)
			code := exitDone
			if e := (*exitError)(nil); errors.As(err, &e) {
				code = e.code
				if e.hint == "" {
					t.Error("no hint")
				}
			}
			if code != c.code {
				t.Errorf("exit %d (%v), want %d", code, err, c.code)
			}
		})
	}
}
