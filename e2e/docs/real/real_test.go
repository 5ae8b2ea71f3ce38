// Package real_test is the part of the documentation's tests that needs Java:
// Debezium itself, which hands its slot over, and a real Kafka with the tools
// that it brings.
package real_test

import (
	"fmt"

	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tailer-relay/tailer/e2e/debezium"
	"github.com/tailer-relay/tailer/e2e/docs/page"
	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

const waitLimit = time.Minute

// Debezium streams an outbox, is stopped in the midst of it, and tailer goes on
// from its slot, with the guide's configuration and Debezium's own publication;
// then back to Debezium. No event is lost, each key keeps its order, and what
// comes twice is the same record twice.
//
// Seen red with a slot that was made anew for tailer.
func TestTakeOverFromDebezium(t *testing.T) {
	doc := page.Open(t, "from-debezium.md", "")
	broker := kafka.NewReal(t, 1)
	kafka.CreateTopic(t, broker.Addrs(), "outbox.event.Order", 3, -1, nil)
	pg := postgres.New(t, postgres.Options{})
	pg.Exec(t, "CREATE DATABASE shop")
	pg.ExecIn(t, "shop", "CREATE TABLE public.outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb)",
		"CREATE TABLE orders (id bigint)")
	inserted := 0
	insert := func(events int) {
		t.Helper()
		for range events {
			inserted++
			pg.ExecIn(t, "shop", fmt.Sprintf("BEGIN; INSERT INTO orders VALUES (%d); INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('Order', 'order-%d', 'OrderPlaced', '{\"n\": %d}'); COMMIT",
				inserted, inserted%5, inserted))
		}
	}
	consumer := harness.NewConsumer(t, broker.Addrs(), "outbox.event.Order")

	// Slot, publication and all else as Debezium makes them.
	peer := debezium.New(t, pg, "shop", broker.Addrs(), nil)
	peer.Start()
	free := func() bool {
		return pg.Query1(t, "SELECT count(*) FROM pg_replication_slots WHERE active") == "0"
	}
	harness.Eventually(t, waitLimit, "Debezium to stream", func() bool { return !free() })
	insert(100)
	consumer.WaitDistinct(100, waitLimit)
	insert(50)
	peer.Stop()
	harness.Eventually(t, waitLimit, "the slot to be free", free)
	byDebezium := len(consumer.CatchUp(waitLimit))
	insert(50)

	var config harness.Config
	text := strings.NewReplacer("127.0.0.1:5432", pg.Addr(), "127.0.0.1:9092", broker.Addrs()[0]).Replace(doc.Next("yaml"))
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	if r := harness.Run(t, config, "init", "--apply"); r.Code != 0 {
		t.Fatalf("init: %s%s", r.Stdout, r.Stderr)
	}
	relay := harness.StartRelay(t, harness.RelayOptions{Config: config}).Ready()
	insert(50)
	consumer.WaitDistinct(inserted, waitLimit)
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	repeats := judge(t, consumer.CatchUp(waitLimit), inserted)
	t.Logf("%d events, %d by Debezium, %d of them again by tailer", inserted, byDebezium, repeats)
	if repeats > byDebezium {
		t.Errorf("%d repeats: more than Debezium had sent", repeats)
	}

	doc.Says("remove the connector's stored offsets")
	peer.Forget()
	peer.Start()
	harness.Eventually(t, waitLimit, "Debezium to stream again", func() bool { return !free() })
	insert(50)
	consumer.WaitDistinct(inserted, waitLimit)
	peer.Stop()
	harness.Eventually(t, waitLimit, "the slot to be free again", free)

	// Once more: the slot is further than tailer remembers, and a person decides.
	again := harness.StartRelay(t, harness.RelayOptions{Config: config})
	if code := again.WaitExit(waitLimit); code != 3 {
		t.Fatalf("exit code %d on a slot that another one has moved", code)
	}
	doc.Says("asks a person before it goes on (exit 3): `tailer slot accept-gap` is the answer")
	if r := harness.Run(t, config, "slot", "accept-gap"); r.Code != 0 {
		t.Fatalf("accept-gap: %s%s", r.Stdout, r.Stderr)
	}
	harness.StartRelay(t, harness.RelayOptions{Config: config}).Ready()
	insert(10)
	consumer.WaitDistinct(inserted, waitLimit)
	t.Logf("%d repeats in the end", judge(t, consumer.CatchUp(waitLimit), inserted))
}

// judge holds the records against what the guide promises, and counts repeats.
func judge(t *testing.T, records []harness.Record, events int) (repeats int) {
	t.Helper()
	first := map[string]harness.Record{}
	last := map[string]int{}
	for _, r := range records {
		id := r.ID()
		if before, again := first[id]; again {
			repeats++
			if string(before.Key) != string(r.Key) || string(before.Value) != string(r.Value) || before.Partition != r.Partition {
				t.Errorf("event %s came as %s/%s and as %s/%s", id, before.Key, before.Value, r.Key, r.Value)
			}
			continue
		}
		first[id] = r
		var n int
		if _, err := fmt.Sscanf(string(r.Value), `{"n": %d}`, &n); err != nil {
			t.Fatalf("value %s", r.Value)
		}
		if n <= last[string(r.Key)] {
			t.Errorf("key %s: event %d came after %d", r.Key, n, last[string(r.Key)])
		}
		last[string(r.Key)] = n
		for _, h := range r.Headers {
			if h.Key != "id" && !strings.HasPrefix(h.Key, "__debezium.context.") {
				t.Errorf("event %d has a header %s", n, h.Key)
			}
		}
	}
	if len(first) != events {
		t.Errorf("%d of %d events arrived", len(first), events)
	}
	return repeats
}

// The tutorial's way to read a topic inside of the container: Kafka's own
// console consumer, with the options as they stand.
func TestTutorialConsoleConsumer(t *testing.T) {
	doc := page.Open(t, "tutorial.md", "## With containers")
	var command string
	for command == "" {
		text := doc.Next("sh")
		if _, after, found := strings.Cut(text, "/opt/kafka/bin/kafka-console-consumer.sh "); found {
			command = after
		}
	}
	broker := kafka.NewReal(t, 1)
	kafka.CreateTopic(t, broker.Addrs(), "order", 3, -1, nil)
	pg := postgres.New(t, postgres.Options{})
	ledger := harness.Config{
		"postgres": harness.Config{"dsn": pg.DSN("postgres")},
		"kafka":    harness.Config{"brokers": broker.Addrs(), "topics": harness.Config{"create": true}},
		"schema":   harness.Config{"mode": "off"},
	}
	if r := harness.Run(t, ledger, "init", "--apply"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	harness.StartRelay(t, harness.RelayOptions{Config: ledger}).Ready()
	pg.Exec(t, `INSERT INTO outbox (aggregate_id, type, payload) VALUES ('order-42', 'order.placed.v1', '{"order_id": 42}')`)
	args := strings.Fields(strings.ReplaceAll(command, "kafka:9093", broker.Addrs()[0]))
	cmd := broker.Tool(t.Context(), "org.apache.kafka.tools.consumer.ConsoleConsumer", args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, text := range []string{"ce_type:order.placed.v1", "order-42", `{"order_id": 42}`} {
		if !strings.Contains(string(out), text) {
			t.Errorf("no %s in\n%s", text, out)
		}
	}
}
