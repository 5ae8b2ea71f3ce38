package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// Timestamps keep their instant and their unit, whatever zones the writer, the
// server and the relay's role live in. Seen red with offsets that are read and
// then forgotten.
func TestCase_W14_Timestamps(t *testing.T) {
	t.Parallel()
	const (
		typ    = "clock.read.v1"
		schema = `{"type":"record","name":"R","fields":[
			{"name":"ms","type":["null",{"type":"long","logicalType":"timestamp-millis"}],"default":null},
			{"name":"us","type":["null",{"type":"long","logicalType":"timestamp-micros"}],"default":null},
			{"name":"local","type":["null",{"type":"long","logicalType":"local-timestamp-micros"}],"default":null}]}`
	)
	zones := map[string]string{"timezone": "Asia/Kolkata", "datestyle": "SQL, DMY", "track_commit_timestamp": "on"}
	o := newOutbox(t, outboxOptions{schemas: map[string]string{typ: schema}, settings: zones})
	data := []struct {
		payload, dead string
		// How the database reads the same text, in the stored unit.
		field, sql string
	}{
		{`{"ms":"2026-01-02T03:04:05.678Z"}`, "", "ms", "extract(epoch FROM $1::timestamptz) * 1000"},
		{`{"ms":"2026-01-02T03:04:05.678+05:30"}`, "", "ms", "extract(epoch FROM $1::timestamptz) * 1000"},
		{`{"us":"2026-01-02T03:04:05.678901-11:00"}`, "", "us", "extract(epoch FROM $1::timestamptz) * 1000000"},
		{`{"us":"1500-06-30T12:00:00.000001Z"}`, "", "us", "extract(epoch FROM $1::timestamptz) * 1000000"},
		{`{"us":"9999-12-31T23:59:59.999999Z"}`, "", "us", "extract(epoch FROM $1::timestamptz) * 1000000"},
		{`{"ms":1767323045678}`, "", "ms", "$1::numeric"},
		{`{"us":-1}`, "", "us", "$1::numeric"},
		{`{"local":"2026-01-02T03:04:05.678901"}`, "", "local", "extract(epoch FROM $1::timestamp) * 1000000"},
		{`{"ms":"2026-01-02T03:04:05.678901Z"}`, "$.ms", "", ""},
		{`{"us":"2026-02-30T00:00:00Z"}`, "$.us", "", ""},
		{`{"us":"2026-01-02T03:04:05"}`, "$.us", "", ""},
		{`{"local":"2026-01-02T03:04:05Z"}`, "$.local", "", ""},
	}
	ids := make([]string, len(data))
	for i, d := range data {
		ids[i] = o.insert("key", typ, d.payload)
	}
	o.run(o.config)
	records := o.read(len(data), "clock", "tailer.dlq")
	for i, d := range data {
		r := records[ids[i]]
		if d.dead != "" {
			o.checkDeadLetter(ids[i], r, deadLetter{topic: "tailer.dlq", reason: "invalid", path: d.dead, wanted: "clock"})
			continue
		}
		if r.Topic != "clock" {
			t.Errorf("%s is in topic %s", d.payload, r.Topic)
			continue
		}
		want := o.text("SELECT trunc("+strings.ReplaceAll(d.sql, "$1", "(payload->>$2)")+")::text FROM outbox WHERE id::text = $1", ids[i], d.field)
		read, ok := decodeSingle(t, schema, r.Value).(map[string]any)[d.field].(time.Time)
		if !ok {
			t.Errorf("%s: no timestamp read back", d.payload)
			continue
		}
		got := read.UnixMicro()
		if d.field == "ms" {
			got = read.UnixMilli()
		}
		if n, ok := number(parseJSON(t, want)); !ok || n.Num().Int64() != got {
			t.Errorf("%s: read back %d, the database says %s", d.payload, got, want)
		}
		header := o.text(`SELECT to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM outbox WHERE id::text = $1`, ids[i])
		if got, _ := r.Header("ce_time"); got != header {
			t.Errorf("ce_time is %q, the row has %s", got, header)
		}
		if commit := o.text("SELECT trunc(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000)::text FROM outbox WHERE id::text = $1", ids[i]); parseJSON(t, commit) != parseJSON(t, formatInt(r.Timestamp.UnixMilli())) {
			t.Errorf("record time is %d, the commit was at %s", r.Timestamp.UnixMilli(), commit)
		}
	}
}

