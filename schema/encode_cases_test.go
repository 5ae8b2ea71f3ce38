package schema

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

func record(fields string) string {
	return `{"type":"record","name":"R","fields":[` + fields + `]}`
}

func one(typ string) string {
	return record(`{"name":"n","type":` + typ + `},{"name":"z","type":"int","default":1}`)
}

func TestCase_W01_integers_above_2_53_are_exact(t *testing.T) {
	checks := []check{
		{doc: `{"n":9007199254740993}`, hex: "8280808080808020" + "02"},
		{doc: `{"n":-9223372036854775808}`, hex: "ffffffffffffffffff01" + "02"},
		{doc: `{"n":9223372036854775807}`, hex: "feffffffffffffffff01" + "02"},
		{doc: `{"n":9223372036854775808}`, err: "$.n: expected long, found the number 9223372036854775808 (out of range)"},
		{doc: `{"n":-9223372036854775809}`, err: "out of range"},
		{doc: `{"n":92233720368547758070000000000}`, err: "out of range"},
	}
	compile(t, one(`"long"`)).run(t, checks)
	compile(t, one(`{"type":"array","items":"long"}`)).run(t, []check{
		{doc: `{"n":[9223372036854775807]}`, hex: "02" + "feffffffffffffffff01" + "00" + "02"},
		{doc: `{"n":[1,9223372036854775808]}`, err: "$.n[1]: expected long"},
	})
	compile(t, one(`{"type":"map","values":"long"}`)).run(t, []check{
		{doc: `{"n":{"k":9007199254740993}}`, hex: "02" + "026b" + "8280808080808020" + "00" + "02"},
		{doc: `{"n":{"odd key":9223372036854775808}}`, err: `$.n["odd key"]: expected long`},
	})
	compile(t, one(`["null","long"]`)).run(t, []check{
		{doc: `{"n":9223372036854775807}`, hex: "02" + "feffffffffffffffff01" + "02"},
		{doc: `{"n":9223372036854775808}`, err: "$.n: expected long"},
	})
}

func TestCase_W02_int_does_not_wrap(t *testing.T) {
	compile(t, one(`"int"`)).run(t, []check{
		{doc: `{"n":2147483647}`, hex: "feffffff0f02"},
		{doc: `{"n":-2147483648}`, hex: "ffffffff0f02"},
		{doc: `{"n":2147483648}`, err: "$.n: expected int, found the number 2147483648 (out of range)"},
		{doc: `{"n":-2147483649}`, err: "$.n: expected int"},
		{doc: `{"n":4294967296}`, err: "$.n: expected int"},
	})
}

func TestCase_W03_integral_numbers_only_for_integer_types(t *testing.T) {
	forms := []check{
		{doc: `1.5`, err: "expected long, found the number 1.5 (not an integer)"},
		{doc: `"12"`, err: `expected long, found the text "12"`},
		{doc: `true`, err: "expected long, found a boolean"},
		{doc: `1.0`, hex: "02"},
		{doc: `1e3`, hex: "d00f"},
		{doc: `1E+3`, hex: "d00f"},
		{doc: `12000e-3`, hex: "18"},
		{doc: `-0`, hex: "00"},
		{doc: `-0.0e5`, hex: "00"},
		{doc: `0e99999999999999999999`, hex: "00"},
		{doc: `9223372036854775807.000`, hex: "feffffffffffffffff01"},
		{doc: `922337203685477580.7e1`, hex: "feffffffffffffffff01"},
		{doc: `1e19`, err: "out of range"},
		{doc: `1e-1`, err: "not an integer"},
		{doc: `01`, err: "not a number by JSON's grammar"},
		{doc: `-`, err: "not a number by JSON's grammar"},
		{doc: `1.`, err: "not a number by JSON's grammar"},
		{doc: `1e`, err: "not a number by JSON's grammar"},
		{doc: `+1`, err: "found something that is not JSON"},
	}
	// The same at the root, in a record, array, map and union.
	for _, place := range []struct{ schema, before, after, hexBefore, hexAfter string }{
		{`"long"`, ``, ``, ``, ``},
		{one(`"long"`), `{"n":`, `}`, ``, `02`},
		{`{"type":"array","items":"long"}`, `[`, `]`, `02`, `00`},
		{`{"type":"map","values":"long"}`, `{"k":`, `}`, `02026b`, `00`},
		{`["null","long"]`, ``, ``, `02`, ``},
	} {
		checks := make([]check, 0, len(forms))
		for _, f := range forms {
			if f.err == "" {
				f.hex = place.hexBefore + f.hex + place.hexAfter
			} else if strings.HasPrefix(place.schema, "[") {
				f.err = strings.ReplaceAll(f.err, "expected long", "")
				f.err = strings.TrimPrefix(f.err, ", ")
			}
			f.doc = place.before + f.doc + place.after
			checks = append(checks, f)
		}
		compile(t, place.schema).run(t, checks)
	}
}

