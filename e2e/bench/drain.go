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

// drain is all turns at backlogs of one shape.
type drain struct {
	rows         int // a transaction
	relay, plain []drained
}

// look is how often a slot is looked at, which is how exact wall is.
const look = 10 * time.Millisecond

// patience bounds a turn.
const patience = 10 * time.Minute

// drains loads a backlog and lets the contenders drain it, each through a slot
// of its own for each round.
func (b *bed) drains(ctx context.Context, opt options, rows int) (d drain, err error) {
	d.rows = rows
	compare := b.recvlogical()
	if !compare {
		b.notes = append(b.notes, "nothing to compare a drain with: this PostgreSQL has no pg_recvlogical (sudo apt-get install -y postgresql)")
	}
	relays, plains := make([]string, opt.rounds), make([]string, opt.rounds)
	for i := range opt.rounds {
		relays[i], plains[i] = fmt.Sprintf("relay_%d_%d", rows, i), fmt.Sprintf("plain_%d_%d", rows, i)
		for _, name := range []string{relays[i], plains[i]} {
			if err := b.createSlot(ctx, name); err != nil {
				return d, err
			}
		}
	}
	end, err := b.load(ctx, opt.events, rows)
	if err != nil {
		return d, err
	}
	for i := range opt.rounds {
		topic := fmt.Sprintf("drain.%d.%d", rows, i)
		if err := b.createTopic(ctx, topic, partitions); err != nil {
			return d, err
		}
		turn, err := b.turn(ctx, relays[i], end, (*process).stop, func() (*process, error) { return b.relay(relays[i], topic) })
		if err != nil {
			return d, err
		}
		b.say("%4d rows a transaction, round %d: tailer         %s", rows, i+1, turn)
		d.relay = append(d.relay, turn)
		if err := b.readBack(ctx, topic, opt.events); err != nil {
			return d, err
		}
		if err := b.deleteTopic(ctx, topic); err != nil {
			return d, err
		}
		if compare {
			turn, err := b.turn(ctx, plains[i], end, (*process).wait, func() (*process, error) { return start(b.run, "pg_recvlogical", b.plain(plains[i], end)) })
			if err != nil {
				return d, err
			}
			b.say("%4d rows a transaction, round %d: pg_recvlogical %s", rows, i+1, turn)
			d.plain = append(d.plain, turn)
		}
	}
	for i := range opt.rounds {
		if err := errors.Join(b.dropSlot(ctx, relays[i]), b.dropSlot(ctx, plains[i])); err != nil {
			return d, err
		}
	}
	_, err = b.db.Exec(ctx, "TRUNCATE outbox")
	return d, err
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
func (b *bed) turn(ctx context.Context, name string, end pglogrepl.LSN, farewell func(*process, context.Context) error, launch func() (*process, error)) (t drained, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	p, err := launch()
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
	if err := farewell(p, ctx); err != nil {
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
