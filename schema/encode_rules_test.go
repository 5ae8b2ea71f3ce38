package schema

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/avro"
)

func TestUnionByToken(t *testing.T) {
	named := `{"type":"record","name":"ns.A","fields":[{"name":"a","type":"int"}]}`
	compile(t, `["null","int","long","double","string",{"type":"enum","name":"E","symbols":["X"]},"bytes"]`).run(t, []check{
		{doc: `null`, hex: "00"},
		{doc: `5`, hex: "020a"},
		{doc: `2147483648`, hex: "04" + "8080808010"},
		{doc: `9223372036854775808`, hex: "06" + "000000000000e043"},
		{doc: `1.5`, hex: "06" + "000000000000f83f"},
		{doc: `1.0`, hex: "06" + "000000000000f03f"},
		{doc: `1e400`, err: "$: expected null, int, long, double, string, a symbol of enum E or bytes, found the number 1e400 (no branch takes it)"},
		{doc: `"X"`, hex: "080258"},
		{doc: `true`, err: "found a boolean"},
		{doc: `[]`, err: "found an array"},
		{doc: `{}`, err: "found an object"},
		{doc: `{"a":1}`, err: "found an object"},
		{doc: `{"enum":"X"}`, err: "found an object"},
		{doc: `{"E":"X"}`, hex: "0a00"},
		{doc: `{"bytes":"X"}`, hex: "0c0258"},
		{doc: ` { "long" : 5 } `, hex: "040a"},
		{doc: `{"int":5}`, hex: "020a"},
		{doc: `{"long":1.5}`, err: "$.long: expected long"},
		{doc: `{"long":5,"x":1}`, err: "found an object"},
		{doc: `{"long":5`, err: "found an object"},
		{doc: `{"long":}`, err: "valid JSON"},
		{doc: `{"long":"5"}`, err: "found an object"},
		{doc: `{"null":null}`, err: "found an object"},
	})
	// Text: a logical type that refuses it leaves it to the next branch, bytes are last.
	compile(t, `["bytes",{"type":"long","logicalType":"timestamp-millis"},{"type":"enum","name":"E","symbols":["X"]},"string"]`).run(t, []check{
		{doc: `"1970-01-01T00:00:00.001Z"`, hex: "0202"},
		{doc: `"X"`, hex: "0400"},
		{doc: `"Ā"`, hex: "0604c480"},
		{doc: `"1970-02-30T00:00:00Z"`, hex: "06" + "28" + hex.EncodeToString([]byte("1970-02-30T00:00:00Z"))},
		{doc: `"\ud800"`, err: "half of a surrogate pair"},
	})
	// Numbers with a fraction go to a decimal first, float only where no double is.
	compile(t, `["int","float","double",{"type":"bytes","logicalType":"decimal","precision":4,"scale":1}]`).run(t, []check{
		{doc: `1`, hex: "0002"},
		{doc: `0.5`, hex: "04" + "000000000000e03f"},
	})
	compile(t, `["int",{"type":"bytes","logicalType":"decimal","precision":4,"scale":1},"double"]`).run(t, []check{
		{doc: `0.5`, hex: "020205"},
		{doc: `0.25`, hex: "04" + "000000000000d03f"},
	})
	compile(t, `["null",`+named+`]`).run(t, []check{
		{doc: `{"a":1}`, hex: "0202"},
		{doc: `{"ns.A":{"a":1}}`, hex: "0202"},
		{doc: `{"ns.A":{"a":"x"}}`, err: `$["ns.A"].a: expected int`},
		{doc: `{"A":{"a":1}}`, err: "$.A: expected a field of record ns.A"},
		{doc: `{}`, err: "$.a: required field is missing"},
		{doc: `{"a":1,"b":2}`, err: "$.b: expected a field of record ns.A"},
		{doc: `1`, err: "$: expected null or record ns.A, found the number 1"},
	})
}

