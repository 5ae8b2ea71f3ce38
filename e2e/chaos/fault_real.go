package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// layReal starts three brokers, each behind a proxy for the relays.
func (m *machine) layReal() error {
	m.fronts = map[int]*harness.Proxy{}
	real, err := kafka.StartReal(m.t.Context(), kafka.RealOptions{
		Brokers: 3,
		// A frozen broker is given up sooner than after the usual 9 and 30 s.
		Settings: map[string]string{"broker.session.timeout.ms": "4000", "replica.lag.time.max.ms": "5000"},
		Front: func(id int, target string) string {
			m.fronts[id] = harness.NewProxy(m.t, target)
			return m.fronts[id].Addr()
		},
	})
	if err != nil {
		return err
	}
	m.t.Cleanup(func() {
		if m.t.Failed() {
			for id := range m.fronts {
				m.log.keep(fmt.Sprintf("broker-%d.log", id), real.Broker(id).LogTail(2000))
			}
		}
		if err := real.Close(); err != nil {
			m.t.Errorf("remove kafka: %v", err)
		}
	})
	m.real = real
	m.brokers, m.direct = real.FrontAddrs(), real.Addrs()
	m.ends = harness.BrokerEnds(m.t, m.direct)
	client, err := kgo.NewClient(kgo.SeedBrokers(m.direct...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return err
	}
	m.t.Cleanup(client.Close)
	m.admin = kadm.NewClient(client)
	return nil
}

// one is a broker, or its number.
func one(pick uint64) int { return 1 + int(pick%3) }

func (m *machine) realKill(pick uint64) fault {
	b := m.real.Broker(one(pick))
	return act{b.Kill, func() error {
		// It is back when it is in sync again, which ready does not say: the
		// round's end waits for it.
		return b.Start(context.Background())
	}}
}

func (m *machine) realFreeze(pick uint64) fault {
	b := m.real.Broker(one(pick))
	return act{b.Pause, b.Resume}
}

func (m *machine) realLeaders(uint64) fault {
	return act{begin: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		// Topics are made by the relay, and brokers may be on their way back: what
		// does not move stays.
		if err := kafka.MoveLeaders(ctx, m.admin, m.ledger.Topics()...); err != nil {
			return missed(err)
		}
		return nil
	}}
}

// some are the proxies of one broker, or of all.
func (m *machine) some(pick uint64) (proxies []*harness.Proxy) {
	if pick%4 > 0 {
		return []*harness.Proxy{m.fronts[one(pick>>2)]}
	}
	for _, p := range m.fronts {
		proxies = append(proxies, p)
	}
	return proxies
}

func (m *machine) front(pick uint64, begin, end func(*harness.Proxy)) fault {
	all := func(do func(*harness.Proxy)) func() error {
		return func() error {
			for _, p := range m.some(pick) {
				do(p)
			}
			return nil
		}
	}
	return act{all(begin), all(end)}
}

func (m *machine) realCut(pick uint64) fault {
	return m.front(pick, func(p *harness.Proxy) { p.Refuse(true); p.Cut() }, func(p *harness.Proxy) { p.Refuse(false) })
}

func (m *machine) realBlackHole(pick uint64) fault {
	return m.front(pick, (*harness.Proxy).Freeze, (*harness.Proxy).Thaw)
}

func (m *machine) realSlow(pick uint64) fault {
	delay := 5*time.Millisecond + time.Duration(pick>>8%uint64(150*time.Millisecond))
	return m.front(pick, func(p *harness.Proxy) { p.Delay(delay) }, func(p *harness.Proxy) { p.Delay(0) })
}

// realHalfOpen's connections end with it: the network is back.
func (m *machine) realHalfOpen(pick uint64) fault {
	return m.front(pick, (*harness.Proxy).LoseServer, (*harness.Proxy).Cut)
}

// insync waits until every partition has all its replicas.
func (m *machine) insync() error {
	if m.real == nil {
		return nil
	}
	var last string
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		topics, err := m.admin.ListTopics(ctx, m.ledger.Topics()...)
		cancel()
		last = fmt.Sprint(err)
		if err == nil {
			last = ""
			for _, topic := range topics {
				for _, p := range topic.Partitions {
					if len(p.ISR) < len(p.Replicas) {
						last = fmt.Sprintf("%s/%d is in sync on %v of %v", p.Topic, p.Partition, p.ISR, p.Replicas)
					}
				}
			}
		}
		if last == "" {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%v after everything was healed: %s", patience, last)
		}
	}
}
