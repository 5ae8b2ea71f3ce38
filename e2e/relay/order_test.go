package relay_test

import (
	"testing"

	"github.com/tailer-relay/tailer/e2e/scenario"
)

func TestCase_D05_ProducerForgotten(t *testing.T) {
	t.Parallel()
	scenario.ProducerForgotten(t, scenario.Env{})
}

func TestCase_D06_OrderAroundAFailure(t *testing.T) {
	t.Parallel()
	scenario.FailureInsidePartition(t, scenario.Env{})
}

func TestCase_D07_InsertAndDeleteTogether(t *testing.T) {
	t.Parallel()
	scenario.InsertAndDelete(t, scenario.Env{})
}

func TestCase_D09_UpsertAndCopy(t *testing.T) {
	t.Parallel()
	scenario.UpsertAndCopy(t, scenario.Env{})
}

func TestCase_S31_MessagesBesideRows(t *testing.T) {
	t.Parallel()
	scenario.OddMessages(t, scenario.Env{})
}

func TestCase_S05_RecordTooLarge(t *testing.T) {
	t.Parallel()
	scenario.RecordTooLarge(t, scenario.Env{})
}
