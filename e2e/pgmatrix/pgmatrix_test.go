// Package pgmatrix_test runs the cases that hang on the server's version on
// PostgreSQL 14 to 18: on the one that TAILER_PG names, else on all of them
// ("make test-pg").
package pgmatrix_test

import (
	"os"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/e2e/scenario"
)

// each runs a case on each version, one after another; cases run beside each
// other, as many as there are processors.
func each(t *testing.T, run func(*testing.T, scenario.Env)) {
	versions := postgres.Versions
	if version := os.Getenv("TAILER_PG"); version != "" {
		versions = []string{version}
	}
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			run(t, scenario.Env{Postgres: postgres.Options{Version: version}})
		})
	}
}

func TestCase_L12_PartitionAfterStart(t *testing.T) { each(t, scenario.PartitionAfterStart) }

func TestCase_S10_SenderTimeout(t *testing.T) { each(t, scenario.SenderTimeout) }

func TestCase_S18_ServerRestartsUnderLoad(t *testing.T) {
	each(t, func(t *testing.T, env scenario.Env) { scenario.ServerRestarts(t, env) })
}

func TestCase_S31_MessagesBesideRows(t *testing.T) {
	each(t, func(t *testing.T, env scenario.Env) { scenario.OddMessages(t, env) })
}

func TestCase_D02_CleanStopRepeatsNothing(t *testing.T) {
	each(t, func(t *testing.T, env scenario.Env) { scenario.CleanStop(t, env) })
}

func TestCase_D04_ServerForgetsConfirmations(t *testing.T) {
	each(t, func(t *testing.T, env scenario.Env) { scenario.ServerForgets(t, env) })
}

func TestKillRounds(t *testing.T) {
	each(t, func(t *testing.T, env scenario.Env) {
		scenario.KillRounds(t, env, scenario.KillOptions{Rounds: 15, Write: harness.WriteOptions{Pause: 150 * time.Millisecond, Bytes: 100}})
	})
}
