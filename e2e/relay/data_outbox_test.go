package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/avro"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// waitLimit bounds every wait for something that must happen.
const waitLimit = 60 * time.Second

// loudness is how soon whatever an operator has to know must show.
const loudness = 10 * time.Second

// outbox is a database whose outbox was made by `tailer init --apply`, a broker,
// and the configuration of a relay between them.
type outbox struct {
	t      *testing.T
	pg     *postgres.Server
	fake   *kafka.Fake
	config harness.Config
	conn   *pgx.Conn
}

// outboxOptions say what a test wants otherwise than with the default preset.
type outboxOptions struct {
	config   map[string]any    // keys by path, over the defaults below
	schemas  map[string]string // type to schema text: validate by a folder, encode as single-object
	settings map[string]string // of Postgres
	before   []string          // statements before init, which leaves what is there alone
}

func newOutbox(t *testing.T, opt outboxOptions) *outbox {
	t.Helper()
	o := &outbox{t: t, pg: postgres.New(t, postgres.Options{Settings: opt.settings}), fake: kafka.NewFake(t, kafka.FakeOptions{})}
	o.config = harness.Config{
		"postgres": harness.Config{"dsn": o.pg.DSN("postgres")},
		"kafka":    harness.Config{"brokers": o.fake.Addrs(), "topics": harness.Config{"create": true}},
		"schema":   harness.Config{"mode": "off"},
	}
	if opt.schemas != nil {
		o.config["schema"] = harness.Config{"dir": schemaFolder(t, opt.schemas), "encoding": "single-object"}
	}
	for _, path := range slices.Sorted(maps.Keys(opt.config)) {
		o.config = o.config.With(path, opt.config[path])
	}
	o.pg.Exec(t, opt.before...)
	o.init(o.config)
	o.conn = o.pg.Conn(t, "postgres")
	return o
}

// grantState is what the role relay needs beside REPLICATION.
const grantState = "GRANT SELECT, INSERT, UPDATE ON tailer_state, tailer_state_gaps TO relay"

// init runs `tailer init --apply`.
func (o *outbox) init(config harness.Config) string {
	o.t.Helper()
	got := harness.Run(o.t, config, "init", "--apply")
	if got.Code != 0 {
		o.t.Fatalf("init --apply: exit code %d\n%s%s", got.Code, got.Stdout, got.Stderr)
	}
	return got.Stdout
}

// run starts a relay and waits until it streams.
func (o *outbox) run(config harness.Config, env ...string) *harness.Relay {
	o.t.Helper()
	return harness.StartRelay(o.t, harness.RelayOptions{Config: config, Env: env}).Ready()
}

// insert commits a row of the default preset's table and returns its id.
func (o *outbox) insert(key, typ, payload string) string {
	o.t.Helper()
	return o.text("INSERT INTO outbox (aggregate_id, type, payload) VALUES ($1, $2, $3) RETURNING id::text", key, typ, payload)
}

// text is the one value of a query, which gives it as text.
func (o *outbox) text(sql string, args ...any) string {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var text string
	if err := o.conn.QueryRow(ctx, sql, args...).Scan(&text); err != nil {
		o.t.Fatalf("%s %q: %v", sql, args, err)
	}
	return text
}

// read waits until the topics hold n records, looks that there are no more, and
// returns them by id. An event without or with two records fails the test.
func (o *outbox) read(n int, topics ...string) map[string]*harness.Record {
	o.t.Helper()
	consumer := harness.NewConsumer(o.t, o.fake.Addrs(), topics...)
	defer consumer.Close()
	consumer.WaitLen(n, waitLimit)
	byID := map[string]*harness.Record{}
	for _, r := range consumer.CatchUp(waitLimit) {
		if byID[r.ID()] != nil {
			o.t.Errorf("two records of event %q", r.ID())
		}
		byID[r.ID()] = &r
	}
	if len(byID) != n {
		o.t.Fatalf("%d different events, want %d", len(byID), n)
	}
	return byID
}

