package chaos

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// fakeBrokers is how many kfake has, as many as the real cluster.
const fakeBrokers = 3

// relayClient is the client id of the relays: faults of single requests are
// theirs alone, for the judge reads from the same brokers.
const relayClient = "tailer"

// thinking makes kfake think about each produce request, for up to 20 ms, so
// that faults fall into cycles and not between them, and longer while
// m.thought says so.
func (m *machine) thinking(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3)) // control functions run one at a time
	m.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		m.fake.KeepControl()
		think := time.Duration(rng.Int64N(int64(20*time.Millisecond))) + time.Duration(m.thought.Load())
		m.fake.SleepControl(func() { time.Sleep(think) })
		return nil, nil, false
	})
}

func (m *machine) fakeSlow(pick uint64) fault {
	think := 50*time.Millisecond + time.Duration(pick%uint64(500*time.Millisecond))
	return act{
		func() error { m.thought.Store(int64(think)); return nil },
		func() error { m.thought.Store(0); return nil },
	}
}

func (m *machine) fakeDown(uint64) fault {
	return act{func() error { m.wire.Down(); return nil }, func() error { m.wire.Up(); return nil }}
}

func (m *machine) fakeCut(uint64) fault { return act{begin: func() error { m.wire.Cut(); return nil }} }

// fakeLeaves takes a broker away, whose partitions get other leaders, and brings
// it back on its port. kfake goes on to serve a gone broker's connections, as one
// that leads nothing any more, also when it is back: they are cut both times.
func (m *machine) fakeLeaves(pick uint64) fault {
	node := int32(pick % fakeBrokers)
	return act{
		func() error {
			defer m.wire.Cut()
			return m.fake.RemoveNode(node)
		},
		func() error {
			defer m.wire.Cut()
			_, text, err := net.SplitHostPort(m.nodes[node])
			if err != nil {
				return err
			}
			port, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			// Its old listener closes a moment after it left.
			for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
				if _, _, err = m.fake.AddNode(node, port); err == nil || time.Now().After(end) {
					return err
				}
			}
		},
	}
}

func (m *machine) fakeLeaders(uint64) fault {
	return act{begin: func() error { m.fake.ShufflePartitionLeaders(); return nil }}
}

func (m *machine) fakeCoordinators(uint64) fault {
	return act{begin: func() error { m.fake.RehashCoordinators(); return nil }}
}

// refusals are of both sorts: those that a client tries again by itself, and
// those that it hands to the relay, which must hold what was refused.
var refusals = []*kerr.Error{
	kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.KafkaStorageError,
	kerr.UnknownServerError, kerr.TopicAuthorizationFailed, kerr.PolicyViolation,
}

func (m *machine) fakeRefuses(pick uint64) fault { return m.refuse(pick, "") }

// fakeRefusesTopic makes one topic sick, the dead letter topic among them, while
// the others are well.
func (m *machine) fakeRefusesTopic(pick uint64) fault {
	topics := m.ledger.Topics()
	return m.refuse(pick, topics[pick/uint64(len(refusals))%uint64(len(topics))])
}

func (m *machine) refuse(pick uint64, topic string) fault {
	var h *kfake.FaultHandle
	err := refusals[pick%uint64(len(refusals))]
	return act{
		func() error {
			h = m.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: -1})
			return nil
		},
		func() error {
			m.log.say("    %d writes were refused with %s", h.Hits(), err.Message)
			h.Remove()
			return nil
		},
	}
}

// fakeAnswers loses answers to requests that took effect, with the connection's
// end or without.
func (m *machine) fakeAnswers(pick uint64) fault {
	fate := kafka.CutAnswer
	if pick%3 == 0 {
		fate = kafka.LoseAnswer
	}
	return m.fate(pick, fate)
}

func (m *machine) fakeRequests(pick uint64) fault { return m.fate(pick, kafka.LoseRequest) }

// fate gives it to one of three requests of the relays. Connections that have
// gone silent end with it: the network is back.
func (m *machine) fate(pick uint64, fate kafka.Fate) fault {
	rng := rand.New(rand.NewPCG(pick, 4))
	var mu sync.Mutex // each connection asks in its own goroutine
	return act{
		func() error {
			m.wire.On(func(r *kafka.Request) kafka.Fate {
				mu.Lock()
				defer mu.Unlock()
				if r.Client == relayClient && rng.IntN(3) == 0 {
					return fate
				}
				return kafka.Pass
			})
			return nil
		},
		func() error {
			m.wire.On(nil)
			m.wire.Cut()
			return nil
		},
	}
}

// layFake starts kfake.
func (m *machine) layFake(seed uint64) error {
	m.wire = kafka.NewWire(m.t)
	m.fake = kafka.NewFake(m.t, kafka.FakeOptions{Brokers: fakeBrokers, Options: []kfake.Opt{m.wire.Opt()}})
	m.brokers, m.direct = m.fake.Addrs(), m.fake.Addrs()
	m.nodes = m.fake.Addrs()
	if len(m.nodes) != fakeBrokers {
		return errors.New("kfake lacks brokers")
	}
	m.ends = harness.FakeEnds(m.fake.Cluster)
	m.thinking(seed)
	return nil
}
