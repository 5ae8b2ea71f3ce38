package sink

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

func TestProfiles(t *testing.T) {
	columns := func(cfg BatchConfig) BatchConfig {
		cfg.HeaderColumns = []string{"zone", "actor", "empty"}
		return cfg
	}
	full := func() *Event {
		ev := order()
		ev.HeaderColumns = [][]byte{[]byte("z1"), nil, {}}
		return ev
	}
	bare := func() *Event {
		return &Event{CommitLSN: 1, CommitTime: commitTime, ID: []byte("e-2"), Type: []byte("orders.placed.v1"), Payload: []byte("{}")}
	}
	empty := func() *Event {
		none := []byte{}
		return &Event{
			CommitLSN: 1, CommitTime: commitTime, ID: []byte("e-3"), Key: none, Type: []byte("orders.placed.v1"), Payload: none,
			CorrelationID: none, CausationID: none, Traceparent: none, Tenant: none,
			Headers: []byte(`{"a": "", "tracestate": "", "baggage": ""}`),
		}
	}
	for _, c := range []struct {
		name string
		cfg  BatchConfig
		enc  Encoder
		ev   *Event
		want string
	}{
		{"cloudevents full", columns(config(CloudEvents)), verbatimEncoder{}, full(), `
			orders "42" "{\"n\": 1}" 04:06:07.891000
			ce_specversion="1.0"
			ce_id="e-1"
			ce_source="urn:tailer:shop"
			ce_type="orders.placed.v1"
			ce_subject="42"
			ce_time="2026-01-02T03:04:05.678901Z"
			content-type="application/json"
			ce_sequence="00000001A2B3C4D5-0000000007"
			correlation_id="corr"
			causation_id="cause"
			tenant="acme"
			region="eu"
			attempt="2"
			traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			tracestate="x=1"
			baggage="k=v"
			zone="z1"
			empty=""`},
		{"cloudevents bare", columns(config(CloudEvents)), verbatimEncoder{}, bare(), `
			orders null "{}" 04:06:07.891000
			ce_specversion="1.0"
			ce_id="e-2"
			ce_source="urn:tailer:shop"
			ce_type="orders.placed.v1"
			ce_time="2026-03-04T04:06:07.891234Z"
			content-type="application/json"
			ce_sequence="0000000000000001-0000000000"`},
		{"cloudevents empty", config(CloudEvents), verbatimEncoder{}, empty(), `
			orders "" "" 04:06:07.891000
			ce_specversion="1.0"
			ce_id="e-3"
			ce_source="urn:tailer:shop"
			ce_type="orders.placed.v1"
			ce_subject=""
			ce_time="2026-03-04T04:06:07.891234Z"
			content-type="application/json"
			ce_sequence="0000000000000001-0000000000"
			correlation_id=""
			causation_id=""
			tenant=""
			a=""
			traceparent=""
			tracestate=""
			baggage=""`},
		{
			"cloudevents with a schema", config(CloudEvents),
			&framedEncoder{info: EncodeInfo{DataSchema: "http://sr/schemas/ids/7", SchemaHeader: []byte{1, 2}}}, bare(), `
			orders null "\x00\x00\x00\x00\a{}" 04:06:07.891000
			ce_specversion="1.0"
			ce_id="e-2"
			ce_source="urn:tailer:shop"
			ce_type="orders.placed.v1"
			ce_time="2026-03-04T04:06:07.891234Z"
			ce_dataschema="http://sr/schemas/ids/7"
			content-type="application/json"
			__value_schema_id="\x01\x02"
			ce_sequence="0000000000000001-0000000000"`,
		},
		{"plain full", columns(config(Plain)), verbatimEncoder{}, full(), `
			orders "42" "{\"n\": 1}" 04:06:07.891000
			id="e-1"
			type="orders.placed.v1"
			occurred_at="2026-01-02T03:04:05.678901Z"
			aggregate_id="42"
			sequence="00000001A2B3C4D5-0000000007"
			content-type="application/json"
			correlation_id="corr"
			causation_id="cause"
			tenant="acme"
			region="eu"
			attempt="2"
			traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			tracestate="x=1"
			baggage="k=v"
			zone="z1"
			empty=""`},
		{"plain bare", columns(config(Plain)), verbatimEncoder{}, bare(), `
			orders null "{}" 04:06:07.891000
			id="e-2"
			type="orders.placed.v1"
			sequence="0000000000000001-0000000000"
			content-type="application/json"`},
		{"plain empty", config(Plain), verbatimEncoder{}, empty(), `
			orders "" "" 04:06:07.891000
			id="e-3"
			type="orders.placed.v1"
			aggregate_id=""
			sequence="0000000000000001-0000000000"
			content-type="application/json"
			correlation_id=""
			causation_id=""
			tenant=""
			a=""
			traceparent=""
			tracestate=""
			baggage=""`},
		{
			"plain with a schema", config(Plain), &framedEncoder{info: EncodeInfo{DataSchema: "u", SchemaHeader: []byte{1}}}, bare(), `
			orders null "\x00\x00\x00\x00\a{}" 04:06:07.891000
			id="e-2"
			type="orders.placed.v1"
			sequence="0000000000000001-0000000000"
			content-type="application/json"
			__value_schema_id="\x01"`,
		},
		{"debezium full", columns(config(Debezium)), verbatimEncoder{}, full(), `
			orders "42" "{\"n\": 1}" 04:06:07.891000
			id="e-1"
			zone="z1"
			actor=null
			empty=""`},
		{"debezium bare", columns(config(Debezium)), verbatimEncoder{}, bare(), `
			orders null "{}" 04:06:07.891000
			id="e-2"
			zone=null
			actor=null
			empty=null`},
		{
			"debezium with a schema", columns(config(Debezium)), &framedEncoder{info: EncodeInfo{DataSchema: "u", SchemaHeader: []byte{1}}}, bare(), `
			orders null "\x00\x00\x00\x00\a{}" 04:06:07.891000
			id="e-2"
			__value_schema_id="\x01"
			zone=null
			actor=null
			empty=null`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			want(t, show(recordOf(t, c.cfg, c.enc, c.ev)), c.want)
		})
	}
}

