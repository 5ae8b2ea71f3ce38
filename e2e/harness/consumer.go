package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is a record as a plain consumer sees it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte // nil: no key
	Value     []byte // nil: a tombstone
	Headers   []kgo.RecordHeader
	Timestamp time.Time
}

// Header returns the value of the first header of that name.
func (r *Record) Header(name string) (string, bool) {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}

// ID is the event's id, whatever the record's profile.
func (r *Record) ID() string { return r.first("ce_id", "dlq_id", "id") }

// Sequence is the event's position as its header has it.
func (r *Record) Sequence() string { return r.first("ce_sequence", "dlq_sequence", "sequence") }

// CommitLSN is the first half of Sequence.
func (r *Record) CommitLSN() (pglogrepl.LSN, error) {
	high, _, ok := strings.Cut(r.Sequence(), "-")
	n, err := strconv.ParseUint(high, 16, 64)
	if !ok || err != nil || len(high) != 16 {
		return 0, fmt.Errorf("%s: no position in its sequence %q", r.where(), r.Sequence())
	}
	return pglogrepl.LSN(n), nil
}

func (r *Record) first(names ...string) string {
	for _, name := range names {
		if value, ok := r.Header(name); ok {
			return value
		}
	}
	return ""
}

func (r *Record) where() string { return where(Partition{r.Topic, r.Partition}, r.Offset) }

func where(p Partition, offset int64) string {
	return fmt.Sprintf("%s/%d@%d", p.Topic, p.Number, offset)
}

// Consumer reads topics from their beginning and keeps every record. It has
// nothing in common with the relay but the broker.
type Consumer struct {
	t      testing.TB
	client *kgo.Client
	topics []string
	done   chan struct{}
	stop   context.CancelFunc

	mu      sync.Mutex
	records []Record
	ids     map[string]struct{}
	next    Offsets // the offset after the last one seen, control records included
	arrived *sync.Cond
}

// Partition names a partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

// Offsets are positions in partitions.
type Offsets map[Partition]int64

// NewConsumer follows the topics until the test ends. They need not exist yet.
func NewConsumer(t testing.TB, addrs []string, topics ...string) *Consumer {
	t.Helper()
	return NewConsumerWith(t, addrs, topics)
}

// NewConsumerWith is NewConsumer with further client options: TLS, SASL.
func NewConsumerWith(t testing.TB, addrs []string, topics []string, opts ...kgo.Opt) *Consumer {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addrs...),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords(),
		kgo.KeepRetryableFetchErrors(),
		kgo.MetadataMinAge(50 * time.Millisecond), // a topic that is created is seen soon
		kgo.MetadataMaxAge(500 * time.Millisecond),
		kgo.FetchMaxWait(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Consumer{t: t, client: client, topics: topics, done: make(chan struct{}), stop: stop,
		ids: map[string]struct{}{}, next: Offsets{}}
	c.arrived = sync.NewCond(&c.mu)
	go c.poll(ctx)
	t.Cleanup(c.Close)
	return c
}

// Close stops reading; the records stay. Idempotent.
func (c *Consumer) Close() {
	c.stop()
	<-c.done
	c.client.Close()
}

func (c *Consumer) poll(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		fetches := c.client.PollFetches(ctx)
		c.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			p := Partition{r.Topic, r.Partition}
			if r.Offset < c.next[p] {
				return // read again after a leader's move
			}
			c.next[p] = r.Offset + 1
			if r.Attrs.IsControl() {
				return
			}
			rec := Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
			c.records = append(c.records, rec)
			c.ids[rec.ID()] = struct{}{}
		})
		c.arrived.Broadcast()
		c.mu.Unlock()
		if fetches.NumRecords() == 0 && fetches.Err() != nil {
			// A broker that is away, or a topic that is not there yet. What is
			// not read in the end is missed by a judge.
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// Records returns all records read so far, in the order of each partition.
func (c *Consumer) Records() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.records)
}

// Take returns the records read since the last Take, and forgets them: what a
// run of hours cannot keep.
func (c *Consumer) Take() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.records
	c.records, c.ids = nil, map[string]struct{}{}
	return taken
}

// Len is how many records were read so far.
func (c *Consumer) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.records)
}

// Distinct is how many different ids were read so far.
func (c *Consumer) Distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// WaitLen waits for so many records and returns them all.
func (c *Consumer) WaitLen(n int, limit time.Duration) []Record {
	c.t.Helper()
	c.wait(limit, func() string {
		if len(c.records) >= n {
			return ""
		}
		return fmt.Sprintf("%d records, have %d", n, len(c.records))
	})
	return c.Records()
}

// WaitDistinct waits for so many different ids.
func (c *Consumer) WaitDistinct(n int, limit time.Duration) {
	c.t.Helper()
	c.wait(limit, func() string {
		if len(c.ids) >= n {
			return ""
		}
		return fmt.Sprintf("%d different events, have %d", n, len(c.ids))
	})
}

// wait blocks until missing returns "". It is called with the lock held.
func (c *Consumer) wait(limit time.Duration, missing func() string) {
	c.t.Helper()
	end := time.Now().Add(limit)
	timer := time.AfterFunc(limit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.arrived.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		what := missing()
		if what == "" {
			return
		}
		if !time.Now().Before(end) {
			c.t.Fatalf("waited %v for %s", limit, what)
		}
		c.arrived.Wait()
	}
}

// CatchUp reads up to where the partitions end now and returns all records.
func (c *Consumer) CatchUp(limit time.Duration) []Record {
	c.t.Helper()
	ends := c.ends(limit)
	c.wait(limit, func() string {
		for p, end := range ends {
			if c.next[p] < end {
				return fmt.Sprintf("%s/%d to be read up to %d, is at %d", p.Topic, p.Number, end, c.next[p])
			}
		}
		return ""
	})
	return c.Records()
}

// ends asks where the partitions end, as often as a leader that moves demands: a
// try that goes by what the client knew of leaders goes on for long.
func (c *Consumer) ends(limit time.Duration) Offsets {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, 3*time.Second)
		ends, err := endOffsets(try, kadm.NewClient(c.client), c.topics)
		done()
		if err == nil {
			return ends
		}
		c.client.ForceMetadataRefresh()
		select {
		case <-ctx.Done():
			c.t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ReadAll reads topics from beginning to end.
func ReadAll(t testing.TB, addrs []string, topics ...string) []Record {
	t.Helper()
	c := NewConsumer(t, addrs, topics...)
	defer c.Close()
	return c.CatchUp(time.Minute)
}

// endOffsets asks for the end of each partition; a topic that does not exist
// has none.
func endOffsets(ctx context.Context, admin *kadm.Client, topics []string) (Offsets, error) {
	listed, err := admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list end offsets: %w", err)
	}
	ends := Offsets{}
	listed.Each(func(o kadm.ListedOffset) {
		switch {
		case o.Err == nil:
			ends[Partition{o.Topic, o.Partition}] = o.Offset
		case !errors.Is(o.Err, kerr.UnknownTopicOrPartition):
			err = fmt.Errorf("end of %s/%d: %w", o.Topic, o.Partition, o.Err)
		}
	})
	return ends, err
}
