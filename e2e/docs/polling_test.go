package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/docs/page"
	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// The guide's switch-over, with a poller as they are found in the field and with
// writers that never rest: every event once, none twice, in the order of its key.
//
// Seen red without step 3, and with step 3 at the position where step 2 has ended.
func TestFromAPollingRelay(t *testing.T) {
	t.Parallel()
	doc := page.Open(t, "from-a-polling-relay.md", "")
	pg := postgres.New(t, postgres.Options{})
	pg.Exec(t, "CREATE DATABASE shop")
	fake := kafka.NewFake(t, kafka.FakeOptions{Topics: map[string]int32{"orders": 3, "tailer.dlq": 1}})
	at := newPlace(t, pg, "127.0.0.1:9092", fake.Addrs()[0])

	at.sql("shop", doc.Next("sql"))
	at.write("tailer.yaml", doc.Next("yaml"))
	writers := write(t, pg, 4)
	poller := poll(t, pg, fake.Addrs())
	harness.Eventually(t, waitLimit, "events by the poller", func() bool { return poller.sent.Load() > 100 })

	// 1. Publication and slot.
	if out := at.sh(doc.Next("sh")); !strings.Contains(out, "outbox_events exists, skipped") && !strings.Contains(out, `"outbox_events" exists, skipped`) {
		t.Errorf("the table was not skipped:\n%s", out)
	}
	poller.more(t)

	// 2 and 3. The outbox changes hands, and the slot begins there.
	at.sql("shop", doc.Next("sql"))
	writers.more(t)
	at.sql("shop", doc.Next("sql"))

	// 4. The poller comes to its end by itself.
	left := doc.Next("sql")
	harness.Eventually(t, waitLimit, "the poller to finish", func() bool { return at.sql("shop", left) == "0" })
	poller.stop()
	writers.more(t)

	// 5. tailer goes on.
	relay := at.start(doc.Next("sh"))
	const health = "bin/tailer health --config tailer.yaml"
	at.ready(health, relay)
	writers.more(t)

	// Afterwards: the table loses what it no longer needs, under a running relay.
	at.sql("shop", doc.Next("sql"))
	writers.more(t)
	clean := doc.Next("sql")
	doc.End()
	pg.ExecIn(t, "shop", "UPDATE outbox_events SET created_at = created_at - interval '8 days' WHERE id % 2 = 0")
	at.sql("shop", clean)
	if n := pg.Query1In(t, "shop", "SELECT count(*) FILTER (WHERE id % 2 = 0 AND created_at < now() - interval '7 days') FROM outbox_events"); n != "0" {
		t.Errorf("%s old rows are left", n)
	}
	writers.stop()
	pg.ExecIn(t, "shop", "BEGIN; INSERT INTO outbox_events (aggregate_id, event_type, payload) VALUES ('gone', 'order.changed.v1', '1'); DELETE FROM outbox_events; COMMIT")

	total := int(writers.written.Load()) + 1
	consumer := harness.NewConsumer(t, fake.Addrs(), "orders", "tailer.dlq")
	consumer.WaitLen(total, waitLimit)
	lag(t, at)
	relay.stop()
	next, byTailer := map[string]int64{}, 0
	for _, r := range consumer.CatchUp(waitLimit) {
		if _, ok := r.Header("ce_id"); ok {
			byTailer++
		}
		if r.Topic != "orders" {
			t.Fatalf("a record in %s: %v", r.Topic, r.Headers)
		}
		next[string(r.Key)]++
		if want := next[string(r.Key)]; string(r.Value) != fmt.Sprint(want) {
			t.Fatalf("key %s: event %s came as number %d", r.Key, r.Value, want)
		}
	}
	if n := consumer.Len(); n != total {
		t.Errorf("%d records of %d events", n, total)
	}
	if polled := int(poller.sent.Load()); polled+byTailer != total || byTailer < 100 {
		t.Errorf("%d events by the poller and %d by tailer, of %d", polled, byTailer, total)
	}

	doc.Says("Even a row that is deleted before tailer came to it is sent")
}

