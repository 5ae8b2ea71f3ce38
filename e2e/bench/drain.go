package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// drained is one contender's turn at a backlog.
type drained struct {
	wall   time.Duration // from the start of the process until the slot has confirmed the backlog's end
	cpu    time.Duration // of the process
	peak   int64         // of its memory, in bytes; 0 where that cannot be known
	server time.Duration // CPU of its walsender
}

// drain is all turns at backlogs of one shape, by contender.
type drain struct {
	rows  int // a transaction
	turns map[string][]drained
}

// contender is somebody whose process is measured.
type contender struct {
	name     string
	idHeader string // of the records that it publishes; "" publishes nothing
	launch   func(slot, topic string) (*process, error)
	farewell func(*process, context.Context) error // how its process ends
}

// The names of contenders.
const (
	tailer = "tailer"
	plain  = "pg_recvlogical"
	bare   = "bare loop"
)

// look is how often a slot is looked at, which is how exact wall is.
const look = 10 * time.Millisecond

// patience bounds a turn.
const patience = 10 * time.Minute

// drains loads a backlog and lets the contenders drain it, each through a slot
// of its own for each round.
func (b *bed) drains(ctx context.Context, opt options, rows int) (d drain, err error) {
	d = drain{rows: rows, turns: map[string][]drained{}}
	var end pglogrepl.LSN // known when there is a backlog, and asked for only then
	contenders := b.relays()
	if b.recvlogical() {
		contenders = append(contenders, contender{name: plain, farewell: (*process).wait,
			launch: func(slot, _ string) (*process, error) { return start(b.run, plain, b.plain(slot, end)) }})
	}
	slots := make([][]string, opt.rounds)
	for i := range slots {
		for n := range contenders {
			slot := fmt.Sprintf("drain_%d_%d_%d", rows, i, n)
			if err := b.createSlot(ctx, slot); err != nil {
				return d, err
			}
			slots[i] = append(slots[i], slot)
		}
	}
	if end, err = b.load(ctx, opt.events, rows); err != nil {
		return d, err
	}
	for i := range slots {
		for n, c := range contenders {
			turn, err := b.drain(ctx, c, slots[i][n], end, opt.events)
			if err != nil {
				return d, err
			}
			b.say("%4d rows a transaction, round %d: %-14s %s", rows, i+1, c.name, turn)
			d.turns[c.name] = append(d.turns[c.name], turn)
			if err := b.dropSlot(ctx, slots[i][n]); err != nil {
				return d, err
			}
		}
	}
	_, err = b.db.Exec(ctx, "TRUNCATE outbox")
	return d, err
}

// drain is one turn, judged by what it left in its topic.
func (b *bed) drain(ctx context.Context, c contender, slot string, end pglogrepl.LSN, events int) (t drained, err error) {
	topic := slot
	if c.idHeader == "" {
		return b.turn(ctx, c, slot, topic, end)
	}
	if err := b.createTopic(ctx, topic, partitions); err != nil {
		return t, err
	}
	if t, err = b.turn(ctx, c, slot, topic, end); err != nil {
		return t, err
	}
	return t, errors.Join(b.readBack(ctx, topic, events), b.deleteTopic(ctx, topic))
}

func (t drained) String() string {
	return fmt.Sprintf("%6.2f s, CPU %5.2f s, peak %s, walsender CPU %5.2f s", t.wall.Seconds(), t.cpu.Seconds(), mebibytes(t.peak), t.server.Seconds())
}

// plain is the command that does nothing but receive, and ends by itself.
func (b *bed) plain(slot string, end pglogrepl.LSN) *exec.Cmd {
	return b.server.Command(context.Background(), "pg_recvlogical", "--start", "--no-loop", "-f", "-", "--endpos", end.String(), "-S", slot,
		"-o", "proto_version=1", "-o", "publication_names="+publication, "-d", b.dsn())
}

