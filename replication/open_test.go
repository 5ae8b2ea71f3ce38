package replication_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

// hookCounter is a context that lives as long as a relay and counts what hangs on it.
type hookCounter struct {
	context.Context
	hooks atomic.Int64
}

// Value hides what the context is, so that AfterFunc is asked.
func (c *hookCounter) Value(any) any { return nil }

func (c *hookCounter) AfterFunc(f func()) func() bool {
	stop := context.AfterFunc(c.Context, f)
	c.hooks.Add(1)
	return func() bool {
		c.hooks.Add(-1)
		return stop()
	}
}

// A standby asks for a slot in use twice a second, with a context that ends when
// the process does. Nothing of a refused attempt may stay with it.
//
// Seen red: a refused attempt left its hook behind, and 256 KiB of buffer with it.
func TestRefusedOpenLeavesNothingBehind(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	holder := open(t, cfg)
	defer shut(holder)

	relay, end := context.WithCancel(context.Background())
	defer end()
	ctx := &hookCounter{Context: relay}
	var active *replication.ActiveError
	for range 3 {
		if _, err := replication.Open(ctx, cfg, quietLog()); !errors.As(err, &active) {
			t.Fatalf("the slot is in use: %v", err)
		}
	}
	if n := ctx.hooks.Load(); n != 0 {
		t.Errorf("%d hooks are left after three attempts", n)
	}

	// One that is opened lets go when it is closed.
	if err := shut(holder); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slot is free", func() bool { return !slotState(t, cfg).Active })
	s, err := replication.Open(ctx, cfg, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "INSERT INTO outbox (payload) VALUES ('x')")
	readRows(t, s, 1)
	if err := shut(s); err != nil {
		t.Error(err)
	}
	if n := ctx.hooks.Load(); n != 0 {
		t.Errorf("%d hooks are left after a stream was closed", n)
	}
}
