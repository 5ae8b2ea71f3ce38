package main

import (
	"errors"
	"fmt"
	"io"
	"testing"

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
