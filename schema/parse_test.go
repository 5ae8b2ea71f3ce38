package schema

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"
)

func TestReferences(t *testing.T) {
	for _, c := range []struct {
		text                string
		defined, referenced []string
	}{
		{`"int"`, nil, nil},
		{`"ns.A"`, nil, []string{"ns.A"}},
		{`{"type":"record","name":"A","namespace":"ns","fields":[
			{"name":"self","type":["null","A"]},
			{"name":"b","type":"B"},{"name":"b2","type":{"type":"array","items":"ns.B"}},
			{"name":"c","type":{"type":"map","values":"other.C"}},
			{"name":"e","type":{"type":"enum","name":"E","symbols":["X"]}},{"name":"e2","type":"E"},
			{"name":"f","type":{"type":"fixed","name":"deep.er.F","size":1}},
			{"name":"d","type":{"type":"D"}}]}`,
			[]string{"ns.A", "ns.E", "deep.er.F"}, []string{"ns.B", "other.C", "ns.D"}},
		{`{"type":"record","name":"a.R","namespace":"ignored","fields":[{"name":"x","type":{"type":"record","name":"S","namespace":"","fields":[{"name":"y","type":"T"}]}}]}`,
			[]string{"a.R", "S"}, []string{"T"}},
	} {
		defined, referenced, err := References([]byte(c.text))
		if err != nil || !slices.Equal(defined, c.defined) || !slices.Equal(referenced, c.referenced) {
			t.Errorf("%s: %q, %q, %v, want %q, %q", c.text, defined, referenced, err, c.defined, c.referenced)
		}
	}
	for _, bad := range []string{``, `{`, `[]`, `{"type":"record"}`, `"a-b"`, `"a..b"`} {
		if _, _, err := References([]byte(bad)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestCompileWithReferences(t *testing.T) {
	order := `{"type":"record","name":"shop.Order","fields":[{"name":"to","type":"Address"},{"name":"back","type":["null","shop.Address"],"default":null},{"name":"money","type":"base.Money"}]}`
	address := `{"type":"record","name":"shop.Address","fields":[{"name":"zip","type":"string","default":"0"},{"name":"kind","type":"base.Kind"}]}`
	base := `[{"type":"enum","name":"base.Kind","symbols":["HOME","WORK"]},{"type":"bytes","logicalType":"decimal","precision":4},{"type":"fixed","name":"base.Money","size":4,"logicalType":"decimal","precision":9,"scale":2}]`
	whole := `{"type":"record","name":"shop.Order","fields":[{"name":"to","type":{"type":"record","name":"Address","fields":[{"name":"zip","type":"string"},{"name":"kind","type":{"type":"enum","name":"base.Kind","symbols":["HOME","WORK"]}}]}},{"name":"back","type":["null","Address"]},{"name":"money","type":{"type":"fixed","name":"base.Money","size":4}}]}`
	want := string(avro.MustParse(whole).Canonical())
	for name, refs := range map[string][]string{
		"ordered":  {base, address},
		"reversed": {address, base},
		"twice":    {address, base, address, order},
	} {
		e := compile(t, order, refs...)
		if canonicalForm(e.root) != want {
			t.Errorf("%s: canonical form\n%s, want\n%s", name, canonicalForm(e.root), want)
		}
		e.run(t, []check{
			{doc: `{"money":1.5,"to":{"kind":"WORK"}}`, hex: "0230" + "02" + "00" + "00000096"},
			{doc: `{"money":1.5,"to":{"kind":"WORK"},"back":{"zip":1,"kind":"HOME"}}`, err: "$.back.zip: expected string"},
		})
	}
	for _, c := range []struct {
		refs []string
		err  string
	}{
		{nil, `shop.Order.to: unknown type "shop.Address"`},
		{[]string{address}, `shop.Address.kind: unknown type "base.Kind"`},
		{[]string{address, base, `{"type":"record","name":"shop.Address","fields":[]}`}, `reference 3: "shop.Address" is defined twice`},
		{[]string{address, base, `{"type":"record","name":"shop.Order","fields":[]}`}, `"shop.Order" is defined twice`},
		{[]string{address, base, `{`}, `reference 3: not valid JSON`},
		{[]string{address, strings.Replace(base, `"precision":9`, `"precision":99`, 1)}, `base.Money: decimal's precision 99 does not fit`},
	} {
		_, err := compileText(order, Options{}, c.refs...)
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%d references: error %v, want one with %q", len(c.refs), err, c.err)
		}
	}
	// Two texts may need each other.
	a := `{"type":"record","name":"A","fields":[{"name":"b","type":["null","B"],"default":null}]}`
	b := `{"type":"record","name":"B","fields":[{"name":"a","type":["null","A"],"default":null}]}`
	compile(t, a, b).run(t, []check{{doc: `{"b":{"a":{"b":null}}}`, hex: "02" + "02" + "00"}})
}

func TestNamespaces(t *testing.T) {
	// An explicitly empty namespace is none, whatever stands around it, and a name
	// without namespace is found from inside one.
	e := compile(t, `{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"enum","name":"E","namespace":"","symbols":["S"]}},{"name":"y","type":"E"}]}`)
	const want = `{"name":"a.R","type":"record","fields":[{"name":"x","type":{"name":"E","type":"enum","symbols":["S"]}},{"name":"y","type":"E"}]}`
	if canonicalForm(e.root) != want {
		t.Errorf("canonical form %s, want %s", canonicalForm(e.root), want)
	}
	e.run(t, []check{{doc: `{"x":"S","y":"S"}`, hex: "0000"}})
	if _, err := compileText(record(`{"name":"a","type":"Later"},{"name":"b","type":{"type":"fixed","name":"Later","size":1}}`), Options{}); err == nil {
		t.Error("a name is used before its definition, which no other reader accepts")
	}
}

// TestSchemasShareNothing: an old version of a type must never leak into the
// compilation of a new one.
func TestSchemasShareNothing(t *testing.T) {
	before := compile(t, one(`{"type":"enum","name":"E","symbols":["A"]}`))
	after := compile(t, one(`{"type":"enum","name":"E","symbols":["B","A"]}`))
	before.run(t, []check{{doc: `{"n":"A"}`, hex: "0002"}, {doc: `{"n":"B"}`, err: "not one of its symbols"}})
	after.run(t, []check{{doc: `{"n":"A"}`, hex: "0202"}})
	if _, err := compileText(one(`"E"`), Options{}); err == nil {
		t.Error("a type of an earlier schema is known")
	}
}

func TestUnknownLogicalTypesAreTheirBase(t *testing.T) {
	for text, c := range map[string]check{
		`{"type":"string","logicalType":"date"}`:                                {doc: `"x"`, hex: "0278"},
		`{"type":"int","logicalType":"timestamp-millis"}`:                       {doc: `1`, hex: "02"},
		`{"type":"int","logicalType":"decimal","precision":4}`:                  {doc: `1`, hex: "02"},
		`{"type":"string","logicalType":5}`:                                     {doc: `"x"`, hex: "0278"},
		`{"type":"fixed","name":"D","size":12,"logicalType":"duration"}`:        {doc: `"\u0001bcdefghijkl"`, hex: "0162636465666768696a6b6c"},
		`{"type":"fixed","name":"D","size":1,"logicalType":"uuid"}`:             {doc: `"x"`, hex: "78"},
		`{"type":"error","name":"Err","fields":[{"name":"m","type":"string"}]}`: {doc: `{"m":"x"}`, hex: "0278"},
	} {
		compile(t, text).run(t, []check{c})
	}
}
