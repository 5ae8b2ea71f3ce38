package kafka_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
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

func TestFake(t *testing.T) {
	fake := kafka.NewFake(t, kafka.FakeOptions{Topics: map[string]int32{"a": 3}})
	roundTrip(t, fake.Addrs(), "a")
	kafka.CreateTopic(t, fake.Addrs(), "b", 2, -1, map[string]string{"max.message.bytes": "1000"})
	roundTrip(t, fake.Addrs(), "b")

	// Topics do not appear by asking for them.
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.Addrs()...), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	err = client.ProduceSync(t.Context(), &kgo.Record{Topic: "c", Value: []byte("x")}).FirstErr()
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("produced to a missing topic: %v", err)
	}
}

// One of three brokers can be killed, frozen, stopped and started again, and
// writes that need two replicas go on.
func TestReal(t *testing.T) {
	if os.Getenv("TAILER_E2E_KAFKA") == "" {
		t.Skip("three Java processes: TAILER_E2E_KAFKA=1 or make test-kafka")
	}
	start := time.Now()
	real := kafka.NewReal(t, 3)
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
