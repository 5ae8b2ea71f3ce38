package sink

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const testDLQ = "test.dlq"

// patience is how long a test waits for a condition that must come true.
const patience = 30 * time.Second

func fakeCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(1, testDLQ)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// witness records what an observer hears, and the log.
type witness struct {
	mu        sync.Mutex
	published map[string]int
	acked     int
	dead      map[Reason]int
	retries   map[string]int
	blocked   map[string]string
	causes    []string // every non-empty cause
	beats     []time.Time
	log       bytes.Buffer
}

func newWitness() *witness {
	return &witness{published: map[string]int{}, dead: map[Reason]int{}, retries: map[string]int{}, blocked: map[string]string{}}
}

func (w *witness) lock() func() { w.mu.Lock(); return w.mu.Unlock }

func (w *witness) Published(topic string, n int, oldest time.Time) {
	defer w.lock()()
	if oldest.IsZero() {
		w.published["!no time"]++
	}
	w.published[topic] += n
}
func (w *witness) Acked(time.Time)         { defer w.lock()(); w.acked++ }
func (w *witness) DeadLetter(r Reason)     { defer w.lock()(); w.dead[r]++ }
func (w *witness) Retry(peer, kind string) { defer w.lock()(); w.retries[peer+" "+kind]++ }
func (w *witness) Blocked(topic, cause string) {
	defer w.lock()()
	if cause == "" {
		delete(w.blocked, topic)
		return
	}
	w.blocked[topic] = cause
	w.causes = append(w.causes, cause)
}
func (w *witness) beat() { defer w.lock()(); w.beats = append(w.beats, time.Now()) }
func (w *witness) Write(p []byte) (int, error) {
	defer w.lock()()
	return w.log.Write(p)
}
func (w *witness) cause(topic string) string { defer w.lock()(); return w.blocked[topic] }
func (w *witness) logged() string            { defer w.lock()(); return w.log.String() }
func (w *witness) count(kind string) int     { defer w.lock()(); return w.retries[kind] }

// deadLetters is the number of all of them.
func (w *witness) deadLetters() int {
	defer w.lock()()
	n := 0
	for _, v := range w.dead {
		n += v
	}
	return n
}

// publisherFor makes a publisher with short pauses. mutate may change the configuration.
func publisherFor(t testing.TB, brokers []string, mutate func(*KafkaConfig)) (*Idempotent, *witness) {
	t.Helper()
	w := newWitness()
	cfg := KafkaConfig{Brokers: brokers, DLQTopic: testDLQ}
	if mutate != nil {
		mutate(&cfg)
	}
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo}))
	p, err := NewIdempotent(context.Background(), PublisherConfig{Kafka: cfg, Beat: w.beat, Observer: w}, log)
	if err != nil {
		t.Fatal(err)
	}
	p.backoffMin, p.backoffMax = 20*time.Millisecond, 200*time.Millisecond
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			log := w.logged()
			t.Logf("log of the publisher:\n%s", log[max(0, len(log)-6000):])
		}
	})
	return p, w
}

// ev is a short event of a test.
type ev struct {
	topic, key, value string
}

var committed = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// batchOf makes a batch of events whose topics are their aggregate types.
func batchOf(t testing.TB, events ...ev) *Batch {
	t.Helper()
	c, err := NewBuilder(BatchConfig{Slot: "test", Topic: "{aggregatetype}", DLQTopic: testDLQ, Profile: Plain, MaxRecords: 1 << 20, MaxBytes: 1 << 28}, verbatimEncoder{})
	if err != nil {
		t.Fatal(err)
	}
	b := c.NewBatch()
	fill(t, b, events...)
	return b
}

func fill(t testing.TB, b *Batch, events ...ev) {
	t.Helper()
	for i, e := range events {
		err := b.Add(&Event{
			CommitLSN: pglogrepl.LSN(1000), Ordinal: uint64(i), CommitTime: committed,
			ID: []byte(e.value[:min(len(e.value), 40)]), Key: []byte(e.key), Type: []byte("t"),
			Payload: []byte(e.value), AggregateType: []byte(e.topic),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func publish(t testing.TB, p *Idempotent, b *Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Publish(ctx, b); err != nil {
		t.Fatalf("publish: %v", err)
	}
	if !b.Settled() {
		t.Fatal("published, but not every promise was called")
	}
}

// background publishes in a goroutine, so that a test can change the world meanwhile.
func background(ctx context.Context, p *Idempotent, b *Batch) <-chan error {
	done := make(chan error, 1)
	go func() { done <- p.Publish(ctx, b) }()
	return done
}

func result(t testing.TB, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("publish did not return")
		return nil
	}
}

func running(t testing.TB, done <-chan error, why string) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("publish returned %v although %s", err, why)
	default:
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// topicOf reads all records of a topic, partition by partition. opts say how to connect.
func topicOf(t testing.TB, brokers []string, topic string, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	ends.Each(func(o kadm.ListedOffset) { left += int(o.Offset) })
	var recs []*kgo.Record
	for left > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fs.EachRecord(func(r *kgo.Record) { recs = append(recs, r); left-- })
	}
	slices.SortStableFunc(recs, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return recs
}

// valuesOf are the values of records, each shortened.
func valuesOf(recs []*kgo.Record) []string {
	var vs []string
	for _, r := range recs {
		vs = append(vs, string(r.Value[:min(len(r.Value), 40)]))
	}
	return vs
}

func wantValues(t testing.TB, what string, got []*kgo.Record, want ...string) {
	t.Helper()
	if g := valuesOf(got); !slices.Equal(g, want) {
		t.Errorf("%s has\n  %s\nwant\n  %s", what, strings.Join(g, " "), strings.Join(want, " "))
	}
}

func wantDead(t testing.TB, r *kgo.Record, reason Reason) {
	t.Helper()
	if v, n := headerOf(r, hdrDLQReason); string(v) != string(reason) || n != 1 {
		t.Errorf("dlq_reason is %q (%d times), want %s", v, n, reason)
	}
}

func series(topic, key, prefix string, from, to int) []ev {
	var evs []ev
	for i := from; i <= to; i++ {
		evs = append(evs, ev{topic, key, fmt.Sprintf("%s%d", prefix, i)})
	}
	return evs
}

func labels(evs []ev) []string {
	var vs []string
	for _, e := range evs {
		vs = append(vs, e.value[:min(len(e.value), 40)])
	}
	return vs
}

// holding reports whether a produce request carries a record with one of the values; parts limits it to a partition.
func holding(req kmsg.Request, values ...string) bool {
	pr, ok := req.(*kmsg.ProduceRequest)
	if !ok {
		return false
	}
	for _, t := range pr.Topics {
		for _, part := range t.Partitions {
			var rb kmsg.RecordBatch
			if rb.ReadFrom(part.Records) != nil {
				continue
			}
			recs, err := kfake.BatchRecords(rb)
			if err != nil {
				continue
			}
			for _, r := range recs {
				if slices.Contains(values, string(r.Value)) {
					return true
				}
			}
		}
	}
	return false
}

// poison makes the broker answer err for every batch of topic that holds one of the values.
func poison(c *kfake.Cluster, topic string, err *kerr.Error, count int, values ...string) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: count,
		When: func(req kmsg.Request) bool { return holding(req, values...) }})
}
