package scenario

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// BrokersFail takes brokers of a real cluster of three away under load: one is
// killed and events go on; it comes back and leaders move; with one frozen and
// every replica demanded, writes are refused or time out, and the relay holds,
// says so, makes no dead letters, and goes on by itself when it thaws.
//
// Seen red with a relay that takes a cycle for done when no answer came in time.
func BrokersFail(t testing.TB, real *kafka.Real) {
	env := Env{Brokers: func(testing.TB) []string { return real.Addrs() }}
	b := env.lay(t, bedOptions{})
	b.config = b.config.With("kafka.topics.replication_factor", 3)
	relay := b.start()
	writers := b.ledger.Write(t, load)
	b.waitMore(300)
	admin := b.admin()

	victim := real.Broker(2)
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	b.waitMore(500)
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insync(admin, 3)

	// What the killed one led has moved; ask for the first leaders back.
	before := b.leaders(admin)
	harness.Eventually(t, patience, "leaders to move", func() bool {
		for p, leader := range before { // whoever is preferred now: another one
			if b.prefer(admin, p, leader%3+1) != nil {
				return false
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var set kadm.TopicsSet
		set.Add(b.topic, partitionsOf(before)...)
		if _, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
			return false
		}
		for p, leader := range b.leaders(admin) {
			if leader == before[p] {
				return false
			}
		}
		return true
	})
	b.waitMore(500)

	b.configure(admin, "min.insync.replicas", "3")
	if err := victim.Pause(); err != nil {
		t.Fatal(err)
	}
	resume := func() { _ = victim.Resume() } // ended by the cluster's end at the latest
	defer resume()
	relay.WaitNotReady(b.topic, patience)
	// At first nothing answers; then the cluster gives the frozen one up, and the
	// others refuse. Kafka's client keeps a refusal to itself where an earlier
	// attempt may have been written, so the cause may stay "no answer".
	b.insync(admin, 2)
	harness.Eventually(t, patience, "a broker to refuse a write for the lack of replicas", func() bool {
		refusal := "requirement of 3 for partition " + b.topic
		return strings.Contains(real.Broker(1).LogTail(100), refusal) || strings.Contains(real.Broker(3).LogTail(100), refusal)
	})
	relay.WaitNotReady(b.topic, patience)
	if n, ok := relay.Metrics().Sum("tailer_topic_blocked", fmt.Sprintf("topic=%q", b.topic)); !ok || n != 1 {
		t.Errorf("tailer_topic_blocked is %v, %v", n, ok)
	}
	resume()
	relay.WaitReady("active", patience)
	b.configure(admin, "min.insync.replicas", "2")
	b.waitMore(500)

	writers.Stop()
	if !relay.Running() {
		t.Fatalf("the relay exited with %d", relay.ExitCode())
	}
	// An answer that was lost with a broker may be sent again by a new producer.
	b.finish(relay, b.consumer.Len())
}

func (b *bed) admin() *kadm.Client {
	b.t.Helper()
	// kadm answers from the client's cache; a short one, for leaders move here.
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// describe reads the topic's partitions.
func (b *bed) describe(admin *kadm.Client) (kadm.PartitionDetails, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	topics, err := admin.ListTopics(ctx, b.topic)
	if err != nil {
		return nil, err
	}
	return topics[b.topic].Partitions, topics[b.topic].Err
}

// insync waits until each partition of the topic has so many replicas in sync.
func (b *bed) insync(admin *kadm.Client, n int) {
	b.t.Helper()
	harness.Eventually(b.t, patience, fmt.Sprintf("%d replicas in sync", n), func() bool {
		partitions, err := b.describe(admin)
		if err != nil || len(partitions) == 0 {
			return false
		}
		for _, p := range partitions {
			if len(p.ISR) != n {
				return false
			}
		}
		return true
	})
}

func (b *bed) leaders(admin *kadm.Client) map[int32]int32 {
	leaders := map[int32]int32{}
	partitions, err := b.describe(admin)
	if err != nil {
		return leaders
	}
	for _, p := range partitions {
		leaders[p.Partition] = p.Leader
	}
	return leaders
}

func partitionsOf(leaders map[int32]int32) (partitions []int32) {
	for p := range leaders {
		partitions = append(partitions, p)
	}
	return partitions
}

// prefer makes a broker of three the first replica of a partition.
func (b *bed) prefer(admin *kadm.Client, partition, broker int32) error {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	return kafka.Prefer(ctx, admin, b.topic, partition, broker)
}

// configure sets a key of the topic's configuration.
func (b *bed) configure(admin *kadm.Client, key, value string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	resp, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, b.topic)
	if err == nil {
		for _, r := range resp {
			err = r.Err
		}
	}
	if err != nil {
		b.t.Fatalf("set %s of %s: %v", key, b.topic, err)
	}
}

// Standby runs two relays of one configuration under load. One streams, the
// other stands by; whatever happens to the one (killed, stopped, frozen), the
// other takes over, and one that wakes up stands by and writes out of order
// nothing that a consumer has not had.
//
// Seen red with a relay that exits when the slot is taken.
func Standby(t testing.TB, env Env) {
	b := env.lay(t, bedOptions{settings: map[string]string{"wal_sender_timeout": "2s"}})
	first := b.start()
	second := harness.StartRelay(t, harness.RelayOptions{Config: b.config})
	second.WaitReady("standby", patience)
	writers := b.ledger.Write(t, load)
	b.waitMore(300)

	first.Kill()
	second.WaitReady("active", patience)
	b.waitMore(300)

	third := harness.StartRelay(t, harness.RelayOptions{Config: b.config})
	third.WaitReady("standby", patience)
	if code := second.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	third.WaitReady("active", patience)
	b.waitMore(300)

	fourth := harness.StartRelay(t, harness.RelayOptions{Config: b.config})
	fourth.WaitReady("standby", patience)
	third.Pause()
	fourth.WaitReady("active", patience) // when the server has given the frozen one up
	b.waitMore(300)
	third.Signal(syscall.SIGCONT)
	third.WaitReady("standby", patience)
	b.waitMore(300)

	writers.Stop()
	b.ledger.WaitDelivered(t, b.consumer, patience)
	if code := third.Stop(); code != 0 {
		t.Errorf("exit code %d of the standby after SIGTERM", code)
	}
	b.finish(fourth, b.consumer.Len())
}
