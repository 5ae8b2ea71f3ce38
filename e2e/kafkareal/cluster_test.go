// Package kafkareal_test holds the end-to-end tests that need a real Apache
// Kafka. They start Java processes, so they run one after another, by
// "make test-kafka".
package kafkareal_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/kafka"
)

// roundTrip writes a record with all acknowledgements and reads it back.
func roundTrip(t *testing.T, addrs []string, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(topic), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, kgo.StringRecord("hello")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		if fetches.NumRecords() > 0 {
			if got := string(fetches.Records()[0].Value); got != "hello" {
				t.Errorf("read %q", got)
			}
			return
		}
	}
}

// One of three brokers can be killed, frozen, stopped and started again, and
// writes that need two replicas go on.
func TestClusterSurvives(t *testing.T) {
	start := time.Now()
	real := three.get(t)
	t.Logf("three brokers after %v", time.Since(start).Round(time.Millisecond))
	kafka.CreateTopic(t, real.Addrs(), "a", 3, 3, nil)
	roundTrip(t, real.Addrs(), "a")
	broker := real.Broker(2)
	for name, stop := range map[string]func() error{"kill": broker.Kill, "stop": broker.Stop} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		roundTrip(t, real.Addrs(), "a")
		if err := broker.Start(t.Context()); err != nil {
			t.Fatalf("start after %s: %v", name, err)
		}
	}
	if err := broker.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := broker.Resume(); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, []string{broker.Addr()}, "a")
}
