package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// delays are one contender's turn at a rate.
type delays struct {
	p50, p99 time.Duration
	rate     float64       // transactions a second that were committed
	cpu      time.Duration // of the process, its start included
}

// latency is all turns at one rate, by contender.
type latency struct {
	rate  int
	turns map[string][]delays
}

// latencies measures the contenders in turn.
func (b *bed) latencies(ctx context.Context, opt options, rate int) (l latency, err error) {
	l = latency{rate: rate, turns: map[string][]delays{}}
	contenders := append(b.relays(), contender{name: bare, idHeader: bareHeader, launch: b.bare, farewell: (*process).stop})
	for i := range opt.rounds {
		for n, c := range contenders {
			turn, err := b.pace(ctx, opt, rate, fmt.Sprintf("latency_%d_%d_%d", rate, i, n), c)
			if err != nil {
				return l, fmt.Errorf("%s: %w", c.name, err)
			}
			l.turns[c.name] = append(l.turns[c.name], turn)
			b.say("%4d tx/s, round %d: %-9s p50 %s ms, p99 %s ms, CPU %.2f s, %.0f commits a second", rate, i+1, c.name, millis(turn.p50), millis(turn.p99), turn.cpu.Seconds(), turn.rate)
		}
	}
	return l, nil
}

// bare starts the loop to compare with: this program in another role.
func (b *bed) bare(slot, topic string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cfg, err := json.Marshal(bareConfig{DSN: b.dsn(), Slot: slot, Publication: publication, Brokers: b.brokers, Topic: topic})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Dir, cmd.Env = b.run.Dir, environment(bareVariable+"="+string(cfg))
	return start(b.run, bare, cmd)
}

// clock is where both ends of an event write their time, by its number: when
// its COMMIT returned and when a consumer had it, in nanoseconds since began,
// 0 for not yet.
type clock struct {
	began               time.Time
	committed, received []atomic.Int64
	missing             atomic.Int64 // events not received
	all                 chan struct{}
}

func newClock(n int) *clock {
	c := &clock{began: time.Now(), committed: make([]atomic.Int64, n), received: make([]atomic.Int64, n), all: make(chan struct{})}
	c.missing.Store(int64(n))
	return c
}

func (c *clock) now() int64 { return int64(time.Since(c.began)) }

// arrive notes the first time that an event was seen.
func (c *clock) arrive(id string, now int64) error {
	if len(id) != 36 {
		return fmt.Errorf("a record has the id %q", id)
	}
	i, err := strconv.ParseUint(id[24:], 16, 48)
	if err != nil || i >= uint64(len(c.received)) {
		return fmt.Errorf("a record has the id %q", id)
	}
	if c.received[i].CompareAndSwap(0, now) && c.missing.Add(-1) == 0 {
		close(c.all)
	}
	return nil
}

// idOf is the id of event number i.
func idOf(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", i) }

// pace commits transactions of one event at a rate and measures until each is
// with a consumer.
func (b *bed) pace(ctx context.Context, opt options, rate int, name string, contend contender) (d delays, err error) {
	if err := b.createTopic(ctx, name, partitions); err != nil {
		return d, err
	}
	if err := b.createSlot(ctx, name); err != nil {
		return d, err
	}
	p, err := contend.launch(name, name)
	if err != nil {
		return d, err
	}
	defer p.kill()
	if err := b.streaming(ctx, p, name); err != nil {
		return d, err
	}
	warm := int(opt.warm.Seconds() * float64(rate))
	c := newClock(warm + max(1, int(opt.duration.Seconds()*float64(rate))))
	ctx, cancel := context.WithTimeout(ctx, opt.warm+opt.duration+time.Minute)
	defer cancel()
	group, groupCtx := errgroup.WithContext(ctx)
	reading, stopReading := context.WithCancel(groupCtx)
	defer stopReading()
	group.Go(func() error { return b.consume(reading, name, contend.idHeader, c) })
	group.Go(func() error {
		defer stopReading()
		if err := b.write(groupCtx, rate, c); err != nil {
			return err
		}
		select {
		case <-c.all:
			return nil
		case <-p.done:
			return p.failed("ended")
		case <-groupCtx.Done():
			return p.failed(fmt.Sprintf("%d of %d events did not arrive", c.missing.Load(), len(c.received)))
		}
	})
	if err := group.Wait(); err != nil {
		return d, err
	}
	if err := contend.farewell(p, ctx); err != nil {
		return d, err
	}
	d.cpu = p.cpu()
	if err := b.dropSlot(ctx, name); err != nil {
		return d, err
	}
	if err := b.deleteTopic(ctx, name); err != nil {
		return d, err
	}
	if _, err := b.db.Exec(ctx, "TRUNCATE outbox"); err != nil {
		return d, err
	}
	var all []time.Duration
	for i := warm; i < len(c.received); i++ {
		// A consumer can have it before the writer has its answer.
		all = append(all, time.Duration(max(0, c.received[i].Load()-c.committed[i].Load())))
	}
	slices.Sort(all)
	d.p50, d.p99 = all[len(all)/2], all[len(all)*99/100]
	d.rate = float64(len(all)) / (time.Duration(c.committed[len(c.committed)-1].Load() - c.committed[warm].Load())).Seconds()
	return d, nil
}

// streaming waits until the slot is in use.
func (b *bed) streaming(ctx context.Context, p *process, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		s, err := b.slot(ctx, name)
		switch {
		case err != nil:
			return err
		case s.pid != 0:
			return nil
		case p.ended():
			return p.failed("ended")
		}
		select {
		case <-ctx.Done():
			return p.failed("does not stream")
		case <-time.After(look):
		}
	}
}

// writers is how many connections commit. One would do at a low rate; a high
// one must not wait for each commit's flush.
const writers = 8

// write commits event i at i/rate, on whichever connection's turn it is.
func (b *bed) write(ctx context.Context, rate int, c *clock) error {
	conns := make([]*pgx.Conn, writers)
	for w := range conns {
		conn, err := pgx.Connect(ctx, b.dsn())
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		if _, err := conn.Prepare(ctx, "insert", "INSERT INTO outbox (id, aggregate_id, type, payload) VALUES ($1::text::uuid, $2, $3, $4::text::jsonb)"); err != nil {
			return err
		}
		conns[w] = conn
	}
	first := time.Now().Add(100 * time.Millisecond)
	group, ctx := errgroup.WithContext(ctx)
	for w, conn := range conns {
		group.Go(func() error {
			for i := w; i < len(c.committed); i += writers {
				text := payload(i)
				time.Sleep(time.Until(first.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				if _, err := conn.Exec(ctx, "insert", idOf(i), "order-"+strconv.Itoa(i%keys), eventType, text); err != nil {
					return fmt.Errorf("commit event %d: %w", i, err)
				}
				c.committed[i].Store(c.now())
			}
			return nil
		})
	}
	return group.Wait()
}

// consume notes when each event arrives, until ctx ends.
func (b *bed) consume(ctx context.Context, topic, idHeader string, c *clock) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		now := c.now()
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume %s: %w", topic, err)
		}
		var bad error
		fetches.EachRecord(func(r *kgo.Record) {
			if err := c.arrive(headerOf(r, idHeader), now); err != nil {
				bad = err
			}
		})
		if bad != nil {
			return bad
		}
	}
}
