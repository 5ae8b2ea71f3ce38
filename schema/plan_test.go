package schema

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tailer-relay/tailer/decoder"
)

// relation builds a definition as a Relation message would.
func relation(cols ...decoder.RelationColumn) *decoder.Relation {
	return &decoder.Relation{ID: 1, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd', Columns: cols}
}

func column(name string, oid uint32) decoder.RelationColumn {
	return decoder.RelationColumn{Name: name, TypeOID: oid, TypeModifier: -1}
}

func text(s string) decoder.Column { return decoder.Column{Kind: 't', Data: []byte(s)} }

var null = decoder.Column{Kind: 'n'}

func compilePlan(t testing.TB, m Mapping, rel *decoder.Relation) *Plan {
	t.Helper()
	p, err := m.Compile(rel)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// occurred runs one occurred_at value of a type through a plan.
func occurred(t *testing.T, oid uint32, c decoder.Column) (at, asText []byte) {
	t.Helper()
	p := compilePlan(t, Mapping{OccurredAt: "at"}, relation(column("at", oid)))
	var r Row
	if err := p.Row([]decoder.Column{c}, &r); err != nil {
		t.Fatal(err)
	}
	return r.OccurredAt, r.OccurredAtText
}

const domainOID = 16999 // any user-defined type

func TestCase_W14_OccurredAt(t *testing.T) {
	for _, c := range []struct {
		oid        uint32
		text, want string
	}{
		{pgtype.TimestamptzOID, "2026-01-02 03:04:05.678901+00", "2026-01-02T03:04:05.678901Z"},
		{pgtype.TimestamptzOID, "2026-01-02 03:04:05.678901+05:30", "2026-01-01T21:34:05.678901Z"},
		{pgtype.TimestampOID, "2026-01-02 03:04:05.678901", "2026-01-02T03:04:05.678901Z"},
		{pgtype.TimestampOID, "1500-01-01 00:00:00", "1500-01-01T00:00:00.000000Z"},
		{pgtype.TimestamptzOID, "9999-12-31 23:59:59.999999+00", "9999-12-31T23:59:59.999999Z"},
		{pgtype.DateOID, "2026-01-02", "2026-01-02T00:00:00.000000Z"},
		{pgtype.TextOID, "2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000000Z"},
		{pgtype.BPCharOID, "2026-01-02T03:04:05Z   ", "2026-01-02T03:04:05.000000Z"},
		{domainOID, "2026-01-02 03:04:05+00", "2026-01-02T03:04:05.000000Z"},
		{pgtype.TextOID, "2026-02-30T03:04:05Z", ""},
		{pgtype.TextOID, "yesterday", ""},
		{pgtype.Int8OID, "1767323045", ""},
		{pgtype.Int4OID, "2026", ""},
	} {
		at, asText := occurred(t, c.oid, text(c.text))
		if string(at) != c.want || (at == nil) != (c.want == "") || string(asText) != c.text {
			t.Errorf("type %d, %q: instant %q, text %q; want %q", c.oid, c.text, at, asText, c.want)
		}
	}
	if at, asText := occurred(t, pgtype.TimestamptzOID, null); at != nil || asText != nil {
		t.Errorf("NULL became %q, %q", at, asText)
	}
}

func TestCase_W16_SpecialTimestampsStandAsText(t *testing.T) {
	for _, s := range []string{"infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00+00", "294276-12-31 23:59:59.999999+00"} {
		for _, oid := range []uint32{pgtype.TimestamptzOID, pgtype.TimestampOID} {
			at, asText := occurred(t, oid, text(s))
			if at != nil || string(asText) != s {
				t.Errorf("%q: instant %q, text %q", s, at, asText)
			}
		}
	}
	// A special value must not leave the row before it in its place.
	p := compilePlan(t, Mapping{OccurredAt: "at"}, relation(column("at", pgtype.TimestamptzOID)))
	var r Row
	for _, s := range []string{"2026-01-02 03:04:05+00", "infinity"} {
		if err := p.Row([]decoder.Column{text(s)}, &r); err != nil {
			t.Fatal(err)
		}
	}
	if r.OccurredAt != nil {
		t.Errorf("infinity kept the instant %q of the row before", r.OccurredAt)
	}
}

func TestCase_W17_NumericSpecials(t *testing.T) {
	for _, debezium := range []bool{false, true} {
		for _, oid := range []uint32{pgtype.NumericOID, pgtype.Float8OID} {
			p := compilePlan(t, Mapping{Key: "n", Debezium: debezium, HeaderColumns: []HeaderColumn{{"amount", "n"}}}, relation(column("n", oid)))
			var r Row
			for _, s := range []string{"NaN", "Infinity", "-Infinity", "12.50", "1e+300"} {
				if err := p.Row([]decoder.Column{text(s)}, &r); err != nil {
					t.Fatal(err)
				}
				if string(r.Key) != s || string(r.HeaderColumns[0]) != s {
					t.Errorf("%s: key %q, header %q", s, r.Key, r.HeaderColumns[0])
				}
			}
		}
	}
}

func TestCase_W22_ColumnsByNameOfTheNamedRelation(t *testing.T) {
	m := Mapping{ID: "id", Key: "aggregate_id", Payload: "payload"}
	root := compilePlan(t, m, relation(column("id", pgtype.UUIDOID), column("aggregate_id", pgtype.TextOID), column("payload", pgtype.JSONBOID)))
	leaf := compilePlan(t, m, relation(column("payload", pgtype.JSONBOID), column("extra", pgtype.TextOID), column("id", pgtype.UUIDOID), column("aggregate_id", pgtype.TextOID)))
	var r Row
	check := func() {
		t.Helper()
		if string(r.ID) != "I" || string(r.Key) != "K" || string(r.Payload) != "P" {
			t.Errorf("id %q, key %q, payload %q", r.ID, r.Key, r.Payload)
		}
	}
	if err := root.Row([]decoder.Column{text("I"), text("K"), text("P")}, &r); err != nil {
		t.Fatal(err)
	}
	check()
	if err := leaf.Row([]decoder.Column{text("P"), text("x"), text("I"), text("K")}, &r); err != nil {
		t.Fatal(err)
	}
	check()
	if err := root.Row([]decoder.Column{text("P"), text("x"), text("I"), text("K")}, &r); err == nil {
		t.Error("a row of the leaf was read with the root's plan")
	}
}

func TestCase_W29_NullAndEmptyKeysDiffer(t *testing.T) {
	p := compilePlan(t, Mapping{Key: "k"}, relation(column("k", pgtype.TextOID)))
	var r Row
	row := func(c decoder.Column) []byte {
		t.Helper()
		if err := p.Row([]decoder.Column{c}, &r); err != nil {
			t.Fatal(err)
		}
		return r.Key
	}
	if k := row(null); k != nil {
		t.Errorf("NULL: %q", k)
	}
	if k := row(text("")); k == nil || len(k) != 0 {
		t.Errorf("'': %#v", k)
	}
	if k := row(decoder.Column{Kind: 't'}); k == nil || len(k) != 0 {
		t.Errorf("'' without memory: %#v", k)
	}
	for _, s := range []string{strings.Repeat("k", 70<<10), "ключ ✓", " "} {
		if k := row(text(s)); string(k) != s {
			t.Errorf("%d bytes became %d", len(s), len(k))
		}
	}
}

func TestCase_W36_IDIsTheRowsText(t *testing.T) {
	for oid, s := range map[uint32]string{
		pgtype.UUIDOID:    "00000000-0000-4000-8000-00000000000a",
		pgtype.Int8OID:    "9007199254740993",
		pgtype.TextOID:    "{ABC}",
		pgtype.NumericOID: "12.50",
		domainOID:         "01J00000000000000000000000",
	} {
		p := compilePlan(t, Mapping{ID: "id"}, relation(column("id", oid)))
		var r Row
		if err := p.Row([]decoder.Column{text(s)}, &r); err != nil || string(r.ID) != s {
			t.Errorf("type %d: %q, %v; want %q", oid, r.ID, err, s)
		}
	}
}

func TestRowRendersByType(t *testing.T) {
	headers := func(r *Row) []byte { return r.HeaderColumns[0] }
	header := Mapping{HeaderColumns: []HeaderColumn{{"h", "c"}}}
	debezium := Mapping{HeaderColumns: header.HeaderColumns, Debezium: true}
	with := func(c decoder.RelationColumn, typmod int32) decoder.RelationColumn {
		c.TypeModifier = typmod
		return c
	}
	for _, c := range []struct {
		name       string
		m          Mapping
		col        decoder.RelationColumn
		text, want string
		get        func(*Row) []byte
	}{
		{"bpchar type", Mapping{Type: "c"}, column("c", pgtype.BPCharOID), "order.placed.v1   ", "order.placed.v1", func(r *Row) []byte { return r.Type }},
		{"bpchar type of blanks", Mapping{Type: "c"}, column("c", pgtype.BPCharOID), "  ", "", func(r *Row) []byte { return r.Type }},
		{"bpchar key", Mapping{Key: "c"}, column("c", pgtype.BPCharOID), "k ", "k", func(r *Row) []byte { return r.Key }},
		{"bpchar key, debezium", Mapping{Key: "c", Debezium: true}, column("c", pgtype.BPCharOID), "k ", "k ", func(r *Row) []byte { return r.Key }},
		{"bpchar aggregatetype, debezium", Mapping{AggregateType: "c", Debezium: true}, column("c", pgtype.BPCharOID), "order ", "order", func(r *Row) []byte { return r.AggregateType }},
		{"bytea payload", Mapping{Payload: "c"}, column("c", pgtype.ByteaOID), `\x7b7d00ff`, "{}\x00\xff", func(r *Row) []byte { return r.Payload }},
		{"empty bytea payload", Mapping{Payload: "c"}, column("c", pgtype.ByteaOID), `\x`, "", func(r *Row) []byte { return r.Payload }},
		{"bytea key", Mapping{Key: "c"}, column("c", pgtype.ByteaOID), `\x00ff`, `\x00ff`, func(r *Row) []byte { return r.Key }},
		{"json payload", Mapping{Payload: "c"}, column("c", pgtype.JSONOID), `{ "a" : 1 }`, `{ "a" : 1 }`, func(r *Row) []byte { return r.Payload }},
		{"hstore headers", Mapping{Headers: "c"}, column("c", domainOID), `"a"=>"1"`, `{"a":"1"}`, func(r *Row) []byte { return r.Headers }},
		{"empty hstore headers", Mapping{Headers: "c"}, column("c", domainOID), "", "{}", func(r *Row) []byte { return r.Headers }},
		{"empty text headers", Mapping{Headers: "c"}, column("c", pgtype.TextOID), "", "", func(r *Row) []byte { return r.Headers }},
		{"jsonb domain headers", Mapping{Headers: "c"}, column("c", domainOID), `{"a": 1}`, `{"a": 1}`, func(r *Row) []byte { return r.Headers }},
		{"jsonb headers", Mapping{Headers: "c"}, column("c", pgtype.JSONBOID), `"a"`, `"a"`, func(r *Row) []byte { return r.Headers }},
		{"enum", header, column("c", domainOID), "placed", "placed", headers},
		{"citext", Mapping{Key: "c"}, column("c", domainOID), "KeY ", "KeY ", func(r *Row) []byte { return r.Key }},
		{"bool", header, column("c", pgtype.BoolOID), "t", "true", headers},
		{"bool", header, column("c", pgtype.BoolOID), "f", "false", headers},
		{"bool, debezium", debezium, column("c", pgtype.BoolOID), "f", "false", headers},
		{"bool key", Mapping{Key: "c"}, column("c", pgtype.BoolOID), "t", "t", func(r *Row) []byte { return r.Key }},
		{"timestamptz", header, column("c", pgtype.TimestamptzOID), "2026-01-02 03:04:05+00", "2026-01-02T03:04:05.000000Z", headers},
		{"timestamptz infinity", header, column("c", pgtype.TimestamptzOID), "infinity", "infinity", headers},
		{"timestamp", header, column("c", pgtype.TimestampOID), "2026-01-02 03:04:05", "2026-01-02 03:04:05", headers},
		{"date", header, column("c", pgtype.DateOID), "2026-01-02", "2026-01-02", headers},
		{"bpchar", header, column("c", pgtype.BPCharOID), "a  ", "a", headers},
		{"bpchar, debezium", debezium, column("c", pgtype.BPCharOID), "a  ", "a  ", headers},
		{"date, debezium", debezium, column("c", pgtype.DateOID), "2026-01-02", "20455", headers},
		{"date infinity, debezium", debezium, column("c", pgtype.DateOID), "infinity", "infinity", headers},
		{"timestamp(3), debezium", debezium, with(column("c", pgtype.TimestampOID), 3), "2026-01-02 03:04:05.678", "1767323045678", headers},
		{"timestamp(6), debezium", debezium, with(column("c", pgtype.TimestampOID), 6), "2026-01-02 03:04:05.678", "1767323045678000", headers},
		{"timestamp infinity, debezium", debezium, column("c", pgtype.TimestampOID), "-infinity", "-9223372036832400000", headers},
		{"timestamptz, debezium", debezium, column("c", pgtype.TimestamptzOID), "2026-01-02 03:04:05.6+00", "2026-01-02T03:04:05.600000Z", headers},
		{"timestamptz(0), debezium", debezium, with(column("c", pgtype.TimestamptzOID), 0), "2026-01-02 03:04:05+00", "2026-01-02T03:04:05Z", headers},
		{"time, debezium", debezium, column("c", pgtype.TimeOID), "00:00:01", "1000000", headers},
		{"time(3), debezium", debezium, with(column("c", pgtype.TimeOID), 3), "00:00:01", "1000", headers},
		{"timetz, debezium", debezium, column("c", pgtype.TimetzOID), "00:00:01+00", "00:00:01+00", headers},
		{"float8, debezium", debezium, column("c", pgtype.Float8OID), "1e+300", "1e+300", headers},
	} {
		p := compilePlan(t, c.m, relation(c.col))
		var r Row
		if err := p.Row([]decoder.Column{text(c.text)}, &r); err != nil {
			t.Fatal(err)
		}
		got := c.get(&r)
		if string(got) != c.want || got == nil {
			t.Errorf("%s: %q became %q, want %q", c.name, c.text, got, c.want)
		}
	}
}

func TestPlanErrors(t *testing.T) {
	rel := relation(column("id", pgtype.UUIDOID), column("Payload", pgtype.JSONBOID))
	_, err := Mapping{ID: "id", Payload: "payload"}.Compile(rel)
	var pe *PlanError
	if !errors.As(err, &pe) || pe.Role != "payload" || pe.Column != "payload" || pe.Table != "public.outbox" {
		t.Fatalf("%#v", err)
	}
	if want := `column "payload" (role payload) is not in public.outbox; it has id, Payload`; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if pe.Hint() == "" {
		t.Error("no hint")
	}
	_, err = Mapping{HeaderColumns: []HeaderColumn{{"region", "reg"}}}.Compile(rel)
	if want := `column "reg" (role header "region") is not in public.outbox; it has id, Payload`; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}

	p := compilePlan(t, Mapping{ID: "id"}, rel)
	var r Row
	for _, c := range []struct {
		kind byte
		want string
	}{{'u', "unchanged TOAST"}, {'b', "binary form"}, {'x', "unknown kind"}} {
		err := p.Row([]decoder.Column{{Kind: c.kind}, null}, &r)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"id"`) {
			t.Errorf("kind %c: %v", c.kind, err)
		}
	}
	// A column that no role reads may be anything.
	if err := p.Row([]decoder.Column{text("1"), {Kind: 'u'}}, &r); err != nil {
		t.Error(err)
	}
}

// TestDebeziumHeaderColumns holds the rendering against what the Outbox Event
// Router sent for the same rows.
func TestDebeziumHeaderColumns(t *testing.T) {
	cols := []decoder.RelationColumn{
		column("seq", pgtype.Int4OID), column("id", pgtype.UUIDOID), column("aggregatetype", pgtype.VarcharOID), column("aggregateid", pgtype.VarcharOID),
		column("type", pgtype.VarcharOID), column("payload", pgtype.JSONBOID), column("payload_json", pgtype.JSONOID), column("tenant", pgtype.TextOID),
		column("occurred_at", pgtype.TimestamptzOID), column("local_at", pgtype.TimestampOID), column("day", pgtype.DateOID), column("n", pgtype.Int8OID),
		column("i", pgtype.Int4OID), column("amount", pgtype.NumericOID), column("flag", pgtype.BoolOID), column("u", pgtype.UUIDOID),
	}
	// The wire's text for the two rows of rows.sql that fill these columns.
	wire := map[string][]decoder.Column{
		"00000000-0000-4000-8000-000000000001": {text("acme"), text("2026-01-02 03:04:05.678901+00"), text("2026-01-02 03:04:05.678901"), text("2026-01-02"),
			text("9007199254740993"), text("7"), text("12.50"), text("t"), text("00000000-0000-4000-8000-00000000000a")},
		"00000000-0000-4000-8000-00000000000d": {text(""), text("1969-12-31 23:59:59.999999+00"), text("0001-01-01 00:00:00"), text("9999-12-31"),
			text("-9223372036854775808"), text("-2147483648"), text("-0.01"), text("f"), null},
	}
	m := Mapping{ID: "id", Key: "aggregateid", Type: "type", Payload: "payload", AggregateType: "aggregatetype", Debezium: true, HeaderColumns: []HeaderColumn{{"eventType", "type"}}}
	for _, h := range []string{"tenant", "occurred_at", "local_at", "day", "n", "i", "amount", "flag", "u"} {
		m.HeaderColumns = append(m.HeaderColumns, HeaderColumn{h, h})
	}
	p := compilePlan(t, m, relation(cols...))

	f, err := os.Open("testdata/debezium/headers.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := 0
	var r Row
	for s := bufio.NewScanner(f); s.Scan(); rows++ {
		var want struct {
			ID, Topic  string
			Key, Value *string
			Headers    [][2]*string
		}
		if err := json.Unmarshal(s.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		orNull := func(v *string) decoder.Column {
			if v == nil {
				return null
			}
			return text(*v)
		}
		row := []decoder.Column{text("1"), text(want.ID), text(strings.TrimPrefix(want.Topic, "outbox.event.")), orNull(want.Key), orNull(want.Headers[1][1]), orNull(want.Value), null}
		filled := wire[want.ID]
		if filled == nil {
			filled = nulls(9)
		}
		row = append(row, filled...)
		if err := p.Row(row, &r); err != nil {
			t.Fatal(err)
		}
		same := func(what string, got []byte, want *string) {
			t.Helper()
			if (got == nil) != (want == nil) || want != nil && string(got) != *want {
				t.Errorf("%s: %s %q, want %v", r.ID, what, got, deref(want))
			}
		}
		same("id", r.ID, want.Headers[0][1])
		same("key", r.Key, want.Key)
		same("value", r.Payload, want.Value)
		if len(want.Headers) != 1+len(r.HeaderColumns) {
			t.Fatalf("%d header columns, want %d", len(r.HeaderColumns), len(want.Headers)-1)
		}
		for i, h := range want.Headers[1:] {
			same(*h[0], r.HeaderColumns[i], h[1])
		}
	}
	if rows != 12 {
		t.Errorf("%d rows seen, want 12", rows)
	}
}

func nulls(n int) []decoder.Column {
	out := make([]decoder.Column, n)
	for i := range out {
		out[i] = null
	}
	return out
}

func deref(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

// benchRow is a row of the default preset with three header columns.
func benchRow(tb testing.TB) (*Plan, []decoder.Column) {
	rel := relation(column("id", pgtype.UUIDOID), column("occurred_at", pgtype.TimestamptzOID), column("aggregate_id", pgtype.TextOID), column("type", pgtype.BPCharOID),
		column("payload", pgtype.JSONBOID), column("headers", pgtype.JSONBOID), column("sent_at", pgtype.TimestamptzOID), column("day", pgtype.DateOID), column("ok", pgtype.BoolOID))
	p := compilePlan(tb, Mapping{ID: "id", Key: "aggregate_id", Type: "type", Payload: "payload", Headers: "headers", OccurredAt: "occurred_at", Debezium: true,
		HeaderColumns: []HeaderColumn{{"at", "occurred_at"}, {"day", "day"}, {"ok", "ok"}}}, rel)
	return p, []decoder.Column{text("00000000-0000-4000-8000-00000000000a"), text("2026-01-02 03:04:05.678901+00"), text("42"), text("order.placed.v1  "),
		text(`{"id": 42, "total": 12.50}`), text(`{"a": "b"}`), null, text("2026-01-02"), text("t")}
}

func TestRowDoesNotAllocate(t *testing.T) {
	p, cols := benchRow(t)
	var r Row
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Row(cols, &r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a row", n)
	}
	if want := [][]byte{[]byte("2026-01-02T03:04:05.678901Z"), []byte("20455"), []byte("true")}; !bytes.Equal(bytes.Join(want, nil), bytes.Join(r.HeaderColumns, nil)) {
		t.Errorf("header columns %q, want %q", r.HeaderColumns, want)
	}
}

func TestScratchShrinksAndMoves(t *testing.T) {
	p := compilePlan(t, Mapping{Payload: "p", OccurredAt: "at"}, relation(column("p", pgtype.ByteaOID), column("at", pgtype.TimestamptzOID)))
	var r Row
	huge := `\x` + strings.Repeat("61", maxScratch+1)
	if err := p.Row([]decoder.Column{text(huge), text("2026-01-02 03:04:05+00")}, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Payload) != maxScratch+1 || string(r.OccurredAt) != "2026-01-02T03:04:05.000000Z" {
		t.Fatalf("%d bytes, %q", len(r.Payload), r.OccurredAt)
	}
	if err := p.Row([]decoder.Column{text(`\x62`), null}, &r); err != nil || string(r.Payload) != "b" {
		t.Fatalf("%q, %v", r.Payload, err)
	}
	if cap(r.scratch) > maxScratch {
		t.Errorf("a scratch of %d bytes is kept", cap(r.scratch))
	}
}

func BenchmarkRow(b *testing.B) {
	p, cols := benchRow(b)
	var r Row
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Row(cols, &r); err != nil {
			b.Fatal(err)
		}
	}
}