func TestCase_W04_huge_exponents(t *testing.T) {
	digits := strings.Repeat("9", 1_000_000)
	e := compile(t, `{"type":"record","name":"R","fields":[{"name":"d","type":"double"}]}`)
	e.run(t, []check{
		{doc: `{"d":1.7976931348623157e308}`, hex: "ffffffffffffef7f"},
		{doc: `{"d":1e400}`, err: "$.d: expected double, found the number 1e400 (out of range)"},
		{doc: `{"d":-1e400}`, err: "out of range"},
		{doc: `{"d":1e100000}`, err: "out of range"},
		{doc: `{"d":1e-400}`, hex: "0000000000000000"},
		{doc: `{"d":` + digits + `}`, err: "out of range"},
		{doc: `{"d":` + digits + `e-1000000}`, hex: "000000000000f03f"},
		{doc: `{"d":"NaN"}`, err: "$.d: expected double"},
		{doc: `{"d":NaN}`, err: "$.d"},
		{doc: `{"d":Infinity}`, err: "$.d"},
	})
	compile(t, `"float"`).run(t, []check{
		{doc: `3.4028234663852886e38`, hex: "ffff7f7f"},
		{doc: `3.5e38`, err: "out of range"},
		{doc: `1e-60`, hex: "00000000"},
	})
	const huge = `1e999999999999999999999999`
	compile(t, `"long"`).run(t, []check{
		{doc: huge, err: "out of range"},
		{doc: `1e-999999999999999999999999`, err: "not an integer"},
		{doc: digits, err: "out of range"},
		{doc: `0.` + digits, err: "not an integer"},
	})
	// Time and memory stay flat: an exponent is never written out.
	dec := compile(t, `{"type":"bytes","logicalType":"decimal","precision":4096,"scale":0}`)
	docs := []string{huge, `1e4096`, `"` + huge + `"`, digits}
	var buf []byte
	start := time.Now()
	allocs := testing.AllocsPerRun(10, func() {
		for _, doc := range docs {
			if _, err := dec.Append(buf[:0], []byte(doc)); err == nil {
				t.Errorf("%.20s accepted", doc)
			}
		}
	})
	if spent := time.Since(start); spent > 5*time.Second {
		t.Errorf("%d refusals took %v", 11*len(docs), spent)
	}
	if allocs > 100 {
		t.Errorf("%v allocations for %d refusals", allocs, len(docs))
	}
}

func TestCase_W05_decimals_are_exact(t *testing.T) {
	forms := []check{
		{doc: `12.34`, hex: "0404d2"},
		{doc: `12.3`, hex: "0404ce"},
		{doc: `-0.01`, hex: "02ff"},
		{doc: `0.1`, hex: "020a"},
		{doc: `0`, hex: "0200"},
		{doc: `-0.00`, hex: "0200"},
		{doc: `99.99`, hex: "04270f"},
		{doc: `-99.99`, hex: "04d8f1"},
		{doc: `1.2e1`, hex: "0404b0"},
		{doc: `1200e-2`, hex: "0404b0"},
		{doc: `12.3400000000000000000000000000000`, hex: "0404d2"},
		{doc: `12.345`, err: "finer than the scale"},
		{doc: `1234.5`, err: "more digits than the precision"},
		{doc: `100`, err: "more digits than the precision"},
		{doc: `1e2`, err: "more digits than the precision"},
	}
	e := compile(t, `{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`)
	e.run(t, forms)
	for i := range forms {
		forms[i].doc = `"` + forms[i].doc + `"`
	}
	e.run(t, forms)
}

