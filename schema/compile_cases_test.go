package schema

import (
	"strings"
	"testing"
)

func TestCase_W11_wrong_defaults_do_not_compile(t *testing.T) {
	for _, c := range []struct{ field, err string }{
		{`{"name":"n","type":["null","long"],"default":"null"}`, `R.n: default: the text "null" does not fit null, the union's first branch`},
		{`{"name":"n","type":["string","null"],"default":null}`, `R.n: default: null does not fit string, the union's first branch`},
		{`{"name":"n","type":{"type":"enum","name":"E","symbols":["A"]},"default":"B"}`, `R.n: default: the text "B" does not fit enum E`},
		{`{"name":"n","type":{"type":"enum","name":"E","symbols":["A"],"default":"B"}}`, `E: the enum's default the text "B" is not one of its symbols`},
		{`{"name":"n","type":"int","default":2147483648}`, `R.n: default: 2147483648 does not fit int`},
		{`{"name":"n","type":"long","default":9223372036854775808}`, `does not fit long`},
		{`{"name":"n","type":"long","default":1.0}`, `does not fit long`},
		{`{"name":"n","type":"double","default":1e400}`, `does not fit double`},
		{`{"name":"n","type":"string","default":1}`, `does not fit string`},
		{`{"name":"n","type":"boolean","default":"true"}`, `does not fit boolean`},
		{`{"name":"n","type":"bytes","default":"Ā"}`, `does not fit bytes`},
		{`{"name":"n","type":{"type":"fixed","name":"F","size":2},"default":"a"}`, `does not fit fixed F`},
		{`{"name":"n","type":{"type":"array","items":"int"},"default":{}}`, `an object does not fit array`},
		{`{"name":"n","type":{"type":"array","items":"int"},"default":[1,"x"]}`, `does not fit int`},
		{`{"name":"n","type":{"type":"map","values":"int"},"default":[]}`, `an array does not fit map`},
		{`{"name":"n","type":{"type":"record","name":"In","fields":[{"name":"q","type":"int"}]},"default":{}}`, `R.n: default: q: the field is missing`},
		{`{"name":"n","type":{"type":"record","name":"In","fields":[]},"default":{"x":1}}`, `record In has no field "x"`},
		{`{"name":"n","type":"R","default":{}}`, `the default contains itself`},
	} {
		_, err := compileText(record(c.field), Options{})
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want one with %q", c.field, err, c.err)
		}
	}
	// A null default stays null.
	compile(t, record(`{"name":"n","type":["null","R"],"default":null}`)).run(t, []check{{doc: `{}`, hex: "00"}})
}

func TestCase_W13_names_avro_cannot_hold_do_not_compile(t *testing.T) {
	for _, name := range []string{"order.placed-v1", "Order$Created", "9lives", "订单", "", "a..b", ".a", "a.", "string"} {
		if _, err := compileText(`{"type":"record","name":"`+name+`","fields":[]}`, Options{}); err == nil {
			t.Errorf("record %q compiles", name)
		} else if !strings.Contains(err.Error(), "name") {
			t.Errorf("record %q: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		record(`{"name":"user-id","type":"int"}`):                                         `R: field name "user-id" is not one Avro allows`,
		record(`{"name":"a.b","type":"int"}`):                                             `R: field name "a.b"`,
		one(`{"type":"enum","name":"E","symbols":["order-placed"]}`):                      `E: symbol name "order-placed" is not one Avro allows`,
		record(`{"name":"a","type":"int"},{"name":"a","type":"int"}`):                     `R: field "a" is defined twice`,
		one(`{"type":"enum","name":"E","symbols":["A","A"]}`):                             `symbol "A" occurs twice`,
		one(`{"type":"fixed","name":"R","size":1}`):                                       `"R" is defined twice`,
		`{"type":"record","namespace":"a-b","name":"R","fields":[]}`:                      `name "a-b.R"`,
		one(`{"type":"bytes","logicalType":"decimal","precision":0}`):                     `R.n: decimal's precision`,
		one(`{"type":"bytes","logicalType":"decimal"}`):                                   `R.n: decimal has no precision`,
		one(`{"type":"bytes","logicalType":"decimal","precision":4,"scale":5}`):           `R.n: decimal's scale`,
		one(`{"type":"bytes","logicalType":"decimal","precision":4,"scale":-1}`):          `R.n: decimal's scale`,
		one(`{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":4}`): `F: decimal's precision 4 does not fit`,
		one(`["null",["int"]]`):                                                           `R.n: a union may not hold a union`,
		one(`["int","int"]`):                                                              `R.n: the union has two branches "int"`,
		one(`["string",{"type":"string","logicalType":"uuid"}]`):                          `the union has two branches "string"`,
		one(`[]`):                 `at least one branch`,
		one(`"Missing"`):          `R.n: unknown type "Missing"`,
		one(`{"type":"Missing"}`): `R.n: unknown type "Missing"`,
		one(`{"type":"array"}`):   `R.n: array has no "items"`,
		one(`{"type":"fixed","name":"F","size":-1}`): `F: size must be`,
		one(`1`):                                               `R.n: a schema must be`,
		`{"type":"record","name":"R","fields":[`:               `not valid JSON, line 1`,
		`{"type":"record","name":"R"}`:                         `R: record has no array of fields`,
		`{"type":"record","name":"R","name":"S","fields":[]}`:  `occurs twice`,
		`{"type":"record","name":"R","fields":[{"name":"x"}]}`: `R.x: field has no type`,
		`"int" 1`: `not valid JSON`,
		``:        `not valid JSON`,
	} {
		_, err := compileText(text, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}
