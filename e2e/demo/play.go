package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// play starts the relay, the consumer and the order service, and ends them in
// the order in which nothing can be missed.
func (st *stage) play(ctx, hurry context.Context, opt options, began time.Time) error {
	s := st.screen
	books := newLedger()

	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	reader, err := newConsumer(st.broker.Addrs(), names, st.schema.URL(), books, s)
	if err != nil {
		return err
	}
	consumed := newWorker(reader.run)
	st.onClose(func() error { err := consumed.end(); reader.client.Close(); return err })

	step := s.start("tailer run", "")
	st.onClose(func() error { st.relay.kill(); return nil })
	err = st.relay.start(ctx)
	if step.end(st.stopped(ctx, err), "http://%s/metrics", st.relay.listen) != nil {
		return st.stopped(ctx, err)
	}

	conn, err := pgx.Connect(ctx, st.server.DSN("shop"))
	if err != nil {
		return st.stopped(ctx, err)
	}
	st.onClose(func() error { return conn.Close(context.Background()) })
	s.line()
	s.line(part{strong, fmt.Sprintf(eventLine+"%s", "type", "key", "partition", "latency", "decoded")})
	service := &shop{conn: conn, ledger: books, rate: opt.rate}
	served := newWorker(service.run)
	st.onClose(served.end)

	sinceStart, why, err := st.watch(ctx, opt, reader, consumed, served, began)
	if err != nil {
		return err
	}

	if err := served.end(); err != nil {
		return err
	}
	caughtUp := func() bool { return books.missing() == 0 }
	waitUntil(hurry, 200*time.Millisecond, caughtUp) // so that the last events stand above
	s.line()
	step = s.start("stop the order service", "the consumer is behind")
	waitUntil(hurry, 10*time.Second, caughtUp)
	step.done("%s; the consumer is %s behind", why, plural(books.missing(), "event"))

	step = s.start("stop the relay", "drains for at most 8 s")
	if err := st.relay.stop(hurry); err == nil {
		behind, err := st.behind(conn)
		if step.end(err, "drained; %d bytes of WAL unconfirmed", behind) != nil {
			return err
		}
	} else { // the account is worth the more
		step.finish(bad, "failed")
		books.problem("%v", err)
	}
	// Whatever the relay wrote last counts too, above all a repeat.
	written, err := st.written(hurry)
	if err != nil {
		return err
	}
	if !waitUntil(hurry, 10*time.Second, func() bool { return reader.records.Load() >= written }) {
		books.problem("the topics hold %d records, the consumer took %d", written, reader.records.Load())
	}
	if err := consumed.end(); err != nil {
		return err
	}

	sum := books.total()
	s.line()
	s.line(part{plain, fmt.Sprintf("  %s committed, %d rolled back and not published", plural(sum.committed, "transaction"), sum.rolledBack)})
	s.line(part{plain, fmt.Sprintf("  %s, each in commit order", plural(sum.keys, "key"))})
	if sinceStart > 0 {
		s.line(part{plain, fmt.Sprintf("  first event %.1f s after the start", sinceStart.Seconds())})
	}
	if sum.early > 0 {
		s.line(part{plain, fmt.Sprintf("  %s arrived before COMMIT returned, and count as 0.0 ms", plural(sum.early, "event"))})
	}
	for _, p := range sum.problems {
		for line := range strings.Lines(p) {
			s.line(part{bad, "  " + strings.TrimRight(line, "\n")})
		}
	}
	// Before the last line, so that it is the last whatever happens.
	if err := errors.Join(sum.err(), st.close()); err != nil {
		s.line(part{bad, "  " + err.Error()})
		s.line(part{bad, sum.String()})
		return errFailed
	}
	s.line(part{strong, sum.String()})
	return nil
}

// errFailed is a failure whose words have been said.
var errFailed = errors.New("failed")

// watch waits for the reason to end, and for the first event within a while.
// It returns how long after the demo's start that event came, 0 for none.
func (st *stage) watch(ctx context.Context, opt options, reader *consumer, consumed, served *worker, began time.Time) (first time.Duration, why string, err error) {
	var end <-chan time.Time
	if opt.duration > 0 {
		end = time.After(opt.duration)
	}
	patience := time.After(30 * time.Second)
	arrived := reader.first
	for {
		select {
		case <-ctx.Done():
			return first, "as told", nil
		case <-end:
			return first, "after " + opt.duration.String(), nil
		case <-arrived:
			first, arrived, patience = time.Since(began), nil, nil
		case <-patience:
			return 0, "", st.relay.failed("no event reached the consumer", errors.New("30 s have passed"))
		case <-st.relay.done:
			return 0, "", st.relay.failed("tailer run ended by itself", fmt.Errorf("%v", st.relay.cmd.ProcessState))
		case <-consumed.done:
			return 0, "", fmt.Errorf("the consumer ended: %w", consumed.err)
		case <-served.done:
			return 0, "", served.err
		}
	}
}

// behind is how much of the WAL the relay's slot has not confirmed.
func (st *stage) behind(conn *pgx.Conn) (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = conn.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE slot_name = 'tailer'").Scan(&n)
	return max(0, n), err
}

// written is how many records the broker has in all topics.
func (st *stage) written(ctx context.Context) (int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(st.broker.Addrs()...))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the ends of the topics: %w", err)
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, ends.Error()
}

// waitUntil looks for a condition again and again, at most for limit.
func waitUntil(hurry context.Context, limit time.Duration, is func() bool) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && hurry.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return is()
}

// worker is a goroutine that its owner ends and waits for.
type worker struct {
	done chan struct{} // closed when it has ended
	err  error         // why; read after done
	stop context.CancelFunc
	once sync.Once
}

func newWorker(f func(context.Context) error) *worker {
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{done: make(chan struct{}), stop: cancel}
	go func() {
		w.err = f(ctx)
		close(w.done)
	}()
	return w
}

// end ends the worker and returns its error, the first time.
func (w *worker) end() (err error) {
	w.stop()
	<-w.done
	w.once.Do(func() { err = w.err })
	return err
}