func TestCase_W06_text_is_never_a_decimals_bytes(t *testing.T) {
	compile(t, one(`{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}`)).run(t, []check{
		{doc: `{"n":"1"}`, hex: "0264" + "02"},
		{doc: `{"n":"12.34"}`, hex: "0404d2" + "02"},
		{doc: `{"n":"1 "}`, err: "$.n: expected decimal(6,2), found the text \"1 \" (text that is not a number)"},
		{doc: `{"n":""}`, err: "text that is not a number"},
		{doc: `{"n":"\u0001"}`, err: "text that is not a number"},
		{doc: `{"n":"NaN"}`, err: "text that is not a number"},
		{doc: `{"n":"+1"}`, err: "text that is not a number"},
		{doc: `{"n":"\u0031"}`, hex: "0264" + "02"},
		{doc: `{"n":true}`, err: "expected decimal(6,2), found a boolean"},
	})
	compile(t, one(`"bytes"`)).run(t, []check{
		{doc: `{"n":"\u00ff"}`, hex: "02ff" + "02"},
		{doc: `{"n":"é"}`, hex: "02e9" + "02"},
		{doc: `{"n":"Ā"}`, err: "$.n: expected bytes, found the text \"Ā\" (a character above U+00FF)"},
		{doc: `{"n":"😀"}`, err: "a character above U+00FF"},
		{doc: `{"n":"3q2+7w=="}`, hex: "10" + hex.EncodeToString([]byte("3q2+7w==")) + "02"},
		{doc: `{"n":1}`, err: "expected bytes, found the number 1"},
	})
}

func TestCase_W07_fixed_keeps_its_size(t *testing.T) {
	compile(t, record(`{"name":"f","type":{"type":"fixed","name":"D","size":2,"logicalType":"decimal","precision":4,"scale":2}},{"name":"g","type":"string"}`)).run(t, []check{
		{doc: `{"f":99.99,"g":"x"}`, hex: "270f" + "0278"},
		{doc: `{"f":-0.01,"g":"x"}`, hex: "ffff" + "0278"},
		{doc: `{"f":99999999,"g":"x"}`, err: "$.f: expected decimal(4,2), found the number 99999999 (more digits than the precision)"},
	})
	sixteen := "0123456789abcdef"
	compile(t, record(`{"name":"f","type":{"type":"fixed","name":"F","size":16}},{"name":"g","type":"string"}`)).run(t, []check{
		{doc: `{"f":"` + sixteen + `","g":"x"}`, hex: hex.EncodeToString([]byte(sixteen)) + "0278"},
		{doc: `{"f":"` + sixteen[1:] + `","g":"x"}`, err: "$.f: expected fixed F of 16 bytes, found the text \"123456789abcdef\" (of another length)"},
		{doc: `{"f":"` + sixteen + `0","g":"x"}`, err: "of another length"},
	})
	if _, err := Compile([]byte(`{"type":"fixed","name":"D","size":2,"logicalType":"decimal","precision":5}`)); err == nil {
		t.Error("a precision that two bytes cannot hold compiles")
	}
}