// There and back, with writers at rest in between.
func TestFromAPollingRelayAndBack(t *testing.T) {
	t.Parallel()
	doc := page.Open(t, "from-a-polling-relay.md", "")
	pg := postgres.New(t, postgres.Options{})
	pg.Exec(t, "CREATE DATABASE shop")
	fake := kafka.NewFake(t, kafka.FakeOptions{Topics: map[string]int32{"orders": 1, "tailer.dlq": 1}})
	at := newPlace(t, pg, "127.0.0.1:9092", fake.Addrs()[0])
	insert := func(from, to int) {
		t.Helper()
		pg.ExecIn(t, "shop", fmt.Sprintf("INSERT INTO outbox_events (aggregate_id, event_type, payload) SELECT 'a', 'order.changed.v1', to_jsonb(n) FROM generate_series(%d, %d) n", from, to))
	}
	consumer := harness.NewConsumer(t, fake.Addrs(), "orders")
	at.sql("shop", doc.Next("sql"))
	at.write("tailer.yaml", doc.Next("yaml"))
	insert(1, 10)
	poller := poll(t, pg, fake.Addrs())
	at.sh(doc.Next("sh"))
	at.sql("shop", doc.Next("sql"))
	at.sql("shop", doc.Next("sql"))
	left := doc.Next("sql")
	harness.Eventually(t, waitLimit, "the poller to finish", func() bool { return at.sql("shop", left) == "0" })
	poller.stop()
	insert(11, 20)
	relay := at.start(doc.Next("sh"))
	at.ready("bin/tailer health --config tailer.yaml", relay)
	insert(21, 30)
	consumer.WaitLen(30, waitLimit)

	lag(t, at)
	relay.stop()
	back := "DROP TRIGGER handed_over ON public.outbox_events"
	doc.Says("wait until `tailer status` shows a lag of 0, stop tailer, `" + back + "`, start the poller")
	pg.ExecIn(t, "shop", back)
	poll(t, pg, fake.Addrs())
	insert(31, 40)
	consumer.WaitLen(40, waitLimit)
	for i, r := range consumer.CatchUp(waitLimit) {
		if string(r.Value) != fmt.Sprint(i+1) {
			t.Fatalf("record %d is of event %s", i+1, r.Value)
		}
	}
}

// lag waits until status says that nothing is left.
func lag(t *testing.T, at *place) {
	t.Helper()
	harness.Eventually(t, waitLimit, "a lag of 0", func() bool {
		var status struct {
			Slot struct {
				Lag *int64 `json:"lag_bytes"`
			}
		}
		return json.Unmarshal([]byte(at.sh("bin/tailer status --json --config tailer.yaml")), &status) == nil && status.Slot.Lag != nil && *status.Slot.Lag == 0
	})
}

// worker is a goroutine or several that count what they do.
type worker struct {
	what          string
	end           context.CancelFunc
	all           sync.WaitGroup
	written, sent atomic.Int64
}

func (w *worker) stop() {
	w.end()
	w.all.Wait()
}

// more waits until there is clearly more of what the worker does.
func (w *worker) more(t *testing.T) {
	t.Helper()
	count := func() int64 { return w.written.Load() + w.sent.Load() }
	before := count()
	harness.Eventually(t, waitLimit, "more events "+w.what, func() bool { return count() > before+200 })
}

// write inserts events, each writer under a key of its own, counted from 1, as
// an application does: its own data first.
func write(t *testing.T, pg *postgres.Server, writers int) *worker {
	t.Helper()
	pg.ExecIn(t, "shop", "CREATE TABLE orders (id bigserial PRIMARY KEY)")
	ctx, end := context.WithCancel(t.Context())
	w := &worker{what: "written", end: end}
	conns := make([]*pgx.Conn, writers)
	for i := range conns {
		conns[i] = pg.Conn(t, "shop")
	}
	t.Cleanup(w.stop) // before the connections are closed
	for i, conn := range conns {
		w.all.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
					if _, err := tx.Exec(context.Background(), "INSERT INTO orders DEFAULT VALUES"); err != nil {
						return err
					}
					_, err := tx.Exec(context.Background(), "INSERT INTO outbox_events (aggregate_id, event_type, payload) VALUES ($1, 'order.changed.v1', to_jsonb($2::int))",
						fmt.Sprintf("key-%d", i), n)
					return err
				})
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				w.written.Add(1)
			}
		})
	}
	return w
}

// poll is the relay to be replaced.
func poll(t *testing.T, pg *postgres.Server, brokers []string) *worker {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	w := &worker{what: "polled", end: end}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	conn := pg.Conn(t, "shop")
	t.Cleanup(func() { w.stop(); client.Close() })
	w.all.Go(func() {
		for ctx.Err() == nil {
			n, err := pollOnce(conn, client)
			if err != nil {
				t.Errorf("poller: %v", err)
				return
			}
			w.sent.Add(int64(n))
			if n == 0 {
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
	})
	return w
}

func pollOnce(conn *pgx.Conn, client *kgo.Client) (n int, err error) {
	ctx := context.Background()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT id, aggregate_id, payload::text FROM outbox_events WHERE published_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED")
		if err != nil {
			return err
		}
		var ids []int64
		var records []*kgo.Record
		var id int64
		var key, payload string
		if _, err = pgx.ForEachRow(rows, []any{&id, &key, &payload}, func() error {
			ids = append(ids, id)
			records = append(records, &kgo.Record{Topic: "orders", Key: []byte(key), Value: []byte(payload),
				Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Append(nil, id)}}})
			return nil
		}); err != nil || len(ids) == 0 {
			return err
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		n = len(ids)
		_, err = tx.Exec(ctx, "UPDATE outbox_events SET published_at = now() WHERE id = ANY($1)", ids)
		return err
	})
	return n, err
}
