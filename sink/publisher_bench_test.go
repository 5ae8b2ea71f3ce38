package sink

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kfake"
)

// BenchmarkPublish publishes batches of 10,000 events of about 300 bytes to a fake cluster that keeps nothing. Beside
// records/s, which say more of the fake than of us, the allocations count: for ten thousand records they are
// kgo's and the fake's for a few requests, and a handful of the publisher's for the cycle: none for a record.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			c := fakeCluster(b, kfake.SeedTopics(6, "a"), kfake.BlackholeProduce())
			log := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))
			p, err := NewLanes(context.Background(), PublisherConfig{Kafka: KafkaConfig{Brokers: c.ListenAddrs(), DLQTopic: testDLQ}, Isolate: true}, log)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = p.Close(context.Background()) }()
			builder, err := NewBuilder(BatchConfig{Slot: "test", Topic: "a", DLQTopic: testDLQ}, verbatimEncoder{})
			if err != nil {
				b.Fatal(err)
			}
			batch := builder.NewBatch()
			payload := []byte(noise(`{"order":`, 200))
			ev := Event{CommitTime: time.Now(), ID: []byte("7f9c24e8"), Type: []byte("order.placed.v1"), Payload: payload}
			cycle := func() {
				batch.Reset()
				for i := range n {
					ev.CommitLSN, ev.Key = pglogrepl.LSN(i), keys[i%len(keys)]
					if err := batch.Add(&ev); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := p.Publish(context.Background(), batch); err != nil {
					b.Fatal(err)
				}
			}
			for range 3 {
				cycle()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				cycle()
			}
			b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

var keys = func() [][]byte {
	var ks [][]byte
	for i := range 97 {
		ks = append(ks, fmt.Appendf(nil, "key-%d", i))
	}
	return ks
}()
