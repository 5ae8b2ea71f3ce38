package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Ends asks where the partitions of topics end now.
type Ends func(ctx context.Context, topics []string) (Offsets, error)

// BrokerEnds asks the brokers, as a client.
func BrokerEnds(t testing.TB, addrs []string) Ends {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	return func(ctx context.Context, topics []string) (Offsets, error) {
		ends, err := endOffsets(ctx, admin, topics)
		if err != nil {
			return nil, err
		}
		return ends, absent(ctx, client, topics, ends)
	}
}

// absent asks the brokers themselves whether the topics without an end do not
// exist. kadm may have that from the client's memory, older than the look at the
// slot: a topic made meanwhile would look as if what it holds had been confirmed
// too early.
func absent(ctx context.Context, client *kgo.Client, topics []string, ends Offsets) error {
	there := map[string]bool{}
	for p := range ends {
		there[p.Topic] = true
	}
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		if !there[topic] {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(topic)
			req.Topics = append(req.Topics, t)
		}
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("ask for topics: %w", err)
	}
	for _, t := range resp.Topics {
		if !errors.Is(kerr.ErrorForCode(t.ErrorCode), kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("topic %s exists, and where it ends is not known yet", *t.Topic)
		}
	}
	return nil
}

// FakeEnds looks into kfake, past every fault that a test makes.
func FakeEnds(c *kfake.Cluster) Ends {
	return func(_ context.Context, topics []string) (Offsets, error) {
		ends := Offsets{}
		for _, topic := range topics {
			for _, p := range c.PartitionInfos(topic) {
				ends[Partition{topic, p.Partition}] = p.HighWatermark
			}
		}
		return ends, nil
	}
}

// Sampler looks at a slot twenty times a second, for JudgeAcks.
type Sampler struct {
	t    testing.TB
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	samples []Sample
	err     error // the last look that failed; nil after one that did not
}

// StartSampler samples a slot until Stop or the test's end. A server that is
// away is no error: there is nothing to see then.
//
// Where the brokers are away, the look at the ends is taken when they are back:
// later than it might be, so the relay gets the benefit. FakeEnds has no such gap.
func StartSampler(t testing.TB, dsn, slot string, ends Ends, topics ...string) *Sampler {
	ctx, stop := context.WithCancel(context.Background())
	s := &Sampler{t: t, stop: stop, done: make(chan struct{})}
	go s.loop(ctx, dsn, slot, ends, topics)
	t.Cleanup(func() { s.Stop() })
	return s
}

func (s *Sampler) loop(ctx context.Context, dsn, slot string, ends Ends, topics []string) {
	defer close(s.done)
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			conn.Close(context.Background())
		}
	}()
	var waiting []Sample // confirmed was read, the ends could not be
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		if ctx.Err() != nil && len(waiting) == 0 {
			return
		}
		var sample Sample
		err := func() (err error) {
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			if conn == nil || conn.IsClosed() {
				if conn, err = pgx.Connect(try, dsn); err != nil {
					return err
				}
			}
			sample, err = look(try, conn, slot)
			return err
		}()
		if err == nil {
			waiting = append(waiting, sample)
		} else if conn != nil && !errors.Is(err, pgx.ErrNoRows) {
			conn.Close(context.Background())
		}
		// The ends, strictly after. They are wanted also when we are told to
		// stop: what was confirmed in the last moment counts.
		if len(waiting) > 0 {
			try, cancel := context.WithTimeout(context.Background(), time.Second)
			end, endErr := ends(try, topics)
			cancel()
			if endErr == nil {
				s.mu.Lock()
				for _, w := range waiting {
					w.End, w.EndAt = end, time.Now()
					s.samples = append(s.samples, w)
				}
				s.mu.Unlock()
				waiting = nil
			} else if ctx.Err() != nil {
				return
			}
			err = errors.Join(err, endErr)
		}
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
}

// look reads the slot's positions. A slot that is not there gives pgx.ErrNoRows.
func look(ctx context.Context, conn *pgx.Conn, slot string) (s Sample, err error) {
	var confirmed, restart, current string
	s.At = time.Now()
	err = conn.QueryRow(ctx, `SELECT coalesce(confirmed_flush_lsn, '0/0')::text, coalesce(restart_lsn, '0/0')::text, pg_current_wal_lsn()::text
		FROM pg_replication_slots WHERE slot_name = $1`, slot).Scan(&confirmed, &restart, &current)
	if err != nil {
		return s, err
	}
	var errs [3]error
	s.Confirmed, errs[0] = pglogrepl.ParseLSN(confirmed)
	s.Restart, errs[1] = pglogrepl.ParseLSN(restart)
	s.Current, errs[2] = pglogrepl.ParseLSN(current)
	return s, errors.Join(errs[:]...)
}

// Samples returns all samples so far.
func (s *Sampler) Samples() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.samples)
}

// Take returns the samples since the last Take, and forgets all but the newest.
func (s *Sampler) Take() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.samples
	s.samples = slices.Clone(taken[max(0, len(taken)-1):])
	return taken
}

// Last is the newest sample; the zero value before the first.
func (s *Sampler) Last() Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samples) == 0 {
		return Sample{}
	}
	return s.samples[len(s.samples)-1]
}

// WaitConfirmed waits until the slot has confirmed at least lsn.
func (s *Sampler) WaitConfirmed(lsn pglogrepl.LSN, limit time.Duration) {
	s.t.Helper()
	Eventually(s.t, limit, fmt.Sprintf("confirmed_flush_lsn to reach %v", lsn), func() bool { return s.Last().Confirmed >= lsn })
}

// Stop ends the sampling and returns all samples. Idempotent.
func (s *Sampler) Stop() []Sample {
	s.stop()
	<-s.done
	return s.Samples()
}