func TestUnionOfObjects(t *testing.T) {
	text := `[
		{"type":"record","name":"A","fields":[{"name":"k","type":"int"},{"name":"o","type":"int","default":0}]},
		{"type":"record","name":"B","fields":[{"name":"k","type":"string"}]},
		{"type":"record","name":"C","fields":[{"name":"k","type":"int"},{"name":"c","type":["null","C"]}]},
		{"type":"map","values":"boolean"}]`
	checks := []check{
		{doc: `{"k":1}`, hex: "00" + "0200"},
		{doc: `{"o":3,"k":1}`, hex: "00" + "0206"},
		{doc: `{"k":"s"}`, hex: "02" + "0273"},
		{doc: `{"c":null,"k":1}`, hex: "04" + "0200"},
		{doc: `{"c":{"k":2,"c":null},"k":1}`, hex: "04" + "02" + "02" + "0400"},
		{doc: `{"k":true}`, hex: "06" + "02026b01" + "00"},
		{doc: `{"\u006b":"s"}`, hex: "02" + "0273"},
		{doc: `{}`, hex: "06" + "00"},
		{doc: `{"k":1,"c":null,"k":2}`, err: "$.k: expected each key once"},
		{doc: `{"k":1,"o":"x"}`, err: "$"},
		{doc: `{"k":}`, err: "valid JSON"},
	}
	compile(t, text).run(t, append(checks, check{doc: `{"k":1,"new":5}`, err: "$.new: expected a field of record A"}))
	lenient, err := compileText(text, Options{DropUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	lenient.run(t, append(checks, check{doc: `{"k":1,"new":5}`, hex: "00" + "0200"}))
}

func TestUnionAmbiguity(t *testing.T) {
	const ambiguous = "ambiguous: its key is a branch's name as well as a key of"
	compile(t, `["null","string",{"type":"map","values":"string"}]`).run(t, []check{
		{doc: `{"k":"v"}`, hex: "04" + "02026b0276" + "00"},
		{doc: `{"string":"v"}`, err: ambiguous + " map"},
		{doc: `{"string":"v","k":"v"}`, hex: "04" + "04" + "0c737472696e67" + "0276" + "026b" + "0276" + "00"},
		{doc: `{"map":{"string":"v"}}`, hex: "04" + "02" + "0c737472696e67" + "0276" + "00"},
	})
	compile(t, `["int",{"type":"record","name":"R","fields":[{"name":"int","type":"int"}]}]`).run(t, []check{
		{doc: `{"int":1}`, err: ambiguous + " record R"},
		{doc: `{"R":{"int":1}}`, hex: "0202"},
	})
	compile(t, `["int",{"type":"record","name":"R","fields":[{"name":"int","type":"string"},{"name":"b","type":"int","default":1}]}]`).run(t, []check{
		{doc: `{"int":1}`, hex: "0002"},
		{doc: `{"int":"x"}`, hex: "02" + "0278" + "02"},
	})
}

func TestDuplicateKeys(t *testing.T) {
	compile(t, record(`{"name":"a","type":"int"},{"name":"b","type":"int"}`)).run(t, []check{
		{doc: `{"a":1,"b":2,"a":1}`, err: "$.a: expected each key once, found a duplicate key"},
		{doc: `{"a":1,"\u0061":1,"b":2}`, err: "$.a: expected each key once"},
		{doc: `{"b":1,"a":1,"b":2}`, err: "$.b: expected each key once"},
	})
	m := compile(t, `{"type":"map","values":"int"}`)
	for _, n := range []int{1, 7, 8, 9, 1000} {
		var doc strings.Builder
		for i := range n {
			fmt.Fprintf(&doc, `"k%d":%d,`, i, i)
		}
		entries := doc.String()
		if _, err := m.Append(nil, []byte("{"+strings.TrimSuffix(entries, ",")+"}")); err != nil {
			t.Errorf("%d different keys: %v", n, err)
		}
		m.run(t, []check{{doc: "{" + entries + `"k0":1}`, err: "$.k0: expected each key once"}})
	}
}

func TestDepth(t *testing.T) {
	nested := func(open, inner, closing string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(closing, n)
	}
	list := compile(t, `{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}`)
	tree := compile(t, `{"type":"record","name":"T","fields":[{"name":"t","type":{"type":"array","items":"T"}}]}`)
	maps := compile(t, `{"type":"record","name":"T","fields":[{"name":"t","type":{"type":"map","values":"T"}}]}`)
	const bound = "at most 256 levels of nesting"
	list.run(t, []check{
		{doc: nested(`{"n":`, "null", "}", 256), hex: strings.Repeat("02", 255) + "00"},
		{doc: nested(`{"n":`, "null", "}", 257), err: bound},
		{doc: nested(`{"n":{"N":`, `{"n":null}`, "}}", 127), hex: strings.Repeat("02", 127) + "00"},
		{doc: nested(`{"n":{"N":`, `{"n":null}`, "}}", 128), err: bound},
		{doc: nested(`{"n":`, "null", "}", 1_000_000), err: bound},
	})
	tree.run(t, []check{
		{doc: nested(`{"t":[`, "", "]}", 128), hex: strings.Repeat("02", 127) + strings.Repeat("00", 128)},
		{doc: nested(`{"t":[`, "", "]}", 129), err: bound},
	})
	maps.run(t, []check{{doc: nested(`{"t":{"k":`, `{"t":{}}`, "}}", 128), err: bound}})
	lenient, err := compileText(record(``), Options{DropUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	lenient.run(t, []check{
		{doc: `{"x":` + nested("[", "", "]", 255) + `}`, hex: ""},
		{doc: `{"x":` + nested("[", "", "]", 256) + `}`, err: bound},
		{doc: `{"x":` + nested(`{"a":`, "1", "}", 1_000_000) + `}`, err: bound},
	})
	// An encoder is as good as new after a refusal deep inside.
	list.run(t, []check{{doc: nested(`{"n":`, "null", "}", 256), hex: strings.Repeat("02", 255) + "00"}})
}

func TestSyntax(t *testing.T) {
	e := compile(t, record(`{"name":"a","type":{"type":"array","items":"int"}},{"name":"m","type":{"type":"map","values":"int"},"default":{}},{"name":"u","type":["null","boolean"],"default":null}`))
	e.run(t, []check{
		{doc: " \t\r\n{ \"a\" : [ 1 , 2 ] , \"m\" : { } } \n", hex: "04020400" + "00" + "00"},
		{doc: `{"a":[]} x`, err: "$: expected valid JSON, found at byte 10: the document has ended and more follows"},
		{doc: `{"a":[]}{}`, err: "more follows"},
		{doc: "{\"a\":[]}\x00", err: "more follows"},
		{doc: "\ufeff{\"a\":[]}", err: "$: expected record R"},
		{doc: `{"a":[1,]}`, err: "$.a[1]: expected int, found something that is not JSON"},
		{doc: `{"a":[,1]}`, err: "$.a[0]"},
		{doc: `{"a":[1 2]}`, err: "a comma or a closing bracket is missing"},
		{doc: `{"a":[1}`, err: "a comma or a closing bracket is missing"},
		{doc: `{"a":[1]`, err: "a comma or a closing bracket is missing"},
		{doc: `{"a":[1],}`, err: "a key must be text in quotes"},
		{doc: `{,"a":[1]}`, err: "a key must be text in quotes"},
		{doc: `{a:[1]}`, err: "a key must be text in quotes"},
		{doc: `{"a"[1]}`, err: "a colon is missing"},
		{doc: `{"a`, err: "no closing quote"},
		{doc: `{"a":[],"m":{"k":1,}}`, err: "a key must be text in quotes"},
		{doc: `{"a":[],"m":{k:1}}`, err: "a key must be text in quotes"},
		{doc: `{"a":[],"u":nul}`, err: "no value begins so"},
		{doc: `{"a":[],"u":truE}`, err: "no value begins so"},
		{doc: `{"a":[],"u":tru`, err: "no value begins so"},
		{doc: `{"a":[],"u":falsey}`, err: "a comma or a closing bracket is missing"},
	})
}

func TestBlockCounts(t *testing.T) {
	e := compile(t, `{"type":"array","items":"int"}`)
	oracle := avro.MustParse(`{"type":"array","items":"int"}`)
	for _, n := range []int{0, 1, 63, 64, 65, 8191, 8192, 20000} {
		doc := "[" + strings.TrimSuffix(strings.Repeat("7,", n), ",") + "]"
		out, err := e.Append([]byte("x"), []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		var got []int32
		rest, err := oracle.Decode(out[1:], &got)
		if err != nil || len(rest) > 0 || len(got) != n || n > 0 && got[n-1] != 7 || out[0] != 'x' {
			t.Errorf("%d items: %d read back, %d bytes left, %v", n, len(got), len(rest), err)
		}
	}
}

// TestDecimalAgainstBig compares with math/big around every boundary of a byte.
func TestDecimalAgainstBig(t *testing.T) {
	e := compile(t, `{"type":"bytes","logicalType":"decimal","precision":200,"scale":3}`)
	oracle := avro.MustParse(`{"type":"bytes","logicalType":"decimal","precision":200,"scale":3}`)
	one := big.NewInt(1)
	for bits := range 600 {
		for _, delta := range []int64{-1, 0, 1} {
			v := new(big.Int).Add(new(big.Int).Lsh(one, uint(bits)), big.NewInt(delta))
			for range 2 {
				v.Neg(v)
				want := new(big.Rat).SetFrac(v, big.NewInt(1000))
				out, err := e.Append(nil, []byte(want.FloatString(3)))
				if err != nil {
					t.Fatal(err)
				}
				var got big.Rat
				if _, err := oracle.Decode(out, &got); err != nil || got.Cmp(want) != 0 {
					t.Fatalf("%s: %x read back as %s, %v", want.FloatString(3), out, got.FloatString(3), err)
				}
				// Minimal: as long as Java's BigInteger.toByteArray.
				length := v.BitLen()/8 + 1
				if v.Sign() < 0 {
					length = new(big.Int).Not(v).BitLen()/8 + 1
				}
				if int(out[0])/2 != length && length < 64 {
					t.Fatalf("%s: %d bytes, want %d", v, out[0]/2, length)
				}
			}
		}
	}
	compile(t, `{"type":"fixed","name":"F","size":30,"logicalType":"decimal","precision":40}`).run(t, []check{
		{doc: `-1e39`, hex: strings.Repeat("ff", 13) + "fd0faf016c76bc533ba09aa98000000000"},
	})
}

// TestDefaults compares defaults with those an independent encoder fills in.
func TestDefaults(t *testing.T) {
	for _, f := range []string{
		`{"name":"n","type":"null","default":null}`,
		`{"name":"n","type":"boolean","default":true}`,
		`{"name":"n","type":"boolean","default":false}`,
		`{"name":"n","type":"int","default":-2147483648}`,
		`{"name":"n","type":"long","default":9007199254740993}`,
		`{"name":"n","type":"long","default":-9223372036854775808}`,
		`{"name":"n","type":"float","default":0.1}`,
		`{"name":"n","type":"double","default":1e22}`,
		`{"name":"n","type":"double","default":-1}`,
		`{"name":"n","type":"string","default":"é\n\"😀"}`,
		`{"name":"n","type":"bytes","default":"\u0000\u00ffA"}`,
		`{"name":"n","type":{"type":"fixed","name":"F","size":2},"default":"\u0001ÿ"}`,
		`{"name":"n","type":{"type":"enum","name":"E","symbols":["A","B"]},"default":"B"}`,
		`{"name":"n","type":{"type":"array","items":["int","null"]},"default":[1,2,3]}`,
		`{"name":"n","type":{"type":"array","items":"int"},"default":[]}`,
		`{"name":"n","type":{"type":"map","values":"string"},"default":{"k":"v"}}`,
		`{"name":"n","type":["null","int"],"default":null}`,
		`{"name":"n","type":["int","null"],"default":5}`,
		`{"name":"n","type":{"type":"long","logicalType":"timestamp-millis"},"default":5}`,
		`{"name":"n","type":{"type":"int","logicalType":"date"},"default":0}`,
		`{"name":"n","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2},"default":"\u0001\u0000"}`,
		`{"name":"n","type":{"type":"record","name":"In","fields":[{"name":"q","type":"int","default":9},{"name":"r","type":"string"}]},"default":{"r":"x"}}`,
		`{"name":"n","type":{"type":"record","name":"In","fields":[{"name":"q","type":"In2"}]},"default":{"q":{}}}`,
		`{"name":"n","type":{"type":"record","name":"In","fields":[{"name":"next","type":["null","In"],"default":null}]},"default":{}}`,
	} {
		text := record(`{"name":"first","type":{"type":"record","name":"In2","fields":[{"name":"s","type":"string","default":"dee"}]},"default":{}},` + f + `,{"name":"last","type":"int","default":7}`)
		e, err := compileText(text, Options{})
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		want, err := avro.MustParse(text).Encode(map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		e.run(t, []check{
			{doc: `{}`, hex: hex.EncodeToString(want)},
			{doc: `{"last":7}`, hex: hex.EncodeToString(want)},
			{doc: `{"first":{}}`, hex: hex.EncodeToString(want)},
		})
	}
}

// TestNoAllocation: valid documents cost no memory once the caller's slice and
// the pooled state have grown.
func TestNoAllocation(t *testing.T) {
	everything := record(`
		{"name":"b","type":"boolean"},{"name":"f","type":"float"},{"name":"d","type":"double"},{"name":"s","type":"string"},
		{"name":"y","type":"bytes"},{"name":"x","type":{"type":"fixed","name":"X","size":2}},{"name":"u","type":{"type":"string","logicalType":"uuid"}},
		{"name":"big","type":{"type":"bytes","logicalType":"decimal","precision":60,"scale":5}},
		{"name":"t","type":[{"type":"long","logicalType":"timestamp-millis"},"string"]},
		{"name":"m","type":{"type":"map","values":["null","int","double","string"]}},
		{"name":"r","type":["null","R"],"default":null},
		{"name":"o","type":{"type":"array","items":[{"type":"record","name":"O1","fields":[{"name":"a","type":"int"}]},{"type":"record","name":"O2","fields":[{"name":"b","type":"int"}]}]}},
		{"name":"l","type":"long","default":3}`)
	const doc = `{"o":[{"a":1},{"b":2},{"O2":{"b":3}}],"b":true,"f":1.5,"d":1234567890123456789012345678901234567890e-20,"s":"plain \u00e9 \ud83d\ude00","y":"\u00ff","x":"ab",
		"u":"0f8fad5b-d9cb-469f-a165-70867728950e","big":"-123456789012345678901234567890.12345","t":"not a time","m":{"a":1,"b":1.5,"c":"x","d":null,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1},
		"r":{"R":{"o":[],"b":false,"f":0,"d":0,"s":"","y":"","x":"ab","u":"0F8FAD5B-d9cb-469f-a165-70867728950e","big":0,"t":"2026-01-02T03:04:05Z","m":{}}}}`
	for name, c := range map[string]struct {
		schema, doc string
		drop        bool
	}{
		"schema order": {schema: orderSchema, doc: orderInOrder},
		"jsonb order":  {schema: orderSchema, doc: orderAsJSONB},
		"everything":   {schema: everything, doc: doc},
		"dropped":      {schema: record(`{"name":"a","type":"int"}`), doc: `{"x":{"y":["\n",1e5]},"a":1}`, drop: true},
	} {
		e, err := compileText(c.schema, Options{DropUnknown: c.drop})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := []byte(c.doc)
		dst, err := e.Append(nil, text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		allocs := testing.AllocsPerRun(1000, func() {
			if dst, err = e.Append(dst[:0], text); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 && !raceEnabled {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// TestConcurrentAppend shares one encoder; the race detector looks on.
func TestConcurrentAppend(t *testing.T) {
	e := compile(t, orderSchema)
	want, err := e.Append(nil, []byte(orderInOrder))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				doc := orderInOrder
				if (g+i)%2 == 0 {
					doc = orderAsJSONB
				}
				out, err := e.Append(nil, []byte(doc))
				if err != nil || string(out) != string(want) {
					t.Errorf("%x, %v", out, err)
					return
				}
				if _, err := e.Append(nil, []byte(`{"items":[{"sku":1}]}`)); err == nil || !strings.HasPrefix(err.Error(), "$.items[0].sku: ") {
					t.Errorf("error %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}
