package sink

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// Cases from the field, as far as they are about what a record holds.

func TestCase_W08_unknown_field_is_a_dead_letter_with_its_path(t *testing.T) {
	enc := &framedEncoder{err: &Rejection{Reason: ReasonInvalid, Path: "$.lines[1].amout", Message: "unknown field"}}
	ev := order()
	ev.Payload = []byte(`{"lines":[{"amount":1},{"amout":2}]}`)
	r := recordOf(t, config(Plain), enc, ev)
	wantReason(t, r, ReasonInvalid, "$.lines[1].amout")
	if string(r.Value) != string(ev.Payload) {
		t.Errorf("value %s", r.Value)
	}
	// The headers column has no schema: nothing in it is unknown, nothing of it vanishes.
	if v, n := headerOf(r, "region"); string(v) != "eu" || n != 1 {
		t.Errorf("region %q, %d times", v, n)
	}
}

func TestCase_W13_names_kafka_cannot_hold(t *testing.T) {
	cfg := config(Plain)
	cfg.Topic = "{type}"
	topics := map[string]string{}
	for typ, legal := range map[string]bool{"order.placed-v1": true, "Order$Created": false, "9lives": true, "订单": false, "order.placed_v1": true} {
		ev := order()
		ev.Type = []byte(typ)
		r := recordOf(t, cfg, verbatimEncoder{}, ev)
		if !legal {
			// Never mended into a name that another type could have.
			wantReason(t, r, ReasonInvalidTopic, "")
			if topic, _ := headerOf(r, "dlq_topic"); string(topic) != typ {
				t.Errorf("%s: dlq_topic %q", typ, topic)
			}
			continue
		}
		if r.Topic != typ {
			t.Errorf("%s goes to %s", typ, r.Topic)
		}
		if other, ok := topics[r.Topic]; ok {
			t.Errorf("%s and %s fall together", typ, other)
		}
		topics[r.Topic] = typ
	}
	cfg.Topic = "{domain}"
	cfg.TypeTopics = map[string]string{"Order$Created": "order-created", "订单": "orders.zh", "9lives": "cats"}
	for typ, topic := range cfg.TypeTopics {
		ev := order()
		ev.Type = []byte(typ)
		r := recordOf(t, cfg, verbatimEncoder{}, ev)
		if got, _ := headerOf(r, "type"); r.Topic != topic || string(got) != typ {
			t.Errorf("%s goes to %s with type %q", typ, r.Topic, got)
		}
	}
}

func TestCase_W16_special_occurred_at(t *testing.T) {
	for _, column := range []string{"infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "20260-01-02 03:04:05+00"} {
		ev := order()
		ev.OccurredAt, ev.OccurredAtText = nil, []byte(column)

		ce := recordOf(t, config(CloudEvents), verbatimEncoder{}, ev)
		if got, n := headerOf(ce, "ce_time"); string(got) != commitText || n != 1 {
			t.Errorf("%s: ce_time %q", column, got)
		}
		plain := recordOf(t, config(Plain), verbatimEncoder{}, ev)
		if got, n := headerOf(plain, "occurred_at"); string(got) != column || n != 1 {
			t.Errorf("%s: occurred_at %q", column, got)
		}
		for _, r := range []int64{ce.Timestamp.UnixMilli(), plain.Timestamp.UnixMilli()} {
			if r != commitTime.UnixMilli() {
				t.Errorf("%s: timestamp %d", column, r)
			}
		}
	}
}

func TestCase_W17_NaN_and_Infinity_as_key_and_header(t *testing.T) {
	for _, number := range []string{"NaN", "Infinity", "-Infinity"} {
		for _, p := range []Profile{CloudEvents, Plain, Debezium} {
			cfg := config(p)
			cfg.HeaderColumns = []string{"amount"}
			ev := order()
			ev.Key, ev.HeaderColumns = []byte(number), [][]byte{[]byte(number)}
			r := recordOf(t, cfg, verbatimEncoder{}, ev)
			if got, _ := headerOf(r, "amount"); r.Topic != "orders" || string(r.Key) != number || string(got) != number {
				t.Errorf("%s, %s: topic %s, key %q, header %q", p, number, r.Topic, r.Key, got)
			}
		}
	}
	// A json column cannot hold them, but a text column can.
	ev := order()
	ev.Headers = []byte(`{"amount": NaN}`)
	wantReason(t, recordOf(t, config(Plain), verbatimEncoder{}, ev), ReasonInvalid, "$headers")
}

