package schema

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// canonicalForm writes the Parsing Canonical Form: full names, only the
// attributes that matter to a reader of the bytes, in the specification's order
// and without white space. Logical types are left out, as Java does.
func canonicalForm(root *node) string {
	var b strings.Builder
	writeCanonical(&b, root, map[string]bool{})
	return b.String()
}

func writeCanonical(b *strings.Builder, n *node, written map[string]bool) {
	if n.name != "" {
		if written[n.name] {
			b.WriteString(`"` + n.name + `"`)
			return
		}
		written[n.name] = true
		b.WriteString(`{"name":"` + n.name + `","type":"` + n.base + `"`)
	}
	switch n.base {
	case "record":
		b.WriteString(`,"fields":[`)
		for i := range n.fields {
			comma(b, i)
			b.WriteString(`{"name":"` + n.fields[i].name + `","type":`)
			writeCanonical(b, n.fields[i].node, written)
			b.WriteByte('}')
		}
		b.WriteString(`]}`)
	case "enum":
		b.WriteString(`,"symbols":[`)
		for i, s := range n.symbols {
			comma(b, i)
			b.WriteString(`"` + s + `"`)
		}
		b.WriteString(`]}`)
	case "fixed":
		b.WriteString(`,"size":` + strconv.Itoa(n.size) + `}`)
	case "array":
		b.WriteString(`{"type":"array","items":`)
		writeCanonical(b, n.inner, written)
		b.WriteByte('}')
	case "map":
		b.WriteString(`{"type":"map","values":`)
		writeCanonical(b, n.inner, written)
		b.WriteByte('}')
	case "union":
		b.WriteByte('[')
		for i, branch := range n.union.branches {
			comma(b, i)
			writeCanonical(b, branch, written)
		}
		b.WriteByte(']')
	default:
		b.WriteString(`"` + n.base + `"`)
	}
}

func comma(b *strings.Builder, i int) {
	if i > 0 {
		b.WriteByte(',')
	}
}

// rabinEmpty is the specification's polynomial and the fingerprint of nothing.
const rabinEmpty = 0xc15d213aa4d7a795

// rabin is CRC-64-AVRO, little-endian as in a single-object header.
func rabin(text string) (out [8]byte) {
	fp := uint64(rabinEmpty)
	for i := range len(text) {
		x := fp ^ uint64(text[i])
		low := x & 0xff
		for range 8 {
			low = low>>1 ^ rabinEmpty&-(low&1)
		}
		fp = x>>8 ^ low
	}
	binary.LittleEndian.PutUint64(out[:], fp)
	return out
}
