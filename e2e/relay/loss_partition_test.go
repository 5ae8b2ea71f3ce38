package relay_test

import (
	"testing"

	"github.com/tailer-relay/tailer/e2e/scenario"
)

func TestCase_L12_PartitionCreatedAfterStart(t *testing.T) {
	t.Parallel()
	scenario.PartitionAfterStart(t, scenario.Env{})
}