func TestCase_W18_zero_byte(t *testing.T) {
	ev := order()
	ev.Payload = []byte(`{"s":"a\u0000b","k\u0000":1}`)
	ev.Headers = []byte(`{"h":"a\u0000b","k\u0000x":"v","n":["\u0000"]}`)
	r := recordOf(t, config(Plain), verbatimEncoder{}, ev)
	if got, _ := headerOf(r, "h"); string(got) != "a\x00b" {
		t.Errorf("header %q", got)
	}
	if got, _ := headerOf(r, "k\x00x"); string(got) != "v" {
		t.Errorf("header with a zero byte in its name: %q", got)
	}
	if got, _ := headerOf(r, "n"); string(got) != `["\u0000"]` {
		t.Errorf("nested: %q", got)
	}
	if string(r.Value) != string(ev.Payload) {
		t.Errorf("value %q", r.Value)
	}
}

func TestCase_W27_headers_that_are_no_flat_map(t *testing.T) {
	headers := func(column []byte) (string, bool) {
		ev := order()
		ev.Headers, ev.CorrelationID, ev.CausationID, ev.Tenant = column, nil, nil, nil
		r := recordOf(t, config(Plain), verbatimEncoder{}, ev)
		_, after, _ := strings.Cut(showHeaders(r), "content-type=\"application/json\"\n")
		if r.Topic == "shop.dlq" {
			wantReason(t, r, ReasonInvalid, "$headers")
			return after, false
		}
		return after, true
	}
	trace := `traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"` + "\n"
	for _, none := range [][]byte{nil, []byte(`null`), []byte(`{}`)} {
		if got, ok := headers(none); !ok || got != trace {
			t.Errorf("%s: %s", none, got)
		}
	}
	for _, bad := range []string{`[]`, `"x"`, `3`, `true`, `{bad`, ``, `"a"=>"1"`} {
		if got, ok := headers([]byte(bad)); ok {
			t.Errorf("%s gives %s", bad, got)
		}
	}
	got, ok := headers([]byte(`{"a":1,"b":true,"c":null,"d":{"x":1},"e":[1],"f":9007199254740993,"":"x","id":"evil","traceparent":"other","line\nfeed":"y"}`))
	if !ok {
		t.Fatal(got)
	}
	want(t, got, `
		a="1"
		b="true"
		d="{\"x\":1}"
		e="[1]"
		f="9007199254740993"
		="x"
		line
		feed="y"
		`+trace)
	huge := strings.Repeat("é", 500_000)
	if got, ok := headers(fmt.Appendf(nil, `{"huge":%q}`, huge)); !ok || got != fmt.Sprintf("huge=%q\n", huge)+trace {
		t.Errorf("a header of 1 MB came out with %d bytes", len(got))
	}

	// Whatever a row tries, each header of ours is there once and is ours.
	for _, p := range []Profile{CloudEvents, Plain} {
		cfg := config(p)
		cfg.HeaderColumns = []string{"Zone"}
		ev := order()
		ev.HeaderColumns = [][]byte{[]byte("a-1")}
		enc := &framedEncoder{info: EncodeInfo{DataSchema: "s", SchemaHeader: []byte("h")}, err: &Rejection{Reason: ReasonInvalid, Path: "$", Message: "m"}}
		ours := recordOf(t, cfg, enc, ev)
		var evil strings.Builder
		evil.WriteString(`{"region": "eu", "attempt": 2, "tracestate": "x=1", "baggage": "k=v"`)
		for _, h := range ours.Headers {
			if h.Key == "region" || h.Key == "attempt" || h.Key == "tracestate" || h.Key == "baggage" {
				continue
			}
			fmt.Fprintf(&evil, `,"%s":"evil","%s":"evil","%s":"evil","\u%04x%s":"evil"`, h.Key, strings.ToUpper(h.Key), strings.ToLower(h.Key), h.Key[0], h.Key[1:])
		}
		evil.WriteString(`}`)
		ev.Headers = []byte(evil.String())
		if got, want := showHeaders(recordOf(t, cfg, enc, ev)), showHeaders(ours); got != want {
			t.Errorf("%s: got\n%swant\n%s", p, got, want)
		}
	}
}

