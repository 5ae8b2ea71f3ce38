package sink

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// rowOf reads a headers column and gives the entries that would become headers, in order, and the fault.
func rowOf(b *Batch, text []byte) (lines string, fault string) {
	rej := b.readRowHeaders(&Event{Headers: text})
	if rej != nil {
		if rej.Reason != ReasonInvalid || rej.Path != "$headers" {
			return "", "not a rejection of the headers: " + rej.Error()
		}
		fault = rej.Message
	}
	var s strings.Builder
	for _, e := range b.builder.row.entries {
		if !e.value.isNull() {
			fmt.Fprintf(&s, "%q=%q ", e.name, b.at(e.value))
		}
	}
	for i, v := range b.builder.row.context {
		if !v.isNull() {
			fmt.Fprintf(&s, "<%s>=%q ", contextNames[i], b.at(v))
		}
	}
	return strings.TrimSpace(s.String()), fault
}

func TestRowHeaders(t *testing.T) {
	b := builder(t, config(Plain), verbatimEncoder{}).NewBatch()
	for _, c := range []struct{ in, want string }{
		{`null`, ``},
		{" null\n", ``},
		{`{}`, ``},
		{" { } \r\n\t", ``},
		{`{"a":"x"}`, `"a"="x"`},
		{` { "a" : "x" , "b" : 1 } `, `"a"="x" "b"="1"`},
		{`{"a":9007199254740993,"b":-0.0,"c":1.10,"d":1e400,"e":1E+2}`, `"a"="9007199254740993" "b"="-0.0" "c"="1.10" "d"="1e400" "e"="1E+2"`},
		{`{"a":true,"b":false,"c":null,"d":""}`, `"a"="true" "b"="false" "d"=""`},
		{`{"a": {"x" : [ 1 , "b c" , null ] , "y":{ }, "z":[ ] } }`, `"a"="{\"x\":[1,\"b c\",null],\"y\":{},\"z\":[]}"`},
		{`{"a": [ "\u0041" , 1.10 ]}`, `"a"="[\"\\u0041\",1.10]"`},
		{`{"a":"\"\\\/\b\f\n\r\t"}`, `"a"="\"\\/\b\f\n\r\t"`},
		{`{"a":"x\u0000y","b\u0000c":"\u00ff"}`, `"a"="x\x00y" "b\x00c"="ÿ"`},
		{`{"a":"\uD83D\ude00 \u00E9 😀"}`, `"a"="😀 é 😀"`},
		{`{"":"x"}`, `""="x"`},
		{`{"a\nb":"x","ü":"ö"}`, `"a\nb"="x" "ü"="ö"`},
		{`{"a":"1","b":"2","a":"3"}`, `"a"="3" "b"="2"`},
		{`{"a":"1","b":"2","a":null}`, `"b"="2"`},
		{`{"a":null,"a":"1"}`, `"a"="1"`},
		{`{"A":"1","a":"2"}`, `"A"="1" "a"="2"`},
		{`{"id":"x","Type":"x","OCCURRED_AT":"x","aggregate_id":"x","sequence":"x","Content-Type":"x","__value_schema_id":"x","a":"1"}`, `"a"="1"`},
		{`{"ce_id":"x","CE_anything":{"x":1},"dlq_reason":"x","Dlq_":"x","a":"1"}`, `"a"="1"`},
		{`{"ce":"1","dlq":"2","ids":"3","ce-id":"4"}`, `"ce"="1" "dlq"="2" "ids"="3" "ce-id"="4"`},
		{`{"content-t\u0079pe":"x","\u0069d":"x"}`, ``},
		{`{"ſequence":"1","\u017fequence ":"2"}`, `"ſequence"="1" "ſequence "="2"`},
		{`{"traceparent":"p","Tracestate":"s","baggage":null,"tenant":5,"tenant":6}`, `<tenant>="6" <traceparent>="p" <tracestate>="s"`},
	} {
		got, fault := rowOf(b, []byte(c.in))
		if fault != "" || got != c.want {
			t.Errorf("%s\n got %s (%s)\nwant %s", c.in, got, fault, c.want)
		}
	}
	if got, fault := rowOf(b, nil); got != "" || fault != "" {
		t.Errorf("NULL: got %s (%s)", got, fault)
	}
}

