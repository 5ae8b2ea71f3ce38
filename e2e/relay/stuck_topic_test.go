package relay_test

import (
	"testing"

	"github.com/tailer-relay/tailer/e2e/scenario"
)

func TestCase_S07_MissingTopicWaits(t *testing.T) {
	t.Parallel()
	scenario.MissingTopic(t, scenario.Env{})
}

func TestCase_S32_SickTopicWaitsAlone(t *testing.T) {
	t.Parallel()
	scenario.SickTopic(t, scenario.Env{}, nil)
}

func TestCase_S32_CrashWhileATopicIsSick(t *testing.T) {
	t.Parallel()
	scenario.SickTopicCrash(t, scenario.Env{})
}