// A timestamp without zone is taken as it stands.
func TestCase_W14_OccurredAtWithoutZone(t *testing.T) {
	t.Parallel()
	table := strings.Replace(jsonTable, "occurred_at timestamptz NOT NULL", "occurred_at timestamp", 1)
	o := newOutbox(t, outboxOptions{before: []string{table}, settings: map[string]string{"timezone": "Asia/Kolkata"}})
	id := o.text("INSERT INTO outbox (occurred_at, type, payload) VALUES ('2026-01-02 03:04:05.678901', 'clock.read.v1', '{}') RETURNING id::text")
	o.run(o.config)
	if got, _ := o.read(1, "clock")[id].Header("ce_time"); got != "2026-01-02T03:04:05.678901Z" {
		t.Errorf("ce_time is %q", got)
	}
}

// What RFC 3339 cannot hold stops nothing and becomes no other time: CloudEvents
// have the time of the commit instead, plain headers the column's own text.
// Seen red with a relay that writes the year modulo 10000.
func TestCase_W16_OccurredAtBeyondRFC3339(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{settings: map[string]string{"track_commit_timestamp": "on"}})
	texts := []string{"infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00+00", "294276-12-31 23:59:59.999999+00", "2026-01-02 03:04:05+00"}
	ids := make([]string, len(texts))
	for i, text := range texts {
		ids[i] = o.text("INSERT INTO outbox (occurred_at, aggregate_id, type, payload) VALUES ($1::text::timestamptz, 'key', 'clock.read.v1', '{}') RETURNING id::text", text)
	}
	// A second relay on a slot of its own, made before the next row.
	plain := o.config.With("postgres.slot", "plain").With("record.profile", "plain").With("routing.topic", "plain-{domain}")
	o.init(plain)
	for _, text := range texts {
		ids = append(ids, o.text("INSERT INTO outbox (occurred_at, aggregate_id, type, payload) VALUES ($1::text::timestamptz, 'key', 'clock.read.v1', '{}') RETURNING id::text", text))
	}
	relay := o.run(o.config)
	o.run(plain)
	for i, r := range byOffset(o.read(len(ids), "clock")) {
		commit := o.text(`SELECT to_char(pg_xact_commit_timestamp(xmin) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM outbox WHERE id::text = $1`, ids[i])
		want := commit
		if texts[i%len(texts)][:4] == "2026" {
			want = "2026-01-02T03:04:05.000000Z"
		}
		if got, _ := r.Header("ce_time"); r.ID() != ids[i] || got != want {
			t.Errorf("occurred_at %s: ce_time is %q, want %q", texts[i%len(texts)], got, want)
		}
		if at, err := time.Parse("2006-01-02T15:04:05.000000Z", commit); err != nil || r.Timestamp.UnixMilli() != at.UnixMilli() {
			t.Errorf("occurred_at %s: record time is %v, the commit was at %s (%v)", texts[i%len(texts)], r.Timestamp, commit, err)
		}
	}
	for i, r := range byOffset(o.read(len(texts), "plain-clock")) {
		want := o.text("SELECT occurred_at::text FROM outbox WHERE id::text = $1", ids[i+len(texts)])
		if texts[i][:4] == "2026" {
			want = "2026-01-02T03:04:05.000000Z"
		}
		if got, _ := r.Header("occurred_at"); r.ID() != ids[i+len(texts)] || got != want {
			t.Errorf("occurred_at %s: the plain header is %q, want %q", texts[i], got, want)
		}
	}
	if n, _ := relay.Metrics().Sum("tailer_dead_letters_total"); n != 0 {
		t.Errorf("%v dead letters", n)
	}
}

