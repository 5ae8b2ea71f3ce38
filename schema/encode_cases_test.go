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
	if n := lenient.dropped.Load(); n != 2+2 {
		t.Errorf("%d fields were counted as dropped, want 4: those of refused documents do not count", n)
	}
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
