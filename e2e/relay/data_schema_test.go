package relay_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// A schema that libraries would judge in different ways, or names that Avro
// cannot hold, end the relay at its start: all of them at once, each with its
// file and field.
//
// Seen red with a union whose default may be of another branch.
func TestCase_W11_W13_SchemasThatCannotBe(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	record := func(field string) string {
		return `{"type":"record","name":"R","fields":[` + field + `]}`
	}
	wrong := map[string]struct{ schema, says string }{
		"a.v1": {record(`{"name":"n","type":["null","long"],"default":"null"}`), `R.n: default: the text "null" does not fit null, the union's first branch`},
		"b.v1": {record(`{"name":"n","type":["string","null"],"default":null}`), `R.n: default: null does not fit string, the union's first branch`},
		"c.v1": {record(`{"name":"n","type":{"type":"enum","name":"E","symbols":["A"],"default":"B"}}`), `E: the enum's default the text "B" is not one of its symbols`},
		"d.v1": {record(`{"name":"user-id","type":"long"}`), "user-id"},
		"e.v1": {record(`{"name":"e","type":{"type":"enum","name":"E","symbols":["order-placed"]}}`), "order-placed"},
	}
	schemas := map[string]string{"order.placed.v1": numberSchema}
	for typ, w := range wrong {
		schemas[typ] = w.schema
	}
	relay := harness.StartRelay(t, harness.RelayOptions{Config: o.config.With("schema", harness.Config{"dir": schemaFolder(t, schemas)})})
	if code := relay.WaitExit(loudness); code != 2 {
		t.Fatalf("exit code %d\n%s", code, relay.Logs())
	}
	for typ, w := range wrong {
		if log := relay.Logs(); !strings.Contains(log, typ+".avsc") || !strings.Contains(log, w.says) {
			t.Errorf("%s: nothing says %q in\n%s", typ, w.says, log)
		}
	}
	o.recovers(o.config.With("schema", harness.Config{"dir": schemaFolder(t, map[string]string{"order.placed.v1": numberSchema}), "on_missing": "dlq"}),
		o.insert("k", "order.placed.v1", `{"n":1}`))
}

// Types that are no names of Avro or Kafka reach schema and topic by the map of
// types, and are never mended into another one's name.
//
// Seen red with topics whose names are not looked at.
func TestCase_W13_TypesThatAreNoNames(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	types := map[string]string{"order.placed-v1": "hyphen", "Order$Created": "dollar", "9lives": "digit", "订单": "cjk"}
	mapped := harness.Config{}
	id := map[string]int{}
	for typ, topic := range types {
		id[typ] = len(id) + 1
		reg.seed("subject-"+topic, 1, id[typ], numberSchema)
		mapped[typ] = harness.Config{"subject": "subject-" + topic, "topic": topic}
	}
	o := newOutbox(t, outboxOptions{config: map[string]any{
		"schema": harness.Config{"registry": harness.Config{"url": reg.url}, "types": mapped}, "routing.topic": "{type}"}})
	reg.seed("a$b", 1, 99, numberSchema)
	rows := map[string]string{}
	for typ := range types {
		rows[o.insert("k", typ, `{"n":1}`)] = typ
	}
	unmapped := o.insert("k", "a$b", `{"n":1}`)
	o.run(o.config)
	records := o.read(len(rows)+1, "hyphen", "dollar", "digit", "cjk", "tailer.dlq")
	for row, typ := range rows {
		if r := records[row]; r.Topic != types[typ] {
			t.Errorf("%s went to %s", typ, r.Topic)
		} else {
			has(t, r, "ce_type", &typ)
			framed(t, r, id[typ], numberSchema)
		}
	}
	has(t, records[unmapped], "dlq_reason", new("invalid_topic"))
	has(t, records[unmapped], "dlq_topic", new("a$b"))
}

// The five bytes before a body, for ids of every width; without a registry there
// are none.
//
// Seen red with an id in the other byte order.
func TestCase_W32_WireFormats(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	ids := map[string]int{"one.made.v1": 1, "two.made.v1": 256, "three.made.v1": math.MaxInt32}
	for typ, id := range ids {
		reg.seed(typ, 1, id, numberSchema)
	}
	o := newOutbox(t, outboxOptions{config: map[string]any{"schema": harness.Config{"registry": harness.Config{"url": reg.url}}, "routing.topic": "all"}})
	rows := map[string]int{}
	for typ, id := range ids {
		rows[o.insert("k", typ, `{"n":1}`)] = id
	}
	o.run(o.config)
	for row, r := range o.read(len(rows), "all", "tailer.dlq") {
		framed(t, r, rows[row], numberSchema)
	}
	raw := newOutbox(t, outboxOptions{})
	row := raw.insert("k", "one.made.v1", `{"n":1}`)
	raw.run(raw.config)
	if r := raw.read(1, "one")[row]; !bytes.Equal(r.Value, []byte(`{"n": 1}`)) {
		t.Errorf("value %q", r.Value)
	}
}

// The id is that of the subject which the configuration names, by default the
// type's; several types share a topic.
//
// Seen red with a catalogue that leaves the subject's template aside.
func TestCase_W33_Subjects(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	named := `{"type":"record","name":"Rec","namespace":"ns","fields":[{"name":"n","type":"long"}]}`
	for subject, id := range map[string]int{"t-value": 11, "ns.Rec": 12, "t-ns.Rec": 13, "order.placed.v1": 14} {
		reg.seed(subject, 1, id, named)
	}
	reg.seed("order.paid.v1", 1, 21, numberSchema)
	reg.seed("order.paid.v1-value", 1, 22, numberSchema)
	dir := schemaFolder(t, map[string]string{"order.placed.v1": named})
	const typ = "order.placed.v1"
	for name, c := range map[string]struct {
		schema harness.Config
		want   int
	}{
		"the type":          {harness.Config{}, 14},
		"topic":             {harness.Config{"types": harness.Config{typ: harness.Config{"subject": "t-value"}}}, 11},
		"record":            {harness.Config{"dir": dir, "registry": harness.Config{"url": reg.url, "subject": "{record}"}, "encoding": "confluent"}, 12},
		"topic and record":  {harness.Config{"dir": dir, "registry": harness.Config{"url": reg.url, "subject": "t-{record}"}, "encoding": "confluent"}, 13},
		"type and a suffix": {harness.Config{"registry": harness.Config{"url": reg.url, "subject": "{type}-value"}}, 22},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, ok := c.schema["registry"]; !ok {
				c.schema["registry"] = harness.Config{"url": reg.url}
			}
			o := newOutbox(t, outboxOptions{config: map[string]any{"schema": c.schema}})
			this, schema := typ, named
			if c.want == 22 {
				this, schema = "order.paid.v1", numberSchema
			}
			row := o.insert("k", this, `{"n":1}`)
			both := 1
			other := ""
			if name == "the type" {
				other, both = o.insert("k", "order.paid.v1", `{"n":2}`), 2
			}
			o.run(o.config)
			records := o.read(both, "order", "tailer.dlq")
			framed(t, records[row], c.want, schema)
			if other != "" {
				framed(t, records[other], 21, numberSchema)
			}
		})
	}
}
