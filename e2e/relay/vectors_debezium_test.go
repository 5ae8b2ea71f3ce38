package relay_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// debeziumVector is a record as Debezium's Outbox Event Router emitted it.
type debeziumVector struct {
	ID, Topic  string
	Partition  *int32
	Key, Value *string
	Headers    [][2]*string
}

func debeziumVectors(t *testing.T, name string) []debeziumVector {
	t.Helper()
	f, err := os.Open("../../sink/testdata/debezium/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []debeziumVector
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v debeziumVector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if len(all) != 12 {
		t.Fatalf("%d vectors in %s", len(all), name)
	}
	return all
}

// The rows behind the vectors, relayed from a real Postgres with the preset and
// a switched-on header or two, are the records of Debezium: topic, partition,
// key, value and headers, byte for byte. What a NULL payload becomes is ours to
// say: a dead letter, or with null_payload: tombstone what Debezium does.
//
// Seen red with null headers left out, and with another hash for the partition.
func TestDebeziumVectors(t *testing.T) {
	t.Parallel()
	rows, err := os.ReadFile("testdata/debezium/rows.sql")
	if err != nil {
		t.Fatal(err)
	}
	o := newOutbox(t, outboxOptions{config: map[string]any{
		"outbox":                  harness.Config{"table": "public.obx", "preset": "debezium"},
		"kafka.topics.partitions": 3,
	}, before: []string{createStatement(t, string(rows))}})
	// YAML maps lose their order in Go: the flag has it.
	columns := "--outbox-header-columns=eventType=type,tenant=tenant,occurred_at=occurred_at,local_at=local_at,day=day,n=n,i=i,amount=amount,flag=flag,u=u"
	cases := []struct {
		name, vectors string
		tombstone     bool
		args          []string
	}{
		{name: "passthrough", vectors: "passthrough"},
		{name: "headers", vectors: "headers", args: []string{columns}},
		{name: "tombstone", vectors: "headers", tombstone: true, args: []string{columns}},
	}
	configs := map[string]harness.Config{}
	for _, c := range cases {
		config := o.config.With("postgres.slot", c.name).With("routing.topic", c.name+".{aggregatetype}")
		if c.name == "passthrough" {
			config = config.With("routing.topic", nil) // the preset's own
		}
		if c.tombstone {
			config = config.With("outbox.null_payload", "tombstone")
		}
		configs[c.name] = config
		o.init(config)
	}
	o.pg.Exec(t, insertStatements(t, string(rows))...)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := *o
			o.t = t
			harness.StartRelay(t, harness.RelayOptions{Config: configs[c.name], Args: c.args}).Ready()
			prefix := c.name + "."
			if c.name == "passthrough" {
				prefix = "outbox.event."
			}
			vectors := debeziumVectors(t, c.vectors)
			records := o.read(len(vectors), prefix+"order", prefix+"Order.Sub", c.name+".dlq")
			for _, v := range vectors {
				v.Topic = prefix + v.Topic[len("outbox.event."):]
				r := records[v.ID]
				if r == nil {
					t.Errorf("no record of %s", v.ID)
					continue
				}
				if v.Value == nil && !c.tombstone {
					if reason, _ := r.Header("dlq_reason"); r.Topic != c.name+".dlq" || reason != "null_payload" || !sameBytes(r.Key, v.Key) || r.Value != nil {
						t.Errorf("the NULL payload is in %s, reason %q, key %q, value %q", r.Topic, reason, r.Key, r.Value)
					}
					continue
				}
				compareDebezium(t, v, r)
			}
		})
	}
}

func compareDebezium(t *testing.T, v debeziumVector, r *harness.Record) {
	t.Helper()
	if r.Topic != v.Topic || (v.Partition != nil && r.Partition != *v.Partition) {
		t.Errorf("%s is in %s/%d, Debezium's in %s/%v", v.ID, r.Topic, r.Partition, v.Topic, v.Partition)
	}
	if !sameBytes(r.Key, v.Key) || !sameBytes(r.Value, v.Value) {
		t.Errorf("%s has key %q and value %q, Debezium's %q and %q", v.ID, r.Key, r.Value, text(v.Key), text(v.Value))
	}
	if len(r.Headers) != len(v.Headers) {
		t.Errorf("%s has %d headers, Debezium's has %d", v.ID, len(r.Headers), len(v.Headers))
		return
	}
	for i, h := range v.Headers {
		if got := r.Headers[i]; got.Key != *h[0] || !sameBytes(got.Value, h[1]) {
			t.Errorf("%s: header %d is %s=%q, Debezium's %s=%q", v.ID, i, got.Key, got.Value, *h[0], text(h[1]))
		}
	}
}

func text(s *string) string {
	if s == nil {
		return "(null)"
	}
	return *s
}

// createStatement and insertStatements take the script apart: the table must be
// there before its publication, the rows come after the slots.
func createStatement(t *testing.T, script string) string {
	t.Helper()
	start, end := strings.Index(script, "CREATE TABLE"), strings.Index(script, "set timezone")
	if start < 0 || end < start {
		t.Fatalf("no table in the script:\n%s", script)
	}
	return script[start:end]
}

func insertStatements(t *testing.T, script string) []string {
	t.Helper()
	parts := strings.Split(script, "\ninsert into ")
	if len(parts) != 4 {
		t.Fatalf("%d inserts in the script", len(parts)-1)
	}
	statements := []string{"SET timezone = 'UTC'"}
	for _, part := range parts[1:] {
		statements = append(statements, "insert into "+part)
	}
	return statements
}
