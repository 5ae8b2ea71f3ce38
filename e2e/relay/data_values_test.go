package relay_test

import (
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// datum is a payload and what becomes of it.
type datum struct {
	payload string
	dead    string // path of the dead letter; "": delivered
	read    string // what must be read back, where it is not what the database has
}

// jsonTable is the default preset's table with the payload as json, which keeps
// the text as it was written, where jsonb writes its own.
const jsonTable = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), occurred_at timestamptz NOT NULL DEFAULT now(),
	aggregate_id text, type text NOT NULL, payload json, headers json, sent_at timestamptz)`

// relayData relays payloads of one type, and holds what an independent decoder
// reads, or the dead letter, against what the database says. Seen red with a
// transcoder that takes integers through a float (W01), one that cuts an int to
// 32 bits (W02), one that leaves defaults out (W09), one that writes an enum's
// default (W12), and with dead letters whose path is always $.
func relayData(t *testing.T, schema string, opt outboxOptions, data ...datum) *harness.Relay {
	t.Helper()
	const typ, topic = "sample.taken.v1", "sample"
	opt.schemas = map[string]string{typ: schema}
	o := newOutbox(t, opt)
	ids := make([]string, len(data))
	delivered := 0
	for i, d := range data {
		ids[i] = o.insert("key", typ, d.payload)
		if d.dead == "" {
			delivered++
		}
	}
	relay := o.run(o.config)
	records := o.read(len(data), topic, "tailer.dlq")
	last := int64(-1)
	for i, d := range data {
		r := records[ids[i]]
		if r == nil {
			t.Fatalf("no record of %s", d.payload)
		}
		if d.dead != "" {
			o.checkDeadLetter(ids[i], r, deadLetter{topic: "tailer.dlq", reason: "invalid", path: d.dead, wanted: topic})
			continue
		}
		if r.Topic != topic {
			path, _ := r.Header("dlq_path")
			t.Errorf("%s is in topic %s, because of %s", d.payload, r.Topic, path)
			continue
		}
		if r.Offset <= last {
			t.Errorf("%s is out of order", d.payload)
		}
		last = r.Offset
		want := d.read
		if want == "" {
			want = o.text("SELECT payload::text FROM outbox WHERE id::text = $1", ids[i])
		}
		if d := differs("$", parseJSON(t, want), decodeSingle(t, schema, r.Value)); d != "" {
			t.Error(d)
		}
	}
	waitMetric(t, relay, float64(delivered), "tailer_events_published_total", `topic="sample"`)
	waitMetric(t, relay, float64(len(data)-delivered), "tailer_dead_letters_total", `reason="invalid"`)
	return relay
}

func TestCase_W01_IntegersAbove2To53(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[{"name":"n","type":"long"},
		{"name":"list","type":{"type":"array","items":"long"},"default":[]},
		{"name":"map","type":{"type":"map","values":"long"},"default":{}},
		{"name":"maybe","type":["null","long"],"default":null}]}`
	relayData(t, schema, outboxOptions{},
		datum{payload: `{"n":9007199254740993,"list":[9007199254740993,-9007199254740993],"map":{"k":9007199254740995},"maybe":9007199254740997}`},
		datum{payload: `{"n":-9223372036854775808,"list":[-9223372036854775808],"map":{"k":-9223372036854775808},"maybe":-9223372036854775808}`},
		datum{payload: `{"n":9223372036854775807,"list":[9223372036854775807],"map":{"k":9223372036854775807},"maybe":9223372036854775807}`},
		datum{payload: `{"n":9223372036854775808,"list":[],"map":{},"maybe":null}`, dead: "$.n"},
		datum{payload: `{"n":-9223372036854775809,"list":[],"map":{},"maybe":null}`, dead: "$.n"},
		datum{payload: `{"n":1,"list":[1,9223372036854775808],"map":{},"maybe":null}`, dead: "$.list[1]"},
		datum{payload: `{"n":1,"list":[],"map":{"k":9223372036854775808},"maybe":null}`, dead: "$.map.k"},
		datum{payload: `{"n":1,"list":[],"map":{},"maybe":9223372036854775808}`, dead: "$.maybe"},
		datum{payload: `{"n":2,"list":[],"map":{},"maybe":null}`},
	)
}

func TestCase_W02_IntsDoNotWrap(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[{"name":"n","type":"int"},{"name":"after","type":"string"}]}`
	relayData(t, schema, outboxOptions{},
		datum{payload: `{"n":2147483647,"after":"x"}`},
		datum{payload: `{"n":-2147483648,"after":"x"}`},
		datum{payload: `{"n":2147483648,"after":"x"}`, dead: "$.n"},
		datum{payload: `{"n":-2147483649,"after":"x"}`, dead: "$.n"},
		datum{payload: `{"n":0,"after":"y"}`},
	)
}

// 1.0 and 1e3 are integers wherever they stand; jsonb writes the latter as 1000,
// so the column is json.
func TestCase_W03_NonIntegersForIntegers(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[{"name":"n","type":"long"},
		{"name":"list","type":{"type":"array","items":"long"},"default":[]},
		{"name":"maybe","type":["null","long"],"default":null}]}`
	relayData(t, schema, outboxOptions{before: []string{jsonTable}},
		datum{payload: `{"n":1.0,"list":[1.0,1e3,-0.0],"maybe":1e3}`},
		datum{payload: `{"n":1e3,"list":[],"maybe":1.0}`},
		datum{payload: `{"n":1.5,"list":[],"maybe":null}`, dead: "$.n"},
		datum{payload: `{"n":"12","list":[],"maybe":null}`, dead: "$.n"},
		datum{payload: `{"n":true,"list":[],"maybe":null}`, dead: "$.n"},
		datum{payload: `{"n":1,"list":[1,1.5],"maybe":null}`, dead: "$.list[1]"},
		datum{payload: `{"n":1,"list":["12"],"maybe":null}`, dead: "$.list[0]"},
		datum{payload: `{"n":1,"list":[],"maybe":1.5}`, dead: "$.maybe"},
		datum{payload: `{"n":1,"list":[],"maybe":"12"}`, dead: "$.maybe"},
		datum{payload: `{"n":12,"list":[],"maybe":null}`},
	)
}