// The escape of NUL is legal in json and becomes the one byte that it means, in
// values, map keys and headers; nothing is cut there.
func TestCase_W18_NULInJSON(t *testing.T) {
	t.Parallel()
	const (
		typ    = "text.sent.v1"
		schema = `{"type":"record","name":"R","fields":[{"name":"s","type":"string"},{"name":"m","type":{"type":"map","values":"string"},"default":{}},{"name":"after","type":"string","default":"x"}]}`
	)
	o := newOutbox(t, outboxOptions{schemas: map[string]string{typ: schema}, before: []string{jsonTable}})
	insert := func(payload string) string {
		return o.text("INSERT INTO outbox (aggregate_id, type, payload, headers) VALUES ('key', $1, $2::text::json, $3::text::json) RETURNING id::text",
			typ, payload, `{"h":"x\u0000y","next":"z"}`)
	}
	value := insert(`{"s":"a\u0000b","m":{"k\u0000l":"\u0000"},"after":"c"}`)
	key := insert(`{"s":"a\u0000b","k\u0000":1}`)
	last := insert(`{"s":""}`)
	o.run(o.config)
	records := o.read(3, "text", "tailer.dlq")
	want := map[string]any{"s": "a\x00b", "m": map[string]any{"k\x00l": "\x00"}, "after": "c"}
	if d := differs("$", want, decodeSingle(t, schema, records[value].Value)); d != "" {
		t.Error(d)
	}
	o.checkDeadLetter(key, records[key], deadLetter{topic: "tailer.dlq", reason: "invalid", path: `$["k\x00"]`, wanted: "text"})
	for _, r := range records {
		if h, _ := r.Header("h"); h != "x\x00y" {
			t.Errorf("header h is %q", h)
		}
		if h, _ := r.Header("next"); h != "z" {
			t.Errorf("the header after it is %q", h)
		}
	}
	if records[last].Topic != "text" {
		t.Errorf("the last event is in topic %s", records[last].Topic)
	}
}

// One row that can never be encoded does not hold up the others, and what is
// wrong with it can be read from its dead letter. The payload column is text:
// jsonb would refuse what is not JSON.
func TestCase_S04_PoisonDoesNotBlock(t *testing.T) {
	t.Parallel()
	const (
		typ    = "order.placed.v1"
		schema = `{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}`
	)
	o := newOutbox(t, outboxOptions{schemas: map[string]string{typ: schema}, before: []string{strings.Replace(jsonTable, "payload json", "payload text", 1)}})
	relay := o.run(o.config)
	first := o.insert("order-1", typ, `{"n":1}`)
	violating := o.insert("order-1", typ, `{"n":"one"}`)
	unknown := o.insert("order-1", "order.teleported.v1", `{"n":3}`)
	unparsable := o.insert("order-1", typ, `{bad`)
	shapeless := o.insert("order-1", "Placed", `{"n":5}`)
	null := o.text("INSERT INTO outbox (aggregate_id, type) VALUES ('order-1', $1) RETURNING id::text", typ)
	second := o.insert("order-1", typ, `{"n":2}`)
	records := o.read(7, "order", "tailer.dlq")
	for i, id := range []string{first, second} {
		r := records[id]
		if r.Topic != "order" || r.Offset != int64(i) || string(r.Key) != "order-1" {
			t.Errorf("good event %d is in %s at %d with key %q", i+1, r.Topic, r.Offset, r.Key)
			continue
		}
		want := o.text("SELECT payload FROM outbox WHERE id::text = $1", id)
		if d := differs("$", parseJSON(t, want), decodeSingle(t, schema, r.Value)); d != "" {
			t.Error(d)
		}
	}
	for id, want := range map[string]deadLetter{
		violating:  {reason: "invalid", path: "$.n", wanted: "order"},
		unknown:    {reason: "no_schema", wanted: "order"},
		unparsable: {reason: "invalid", path: "$", wanted: "order"},
		shapeless:  {reason: "unroutable"},
	} {
		want.topic = "tailer.dlq"
		o.checkDeadLetter(id, records[id], want)
	}
	if r := records[null]; r.Topic != "tailer.dlq" || r.Value != nil {
		t.Errorf("the NULL payload is in %s with value %q", r.Topic, r.Value)
	} else if reason, _ := r.Header("dlq_reason"); reason != "null_payload" {
		t.Errorf("the NULL payload's reason is %q", reason)
	}
	// Sequences tell the order over both topics.
	previous := ""
	for _, id := range []string{first, violating, unknown, unparsable, shapeless, null, second} {
		if s := records[id].Sequence(); s <= previous {
			t.Errorf("sequence %q of event %s does not follow %q", s, id, previous)
		} else {
			previous = s
		}
	}
	harness.Eventually(t, waitLimit, "the slot has confirmed all of it", func() bool {
		return o.pg.Query1(t, "SELECT confirmed_flush_lsn >= pg_current_wal_lsn() FROM pg_replication_slots WHERE slot_name = 'tailer'") == "t"
	})
	for reason, want := range map[string]float64{"invalid": 2, "no_schema": 1, "unroutable": 1, "null_payload": 1} {
		waitMetric(t, relay, want, "tailer_dead_letters_total", `reason="`+reason+`"`)
	}
}
