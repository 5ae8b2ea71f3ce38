package main

import (
	"errors"
	"time"

	"github.com/tailer-relay/tailer/decoder"
	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/schema"
	"github.com/tailer-relay/tailer/sink"
)

// authPatience is how long a refused authentication is tried again, with the
// secret read anew each time: a rotated password reaches its file a little
// later than the server.
const authPatience = 60 * time.Second

// patience remembers since when authentication is refused without a break. The
// zero value: it is not.
type patience struct{ since time.Time }

// over tells whether it is refused for authPatience, at the end of a session
// that began then. How long that session had streamed says nothing about the
// refusal. Only the publisher tries a refused login for authPatience by itself
// before it ends its session, so there the time counts from the beginning.
func (p *patience) over(v verdict, began, now time.Time) bool {
	if p.since.IsZero() {
		p.since = now
		if v.peer == "kafka" {
			p.since = began
		}
	}
	return now.Sub(p.since) >= authPatience
}

type verdictKind int

const (
	verdictRetry   verdictKind = iota // transient: a new session, with backoff
	verdictStandby                    // the slot is active elsewhere: wait for it
	verdictAuth                       // as retry, for authPatience
	verdictExit                       // no retry can help
)

// verdict is what an ended session means for the relay.
type verdict struct {
	kind  verdictKind
	code  int    // exit code, verdictExit only
	peer  string // whom the session lost: postgres, kafka
	cause string // one line for the readiness answer
	hint  string // what to type
	pid   uint32 // verdictStandby: who holds the slot
}

// classify turns the error of a session into a verdict. Each package knows its
// peer's errors; here they are only put together.
func classify(err error) verdict {
	v := verdict{kind: verdictRetry, peer: "postgres", cause: err.Error(), hint: replication.HintOf(err)}
	var (
		active *replication.ActiveError
		plan   *schema.PlanError
		wire   *decoder.Error
		kafka  *sink.Error
	)
	switch {
	case errors.As(err, &active):
		v.kind, v.pid = verdictStandby, active.PID
	case errors.As(err, &plan):
		v.kind, v.code = verdictExit, exitUsage
		v.hint = plan.Hint()
	case errors.As(err, &wire):
		v.kind, v.code = verdictExit, exitRetry
		v.hint = "the position is held and nothing is lost; report this message with the server's version"
	case errors.As(err, &kafka):
		v.peer, v.hint = "kafka", kafka.Hint
		if kafka.Class == sink.Auth {
			v.kind = verdictAuth
		}
	default:
		switch replication.Classify(err) {
		case replication.Auth:
			v.kind = verdictAuth
		case replication.Usage:
			v.kind, v.code = verdictExit, exitUsage
		case replication.Gap:
			v.kind, v.code = verdictExit, exitGap
		case replication.Transient:
		}
	}
	return v
}
