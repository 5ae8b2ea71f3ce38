package sink

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// vector is a record of Debezium's outbox event router, recorded from topics of three partitions.
type vector struct {
	ID        string
	Topic     string
	Partition *int
	Key       *string
	Value     *string
	Headers   [][2]*string
}

func vectors(t *testing.T, file string) []vector {
	t.Helper()
	f, err := os.Open("testdata/debezium/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []vector
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if len(all) != 12 {
		t.Fatalf("%s has %d vectors", file, len(all))
	}
	return all
}

func maybe(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// debeziumConfig is what the preset of that name makes of a configuration.
func debeziumConfig() BatchConfig {
	cfg := config(Debezium)
	cfg.Topic = "outbox.event.{aggregatetype}"
	return cfg
}

// event is the row behind a vector. Values of header columns are as the column plan gives them.
func (v vector) event(t *testing.T) *Event {
	t.Helper()
	aggregate, ok := strings.CutPrefix(v.Topic, "outbox.event.")
	if !ok {
		t.Fatalf("topic %s", v.Topic)
	}
	ev := &Event{
		CommitTime: commitTime, ID: []byte(v.ID), Key: maybe(v.Key), Payload: maybe(v.Value), AggregateType: []byte(aggregate),
		Type: []byte("Any Type"), Headers: []byte(`{"not": "sent"}`), Tenant: []byte("not sent"),
	}
	for _, h := range v.Headers[1:] {
		ev.HeaderColumns = append(ev.HeaderColumns, maybe(h[1]))
	}
	return ev
}

func TestDebeziumVectors(t *testing.T) {
	for _, file := range []string{"passthrough.jsonl", "headers.jsonl"} {
		nulls := 0
		for _, v := range vectors(t, file) {
			cfg := debeziumConfig()
			for _, h := range v.Headers[1:] {
				cfg.HeaderColumns = append(cfg.HeaderColumns, *h[0])
			}
			r := recordOf(t, cfg, verbatimEncoder{}, v.event(t))
			if v.Value == nil {
				// The one difference: a NULL payload is a dead letter unless tombstones are wanted.
				nulls++
				wantReason(t, r, ReasonNullPayload, "")
				cfg.NullPayloadTombstone = true
				r = recordOf(t, cfg, verbatimEncoder{}, v.event(t))
			}
			if r.Topic != v.Topic {
				t.Errorf("%s %s: topic %s, want %s", file, v.ID, r.Topic, v.Topic)
			}
			if text(r.Key) != text(maybe(v.Key)) || text(r.Value) != text(maybe(v.Value)) {
				t.Errorf("%s %s: key %s, value %s; want %s, %s", file, v.ID, text(r.Key), text(r.Value), text(maybe(v.Key)), text(maybe(v.Value)))
			}
			var lines strings.Builder
			for _, h := range v.Headers {
				lines.WriteString(*h[0] + "=" + text(maybe(h[1])) + "\n")
			}
			want(t, showHeaders(r), lines.String())
		}
		if nulls != 1 {
			t.Errorf("%s: %d vectors with a NULL payload", file, nulls)
		}
	}
}

func partition(r *kgo.Record, n int) int {
	return kgo.StickyKeyPartitioner(nil).ForTopic(r.Topic).Partition(r, n)
}

func TestPartitionsAreDebeziums(t *testing.T) {
	checked := 0
	for _, v := range vectors(t, "headers.jsonl") {
		if v.Partition == nil {
			continue
		}
		cfg := debeziumConfig()
		cfg.NullPayloadTombstone = true
		if got := partition(recordOf(t, cfg, verbatimEncoder{}, v.event(t)), 3); got != *v.Partition {
			t.Errorf("key %q: partition %d, want %d", *v.Key, got, *v.Partition)
		}
		checked++
	}
	if checked != 11 {
		t.Errorf("%d keys checked", checked)
	}
}

// javaHash is the hash of Kafka's Java producer, written after its definition: MurmurHash2 of 32 bits with seed
// 0x9747b28c, little-endian words.
func javaHash(data []byte) uint32 {
	const m, seed = 0x5bd1e995, 0x9747b28c
	h := uint32(seed) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h *= m
		h ^= k
	}
	for i := len(data) - 1; i >= 0; i-- {
		h ^= uint32(data[i]) << (8 * i)
	}
	if len(data) > 0 {
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// The hashes that Kafka's own tests expect of the Java code.
var javaHashes = map[string]int32{
	"21":                         -973932308,
	"foobar":                     -790332482,
	"a-little-bit-long-string":   -985981536,
	"a-little-bit-longer-string": -1486304829,
	"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
	"abc": 479470107,
}

func TestPartitionsAreJavas(t *testing.T) {
	keys := [][]byte{{}, []byte("k 3"), []byte("ünïcode ✓"), []byte("订单-42"), bytes.Repeat([]byte("long key "), 8000), {0}, {0xff, 0x80, 0x7f}}
	for key, hash := range javaHashes {
		if got := int32(javaHash([]byte(key))); got != hash {
			t.Errorf("%q: hash %d, want %d", key, got, hash)
		}
		keys = append(keys, []byte(key))
	}
	for i := range 64 {
		keys = append(keys, bytes.Repeat([]byte{byte(i), 0xe0 + byte(i)/2, 3}, i)[:i])
	}
	for _, key := range keys {
		ev := order()
		ev.Key = key
		r := recordOf(t, config(CloudEvents), verbatimEncoder{}, ev)
		for _, n := range []int{1, 3, 12, 1000, math.MaxInt32} {
			if got, want := partition(r, n), int(javaHash(key)&0x7fffffff)%n; got != want {
				t.Errorf("%d bytes %.20q, %d partitions: %d, want %d", len(key), key, n, got, want)
			}
		}
	}
}
