package schema

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// A maker makes random schemas, and random documents for them together with
// what an independent decoder must read back.
type maker struct {
	*rand.Rand
	names int
}

// schema makes the text of a random schema. Named types are always new ones, but
// for a record that now and then refers to itself through an array or a union.
func (m *maker) schema(depth int, inUnion bool) string {
	simple := []func() string{
		func() string { return `"boolean"` },
		func() string { return `"int"` },
		func() string { return `"long"` },
		func() string { return `"float"` },
		func() string { return `"double"` },
		func() string { return `"string"` },
		func() string { return `"bytes"` },
		func() string { return `"null"` },
		func() string { return `{"type":"string","logicalType":"uuid"}` },
		func() string { return `{"type":"int","logicalType":"date"}` },
		func() string { return `{"type":"int","logicalType":"time-millis"}` },
		func() string { return `{"type":"long","logicalType":"time-micros"}` },
		func() string { return `{"type":"long","logicalType":"` + timestamps[m.IntN(len(timestamps))] + `"}` },
		func() string {
			p := 1 + m.IntN(60)
			return fmt.Sprintf(`{"type":"bytes","logicalType":"decimal","precision":%d,"scale":%d}`, p, m.IntN(p+1))
		},
		func() string {
			size := 1 + m.IntN(20)
			p := 1 + m.IntN(fixedPrecision(size))
			return fmt.Sprintf(`{"type":"fixed","name":%q,"size":%d,"logicalType":"decimal","precision":%d,"scale":%d}`, m.name(), size, p, m.IntN(p+1))
		},
		func() string { return fmt.Sprintf(`{"type":"fixed","name":%q,"size":%d}`, m.name(), m.IntN(20)) },
		func() string {
			return fmt.Sprintf(`{"type":"fixed","name":%q,"size":16,"logicalType":"uuid"}`, m.name())
		},
		func() string { return fmt.Sprintf(`{"type":"enum","name":%q,"symbols":["A","B_1","ccc"]}`, m.name()) },
	}
	if depth <= 0 || m.IntN(3) == 0 {
		return simple[m.IntN(len(simple))]()
	}
	switch k := m.IntN(4); {
	case k == 0:
		return `{"type":"array","items":` + m.schema(depth-1, false) + `}`
	case k == 1:
		return `{"type":"map","values":` + m.schema(depth-1, false) + `}`
	case k == 2 && !inUnion:
		branches := []string{`"null"`}
		seen := map[string]bool{"null": true}
		for range 1 + m.IntN(4) {
			b := m.schema(depth-1, true)
			v, err := readValue([]byte(b))
			if err != nil {
				panic(err)
			}
			tag := v.text
			if v.token == tokObject {
				if tag = v.get("type").text; v.get("name") != nil {
					tag = v.get("name").text
				}
			}
			if !seen[tag] {
				seen[tag] = true
				branches = append(branches, b)
			}
		}
		m.Shuffle(len(branches), func(i, j int) { branches[i], branches[j] = branches[j], branches[i] })
		return "[" + strings.Join(branches, ",") + "]"
	}
	name := m.name()
	var fields []string
	for i := range m.IntN(7) {
		typ := m.schema(depth-1, false)
		switch m.IntN(12) {
		case 0:
			typ = `["null","` + name + `"]`
		case 1:
			typ = `{"type":"array","items":"` + name + `"}`
		}
		fields = append(fields, fmt.Sprintf(`{"name":"%s%d","type":%s}`, []string{"f", "longer_field_name_", "x_"}[m.IntN(3)], i, typ))
	}
	return fmt.Sprintf(`{"type":"record","name":%q,"fields":[%s]}`, name, strings.Join(fields, ","))
}

func (m *maker) name() string {
	m.names++
	return []string{"", "ns.", "a.b."}[m.IntN(3)] + "T" + strconv.Itoa(m.names)
}

func (m *maker) space() string {
	if m.IntN(4) > 0 {
		return ""
	}
	return []string{" ", "\n\t", "  \r\n"}[m.IntN(3)]
}

