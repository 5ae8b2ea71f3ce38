package schema

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/twmb/avro"
)

// fuzzSchemas reach every op, and every way a union can be decided.
var fuzzSchemas = []string{
	orderSchema,
	`"null"`, `"boolean"`, `"int"`, `"long"`, `"float"`, `"double"`, `"string"`, `"bytes"`,
	`{"type":"fixed","name":"F","size":3}`,
	`{"type":"enum","name":"E","symbols":["A","B"]}`,
	`{"type":"string","logicalType":"uuid"}`,
	`{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}`,
	`{"type":"bytes","logicalType":"decimal","precision":40,"scale":3}`,
	`{"type":"fixed","name":"D","size":5,"logicalType":"decimal","precision":11,"scale":2}`,
	`{"type":"int","logicalType":"date"}`,
	`{"type":"int","logicalType":"time-millis"}`,
	`{"type":"long","logicalType":"time-micros"}`,
	`{"type":"long","logicalType":"timestamp-millis"}`,
	`{"type":"long","logicalType":"timestamp-nanos"}`,
	`{"type":"long","logicalType":"local-timestamp-micros"}`,
	`{"type":"record","name":"N","fields":[{"name":"v","type":"int","default":1},{"name":"next","type":["null","N"],"default":null},{"name":"all","type":{"type":"array","items":"N"},"default":[]}]}`,
	`["null","boolean","int","long","double","bytes","string",{"type":"array","items":"int"},{"type":"map","values":["null","string"]},{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]},{"type":"record","name":"B","fields":[{"name":"a","type":"string"},{"name":"b","type":"B2","default":{}}]}]`,
	`{"type":"map","values":{"type":"map","values":{"type":"array","items":["float",{"type":"long","logicalType":"timestamp-micros"},{"type":"bytes","logicalType":"decimal","precision":4,"scale":1}]}}}`,
}

func init() {
	i := len(fuzzSchemas) - 2
	fuzzSchemas[i] = strings.Replace(fuzzSchemas[i], `"B2"`, `{"type":"record","name":"B2","fields":[]}`, 1)
}

// FuzzAppend: whatever the bytes, no panic; what is refused is refused as
// *Invalid; what is accepted is JSON and decodes completely.
func FuzzAppend(f *testing.F) {
	type pair struct {
		strict, lenient *Encoder
		oracle          *avro.Schema
	}
	var pairs []pair
	for _, text := range fuzzSchemas {
		lenient, err := compileText(text, Options{DropUnknown: true})
		if err != nil {
			f.Fatal(err)
		}
		pairs = append(pairs, pair{compile(f, text), lenient, avro.MustParse(text)})
	}
	docs := []string{
		orderInOrder, orderAsJSONB, `null`, `true`, `-0`, `1e3`, `1.50`, `9223372036854775808`, `1e-99999999999`, `"A"`, `"a\u0000\ud83d\ude00é"`, `"\ud800"`,
		`"0f8fad5b-d9cb-469f-a165-70867728950e"`, `"2026-01-02"`, `"2026-01-02T03:04:05.678901+05:30"`, `"23:59:59.999"`, `"2026-01-02 03:04:05"`, `"-12.345e1"`,
		`{"next":{"v":2,"next":null,"all":[{}]},"v":1}`, `{"a":1}`, `{"a":"x","b":{}}`, `{"A":{"a":1}}`, `{"string":"x"}`, `[1,2]`, `{"k":{"l":[1.5,"2026-01-02T03:04:05Z"]}}`, `{"a":1,"a":2}`, `{`, ``,
	}
	for i := range pairs {
		for _, doc := range docs {
			f.Add(byte(i), []byte(doc))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, doc []byte) {
		p := pairs[int(which)%len(pairs)]
		before := string(doc)
		strict, err := p.strict.Append([]byte("head"), doc)
		loose, looseErr := p.lenient.Append([]byte("head"), doc)
		if string(doc) != before {
			t.Fatal("the document was changed")
		}
		for _, err := range []error{err, looseErr} {
			var invalid *Invalid
			if err != nil && (!errors.As(err, &invalid) || invalid.Path == "" || invalid.Expected == "" || !utf8.ValidString(err.Error()) || len(invalid.Found) > 300) {
				t.Fatalf("odd error %#v", err)
			}
		}
		if err == nil && looseErr != nil {
			t.Fatalf("dropping unknown fields refuses what is accepted without: %v", looseErr)
		}
		if looseErr != nil {
			return
		}
		if !json.Valid(doc) || !utf8.Valid(doc) {
			t.Fatal("accepted, and not JSON")
		}
		bodies := [][]byte{loose}
		if err == nil {
			bodies = append(bodies, strict)
		}
		for _, body := range bodies {
			if string(body[:4]) != "head" {
				t.Fatal("what dst held was changed")
			}
			var v any
			rest, err := p.oracle.Decode(body[4:], &v)
			if err != nil || len(rest) > 0 {
				t.Fatalf("%x does not decode: %v, %d bytes left", body[4:], err, len(rest))
			}
		}
	})
}

// FuzzCompile: whatever the text, no panic; a schema that both parsers take has
// one canonical form.
func FuzzCompile(f *testing.F) {
	for _, text := range fuzzSchemas {
		f.Add([]byte(text))
	}
	for _, v := range vectors(f) {
		f.Add([]byte(v.Schema))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := Compile(text)
		defined, referenced, refErr := References(text)
		if err != nil {
			return
		}
		if refErr != nil || len(referenced) > 0 {
			t.Fatalf("it compiles, and has unknown references %q of %q, %v", referenced, defined, refErr)
		}
		for _, doc := range []string{`{}`, `[]`, `null`, `1`, `"A"`, `{"a":1}`} {
			if _, err := e.Append(nil, []byte(doc)); err != nil && err.Error() == "" {
				t.Fatal("an error without text")
			}
		}
		oracle, err := avro.Parse(string(text))
		if err != nil {
			return // stricter in places: the schema need not be wrong
		}
		if got, want := canonicalForm(e.root), string(oracle.Canonical()); got != want {
			t.Fatalf("canonical form\n%s, twmb/avro has\n%s", got, want)
		}
	})
}