func TestCase_W28_null_and_empty_columns(t *testing.T) {
	for _, c := range []struct {
		name  string
		value []byte
	}{{"NULL", nil}, {"empty", []byte{}}, {"blank", []byte(" ")}} {
		for _, p := range []Profile{CloudEvents, Plain} {
			ev := order()
			ev.CorrelationID, ev.Tenant, ev.Headers = c.value, c.value, nil
			r := recordOf(t, config(p), verbatimEncoder{}, ev)
			for _, key := range []string{"correlation_id", "tenant"} {
				got, n := headerOf(r, key)
				if present := c.value != nil; (n == 1) != present || present && (got == nil || string(got) != string(c.value)) {
					t.Errorf("%s, %s %s: %d headers, %s", p, key, c.name, n, text(got))
				}
			}
		}
	}
	for _, trace := range []string{
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "malformed", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01", "\xff", "",
	} {
		ev := order()
		ev.Traceparent = []byte(trace)
		if got, n := headerOf(recordOf(t, config(Plain), verbatimEncoder{}, ev), "traceparent"); string(got) != trace || n != 1 {
			t.Errorf("traceparent %q became %q, %d times", trace, got, n)
		}
	}
}

func TestCase_W29_null_and_empty_keys(t *testing.T) {
	for _, p := range []Profile{CloudEvents, Plain, Debezium} {
		cfg := config(p)
		ev := order()
		ev.Key = nil
		if r := recordOf(t, cfg, verbatimEncoder{}, ev); r.Topic != "orders" || r.Key != nil {
			t.Errorf("%s, NULL: topic %s, key %s", p, r.Topic, text(r.Key))
		}
		cfg.NullKeyDLQ = true
		r := recordOf(t, cfg, verbatimEncoder{}, ev)
		wantReason(t, r, ReasonNullKey, "")
		if r.Key != nil {
			t.Errorf("%s: the dead letter has key %s", p, text(r.Key))
		}
		for _, key := range []string{"", "ключ ✓", strings.Repeat("k", 70_000)} {
			ev.Key = []byte(key)
			r := recordOf(t, cfg, verbatimEncoder{}, ev)
			if r.Topic != "orders" || r.Key == nil || string(r.Key) != key {
				t.Errorf("%s: topic %s, key of %d bytes", p, r.Topic, len(r.Key))
			}
			if got, want := partition(r, 12), int(javaHash([]byte(key))&0x7fffffff)%12; got != want {
				t.Errorf("%.20s: partition %d, Java has %d", key, got, want)
			}
		}
	}
}

func TestCase_W30_payload_null_empty_scalar(t *testing.T) {
	for _, p := range []Profile{CloudEvents, Plain, Debezium} {
		cfg := config(p)
		ev := order()
		for _, payload := range []string{`null`, `{}`, `[]`, `"s"`, `1`, ``} {
			ev.Payload = []byte(payload)
			r := recordOf(t, cfg, verbatimEncoder{}, ev)
			if r.Topic != "orders" || r.Value == nil || string(r.Value) != payload {
				t.Errorf("%s, %s: topic %s, value %s", p, payload, r.Topic, text(r.Value))
			}
		}

		ev.Payload = []byte(`"s"`) // which a record schema refuses
		rej := &Rejection{Reason: ReasonInvalid, Path: "$", Message: "expected record, found string"}
		r := recordOf(t, cfg, &framedEncoder{err: rej}, ev)
		wantReason(t, r, ReasonInvalid, "$")
		if string(r.Value) != `"s"` {
			t.Errorf("%s: dead letter with value %s", p, text(r.Value))
		}

		with := showHeaders(recordOf(t, cfg, verbatimEncoder{}, order()))
		ev.Payload = nil
		r = recordOf(t, cfg, verbatimEncoder{}, ev)
		wantReason(t, r, ReasonNullPayload, "")
		if r.Value != nil {
			t.Errorf("%s: dead letter with value %s", p, text(r.Value))
		}
		cfg.NullPayloadTombstone = true
		r = recordOf(t, cfg, &framedEncoder{err: rej}, ev) // nothing to encode
		if r.Topic != "orders" || r.Value != nil || !bytes.Equal(r.Key, ev.Key) || showHeaders(r) != with {
			t.Errorf("%s: tombstone\n%s", p, show(r))
		}
	}
}
