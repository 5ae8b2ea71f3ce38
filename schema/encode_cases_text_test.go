package schema

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

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