const unknownFields = `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},
	{"name":"amount","type":["null","long"],"default":null},
	{"name":"inner","type":["null",{"type":"record","name":"Inner","fields":[{"name":"a","type":"int"}]}],"default":null},
	{"name":"items","type":{"type":"array","items":"Inner"},"default":[]}]}`

func TestCase_W08_UnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	relayData(t, unknownFields, outboxOptions{},
		datum{payload: `{"id":1,"amount":2,"inner":{"a":3},"items":[{"a":4}]}`},
		datum{payload: `{"id":1,"extra":2}`, dead: "$.extra"},
		datum{payload: `{"id":1,"amout":2}`, dead: "$.amout"},
		datum{payload: `{"id":1,"inner":{"a":3,"extra":{"deep":[1]}}}`, dead: "$.inner.extra"},
		datum{payload: `{"id":1,"items":[{"a":4},{"a":5,"extra":null}]}`, dead: "$.items[1].extra"},
		datum{payload: `{"id":2,"amount":null,"inner":null,"items":[]}`},
	)
}

func TestCase_W08_UnknownFieldsAreDroppedOnRequest(t *testing.T) {
	t.Parallel()
	relay := relayData(t, unknownFields, outboxOptions{config: map[string]any{"schema.unknown_fields": "drop"}},
		datum{payload: `{"id":1,"extra":{"a":"}"},"amount":2,"inner":{"a":3,"extra":{"deep":[1]}},"items":[{"a":4,"more":"x"},{"a":5}]}`,
			read: `{"id":1,"amount":2,"inner":{"a":3},"items":[{"a":4},{"a":5}]}`},
		datum{payload: `{"id":1,"amout":2}`, read: `{"id":1,"amount":null,"inner":null,"items":[]}`},
	)
	// Loud all the same: somebody writes what nobody reads.
	waitMetric(t, relay, 4, "tailer_dropped_fields_total")
}

// What is omitted takes its default, and the fields after it are read as
// themselves.
func TestCase_W09_MissingFieldsAndDefaults(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[{"name":"required","type":"string"},
		{"name":"optional","type":["null","string"],"default":null},
		{"name":"count","type":"int","default":123},
		{"name":"bare","type":["null","string"]},
		{"name":"nested","type":{"type":"record","name":"N","fields":[{"name":"x","type":"int"},{"name":"y","type":"string","default":"why"}]},"default":{"x":7,"y":"z"}},
		{"name":"last","type":"string"}]}`
	relayData(t, schema, outboxOptions{},
		datum{payload: `{"required":"r","optional":"o","count":1,"bare":"b","nested":{"x":2,"y":"q"},"last":"l"}`},
		datum{payload: `{"optional":"o","count":1,"bare":"b","nested":{"x":2,"y":"q"},"last":"l"}`, dead: "$.required"},
		datum{payload: `{"required":"r","bare":"b","last":"l"}`,
			read: `{"required":"r","optional":null,"count":123,"bare":"b","nested":{"x":7,"y":"z"},"last":"l"}`},
		datum{payload: `{"required":"r","last":"l"}`, dead: "$.bare"},
		datum{payload: `{"required":"r","bare":null,"nested":{"x":9},"last":"l"}`,
			read: `{"required":"r","optional":null,"count":123,"bare":null,"nested":{"x":9,"y":"why"},"last":"l"}`},
		datum{payload: `{"required":"r","bare":null,"nested":{},"last":"l"}`, dead: "$.nested.x"},
		datum{payload: `{"required":null,"bare":null,"last":"l"}`, dead: "$.required"},
	)
}

func TestCase_W12_UnknownEnumSymbols(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[
		{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}},{"name":"after","type":"int"}]}`
	relayData(t, schema, outboxOptions{},
		datum{payload: `{"e":"A","after":1}`},
		datum{payload: `{"e":"B","after":2}`},
		datum{payload: `{"e":"C","after":3}`, dead: "$.e"},
		datum{payload: `{"e":"a","after":4}`, dead: "$.e"},
		datum{payload: `{"e":null,"after":5}`, dead: "$.e"},
		datum{payload: `{"e":0,"after":6}`, dead: "$.e"},
		datum{payload: `{"after":7}`, dead: "$.e"},
		datum{payload: `{"e":"B","after":8}`},
	)
}
