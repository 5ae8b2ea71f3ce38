package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/sink"
)

// level is how a check ended.
type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
	levelSkip level = "skip" // it cannot be asked while another one fails
)

// check is one thing that a relay needs. The judgements are those by which the
// relay itself starts or does not: replication's Check methods, the gap law, the
// publisher's questions. Here stands only in which order they are asked, and
// what cannot be asked without what.
type check struct {
	name  string
	needs []string // the checks before it that must not have failed
	test  func(x *examination, ctx context.Context) []outcome
}

// checks are all of them, in the order in which one would put things right.
var checks = []check{
	{"postgres.connection", nil, (*examination).connection},
	{"postgres.server", []string{"postgres.connection"}, (*examination).server},
	{"postgres.replication", []string{"postgres.server"}, (*examination).replication},
	{"postgres.capacity", []string{"postgres.connection"}, (*examination).capacity},
	{"outbox.table", []string{"postgres.connection"}, (*examination).table},
	{"postgres.publication", []string{"postgres.server", "outbox.table"}, (*examination).publication},
	{"outbox.columns", []string{"postgres.publication"}, (*examination).columns},
	{"checkpoint.table", []string{"postgres.replication"}, (*examination).state},
	{"postgres.slot", []string{"checkpoint.table"}, (*examination).slot},
	{"kafka.brokers", nil, (*examination).brokers},
	{"kafka.topics", []string{"kafka.brokers"}, (*examination).topics},
	{"schema", nil, (*examination).schemas},
}

// outcome is what a check found. A failure has the code with which `run` would
// exit, or exitRetry where it would wait.
type outcome struct {
	Check  string `json:"check"`
	Status level  `json:"status"`
	Says   string `json:"says"`
	Type   string `json:"type,omitempty"` // what to type, or to change
	code   int
}

func fine(says string) outcome          { return outcome{Status: levelOK, Says: says} }
func warning(says, hint string) outcome { return outcome{Status: levelWarn, Says: says, Type: hint} }
func one(f outcome) []outcome           { return []outcome{f} }
func (f outcome) failed() bool          { return f.Status == levelFail }
func failure(err error, fb int) outcome {
	return outcome{Status: levelFail, Says: err.Error(), Type: hintIn(err), code: codeIn(err, fb)}
}
func failures(err error, c int) []outcome { return one(failure(err, c)) }

// codeIn is the exit code that err asks for.
func codeIn(err error, otherwise int) int {
	if e := (*exitError)(nil); errors.As(err, &e) {
		return e.code
	}
	var ours *replication.Error
	if errors.As(err, &ours) {
		return databaseError(err).(*exitError).code
	}
	return otherwise
}

func hintIn(err error) string {
	var e *exitError
	var kafka *sink.Error
	switch {
	case errors.As(err, &e) && e.hint != "":
		return e.hint
	case errors.As(err, &kafka):
		return kafka.Hint
	}
	return replication.HintOf(err)
}

// examination is what the checks of one run share.
type examination struct {
	cfg    *Config
	log    *slog.Logger
	stream replication.Config
	law    *gapLaw

	conn      *pgx.Conn
	facts     replication.ServerState
	system    replication.System
	stored    *storedState
	published replication.PublicationState
	publisher *sink.Idempotent
	known     []sink.TopicState
}

// examine runs every check that can be run.
func examine(ctx context.Context, cfg *Config, log *slog.Logger) []outcome {
	x := &examination{cfg: cfg, log: log, stream: streamConfig(cfg), law: newGapLaw(cfg, log)}
	defer x.close()
	var all []outcome
	failed := map[string]bool{}
	for _, c := range checks {
		if i := slices.IndexFunc(c.needs, func(n string) bool { return failed[n] }); i >= 0 {
			failed[c.name] = true
			all = append(all, outcome{Check: c.name, Status: levelSkip, Says: "not asked before " + c.needs[i] + " is right"})
			continue
		}
		for _, f := range c.test(x, ctx) {
			f.Check = c.name
			failed[c.name] = failed[c.name] || f.failed()
			all = append(all, f)
		}
	}
	return all
}

func (x *examination) close() {
	if x.conn != nil {
		closeConn(x.conn)
	}
	if x.publisher != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cutOffAfter)
		defer cancel()
		_ = x.publisher.Close(ctx) // nothing was produced
	}
}

// verdictOf is the gravest code among them.
func verdictOf(findings []outcome) (code, failed int) {
	for _, f := range findings {
		if f.failed() {
			failed++
			code = max(code, f.code)
		}
	}
	return code, failed
}
