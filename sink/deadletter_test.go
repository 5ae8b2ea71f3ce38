package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestDeadLetterAtAdd(t *testing.T) {
	invalid := &framedEncoder{
		info: EncodeInfo{DataSchema: "http://sr/schemas/ids/7", SchemaHeader: []byte{1}},
		err:  fmt.Errorf("encode: %w", &Rejection{Reason: ReasonInvalid, Path: "$.n", Message: "expected string, found number"}),
	}
	small := func() *Event {
		return &Event{
			CommitLSN: 0xA, Ordinal: 2, CommitTime: commitTime, ID: []byte("e-1"), Key: []byte("42"),
			Type: []byte("orders.placed.v1"), Payload: []byte(`{"n": 1}`), Headers: []byte(`{"region":"eu"}`),
		}
	}
	with := func(change func(*Event)) *Event {
		ev := small()
		change(ev)
		return ev
	}
	for _, c := range []struct {
		name string
		cfg  BatchConfig
		enc  Encoder
		ev   *Event
		want string
	}{
		{"invalid payload", config(CloudEvents), invalid, small(), `
			shop.dlq "42" "{\"n\": 1}" 04:06:07.891000
			ce_specversion="1.0"
			ce_id="e-1"
			ce_source="urn:tailer:shop"
			ce_type="orders.placed.v1"
			ce_subject="42"
			ce_time="2026-03-04T04:06:07.891234Z"
			ce_dataschema="http://sr/schemas/ids/7"
			content-type="application/json"
			__value_schema_id="\x01"
			ce_sequence="000000000000000A-0000000002"
			region="eu"
			dlq_reason="invalid"
			dlq_message="expected string, found number"
			dlq_path="$.n"
			dlq_type="orders.placed.v1"
			dlq_topic="orders"
			dlq_id="e-1"
			dlq_sequence="000000000000000A-0000000002"
			dlq_committed_at="2026-03-04T04:06:07.891234Z"`},
		{"debezium", config(Debezium), invalid, small(), `
			shop.dlq "42" "{\"n\": 1}" 04:06:07.891000
			id="e-1"
			__value_schema_id="\x01"
			dlq_reason="invalid"
			dlq_message="expected string, found number"
			dlq_path="$.n"
			dlq_type="orders.placed.v1"
			dlq_topic="orders"
			dlq_id="e-1"
			dlq_sequence="000000000000000A-0000000002"
			dlq_committed_at="2026-03-04T04:06:07.891234Z"`},
		{"bad headers", config(Plain), verbatimEncoder{}, with(func(ev *Event) { ev.Headers = []byte(`[1]`) }), `
			shop.dlq "42" "{\"n\": 1}" 04:06:07.891000
			id="e-1"
			type="orders.placed.v1"
			aggregate_id="42"
			sequence="000000000000000A-0000000002"
			content-type="application/json"
			dlq_reason="invalid"
			dlq_message="expected a JSON object, found an array"
			dlq_path="$headers"
			dlq_type="orders.placed.v1"
			dlq_topic="orders"
			dlq_id="e-1"
			dlq_sequence="000000000000000A-0000000002"
			dlq_committed_at="2026-03-04T04:06:07.891234Z"`},
		{"unroutable", config(Plain), verbatimEncoder{}, with(func(ev *Event) { ev.Type = []byte("placed") }), `
			shop.dlq "42" "{\"n\": 1}" 04:06:07.891000
			id="e-1"
			type="placed"
			aggregate_id="42"
			sequence="000000000000000A-0000000002"
			content-type="application/json"
			region="eu"
			dlq_reason="unroutable"
			dlq_message="event type \"placed\" has not the shape <domain>.<event>.v<n>, and routing.default is not set"
			dlq_type="placed"
			dlq_id="e-1"
			dlq_sequence="000000000000000A-0000000002"
			dlq_committed_at="2026-03-04T04:06:07.891234Z"`},
		{"illegal topic", config(Debezium), verbatimEncoder{}, with(func(ev *Event) { ev.Type = []byte("a b.c.v1") }), `
			shop.dlq "42" "{\"n\": 1}" 04:06:07.891000
			id="e-1"
			dlq_reason="invalid_topic"
			dlq_message="\"a b\" is no topic name: it holds \" \", Kafka takes letters, digits, '.', '_' and '-'"
			dlq_type="a b.c.v1"
			dlq_topic="a b"
			dlq_id="e-1"
			dlq_sequence="000000000000000A-0000000002"
			dlq_committed_at="2026-03-04T04:06:07.891234Z"`},
		{"NULL payload", config(Debezium), verbatimEncoder{}, with(func(ev *Event) { ev.Payload = nil }), `
			shop.dlq "42" null 04:06:07.891000
			id="e-1"
			dlq_reason="null_payload"
			dlq_message="the payload is NULL and outbox.null_payload is dlq"
			dlq_type="orders.placed.v1"
			dlq_topic="orders"
			dlq_id="e-1"
			dlq_sequence="000000000000000A-0000000002"
			dlq_committed_at="2026-03-04T04:06:07.891234Z"`},
		{"everything NULL", config(CloudEvents), verbatimEncoder{}, &Event{CommitLSN: 0xA, CommitTime: commitTime}, `
			shop.dlq null null 04:06:07.891000
			ce_specversion="1.0"
			ce_source="urn:tailer:shop"
			ce_time="2026-03-04T04:06:07.891234Z"
			content-type="application/json"
			ce_sequence="000000000000000A-0000000000"
			dlq_reason="unroutable"
			dlq_message="the event type is NULL, and routing.default is not set"
			dlq_sequence="000000000000000A-0000000000"
			dlq_committed_at="2026-03-04T04:06:07.891234Z"`},
		{"everything NULL, debezium", config(Debezium), verbatimEncoder{}, &Event{CommitLSN: 0xA, CommitTime: commitTime}, `
			shop.dlq null null 04:06:07.891000
			id=null
			dlq_reason="unroutable"
			dlq_message="the event type is NULL, and routing.default is not set"
			dlq_sequence="000000000000000A-0000000000"
			dlq_committed_at="2026-03-04T04:06:07.891234Z"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			want(t, show(recordOf(t, c.cfg, c.enc, c.ev)), c.want)
		})
	}
}

// A CloudEvent needs an id and a type; the other profiles send what is there.
func TestNullIdentity(t *testing.T) {
	for _, c := range []struct {
		change func(*Event)
		path   string
	}{
		{func(ev *Event) { ev.ID = nil }, "$id"},
		{func(ev *Event) { ev.ID = []byte{} }, "$id"},
		{func(ev *Event) { ev.Type = nil }, "$type"},
		{func(ev *Event) { ev.Type = []byte{} }, "$type"},
	} {
		cfg := config(CloudEvents)
		cfg.Topic = "events"
		ev := order()
		c.change(ev)
		wantReason(t, recordOf(t, cfg, verbatimEncoder{}, ev), ReasonInvalid, c.path)
		for _, p := range []Profile{Plain, Debezium} {
			cfg.Profile = p
			if r := recordOf(t, cfg, verbatimEncoder{}, ev); r.Topic != "events" {
				t.Errorf("%s, no %s: topic %s", p, c.path, r.Topic)
			}
		}
	}
}

// Several things wrong: the documented order decides.
func TestFirstReason(t *testing.T) {
	cfg := config(CloudEvents)
	cfg.NullKeyDLQ = true
	enc := &framedEncoder{err: &Rejection{Reason: ReasonNoSchema, Message: "m"}}
	ev := &Event{CommitTime: commitTime, Type: []byte("x"), Headers: []byte(`{`)}
	for _, step := range []struct {
		reason Reason
		path   string
		mend   func()
	}{
		{ReasonUnroutable, "", func() { ev.Type = []byte("a b.c.v1") }},
		{ReasonInvalidTopic, "", func() { ev.Type = []byte("a.b.v1") }},
		{ReasonNullKey, "", func() { ev.Key = []byte("k") }},
		{ReasonNullPayload, "", func() { ev.Payload = []byte("{}") }},
		{ReasonInvalid, "$id", func() { ev.ID = []byte("1") }},
		{ReasonInvalid, "$headers", func() { ev.Headers = nil }},
		{ReasonNoSchema, "", func() {}},
	} {
		b := builder(t, cfg, enc).NewBatch()
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
		if r := b.records[0]; !r.dead || r.reason != step.reason {
			t.Errorf("dead %t, reason %q, want %q", r.dead, r.reason, step.reason)
		}
		wantReason(t, b.seal()[0], step.reason, step.path)
		step.mend()
	}
}

// A record refused by the broker gets the dead letter it would have got from Add.
func TestDeadLetterAfterwards(t *testing.T) {
	for _, p := range []Profile{CloudEvents, Plain, Debezium} {
		cfg := config(p)
		rej := &Rejection{Reason: ReasonTooLarge, Path: "$", Message: "too large"}
		b := builder(t, cfg, &framedEncoder{}).NewBatch()
		if err := b.Add(order()); err != nil {
			t.Fatal(err)
		}
		sealed := show(b.seal()[0])
		got := b.deadLetter(0, rej)
		atAdd := recordOf(t, cfg, &framedEncoder{err: rej}, order())
		if show(got) != show(atAdd) {
			t.Errorf("%s: got\n%swant\n%s", p, show(got), show(atAdd))
		}
		if got == b.sealed[0] || show(b.sealed[0]) != sealed {
			t.Errorf("%s: the sealed record was changed", p)
		}
	}
}

func TestDeadLetterOfADeadLetter(t *testing.T) {
	b := builder(t, config(Plain), verbatimEncoder{}).NewBatch()
	ev := order()
	ev.Type = []byte("x")
	if err := b.Add(ev); err != nil {
		t.Fatal(err)
	}
	first := show(b.seal()[0])
	if again := show(b.deadLetter(0, &Rejection{Reason: ReasonRefused, Message: "m"})); again != first {
		t.Errorf("got\n%swant\n%s", again, first)
	}
}

// A repeat happens in another process at another time: nothing of either may be in the record or the dead letter.
func TestRepeatHasTheSameBytes(t *testing.T) {
	for _, p := range []Profile{CloudEvents, Plain, Debezium} {
		var seen [2]string
		for i := range seen {
			b := builder(t, config(p), verbatimEncoder{}).NewBatch()
			for range i * 3 { // another place in another batch
				if err := b.Add(order()); err != nil {
					t.Fatal(err)
				}
			}
			bad := order()
			bad.Payload = nil
			if err := b.Add(bad); err != nil {
				t.Fatal(err)
			}
			if err := b.Add(order()); err != nil {
				t.Fatal(err)
			}
			all := b.seal()
			last := len(all) - 1
			rej := &Rejection{Reason: ReasonRefused, Message: "m"}
			seen[i] = show(all[last-1]) + show(all[last]) + show(b.deadLetter(last, rej)) + show(b.trimDeadLetter(b.deadLetter(last, rej), 600))
		}
		if seen[0] != seen[1] {
			t.Errorf("%s: first\n%sthen\n%s", p, seen[0], seen[1])
		}
	}
}

func TestTrim(t *testing.T) {
	dead := func(ev *Event) (*Batch, *kgo.Record) {
		b := builder(t, config(Plain), verbatimEncoder{}).NewBatch()
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
		b.seal()
		return b, b.deadLetter(0, &Rejection{Reason: ReasonTooLarge, Message: "too large"})
	}
	big := order()
	big.Payload = []byte(`{"s":"` + strings.Repeat("é😀", 1000) + `"}`)

	t.Run("fits", func(t *testing.T) {
		b, rec := dead(order())
		if got := b.trimDeadLetter(rec, wireSize(rec)); got != rec {
			t.Error("a dead letter that fits was made anew")
		}
	})
	t.Run("value", func(t *testing.T) {
		b, rec := dead(big)
		before := show(rec)
		sum := sha256.Sum256(big.Payload)
		for limit := wireSize(rec) - 1; limit > wireSize(rec)-20; limit-- {
			got := b.trimDeadLetter(rec, limit)
			if wireSize(got) > limit || wireSize(got) < limit-3 {
				t.Fatalf("limit %d, size %d", limit, wireSize(got))
			}
			if !bytes.HasPrefix(big.Payload, got.Value) || !utf8.Valid(got.Value) {
				t.Fatalf("limit %d: value ends in %q", limit, got.Value[len(got.Value)-8:])
			}
			want(t, showHeaders(got), showHeaders(rec)+`dlq_truncated="true"
				dlq_sha256="`+hex.EncodeToString(sum[:])+`"`)
		}
		if show(rec) != before {
			t.Error("the dead letter itself was changed")
		}
	})
	t.Run("again", func(t *testing.T) {
		b, rec := dead(big)
		once := b.trimDeadLetter(rec, 3000)
		twice := b.trimDeadLetter(once, 2000)
		if show(twice) != show(b.trimDeadLetter(rec, 2000)) {
			t.Errorf("trimmed twice:\n%s", show(twice))
		}
	})
	t.Run("headers", func(t *testing.T) {
		ev := order()
		ev.Headers = []byte(`{"long":"` + strings.Repeat("x", 5000) + `","longer":"` + strings.Repeat("y", 9000) + `"}`)
		b, rec := dead(ev)
		before := show(rec)
		got := b.trimDeadLetter(rec, 8000)
		if show(rec) != before {
			t.Error("the dead letter itself was changed")
		}
		before = show(got)
		b.trimDeadLetter(got, 3000)
		if show(got) != before {
			t.Error("trimming again changed the first result")
		}
		if size := wireSize(got); size > 8000 || size < 7900 {
			t.Errorf("size %d", size)
		}
		if long, _ := headerOf(got, "long"); len(long) != 5000 {
			t.Errorf("the shorter of two headers was cut to %d bytes", len(long))
		}
		if id, _ := headerOf(got, "dlq_id"); string(id) != "e-1" || len(got.Value) != 0 || got.Value == nil {
			t.Errorf("id %q, value %v", id, got.Value)
		}
	})
	t.Run("short header", func(t *testing.T) {
		ev := order()
		ev.Payload, ev.Headers = nil, []byte(`{"long":"`+strings.Repeat("x", 300)+`"}`)
		cfg := config(Plain)
		b := builder(t, cfg, verbatimEncoder{}).NewBatch()
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
		rec := b.seal()[0]
		limit := wireSize(rec) - 50
		if long, n := headerOf(b.trimDeadLetter(rec, limit), "long"); n != 1 || len(long) < 200 || len(long) == 300 {
			t.Errorf("the header is there %d times, with %d bytes", n, len(long))
		}
	})
	t.Run("many headers", func(t *testing.T) {
		ev := order()
		ev.Payload = nil
		ev.Key = bytes.Repeat([]byte("k"), 2000)
		var in strings.Builder
		in.WriteString(`{"` + strings.Repeat("n", 3000) + `":1`)
		for i := range 100_000 {
			fmt.Fprintf(&in, `,"%d":"%s"`, i, strings.Repeat("v", 1+i%100))
		}
		ev.Headers = []byte(in.String() + `}`)
		b := builder(t, config(Plain), verbatimEncoder{}).NewBatch()
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
		got := b.trimDeadLetter(b.seal()[0], 1500)
		if wireSize(got) > 1500 {
			t.Errorf("size %d", wireSize(got))
		}
		if got.Value != nil {
			t.Error("a NULL payload is a value now")
		}
		for _, key := range []string{"dlq_reason", "dlq_id", "dlq_type", "dlq_sequence", "dlq_committed_at", "dlq_truncated"} {
			if v, n := headerOf(got, key); len(v) == 0 || n != 1 {
				t.Errorf("%s is %q, %d times", key, v, n)
			}
		}
		if _, n := headerOf(got, "dlq_sha256"); n != 0 {
			t.Error("a hash of no payload")
		}
		if len(got.Key) == 0 || len(got.Key) == 2000 {
			t.Errorf("the key has %d bytes", len(got.Key))
		}
	})
}

// FuzzTrim: whatever is to be trimmed fits afterwards, as long as the dead letter's own headers do.
func FuzzTrim(f *testing.F) {
	f.Add([]byte("k"), []byte("payload"), []byte(`{"a":"b"}`), uint16(400))
	f.Add([]byte(nil), bytes.Repeat([]byte{0x80}, 900), []byte(nil), uint16(0))
	f.Fuzz(func(t *testing.T, key, payload, headers []byte, over uint16) {
		b := builder(t, config(Plain), verbatimEncoder{}).NewBatch()
		ev := order()
		ev.Key, ev.Payload, ev.Headers = key, payload, headers
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
		b.seal()
		rec := b.deadLetter(0, &Rejection{Reason: ReasonTooLarge, Message: "m"})
		limit := 1000 + int(over)
		got := b.trimDeadLetter(rec, limit)
		if wireSize(got) > limit {
			t.Fatalf("limit %d, size %d", limit, wireSize(got))
		}
		if (got.Value == nil) != (rec.Value == nil) || (got.Key == nil) != (rec.Key == nil) {
			t.Fatal("NULL and empty were mixed up")
		}
		if !bytes.HasPrefix(rec.Value, got.Value) {
			t.Fatal("the value is no beginning of the payload")
		}
	})
}

// wireSize must not be below what really goes over the wire.
func TestWireSizeIsAnUpperBound(t *testing.T) {
	for _, ev := range []*Event{order(), {CommitTime: commitTime, Type: []byte("a.b.v1"), ID: []byte("1"), Payload: bytes.Repeat([]byte("x"), 70000)}} {
		r := recordOf(t, config(CloudEvents), verbatimEncoder{}, ev)
		varint := func(n int) int {
			size := 1
			for u := uint32(n) << 1; u >= 0x80; u >>= 7 {
				size++
			}
			return size
		}
		body := 1 + 1 + 1 + varint(len(r.Key)) + len(r.Key) + varint(len(r.Value)) + len(r.Value) + varint(len(r.Headers))
		for _, h := range r.Headers {
			body += varint(len(h.Key)) + len(h.Key) + varint(len(h.Value)) + len(h.Value)
		}
		if real := 61 + varint(body) + body; wireSize(r) < real {
			t.Errorf("wireSize %d, on the wire %d", wireSize(r), real)
		}
	}
}
