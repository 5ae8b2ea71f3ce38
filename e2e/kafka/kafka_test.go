package kafka_test

import (
	"context"
	"errors"
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