// text makes random text and its JSON form with some of it escaped.
func (m *maker) text(limit rune) (string, string) {
	var plain, quoted strings.Builder
	quoted.WriteByte('"')
	for range m.IntN(24) {
		r := rune(32 + m.IntN(95))
		switch m.IntN(6) {
		case 0:
			r = rune(m.Int32N(int32(min(limit, 0x3000))))
		case 1:
			r = rune(m.Int32N(int32(limit)))
		}
		if 0xd800 <= r && r < 0xe000 {
			r = '€'
		}
		plain.WriteRune(r)
		switch {
		case r < 32 || r == '"' || r == '\\' || m.IntN(8) == 0:
			for _, u := range utf16Units(r) {
				fmt.Fprintf(&quoted, `\u%04x`, u)
			}
		default:
			quoted.WriteRune(r)
		}
	}
	quoted.WriteByte('"')
	return plain.String(), quoted.String()
}

func utf16Units(r rune) []rune {
	if r < 0x10000 {
		return []rune{r}
	}
	r -= 0x10000
	return []rune{0xd800 + r>>10, 0xdc00 + r&0x3ff}
}

// number writes an integer in one of the forms JSON has for it.
func (m *maker) number(v int64) string {
	s := strconv.FormatInt(v, 10)
	switch m.IntN(6) {
	case 0:
		return s + ".0"
	case 1:
		return s + "e0"
	case 2:
		if v != 0 {
			return s + "00E-2"
		}
	}
	return s
}

func (m *maker) long(bits int) int64 {
	v := int64(m.Uint64()) >> m.IntN(64)
	if bits == 32 {
		return int64(int32(v))
	}
	return v
}

// value makes a document for n and what must be read back.
func (m *maker) value(n *node, depth int) (doc string, want any) {
	switch n.op {
	case opNull:
		return "null", nil
	case opBoolean:
		b := m.IntN(2) == 0
		return strconv.FormatBool(b), b
	case opInt:
		v := m.long(32)
		return m.number(v), int32(v)
	case opLong:
		v := m.long(64)
		return m.number(v), v
	case opFloat:
		f := math.Float32frombits(m.Uint32())
		if f != f || math.IsInf(float64(f), 0) {
			f = 0.1
		}
		return strconv.FormatFloat(float64(f), 'g', -1, 32), f
	case opDouble:
		f := math.Float64frombits(m.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) || m.IntN(2) == 0 {
			f = float64(m.IntN(100000)) / 100
		}
		return strconv.FormatFloat(f, 'g', -1, 64), f
	case opString:
		plain, quoted := m.text(0x110000)
		return quoted, plain
	case opBytes:
		plain, quoted := m.text(0x100)
		return quoted, latin1(plain)
	case opFixed:
		raw := make([]byte, n.size)
		var quoted strings.Builder
		for i := range raw {
			raw[i] = byte(m.Uint32())
			fmt.Fprintf(&quoted, `\u%04X`, raw[i])
		}
		return `"` + quoted.String() + `"`, raw
	case opEnum:
		s := n.symbols[m.IntN(len(n.symbols))]
		return strconv.Quote(s), s
	case opDecimal:
		return m.decimal(n)
	case opUUIDString, opUUIDFixed:
		var id [16]byte
		for i := range id {
			id[i] = byte(m.Uint32())
		}
		s := fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		if n.op == opUUIDFixed {
			return strconv.Quote(s), id
		}
		return strconv.Quote(s), s
	case opDate, opTime, opTimestamp, opLocal:
		return m.temporal(n)
	case opArray:
		items := []any{}
		var docs []string
		for range m.count(depth) {
			d, w := m.value(n.inner, depth-1)
			docs, items = append(docs, m.space()+d+m.space()), append(items, w)
		}
		return "[" + strings.Join(docs, ",") + "]", items
	case opMap:
		entries := map[string]any{}
		var docs []string
		for range m.count(depth) {
			plain, quoted := m.text(0x110000)
			if _, twice := entries[plain]; twice {
				continue
			}
			d, w := m.value(n.inner, depth-1)
			docs, entries[plain] = append(docs, m.space()+quoted+m.space()+":"+m.space()+d), w
		}
		return "{" + strings.Join(docs, ",") + "}", entries
	case opUnion:
		return m.union(n.union, depth)
	}
	fields := map[string]any{}
	var docs []string
	for _, f := range n.fields {
		d, w := m.value(f.node, depth-1)
		docs, fields[f.name] = append(docs, m.space()+`"`+f.name+`"`+m.space()+":"+m.space()+d), w
	}
	if m.IntN(2) == 0 {
		m.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	}
	return "{" + strings.Join(docs, ",") + m.space() + "}", fields
}

