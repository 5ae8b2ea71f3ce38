package relay_test

import (
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// memoryBound is what a relay may use with batches of a megabyte, whatever waits:
// a program of its size at rest takes some 30 MB, two batches and what the
// Kafka client makes of them a few more.
const memoryBound = 64 << 20

// A broker that takes 200 ms for a request, and far more rows than that lets
// through. What cannot be published stays in the server: memory is bounded, and
// nothing is dropped.
//
// Seen red with a hand-over that takes as many batches as come.
func TestCase_L19_BackPressureInsteadOfDropping(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{Settings: map[string]string{"wal_sender_timeout": "10s"}})
	p.wire.On(func(r *kafka.Request) kafka.Fate {
		if produces(r) {
			time.Sleep(200 * time.Millisecond) // the slow broker
		}
		return kafka.Pass
	})
	relay := harness.StartRelay(t, harness.RelayOptions{Config: p.config().With("delivery.batch_bytes", "1MiB")}).Ready()
	writers := p.ledger.Write(t, harness.WriteOptions{MaxRows: 3000, Bytes: 2000, Plain: true})
	writers.WaitRows(25_000, time.Minute)
	writers.Stop()
	delivered := p.consumer.Distinct()
	if int64(delivered) > writers.Rows()*3/4 {
		t.Errorf("%d of %d rows were delivered when all were written: the relay was not held back", delivered, writers.Rows())
	}
	p.ledger.WaitDelivered(t, p.consumer, 2*time.Minute)
	usage := relay.Usage()
	if usage.PeakRSS > memoryBound {
		t.Errorf("%d MiB of memory at most, %d MiB were used", memoryBound>>20, usage.PeakRSS>>20)
	}
	t.Logf("peak RSS %d MiB", usage.PeakRSS>>20)
	p.end(relay, 0)
}