func TestSourceAndContentTypeAreConfigured(t *testing.T) {
	cfg := config(CloudEvents)
	cfg.Source, cfg.ContentType = "https://shop.example/orders", ""
	r := recordOf(t, cfg, verbatimEncoder{}, order())
	if got, _ := headerOf(r, "ce_source"); string(got) != "https://shop.example/orders" {
		t.Errorf("ce_source %q", got)
	}
	if got, n := headerOf(r, "content-type"); n != 0 {
		t.Errorf("content-type %q although none is configured", got)
	}
}

// The column wins where it is not NULL, also when it is empty; the entry of the row's headers is the other source.
func TestContextComesFromColumnOrEntry(t *testing.T) {
	entries := `{"correlation_id":"c","causation_id":"d","tenant":"t","traceparent":"p","tracestate":"s","baggage":"b"}`
	cfg := config(Plain)
	ev := order()
	ev.Headers = []byte(entries)
	ev.CausationID, ev.Tenant, ev.Traceparent = nil, []byte{}, nil
	tail := func() string {
		_, after, _ := strings.Cut(showHeaders(recordOf(t, cfg, verbatimEncoder{}, ev)), "content-type=\"application/json\"\n")
		return after
	}
	want(t, tail(), `
		correlation_id="corr"
		causation_id="d"
		tenant=""
		traceparent="p"
		tracestate="s"
		baggage="b"`)

	// In another spelling they are still ours, and under our name.
	ev.Headers = []byte(`{"Correlation_ID":"c","CAUSATION_ID":"d","Traceparent":"p","TraceState":"s","BAGGAGE":7}`)
	want(t, tail(), `
		correlation_id="corr"
		causation_id="d"
		tenant=""
		traceparent="p"
		tracestate="s"
		baggage="7"`)

	// A header column of that name is the only source.
	cfg.HeaderColumns = []string{"traceparent", "Tenant"}
	ev.HeaderColumns = [][]byte{[]byte("from column"), nil}
	want(t, tail(), `
		correlation_id="corr"
		causation_id="d"
		tracestate="s"
		baggage="7"
		traceparent="from column"`)
}

func TestHeaderColumnsAreChecked(t *testing.T) {
	for _, c := range []struct {
		profile Profile
		columns string
		want    string // "" is good
	}{
		{CloudEvents, "eventType,ce_partitionkey,id,tenant", ""},
		{CloudEvents, "CE_Id", `sets the header "CE_Id" itself`},
		{CloudEvents, "content-type", "itself"},
		{CloudEvents, "__value_schema_id", "itself"},
		{CloudEvents, "dlq_reason", "itself"},
		{Plain, "sequence", "itself"},
		{Plain, "ce_id", ""},
		{Debezium, "type,eventType,sequence,ce_id", ""},
		{Debezium, "id", "itself"},
		{Debezium, "DLQ_x", "itself"},
		{Plain, "a,b,A", `"A" is there twice`},
		{Plain, "", "needs a name"},
	} {
		cfg := config(c.profile)
		cfg.HeaderColumns = strings.Split(c.columns, ",")
		_, err := NewBuilder(cfg, verbatimEncoder{})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s %s: %v", c.profile, c.columns, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s %s: error %v, want %q", c.profile, c.columns, err, c.want)
		}
	}
}

func TestConfigErrorsComeTogether(t *testing.T) {
	_, err := NewBuilder(BatchConfig{
		Slot: "shop", Profile: Profile(9), Topic: "{nope}", DefaultTopic: "a b", DLQTopic: "..",
		TypeTopics: map[string]string{"a.b.v1": "ü", "c": ""}, HeaderColumns: []string{"dlq_x"},
	}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{
		"no encoder", "record.profile", "routing.topic", "unknown placeholder {nope}", "routing.default", "dlq.topic",
		"schema.types.a.b.v1.topic", "outbox.header_columns",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in\n%v", part, err)
		}
	}
}

func TestPosition(t *testing.T) {
	for _, c := range []struct {
		lsn     pglogrepl.LSN
		ordinal uint64
		want    string
	}{
		{0, 0, "0000000000000000-0000000000"},
		{0xABCDEF, 1, "0000000000ABCDEF-0000000001"},
		{0xFFFFFFFFFFFFFFFF, 9999999999, "FFFFFFFFFFFFFFFF-9999999999"},
		{0x100000000, 10, "0000000100000000-0000000010"},
		{1, 999999999, "0000000000000001-0999999999"},
		{1, 1000000000, "0000000000000001-1000000000"},
		{1, 12345678901, "0000000000000001-12345678901"},
	} {
		if got := string(appendPosition(nil, c.lsn, c.ordinal)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestTime(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		want string
	}{
		{commitTime, commitText},
		{time.Unix(0, 0), "1970-01-01T00:00:00.000000Z"},
		{time.UnixMicro(-1), "1969-12-31T23:59:59.999999Z"},
	} {
		if got := string(appendTime(nil, c.t)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
