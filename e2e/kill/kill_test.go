// Package kill_test kills the relay over and over: a target of its own, because
// it takes a few minutes. TAILER_KILL_ROUNDS changes how often, and
// TAILER_KILL_SEED repeats the choices of a run that logged its seed.
package kill_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/scenario"
)

func TestKillRounds(t *testing.T) {
	rounds := number(t, "TAILER_KILL_ROUNDS", 200)
	scenario.KillRounds(t, scenario.Env{}, scenario.KillOptions{
		Rounds: int(rounds), Seed: number(t, "TAILER_KILL_SEED", 0),
		Write: harness.WriteOptions{Pause: 200 * time.Millisecond, Bytes: 100},
	})
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
