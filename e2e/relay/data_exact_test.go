package relay_test

import (
	"strings"
	"testing"
)

// These run the values of a case through a real column: jsonb writes numbers and
// texts in its own way. Seen red with a decimal finer than its scale that passes,
// and with a fixed that is written at any length.

func TestCase_W04_NumbersAsJSONBWritesThem(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[{"name":"d","type":"double"},{"name":"after","type":"string"}]}`
	for _, table := range []string{jsonTable, strings.ReplaceAll(jsonTable, " json,", " jsonb,")} {
		relayData(t, schema, outboxOptions{before: []string{table}},
			datum{payload: `{"d":1.7976931348623157e308,"after":"x"}`},
			datum{payload: `{"d":-1.7976931348623157e308,"after":"x"}`},
			datum{payload: `{"d":1e400,"after":"x"}`, dead: "$.d"},
			datum{payload: `{"d":-1e400,"after":"x"}`, dead: "$.d"},
			datum{payload: `{"d":1e100000,"after":"x"}`, dead: "$.d"},
			datum{payload: `{"d":1e-400,"after":"x"}`, read: `{"d":0,"after":"x"}`},
			datum{payload: `{"d":5e-324,"after":"x"}`},
			datum{payload: `{"d":0.5,"after":"y"}`},
		)
	}
}

func TestCase_W05_DecimalsAreExact(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[
		{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}},{"name":"after","type":"string"}]}`
	var data []datum
	for _, exact := range []string{"12.34", "12.3", "-0.01", "0.1", "99.99", "-99.99", "0", "12.340"} {
		data = append(data, datum{payload: `{"d":` + exact + `,"after":"x"}`}, datum{payload: `{"d":"` + exact + `","after":"x"}`, read: `{"d":` + exact + `,"after":"x"}`})
	}
	for _, inexact := range []string{"12.345", "1234.5", "100", "-100.00", "0.001"} {
		data = append(data, datum{payload: `{"d":` + inexact + `,"after":"x"}`, dead: "$.d"}, datum{payload: `{"d":"` + inexact + `","after":"x"}`, dead: "$.d"})
	}
	relayData(t, schema, outboxOptions{}, append(data, datum{payload: `{"d":1.00,"after":"last"}`})...)
}

// A decimal's text is a number, never code points. Bytes are code points up to
// 255, which is how Avro writes them in JSON, whether escaped or not.
func TestCase_W06_TextForDecimalsAndBytes(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[
		{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}},{"name":"s","type":"string"}]}`
	relayData(t, schema, outboxOptions{},
		datum{payload: `{"d":"1","s":"x"}`, read: `{"d":1,"s":"x"}`},
		datum{payload: `{"d":"12.34","s":"x"}`, read: `{"d":12.34,"s":"x"}`},
		datum{payload: `{"d":"\u0001","s":"x"}`, dead: "$.d"},
		datum{payload: `{"d":"","s":"x"}`, dead: "$.d"},
		datum{payload: `{"d":"twelve","s":"x"}`, dead: "$.d"},
	)
	const bytesSchema = `{"type":"record","name":"R","fields":[{"name":"b","type":"bytes"},{"name":"s","type":"string"}]}`
	o := newOutbox(t, outboxOptions{schemas: map[string]string{"sample.taken.v1": bytesSchema}})
	want := map[string]string{}
	for payload, read := range map[string]string{`{"b":"\u00ff","s":"x"}`: "\xff", `{"b":"é","s":"x"}`: "\xe9", `{"b":"aGk=","s":"x"}`: "aGk=", `{"b":"","s":"x"}`: ""} {
		want[o.insert("k", "sample.taken.v1", payload)] = read
	}
	beyond := o.insert("k", "sample.taken.v1", `{"b":"Ā","s":"x"}`)
	o.run(o.config)
	records := o.read(len(want)+1, "sample", "tailer.dlq")
	for id, read := range want {
		got, ok := decodeSingle(t, bytesSchema, records[id].Value).(map[string]any)["b"].([]byte)
		if !ok || string(got) != read {
			t.Errorf("%x was read, want %x", got, read)
		}
	}
	o.checkDeadLetter(beyond, records[beyond], deadLetter{topic: "tailer.dlq", reason: "invalid", path: "$.b", wanted: "sample"})
}

func TestCase_W07_FixedDoesNotOverrun(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[
		{"name":"d","type":{"type":"fixed","name":"D","size":2,"logicalType":"decimal","precision":4,"scale":2}},{"name":"g","type":"string"}]}`
	relayData(t, schema, outboxOptions{},
		datum{payload: `{"d":99.99,"g":"guard"}`},
		datum{payload: `{"d":-99.99,"g":"guard"}`},
		datum{payload: `{"d":99999999,"g":"guard"}`, dead: "$.d"},
		datum{payload: `{"d":327.68,"g":"guard"}`, dead: "$.d"},
		datum{payload: `{"d":-0.01,"g":"last"}`},
	)
	const bare = `{"type":"record","name":"R","fields":[{"name":"f","type":{"type":"fixed","name":"F","size":16}},{"name":"g","type":"string"}]}`
	o := newOutbox(t, outboxOptions{schemas: map[string]string{"sample.taken.v1": bare}})
	fits := o.insert("k", "sample.taken.v1", `{"f":"0123456789abcdef","g":"guard"}`)
	short := o.insert("k", "sample.taken.v1", `{"f":"0123456789abcde","g":"guard"}`)
	long := o.insert("k", "sample.taken.v1", `{"f":"0123456789abcdefg","g":"guard"}`)
	o.run(o.config)
	records := o.read(3, "sample", "tailer.dlq")
	if got := decodeSingle(t, bare, records[fits].Value).(map[string]any); got["g"] != "guard" {
		t.Errorf("the field behind it is %v", got["g"])
	}
	for _, id := range []string{short, long} {
		o.checkDeadLetter(id, records[id], deadLetter{topic: "tailer.dlq", reason: "invalid", path: "$.f", wanted: "sample"})
	}
}

func TestCase_W34_TextBeyondASCII(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[{"name":"s","type":"string"},{"name":"m","type":{"type":"map","values":"string"},"default":{}}]}`
	for _, table := range []string{jsonTable, strings.ReplaceAll(jsonTable, " json,", " jsonb,")} {
		relayData(t, schema, outboxOptions{before: []string{table}},
			datum{payload: `{"s":"é ÿ 😀 ` + "\ufeff" + `","m":{"ключ":"значение"}}`},
			datum{payload: `{"s":"\u00e9 \u00ff \ud83d\ude00 \ufeff","m":{"\u043a\u043b\u044e\u0447":"\u0437\u043d\u0430\u0447\u0435\u043d\u0438\u0435"}}`,
				read: `{"s":"é ÿ 😀 ` + "\ufeff" + `","m":{"ключ":"значение"}}`},
		)
	}
}

func TestCase_W36_UUIDs(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[{"name":"u","type":{"type":"string","logicalType":"uuid"}},{"name":"after","type":"string"}]}`
	const canonical = "6f1d9f0e-3f0b-4f3c-9c51-0a4d3f5b7c11"
	relayData(t, schema, outboxOptions{},
		datum{payload: `{"u":"` + canonical + `","after":"x"}`},
		datum{payload: `{"u":"{` + canonical + `}","after":"x"}`, dead: "$.u"},
		datum{payload: `{"u":"not-a-uuid","after":"x"}`, dead: "$.u"},
		datum{payload: `{"u":"` + canonical[1:] + `","after":"x"}`, dead: "$.u"},
	)
}
