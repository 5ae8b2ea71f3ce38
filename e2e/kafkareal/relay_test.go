package kafkareal_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/scenario"
)

// Two clusters, each started once and by the first test that needs it: topics
// and slots of the tests have names of their own.
var one, three = cluster(1), cluster(3)

type shared struct {
	start func() (*kafka.Real, error)
	real  *kafka.Real // nil when never started
}

func cluster(brokers int) *shared {
	s := &shared{}
	s.start = sync.OnceValues(func() (*kafka.Real, error) {
		real, err := kafka.StartReal(context.Background(), kafka.RealOptions{
			Brokers: brokers,
			Settings: map[string]string{
				// A frozen broker is given up sooner than after the usual 9 and 30 s,
				"broker.session.timeout.ms": "4000", "replica.lag.time.max.ms": "5000",
				// and an idle producer sooner than after a day.
				"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "500",
			},
		})
		s.real = real
		return real, err
	})
	return s
}

// get returns the cluster; the end of its brokers' logs is shown if the test fails.
func (s *shared) get(t testing.TB) *kafka.Real {
	t.Helper()
	real, err := s.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for id := 1; id <= len(real.Addrs()); id++ {
				t.Logf("the end of the log of broker %d:\n%s", id, real.Broker(id).LogTail(15))
			}
		}
	})
	return real
}

func (s *shared) env(t testing.TB) scenario.Env {
	t.Helper()
	real := s.get(t)
	return scenario.Env{Brokers: func(testing.TB) []string { return real.Addrs() }}
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range []*shared{one, three} {
		if s.real == nil {
			continue
		}
		if err := s.real.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "remove kafka:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func TestKillRounds(t *testing.T) {
	scenario.KillRounds(t, one.env(t), scenario.KillOptions{
		Rounds: 20, Write: harness.WriteOptions{Pause: 100 * time.Millisecond, Bytes: 100},
	})
}

func TestCase_S05_RecordTooLarge(t *testing.T) { scenario.RecordTooLarge(t, one.env(t)) }

func TestCase_D05_ProducerExpires(t *testing.T) { scenario.ProducerExpires(t, one.env(t)) }

func TestNullKeyOnCompactedTopic(t *testing.T) { scenario.NullKeyCompacted(t, one.env(t)) }

func TestTimestamps(t *testing.T) { scenario.Timestamps(t, one.env(t)) }

func TestTopicsCreated(t *testing.T) { scenario.TopicsCreated(t, three.env(t)) }

func TestStandby(t *testing.T) { scenario.Standby(t, three.env(t)) }

func TestBrokersFail(t *testing.T) { scenario.BrokersFail(t, three.get(t)) }

func TestCase_S32_SickTopicWaitsAlone(t *testing.T) {
	scenario.SickTopic(t, three.env(t), three.get(t))
}