func TestRowHeadersInvalid(t *testing.T) {
	b := builder(t, config(CloudEvents), verbatimEncoder{}).NewBatch()
	for _, c := range []struct{ in, want string }{
		{`[]`, "expected a JSON object, found an array"},
		{` [{"a":1}] `, "found an array"},
		{`"x"`, "found a string"},
		{`3`, "found a number"},
		{`-1.5e3`, "found a number"},
		{`true`, "found a boolean"},
		{`false`, "found a boolean"},
		{``, "found text that is no JSON"},
		{`  `, "found text that is no JSON"},
		{`null null`, "found text that is no JSON"},
		{`nul`, "found text that is no JSON"},
		{`a=b`, "found text that is no JSON"},
		{`"a"=>"1", "b"=>NULL`, "hstore"},
		{`{`, "no JSON at byte 1: expected a name in quotes"},
		{`{"a"`, "no JSON at byte 4: expected :"},
		{`{"a":`, "no JSON at byte 5: expected a value"},
		{`{"a":1`, "no JSON at byte 6: expected , or }"},
		{`{"a":1,}`, "no JSON at byte 7: expected a name in quotes"},
		{`{,}`, "expected a name in quotes"},
		{`{"a" 1}`, "expected :"},
		{`{a:1}`, "expected a name in quotes"},
		{`{"a":1}}`, "no JSON at byte 7: text after the end"},
		{`{} x`, "text after the end"},
		{`{"a":01}`, "expected , or }"},
		{`{"a":+1}`, "expected a value"},
		{`{"a":1.}`, "expected a digit"},
		{`{"a":.5}`, "expected a value"},
		{`{"a":1e}`, "expected a digit"},
		{`{"a":-}`, "expected a value"},
		{`{"a":NaN}`, "expected a value"},
		{`{"a":tru}`, "expected a value"},
		{`{"a":nul}`, "expected a value"},
		{`{"a":nullx}`, "expected , or }"},
		{`{"a":"x}`, "the string has no end"},
		{`{"a":"x\`, "no such escape"},
		{`{"a":"\x"}`, "no such escape"},
		{`{"a":"\u12"}`, "expected four hex digits"},
		{`{"a":"\u12g4"}`, "expected four hex digits"},
		{`{"a":"\ud800"}`, "half a surrogate pair"},
		{`{"a":"\ud800x"}`, "half a surrogate pair"},
		{`{"a":"\ud800\n"}`, "half a surrogate pair"},
		{`{"a":"\udc00\ud800"}`, "half a surrogate pair"},
		{`{"a":"\ud800\ud800"}`, "half a surrogate pair"},
		{`{"\ud800":1}`, "half a surrogate pair"},
		{"{\"a\":\"x\ny\"}", "a control character must be escaped"},
		{"{\"a\":[\"x\x00y\"]}", "a control character must be escaped"},
		{"{\"a\":\"\xff\"}", "not UTF-8"},
		{`{"a":[1}`, "expected , or ]"},
		{`{"a":[1,]}`, "expected a value"},
		{`{"a":{"b":1]}`, "expected , or }"},
		{`{"a":{"b":1,}}`, "expected a name in quotes"},
		{`{"a":{"b"}}`, "expected :"},
		{`{"good":"1","a":{`, "expected a name in quotes"},
		{`{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, "nested deeper than 500"},
	} {
		before := len(b.slab)
		got, fault := rowOf(b, []byte(c.in))
		if !strings.Contains(fault, c.want) || got != "" {
			t.Errorf("%s\n got %s (%s)\nwant %s", c.in, got, fault, c.want)
		}
		if len(b.slab) != before {
			t.Errorf("%s: a rejected column left %d bytes", c.in, len(b.slab)-before)
		}
	}
}

// The router of Debezium knows no headers column, so nothing in it can be wrong.
func TestDebeziumIgnoresRowHeaders(t *testing.T) {
	ev := order()
	ev.Headers = []byte(`{bad`)
	want(t, show(recordOf(t, config(Debezium), verbatimEncoder{}, ev)), `
		orders "42" "{\"n\": 1}" 04:06:07.891000
		id="e-1"`)
}

func TestManyRowHeaders(t *testing.T) {
	b := builder(t, config(Plain), verbatimEncoder{}).NewBatch()
	for _, n := range []int{fewEntries - 1, fewEntries, fewEntries + 1, 3 * fewEntries, 2 * maxNames} {
		var in, out strings.Builder
		for i := range n {
			fmt.Fprintf(&in, `"n%d":"old",`, i)
			if i%3 == 0 {
				fmt.Fprintf(&out, `"n%d"="old" `, i)
			} else {
				fmt.Fprintf(&out, `"n%d"="new" `, i)
			}
		}
		for i := range n {
			if i%3 != 0 {
				fmt.Fprintf(&in, `"n%d":"new",`, i)
			}
		}
		in.WriteString(`"last":1`)
		out.WriteString(`"last"="1"`)
		got, fault := rowOf(b, []byte("{"+in.String()+"}"))
		if fault != "" || got != out.String() {
			t.Errorf("%d entries: %s (%s)", n, got, fault)
		}
		if known := len(b.builder.names.known); known > maxNames {
			t.Errorf("%d names are remembered", known)
		}
	}
	long := strings.Repeat("n", maxNameBytes+1)
	if got, _ := rowOf(b, []byte(`{"`+long+`":1}`)); got != fmt.Sprintf("%q=%q", long, "1") {
		t.Errorf("a long name gives %s", got)
	}
	if _, ok := b.builder.names.known[long]; ok {
		t.Error("a long name is remembered")
	}
	if c := cap(b.builder.row.entries); c > maxNames {
		t.Errorf("room for %d entries stayed behind", c)
	}
}

// A million entries of a few bytes each must count as the memory they take.
func TestRowHeadersCountAsMemory(t *testing.T) {
	b := builder(t, config(Plain), verbatimEncoder{}).NewBatch()
	ev := order()
	var in strings.Builder
	in.WriteString(`{"x":1`)
	const n = 5000
	for i := range n - 1 {
		fmt.Fprintf(&in, `,"%d":1`, i)
	}
	in.WriteString(`}`)
	ev.Headers = []byte(in.String())
	if err := b.Add(ev); err != nil {
		t.Fatal(err)
	}
	if b.Bytes() < n*rowHeaderCost {
		t.Errorf("%d entries count as %d bytes", n, b.Bytes())
	}
}

// FuzzRowHeaders holds the reader against encoding/json, which agrees on what JSON is but for half a surrogate pair,
// which it replaces, and the depth it allows.
func FuzzRowHeaders(f *testing.F) {
	for _, s := range []string{
		`null`, `{}`, `[]`, `"x"`, `3`, `{"a":1,"b":true,"c":null,"d":{"x":1},"e":[1],"f":9007199254740993,"":"x","id":"evil"}`,
		`{"a":"\ud83d\ude00\u0000\"\\\/\b\f\n\r\t"}`, `{"a":{"b":[ {} , [ ] , "c\u0041" , -1.5e-3 ]}}`, `{"a":"\ud800"}`, `{"a":1,"a":2}`,
		`"a"=>"1"`, `{"Traceparent":"x","traceparent":"y"}`, `{"a":01}`, ` { "a" : [ 1 , 2 ] } `,
	} {
		f.Add([]byte(s))
	}
	c, err := NewBuilder(config(Plain), verbatimEncoder{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		b := c.NewBatch()
		got, fault := rowOf(b, in)
		expect, ok := rowOracle(in)
		switch {
		case ok && fault != "":
			if strings.Contains(fault, "half a surrogate") || strings.Contains(fault, "nested deeper") {
				return
			}
			t.Fatalf("%q: refused: %s", in, fault)
		case !ok && fault == "":
			t.Fatalf("%q: taken as %s", in, got)
		case ok && got != expect:
			t.Fatalf("%q\n got %s\nwant %s", in, got, expect)
		}
	})
}

// rowOracle reads a headers column by encoding/json.
func rowOracle(in []byte) (string, bool) {
	if !utf8.Valid(in) || !json.Valid(in) {
		return "", false
	}
	if string(bytes.TrimSpace(in)) == "null" {
		return "", true
	}
	d := json.NewDecoder(bytes.NewReader(in))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return "", false
	}
	var order []string
	values := map[string]*string{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return "", false
		}
		name := token.(string)
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return "", false
		}
		var value *string
		switch raw[0] {
		case 'n':
		case '"':
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return "", false
			}
			value = &s
		default:
			var compact bytes.Buffer
			if err := json.Compact(&compact, raw); err != nil {
				return "", false
			}
			s := compact.String()
			value = &s
		}
		lower := asciiLower(name)
		reserved := strings.HasPrefix(lower, "ce_") || strings.HasPrefix(lower, "dlq_")
		for _, ours := range []string{"id", "type", "occurred_at", "aggregate_id", "sequence", "content-type", "__value_schema_id"} {
			reserved = reserved || lower == ours
		}
		if reserved {
			continue
		}
		for _, ctx := range contextNames {
			if lower == ctx {
				name = contextMark + ctx
			}
		}
		if _, seen := values[name]; !seen {
			order = append(order, name)
		}
		values[name] = value
	}
	var out []string
	for _, name := range order {
		if v := values[name]; v != nil && !strings.HasPrefix(name, contextMark) {
			out = append(out, fmt.Sprintf("%q=%q", name, *v))
		}
	}
	for _, ctx := range contextNames {
		if v := values[contextMark+ctx]; v != nil {
			out = append(out, fmt.Sprintf("<%s>=%q", ctx, *v))
		}
	}
	return strings.Join(out, " "), true
}

// contextMark cannot begin a name: names are UTF-8.
const contextMark = "\xff"

func asciiLower(s string) string {
	p := []byte(s)
	for i, c := range p {
		if c >= 'A' && c <= 'Z' {
			p[i] = c + 32
		}
	}
	return string(p)
}
