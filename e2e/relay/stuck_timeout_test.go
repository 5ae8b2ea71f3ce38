package relay_test

import (
	"testing"

	"github.com/tailer-relay/tailer/e2e/scenario"
)

func TestCase_S10_SessionOutlastsSenderTimeout(t *testing.T) {
	t.Parallel()
	scenario.SenderTimeout(t, scenario.Env{})
}