// schemaFolder makes a folder of <type>.avsc files.
func schemaFolder(t *testing.T, schemas map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for typ, text := range schemas {
		if err := os.WriteFile(filepath.Join(dir, typ+".avsc"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// decodeBody reads an Avro body with the independent decoder, to its last byte.
func decodeBody(t *testing.T, schema string, body []byte) any {
	t.Helper()
	s, err := avro.Parse(schema)
	if err != nil {
		t.Fatal(err)
	}
	var got any
	rest, err := s.Decode(body, &got)
	if err != nil || len(rest) > 0 {
		t.Fatalf("body %x: %v, %d bytes left", body, err, len(rest))
	}
	return got
}

// decodeSingle does so after the header of a single object, which must name the schema.
func decodeSingle(t *testing.T, schema string, value []byte) any {
	t.Helper()
	want := avro.MustParse(schema).Fingerprint(avro.NewRabin())
	slices.Reverse(want) // big endian there, little on the wire
	if header := append([]byte{0xC3, 0x01}, want...); !bytes.HasPrefix(value, header) {
		t.Fatalf("value %x does not begin with %x", value, header)
	}
	return decodeBody(t, schema, value[10:])
}

// number reads a JSON or Avro number exactly.
func number(v any) (*big.Rat, bool) {
	switch v := v.(type) {
	case json.Number:
		return new(big.Rat).SetString(v.String())
	case int32:
		return new(big.Rat).SetInt64(int64(v)), true
	case int64:
		return new(big.Rat).SetInt64(v), true
	case float32:
		return new(big.Rat).SetFloat64(float64(v)), true
	case float64:
		return new(big.Rat).SetFloat64(v), true
	case *big.Rat:
		return v, true
	case big.Rat:
		return &v, true
	}
	return nil, false
}

// differs compares a document as the database has it with what the independent
// decoder read, by value, and says where they part; "" when they do not.
func differs(path string, sql, read any) string {
	if a, ok := number(sql); ok {
		if b, ok := read.(float64); ok { // the nearest one is exact
			if nearest, _ := a.Float64(); nearest == b {
				return ""
			}
		}
		if b, ok := number(read); ok && a.Cmp(b) == 0 {
			return ""
		}
	} else if a, ok := sql.(map[string]any); ok {
		b, ok := read.(map[string]any)
		if ok && len(a) == len(b) {
			for name, v := range a {
				if d := differs(path+"."+name, v, b[name]); d != "" {
					return d
				}
			}
			return ""
		}
	} else if a, ok := sql.([]any); ok {
		b, ok := read.([]any)
		if ok && len(a) == len(b) {
			for i, v := range a {
				if d := differs(fmt.Sprintf("%s[%d]", path, i), v, b[i]); d != "" {
					return d
				}
			}
			return ""
		}
	} else if sql == read {
		return ""
	}
	return fmt.Sprintf("at %s the database has %#v, the record %#v", path, sql, read)
}

// parseJSON keeps numbers as they are written.
func parseJSON(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// deadLetter is what a dead letter must say beside what follows from its row.
type deadLetter struct {
	topic        string // of the letter
	reason, path string
	wanted       string // the topic it would have gone to; "": unknown
}

// checkDeadLetter holds a dead letter against its row: everything that an
// operator needs to find and to mend the event is in it.
func (o *outbox) checkDeadLetter(id string, r *harness.Record, want deadLetter) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var key, typ, payload *string
	if err := o.conn.QueryRow(ctx, "SELECT aggregate_id, type, payload::text FROM outbox WHERE id::text = $1", id).Scan(&key, &typ, &payload); err != nil {
		o.t.Fatal(err)
	}
	if r.Topic != want.topic {
		o.t.Errorf("event %s, %s, is in topic %s and not a dead letter", id, *payload, r.Topic)
		return
	}
	if !sameBytes(r.Key, key) || !sameBytes(r.Value, payload) {
		o.t.Errorf("dead letter %s has key %q and value %q, its row differs", id, r.Key, r.Value)
	}
	headers := map[string]string{"dlq_reason": want.reason, "dlq_path": want.path, "dlq_type": *typ, "dlq_topic": want.wanted, "dlq_id": id}
	for name, value := range headers {
		if got, ok := r.Header(name); got != value || ok != (value != "") {
			o.t.Errorf("dead letter of %s: %s is %q (%v), want %q", *payload, name, got, ok, value)
		}
	}
	if message, _ := r.Header("dlq_message"); message == "" {
		o.t.Errorf("dead letter of %s says no more than its reason", *payload)
	}
	if sequence, _ := r.Header("dlq_sequence"); len(sequence) != 27 {
		o.t.Errorf("dead letter of %s has sequence %q", *payload, sequence)
	}
	committed, _ := r.Header("dlq_committed_at")
	if at, err := time.Parse("2006-01-02T15:04:05.000000Z", committed); err != nil || at.UnixMilli() != r.Timestamp.UnixMilli() {
		o.t.Errorf("dead letter of %s was committed at %q, its timestamp is %v (%v)", *payload, committed, r.Timestamp, err)
	}
}

func sameBytes(b []byte, text *string) bool {
	return (b == nil) == (text == nil) && (text == nil || string(b) == *text)
}

// byOffset sorts the records of one partition.
func byOffset(records map[string]*harness.Record) []*harness.Record {
	return slices.SortedFunc(maps.Values(records), func(a, b *harness.Record) int { return int(a.Offset - b.Offset) })
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// waitMetric waits until a metric has a value: a record can be read a moment
// before the relay has counted it.
func waitMetric(t *testing.T, relay *harness.Relay, want float64, name string, labels ...string) {
	t.Helper()
	harness.Eventually(t, loudness, fmt.Sprintf("%s %v to be %v", name, labels, want), func() bool {
		got, _ := relay.Metrics().Sum(name, labels...)
		return got == want
	})
}