func TestCase_W08_unknown_fields_are_refused(t *testing.T) {
	text := record(`{"name":"id","type":"int"},{"name":"amount","type":["null","int"],"default":null},
		{"name":"in","type":["null",{"type":"record","name":"In","fields":[{"name":"a","type":"int"}]}],"default":null},
		{"name":"list","type":{"type":"array","items":"In"},"default":[]}`)
	compile(t, text).run(t, []check{
		{doc: `{"id":1}`, hex: "02000000"},
		{doc: `{"id":1,"amout":5}`, err: "$.amout: expected a field of record R, found an unknown field"},
		{doc: `{"id":1,"in":{"a":1,"b":2}}`, err: "$.in.b: expected a field of record In"},
		{doc: `{"id":1,"list":[{"a":1},{"a":1,"x-y":{}}]}`, err: `$.list[1]["x-y"]: expected a field of record In`},
	})
	lenient, err := compileText(text, Options{DropUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	lenient.run(t, []check{
		{doc: `{"id":1,"amout":5,"more":[{"x":"\ud83d\ude00"},[null,1e5]]}`, hex: "02000000"},
		{doc: `{"b":{"c":{}},"in":{"b":2,"a":1},"id":1}`, hex: "02" + "00" + "0202" + "00"},
		{doc: `{"id":1,"x":}`, err: "valid JSON"},
		{doc: `{"id":1,"x":"\ud83d"}`, err: "half of a surrogate pair"},
		{doc: `{"id":1,"x":[1,]}`, err: "valid JSON"},
		{doc: `{"id":1,"x":{"y" 1}}`, err: "a colon is missing"},
		{doc: `{"x":1}`, err: "$.id: required field is missing"},
	})
}

func TestCase_W09_missing_fields_and_defaults(t *testing.T) {
	e := compile(t, record(`{"name":"a","type":"string"},
		{"name":"b","type":["null","string"],"default":null},
		{"name":"c","type":"int","default":123},
		{"name":"d","type":["null","string"]},
		{"name":"e","type":{"type":"record","name":"In","fields":[{"name":"q","type":"int","default":9},{"name":"s","type":"string"}]},"default":{"s":"x"}},
		{"name":"z","type":"string"}`))
	e.run(t, []check{
		{doc: `{"a":"1","d":null,"z":"end"}`, hex: "0231" + "00" + "f601" + "00" + "120278" + "06656e64"},
		{doc: `{"z":"end","d":"y","a":"1","e":{"s":"t"}}`, hex: "0231" + "00" + "f601" + "020279" + "120274" + "06656e64"},
		{doc: `{"d":null,"z":"end"}`, err: "$.a: required field is missing"},
		{doc: `{"a":"1","z":"end"}`, err: "$.d: required field is missing"},
		{doc: `{"a":"1","d":null,"e":{"q":1},"z":"end"}`, err: "$.e.s: required field is missing"},
		{doc: `{"a":"1","c":null,"d":null,"z":"end"}`, err: "$.c: expected int, found null"},
		{doc: `{}`, err: "$.a: required field is missing"},
	})
}

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

func TestCase_W12_an_unknown_symbol_is_never_the_default(t *testing.T) {
	compile(t, one(`{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}`)).run(t, []check{
		{doc: `{"n":"B"}`, hex: "0202"},
		{doc: `{"n":"\u0041"}`, hex: "0002"},
		{doc: `{"n":"C"}`, err: `$.n: expected a symbol of enum E, found the text "C" (not one of its symbols)`},
		{doc: `{"n":"a"}`, err: "not one of its symbols"},
		{doc: `{"n":""}`, err: "not one of its symbols"},
		{doc: `{"n":null}`, err: "$.n: expected a symbol of enum E, found null"},
		{doc: `{"n":0}`, err: "$.n: expected a symbol of enum E, found the number 0"},
		{doc: `{}`, err: "$.n: required field is missing"},
	})
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

func TestCase_W14_timestamps_exact_in_their_unit(t *testing.T) {
	millis := compile(t, `{"type":"long","logicalType":"timestamp-millis"}`)
	micros := compile(t, `{"type":"long","logicalType":"timestamp-micros"}`)
	nanos := compile(t, `{"type":"long","logicalType":"timestamp-nanos"}`)
	local := compile(t, `{"type":"long","logicalType":"local-timestamp-micros"}`)
	long := func(v int64) string { return hex.EncodeToString(zigzag(nil, v)) }
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, s := range []string{
		"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.6Z", "2026-01-02T03:04:05.678+05:30",
		"2026-01-02T03:04:05-00:00", "1500-06-15T12:00:00Z", "9999-12-31T23:59:59.999Z", "0000-03-01T00:00:00Z", "0000-02-29T00:00:00Z",
		"0001-01-01T00:00:00+23:59", "1969-12-31T23:59:59.999Z", "2000-02-29T00:00:00Z", "2024-12-31T23:59:59-23:59",
	} {
		millis.run(t, []check{{doc: `"` + s + `"`, hex: long(at(s).UnixMilli())}})
		micros.run(t, []check{{doc: `"` + s + `"`, hex: long(at(s).UnixMicro())}})
	}
	micros.run(t, []check{
		{doc: `"2026-01-02T03:04:05.678901Z"`, hex: long(at("2026-01-02T03:04:05.678901Z").UnixMicro())},
		{doc: `"2026-01-02T03:04:05.678901000Z"`, hex: long(at("2026-01-02T03:04:05.678901Z").UnixMicro())},
		{doc: `"2026-01-02T03:04:05.6789010000000000Z"`, hex: long(at("2026-01-02T03:04:05.678901Z").UnixMicro())},
		{doc: `"2026-01-02 03:04:05.678901+00:00"`, hex: long(at("2026-01-02T03:04:05.678901Z").UnixMicro())},
		{doc: `1767323045678901`, hex: long(1767323045678901)},
		{doc: `"2026-01-02T03:04:05.6789011Z"`, err: "finer than the unit"},
		{doc: `"2026-01-02T03:04:05.6789010000000001Z"`, err: "finer than the unit"},
		{doc: `1767323045678901.5`, err: "not an integer"},
	})
	millis.run(t, []check{
		{doc: `1767323045678`, hex: long(1767323045678)},
		{doc: `"2026-01-02T03:04:05.678901Z"`, err: "finer than the unit"},
		{doc: `"2026-02-30T00:00:00Z"`, err: "no such day in the calendar"},
		{doc: `"2023-02-29T00:00:00Z"`, err: "no such day in the calendar"},
		{doc: `"1900-02-29T00:00:00Z"`, err: "no such day in the calendar"},
		{doc: `"2026-13-01T00:00:00Z"`, err: "no such day in the calendar"},
		{doc: `"2026-00-01T00:00:00Z"`, err: "no such day in the calendar"},
		{doc: `"2026-01-02T24:00:00Z"`, err: "no such time of day"},
		{doc: `"2026-01-02T23:59:60Z"`, err: "no such time of day"},
		{doc: `"2026-01-02T03:04:05"`, err: "no zone"},
		{doc: `"2026-01-02T03:04:05+24:00"`, err: "text of another form"},
		{doc: `"2026-01-02T03:04:05+5"`, err: "text of another form"},
		{doc: `"2026-01-02T03:04:05.Z"`, err: "text of another form"},
		{doc: `"2026-01-02T03:04Z"`, err: "text of another form"},
		{doc: `"2026-01-02"`, err: "text of another form"},
		{doc: `"+12026-01-02T03:04:05Z"`, err: "text of another form"},
		{doc: `"infinity"`, err: "text of another form"},
		{doc: `""`, err: "text of another form"},
		{doc: `true`, err: "expected timestamp-millis (RFC 3339 text or a number), found a boolean"},
	})
	nanos.run(t, []check{
		{doc: `"2262-04-11T23:47:16.854775807Z"`, hex: long(1<<63 - 1)},
		{doc: `"2262-04-11T23:47:16.854775808Z"`, err: "out of range"},
		{doc: `"1677-09-21T00:12:43.145224192Z"`, hex: long(-1 << 63)},
		{doc: `"1677-09-21T00:12:43.145224191Z"`, err: "out of range"},
		{doc: `"9999-01-01T00:00:00Z"`, err: "out of range"},
		{doc: `"0001-01-01T00:00:00Z"`, err: "out of range"},
	})
	local.run(t, []check{
		{doc: `"2026-01-02T03:04:05.678901"`, hex: long(at("2026-01-02T03:04:05.678901Z").UnixMicro())},
		{doc: `"2026-01-02 03:04:05"`, hex: long(at("2026-01-02T03:04:05Z").UnixMicro())},
		{doc: `1`, hex: "02"},
		{doc: `"2026-01-02T03:04:05Z"`, err: "a zone, which a local timestamp does not have"},
		{doc: `"2026-01-02T03:04:05+01:00"`, err: "a zone, which a local timestamp does not have"},
		{doc: `"2026-01-02T03:04:05x"`, err: "text of another form"},
	})
	compile(t, `{"type":"int","logicalType":"date"}`).run(t, []check{
		{doc: `"2026-01-02"`, hex: long(20455)},
		{doc: `20455.0`, hex: long(20455)},
		{doc: `"2026-02-30"`, err: "no such day in the calendar"},
		{doc: `"2026-01-02T00:00:00Z"`, err: "text of another form"},
		{doc: `2147483648`, err: "out of range"},
	})
	compile(t, `{"type":"int","logicalType":"time-millis"}`).run(t, []check{
		{doc: `"23:59:59.999"`, hex: long(86399999)},
		{doc: `"00:00:00"`, hex: "00"},
		{doc: `86399999`, hex: long(86399999)},
		{doc: `86400000`, err: "out of range"},
		{doc: `-1`, err: "out of range"},
		{doc: `"23:59:59.9999"`, err: "finer than the unit"},
		{doc: `"24:00:00"`, err: "no such time of day"},
		{doc: `"23:59:59Z"`, err: "text of another form"},
		{doc: `"23:59"`, err: "text of another form"},
	})
	compile(t, `{"type":"long","logicalType":"time-micros"}`).run(t, []check{
		{doc: `"00:00:00.000001"`, hex: "02"},
		{doc: `86400000000`, err: "out of range"},
	})
}

func TestCase_W18_nul_in_text(t *testing.T) {
	e := compile(t, record(`{"name":"s","type":"string"}`))
	e.run(t, []check{
		{doc: `{"s":"a\u0000b"}`, hex: "06610062"},
		{doc: `{"s":"a\u0000b","k\u0000":1}`, err: `$["k\x00"]: expected a field of record R, found an unknown field`},
		{doc: "{\"s\":\"a\x00b\"}", err: "a control character is not escaped"},
	})
	lenient, err := compileText(record(`{"name":"s","type":"string"}`), Options{DropUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	lenient.run(t, []check{{doc: `{"s":"a\u0000b","k\u0000":1}`, hex: "06610062"}})
	compile(t, `{"type":"map","values":"int"}`).run(t, []check{
		{doc: `{"k\u0000":1,"k":1}`, hex: "04" + "046b0002" + "026b02" + "00"},
	})
}

func TestCase_W30_scalars_are_themselves_or_refused(t *testing.T) {
	compile(t, record(`{"name":"s","type":"string"}`)).run(t, []check{
		{doc: `null`, err: "$: expected record R, found null"},
		{doc: `{}`, err: "$.s: required field is missing"},
		{doc: `[]`, err: "$: expected record R, found an array"},
		{doc: `"s"`, err: `$: expected record R, found the text "s"`},
		{doc: `1`, err: "$: expected record R, found the number 1"},
		{doc: ``, err: "$: expected record R, found the end of the document"},
		{doc: ` `, err: "$: expected record R, found the end of the document"},
		{doc: `{bad`, err: "valid JSON"},
	})
	compile(t, `"null"`).run(t, []check{{doc: `null`, hex: ""}, {doc: `0`, err: "expected null"}})
	compile(t, `["null","string"]`).run(t, []check{{doc: `null`, hex: "00"}, {doc: ` "s"`, hex: "020273"}})
	compile(t, `"string"`).run(t, []check{{doc: `"s"`, hex: "0273"}, {doc: `1`, err: "expected string"}})
	compile(t, `"int"`).run(t, []check{{doc: " 1\n", hex: "02"}})
	compile(t, record(``)).run(t, []check{{doc: `{}`, hex: ""}, {doc: `null`, err: "expected record R"}})
}

func TestCase_W34_literal_and_escape_are_equal(t *testing.T) {
	e := compile(t, `"string"`)
	for literal, escape := range map[string]string{
		"é": `\u00e9`, "ÿ": `\u00FF`, "😀": `\ud83d\uDE00`, "\ufeff": `\ufeff`, "€": `\u20ac`, "\u007f": `\u007f`, "\U0010ffff": `\udbff\udfff`, "\uffff": `\uffff`,
		"/": `\/`, "long enough to be read in words é and on": `long enough to be read in words \u00e9 and on`,
	} {
		want := hex.EncodeToString(append(zigzag(nil, int64(len(literal))), literal...))
		e.run(t, []check{{doc: `"` + literal + `"`, hex: want}, {doc: `"` + escape + `"`, hex: want}})
	}
	for _, bad := range []string{
		"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf4\x90\x80\x80\"", "\"eight ok \xe9 latin\"",
		`"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\n"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`, `"\u12"`, `"\u12g4"`, `"\x"`, `"\`, `"`, `"abc`, "\"a\nb\"",
	} {
		e.run(t, []check{{doc: bad, err: "valid JSON"}})
	}
}

func TestCase_W36_uuid(t *testing.T) {
	const id = "0f8fad5b-d9cb-469f-a165-70867728950e"
	text := compile(t, `{"type":"string","logicalType":"uuid"}`)
	fixed := compile(t, `{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}`)
	kept := "48" + hex.EncodeToString([]byte(id))
	raw := strings.ReplaceAll(id, "-", "")
	text.run(t, []check{{doc: `"` + id + `"`, hex: kept}, {doc: `"` + strings.ToUpper(id) + `"`, hex: kept}})
	fixed.run(t, []check{{doc: `"` + id + `"`, hex: raw}, {doc: `"` + strings.ToUpper(id) + `"`, hex: raw}})
	for _, bad := range []string{"{" + id + "}", "not-a-uuid", raw, id + "0", id[1:], "urn:uuid:" + id, "0f8fad5b-d9cb-469f-a165-70867728950g", "0f8fad5b-d9cb-469f-a165_70867728950e", ""} {
		text.run(t, []check{{doc: `"` + bad + `"`, err: "$: expected uuid, found the text"}})
		fixed.run(t, []check{{doc: `"` + bad + `"`, err: "$: expected uuid, found the text"}})
	}
	text.run(t, []check{{doc: `1`, err: "expected uuid, found the number 1"}})
}
