package main

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tailer-relay/tailer/decoder"
	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/schema"
	"github.com/tailer-relay/tailer/sink"
)

func TestClassifyTellsWhatASessionsEndMeans(t *testing.T) {
	postgres := func(class replication.Class) error {
		return fmt.Errorf("session: %w", &replication.Error{Op: "check", Object: `slot "a"`, Class: class, Hint: "type this", Err: errors.New("why")})
	}
	cases := []struct {
		name string
		err  error
		kind verdictKind
		code int
		peer string
		hint bool
	}{
		{"stream lost", io.ErrUnexpectedEOF, verdictRetry, 0, "postgres", false},
		{"server stopped", &pgconn.PgError{Code: "57P01"}, verdictRetry, 0, "postgres", false},
		{"server seen to stop", errShuttingDown, verdictRetry, 0, "postgres", false},
		{"slot seen with another", fmt.Errorf("%w (active: true, pid 7)", errSlotTaken), verdictRetry, 0, "postgres", false},
		{"slot active elsewhere", &replication.ActiveError{Slot: "a", PID: 7}, verdictStandby, 0, "postgres", true},
		{"password", postgres(replication.Auth), verdictAuth, 0, "postgres", true},
		{"slot of another plugin", postgres(replication.Usage), verdictExit, exitUsage, "postgres", true},
		{"slot missing", postgres(replication.Gap), verdictExit, exitGap, "postgres", true},
		{"no such column", fmt.Errorf("x: %w", &schema.PlanError{}), verdictExit, exitUsage, "postgres", true},
		{"undecodable", fmt.Errorf("decode: %w", &decoder.Error{Kind: 'z'}), verdictExit, exitRetry, "postgres", true},
		{"broker away", &sink.Error{Op: "publish", Class: sink.Transient, Err: io.EOF}, verdictRetry, 0, "kafka", false},
		{"broker refuses", &sink.Error{Op: "publish", Class: sink.Hold, Hint: "grant", Err: io.EOF}, verdictRetry, 0, "kafka", true},
		{"sasl", fmt.Errorf("start: %w", &sink.Error{Op: "connect", Class: sink.Auth, Hint: "look", Err: io.EOF}), verdictAuth, 0, "kafka", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := classify(c.err)
			if v.kind != c.kind || v.code != c.code || v.peer != c.peer || (v.hint != "") != c.hint {
				t.Errorf("got %+v", v)
			}
			if v.cause != c.err.Error() {
				t.Errorf("cause %q is not the error", v.cause)
			}
		})
	}
	if v := classify(&replication.ActiveError{PID: 7}); v.pid != 7 {
		t.Errorf("the standby does not know whom it waits for: %+v", v)
	}
}

// An error that no list knows counts as refused authentication, whenever it
// comes: a session that had streamed for hours must not turn it into an exit.
//
// Seen red: the time that the session had lasted counted as time of refusal, so
// the first such error after a minute ended the relay.
func TestPatienceCountsRefusalsOnly(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	unknown := verdict{kind: verdictAuth, peer: "postgres"}
	var p patience
	for _, step := range []struct {
		began, ended int
		over         bool
	}{{0, 7200, false}, {7200, 7201, false}, {7230, 7259, false}, {7259, 7260, true}} {
		if over := p.over(unknown, at(step.began), at(step.ended)); over != step.over {
			t.Errorf("a session from %d s to %d s: %v", step.began, step.ended, over)
		}
	}
	// The publisher was patient already.
	p = patience{}
	if !p.over(verdict{kind: verdictAuth, peer: "kafka"}, at(0), at(60)) {
		t.Error("a login that the publisher tried for a minute is tried again")
	}
	p = patience{}
	if p.over(verdict{kind: verdictAuth, peer: "kafka"}, at(0), at(1)) {
		t.Error("a login refused at start is not tried again")
	}
}
