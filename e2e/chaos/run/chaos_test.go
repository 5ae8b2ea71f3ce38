// Package run_test runs the fault machine of package chaos, by "make chaos". From
// the environment:
//
//	TAILER_CHAOS_ROUNDS  how many rounds; default 20, without TAILER_CHAOS_FOR
//	TAILER_CHAOS_FOR     instead, for how long rounds begin: 5m
//	TAILER_CHAOS_SEED    of the schedule; default: drawn
//	TAILER_CHAOS_FIRST   the first round's number: to play one again
//	TAILER_CHAOS_BROKER  fake or real
//	TAILER_CHAOS_MODE    at_least_once or exactly_once
//	TAILER_CHAOS_LOGS    folder for the logs; default: a new one, kept on failure
package run_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/chaos"
)

// Seen red, with seed 1 on kfake, with a relay that confirms a batch before it is
// published (round 1, O2); one that confirms what a keepalive says while records
// are outstanding (round 1, O2); one that drops what a promise says (round 6,
// events lost). Green in 12 rounds with one that marks where a commit begins, which
// scenario.CrashPoints sees, and with one that takes a keepalive inside a
// transaction for a mark: a real server names a position before the commit then.
func TestChaos(t *testing.T) {
	opt := chaos.Options{
		Seed:        number(t, "TAILER_CHAOS_SEED", uint64(rand.Uint32())),
		First:       int(number(t, "TAILER_CHAOS_FIRST", 1)),
		Rounds:      int(number(t, "TAILER_CHAOS_ROUNDS", 0)),
		Real:        one(t, "TAILER_CHAOS_BROKER", "fake", "real") == "real",
		ExactlyOnce: one(t, "TAILER_CHAOS_MODE", "at_least_once", "exactly_once") == "exactly_once",
		Logs:        os.Getenv("TAILER_CHAOS_LOGS"),
	}
	if text := os.Getenv("TAILER_CHAOS_FOR"); text != "" {
		var err error
		if opt.For, err = time.ParseDuration(text); err != nil {
			t.Fatalf("TAILER_CHAOS_FOR: %v", err)
		}
	}
	if opt.Rounds == 0 && opt.For == 0 {
		opt.Rounds = 20
	}
	opt.Replay = fmt.Sprintf("make chaos SEED=%d FIRST=%%d ROUNDS=1 BROKER=%s MODE=%s", opt.Seed,
		one(t, "TAILER_CHAOS_BROKER", "fake", "real"), one(t, "TAILER_CHAOS_MODE", "at_least_once", "exactly_once"))
	chaos.Run(t, opt)
}

// one is a variable's value among those that it may have, the first when it has none.
func one(t *testing.T, name string, values ...string) string {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return values[0]
	}
	for _, v := range values {
		if v == text {
			return v
		}
	}
	t.Fatalf("%s is %q, not one of %v", name, text, values)
	return ""
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