// load writes the backlog and returns its end.
func (b *bed) load(ctx context.Context, events, rows int) (end pglogrepl.LSN, err error) {
	began := time.Now()
	const writers = 2
	transactions := (events + rows - 1) / rows
	group, groupCtx := errgroup.WithContext(ctx)
	for w := range writers {
		first, last := transactions*w/writers*rows, min(transactions*(w+1)/writers*rows, events)
		if first == last {
			continue
		}
		group.Go(func() error {
			conn, err := pgx.Connect(groupCtx, b.dsn())
			if err != nil {
				return err
			}
			defer conn.Close(context.Background())
			// The load is not what is measured.
			for _, sql := range []string{"SET synchronous_commit = off", loadSQL(first, last, rows)} {
				if _, err := conn.Exec(groupCtx, sql); err != nil {
					return fmt.Errorf("load the backlog: %w", err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	var text string
	var count, shortest, longest int
	err = b.db.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text, count(*), min(octet_length(payload::text)), max(octet_length(payload::text)) FROM outbox").Scan(&text, &count, &shortest, &longest)
	if err != nil {
		return 0, err
	}
	if count != events || shortest != payloadSize || longest != payloadSize {
		return 0, fmt.Errorf("the backlog has %d events of %d to %d bytes, not %d of %d", count, shortest, longest, events, payloadSize)
	}
	// Flushes the WAL, and writes some behind the end: the server tells of a
	// position only when it has passed it.
	if _, err = b.db.Exec(ctx, "CHECKPOINT"); err != nil {
		return 0, err
	}
	b.say("%4d rows a transaction: %d events written in %.1f s", rows, events, time.Since(began).Seconds())
	return pglogrepl.ParseLSN(text)
}

// turn measures one contender from its start until its slot has confirmed end,
// and sees it off.
func (b *bed) turn(ctx context.Context, c contender, name, topic string, end pglogrepl.LSN) (t drained, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	p, err := c.launch(name, topic)
	if err != nil {
		return t, err
	}
	defer p.kill()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		ended := p.ended() // before the look: what it confirmed at its end counts
		s, err := b.slot(ctx, name)
		if err != nil {
			return t, err
		}
		if s.pid != 0 {
			if cpu := cpuOf(s.pid); cpu > 0 {
				t.server = cpu
			}
		}
		p.look()
		if s.confirmed >= end {
			t.wall = time.Since(began)
			break
		}
		if ended {
			return t, p.failed(fmt.Sprintf("ended with the slot at %v, not %v", s.confirmed, end))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return t, p.failed(fmt.Sprintf("the slot is at %v and not at %v: %v", s.confirmed, end, ctx.Err()))
		}
	}
	if err := c.farewell(p, ctx); err != nil {
		return t, err
	}
	t.cpu, t.peak = p.cpu(), p.peak
	if !p.cmd.ProcessState.Success() {
		return t, p.failed("ended with " + p.cmd.ProcessState.String())
	}
	return t, nil
}

// readBack makes sure that a topic holds each of so many events once and that
// none became a dead letter.
func (b *bed) readBack(ctx context.Context, topic string, events int) error {
	dead, err := b.ends(ctx, deadLetters)
	if err != nil {
		return err
	}
	if dead != 0 {
		return fmt.Errorf("%d events became dead letters", dead)
	}
	n, err := b.ends(ctx, topic)
	if err != nil {
		return err
	}
	if n != events {
		return fmt.Errorf("topic %s has %d records for %d events", topic, n, events)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	seen := make(map[string]struct{}, events)
	for read := 0; read < events; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read topic %s back: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			seen[headerOf(r, "ce_id")] = struct{}{}
		})
		read += fetches.NumRecords()
	}
	if len(seen) != events {
		return fmt.Errorf("topic %s has %d different events, not %d", topic, len(seen), events)
	}
	return nil
}

// headerOf is the value of a record's header, empty without one.
func headerOf(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
