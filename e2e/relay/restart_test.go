package relay_test

import (
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/scenario"
)

func TestCase_S18_ServerRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	scenario.ServerRestarts(t, scenario.Env{})
}

// Many small transactions at 500 a second, as the field had it; the rounds of
// e2e/kill are the long form with large ones.
func TestCase_D01_CrashAfterAcknowledgement(t *testing.T) {
	t.Parallel()
	scenario.KillRounds(t, scenario.Env{}, scenario.KillOptions{
		Rounds: 12,
		Write:  harness.WriteOptions{Writers: 5, MaxRows: 1, Pause: 10 * time.Millisecond, Plain: true},
	})
}

func TestCase_D02_CleanStopRepeatsNothing(t *testing.T) {
	t.Parallel()
	scenario.CleanStop(t, scenario.Env{})
}

func TestCase_D04_ServerForgetsConfirmations(t *testing.T) {
	t.Parallel()
	scenario.ServerForgets(t, scenario.Env{})
}

func TestCase_D12_PositionBeyond4GiB(t *testing.T) {
	t.Parallel()
	scenario.PositionBeyond4GiB(t)
}