// count bounds the size of a document: nothing nests below depth.
func (m *maker) count(depth int) int {
	switch {
	case depth <= 0:
		return 0
	case m.IntN(20) == 0 && depth > 4:
		return 70 // a count of two bytes
	}
	return m.IntN(4)
}

func latin1(s string) []byte {
	out := []byte{}
	for _, r := range s {
		out = append(out, byte(r))
	}
	return out
}

func (m *maker) decimal(n *node) (string, any) {
	v := new(big.Int)
	for range 1 + m.IntN(n.precision) {
		v.Add(v.Mul(v, big.NewInt(10)), big.NewInt(int64(m.IntN(10))))
	}
	sign := ""
	if m.IntN(2) == 0 {
		sign = "-"
	}
	want := new(big.Rat).SetFrac(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n.scale)), nil))
	doc := sign + want.FloatString(n.scale)
	switch m.IntN(4) {
	case 0:
		doc = sign + v.String() + "e-" + strconv.Itoa(n.scale)
	case 1:
		if m.IntN(2) == 0 && n.scale > 0 {
			doc += "000"
		}
		doc = `"` + doc + `"`
	}
	if sign != "" {
		want.Neg(want)
	}
	return doc, want
}

func (m *maker) temporal(n *node) (string, any) {
	switch n.op {
	case opDate:
		at := time.Unix(0, 0).UTC().AddDate(0, 0, m.IntN(800000)-400000)
		if m.IntN(2) == 0 && at.Year() >= 0 {
			return at.Format(`"2006-01-02"`), at
		}
		return m.number(at.Unix() / 86400), at
	case opTime:
		v := m.Int64N(nanosPerDay/n.unit) * n.unit
		if m.IntN(2) == 0 {
			return m.number(v / n.unit), time.Duration(v)
		}
		return time.Unix(0, v).UTC().Format(`"15:04:05.999999999"`), time.Duration(v)
	}
	at := time.Unix(m.Int64N(1<<33)-1<<32, m.Int64N(1e9)/n.unit*n.unit).UTC()
	v := at.Unix()*(1e9/n.unit) + int64(at.Nanosecond())/n.unit
	switch {
	case m.IntN(2) == 0:
		return m.number(v), at
	case n.op == opLocal:
		return at.Format(`"2006-01-02T15:04:05.999999999"`), at
	}
	zone := time.FixedZone("", (m.IntN(2*24*60-1)-24*60+1)*60)
	return at.In(zone).Format(`"` + time.RFC3339Nano + `"`), at
}

// union writes the plain form where only one branch can take it, else Avro's.
func (m *maker) union(u *union, depth int) (string, any) {
	i := m.IntN(len(u.branches))
	if depth <= 0 && u.null >= 0 {
		i = u.null
	}
	n := u.branches[i]
	doc, want := m.value(n, depth-1)
	if i == u.null {
		return doc, want
	}
	tag := n.name
	if tag == "" {
		tag = n.base
	}
	want = map[string]any{tag: want} // the oracle names the branch it found
	takers := 0
	for _, b := range u.branches {
		if b.takes&tokenOf(doc[0]) != 0 {
			takers++
		}
	}
	if takers == 1 && m.IntN(2) == 0 {
		return doc, want
	}
	// An object may look like a plain value of a map or record beside it; then it
	// has to be refused, which the test of ambiguity looks at.
	for _, j := range u.object {
		if u.branches[j].fitsAlone([]byte(tag), tokenOf(doc[0])) {
			return m.union(u, depth)
		}
	}
	return fmt.Sprintf(`{%s"%s"%s:%s}`, m.space(), tag, m.space(), doc), want
}
