package schema

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
)

// Options change what an Encoder accepts.
type Options struct {
	// DropUnknown drops fields that the schema does not have instead of refusing
	// the document.
	DropUnknown bool
	// Dropped counts the fields that were dropped, over all the schemas that it
	// is given to; nil: nobody asks.
	Dropped *atomic.Uint64
}

// An Encoder turns JSON documents into Avro binary by one schema. It is immutable,
// but for a counter, and safe for concurrent use.
type Encoder struct {
	root        *node
	drop        bool
	fingerprint [8]byte
	dropped     *atomic.Uint64 // never nil
}

// Compile makes an Encoder from a schema text. refs are the texts that define
// the named types it refers to, directly or not, in any order.
func Compile(text []byte, refs ...[]byte) (*Encoder, error) {
	return CompileOptions(text, Options{}, refs...)
}

// CompileOptions is Compile with options.
func CompileOptions(text []byte, o Options, refs ...[]byte) (*Encoder, error) {
	p, err := parse(text, refs)
	if err != nil {
		return nil, err
	}
	c := compiler{defs: p.defs, named: map[string]*node{}}
	root, err := c.schema(p.tree, p.text, "")
	if err != nil {
		return nil, err
	}
	if err := c.defaults(); err != nil {
		return nil, err
	}
	if o.Dropped == nil {
		o.Dropped = new(atomic.Uint64)
	}
	return &Encoder{root: root, drop: o.DropUnknown, dropped: o.Dropped, fingerprint: rabin(canonicalForm(root))}, nil
}

// Append reads one JSON document and appends its Avro binary to dst, with no
// length or header around it. The error is an *Invalid; what then follows dst's
// old length is garbage. json is only read, and not kept.
func (e *Encoder) Append(dst, json []byte) ([]byte, error) {
	c := coders.Get().(*coder)
	c.src, c.pos, c.depth, c.spans, c.drop, c.dropped = json, 0, 0, c.spans[:0], e.drop, 0
	c.space()
	dst, ok := c.value(e.root, dst)
	ok = ok && c.end()
	var err error
	if !ok {
		err = c.invalid()
	} else if c.dropped > 0 {
		e.dropped.Add(c.dropped)
	}
	c.release()
	return dst, err
}

// Fingerprint is the schema's CRC-64-AVRO as its bytes stand in a single-object
// header.
func (e *Encoder) Fingerprint() [8]byte { return e.fingerprint }

// invalid formats the failure.
func (s *scanner) invalid() *Invalid {
	f := s.fail
	out := &Invalid{Path: pathOf(s.steps), Expected: f.want}
	if !f.found {
		return out
	}
	if f.want == "" {
		out.Expected = "valid JSON"
		out.Found = "at byte " + strconv.Itoa(f.at+1) + ": " + f.note
		return out
	}
	if f.bare {
		out.Found = f.note
		return out
	}
	out.Found = foundAt(s.src, f.at)
	if f.note != "" {
		out.Found += " (" + f.note + ")"
	}
	return out
}

// foundAt describes the value at an offset in at most 40 bytes of it.
func foundAt(src []byte, at int) string {
	if at >= len(src) {
		return "the end of the document"
	}
	switch tokenOf(src[at]) {
	case tokNull:
		return "null"
	case tokBool:
		return "a boolean"
	case tokArray:
		return "an array"
	case tokObject:
		return "an object"
	case tokNumber:
		return "the number " + clip(string(src[at:at+numberEnd(src[at:])]), 40)
	case tokString:
		s := scanner{src: src[:min(len(src), at+200)], pos: at}
		if text, ok := s.text(); ok {
			return "the text " + strconv.Quote(clip(string(text), 40))
		}
		return "a text"
	}
	return "something that is not JSON"
}

// numberEnd is where the characters of a number end, well-formed or not.
func numberEnd(b []byte) int {
	for i, c := range b {
		if endsInteger(c) && c != '-' && c != '+' {
			return i
		}
	}
	return len(b)
}

// A compiler turns the tree and its text into nodes.
type compiler struct {
	defs    map[string]*value
	named   map[string]*node
	pending []pendingDefault
}

func (c *compiler) schema(t tree, text *value, path string) (*node, error) {
	if def := c.defs[text.text]; text.token == tokString && def != nil {
		if n := c.named[text.text]; n != nil {
			return n, nil
		}
		text = def
	}
	s := shapeOf(t)
	if s.name != "" {
		if text.token != tokObject || text.get("name") == nil || text.get("name").text != s.name {
			return nil, at(path, "the parser read type %q where the text has another", s.name)
		}
		path = s.name
	}
	n := &node{name: s.name}
	switch s.kind {
	case "null":
		n.set(opNull, "null", tokNull)
	case "boolean":
		n.set(opBoolean, "boolean", tokBool)
	case "int":
		n.set(opInt, "int", tokNumber)
	case "long":
		n.set(opLong, "long", tokNumber)
	case "float":
		n.set(opFloat, "float", tokNumber)
	case "double":
		n.set(opDouble, "double", tokNumber)
	case "string":
		n.set(opString, "string", tokString)
	case "bytes":
		n.set(opBytes, "bytes", tokString)
		n.size = -1
	case "fixed":
		n.set(opFixed, "fixed", tokString)
		n.size = s.size
		n.want = fmt.Sprintf("fixed %s of %d bytes", s.name, s.size)
		c.named[s.name] = n
	case "enum":
		n.set(opEnum, "enum", tokString)
		n.symbols, n.index = s.symbols, newNameIndex(s.symbols)
		n.want = "a symbol of enum " + s.name
		c.named[s.name] = n
	case "array":
		n.set(opArray, "array", tokArray)
		return n, c.inside(n, s, text, "items", path)
	case "map":
		n.set(opMap, "map", tokObject)
		return n, c.inside(n, s, text, "values", path)
	case "record":
		n.set(opRecord, "record", tokObject)
		n.want = "record " + s.name
		return n, c.record(n, s, text)
	case "union":
		return n, c.union(n, s, text, path)
	default:
		return nil, at(path, "unknown kind of schema %q", s.kind)
	}
	if text.token == tokObject {
		if err := n.logical(text); err != nil {
			return nil, at(path, "%w", err)
		}
	}
	return n, nil
}

func (n *node) set(o op, base string, takes tokens) {
	n.op, n.base, n.want, n.takes = o, base, base, takes
}

func (c *compiler) inside(n *node, s shape, text *value, key, path string) (err error) {
	n.inner, err = c.schema(s.inner, text.get(key), join(path, key))
	return err
}

func (c *compiler) record(n *node, s shape, text *value) error {
	c.named[s.name] = n // before its fields, which may refer to it
	fields := text.get("fields").items
	if len(fields) != len(s.fields) {
		return at(s.name, "the parser read %d of %d fields", len(s.fields), len(fields))
	}
	n.fields = make([]field, len(fields))
	names := make([]string, len(fields))
	for i, f := range s.fields {
		path := join(s.name, f.name)
		inner, err := c.schema(f.tree, fields[i].get("type"), path)
		if err != nil {
			return err
		}
		n.fields[i] = field{name: f.name, node: inner}
		names[i] = f.name
		if def := fields[i].get("default"); def != nil {
			n.fields[i].hasDefault = true
			c.pending = append(c.pending, pendingDefault{field: &n.fields[i], text: def, path: path})
		} else {
			n.required++
		}
	}
	n.index = newNameIndex(names)
	return nil
}

func (c *compiler) union(n *node, s shape, text *value, path string) error {
	n.op, n.base = opUnion, "union"
	branches := make([]*node, len(s.types))
	for i, t := range s.types {
		var err error
		if branches[i], err = c.schema(t, text.items[i], path); err != nil {
			return err
		}
		n.takes |= branches[i].takes
		switch {
		case i == 0:
			n.want = branches[i].want
		case i == len(s.types)-1:
			n.want += " or " + branches[i].want
		default:
			n.want += ", " + branches[i].want
		}
	}
	if n.takes&^tokNull != 0 {
		n.takes |= tokObject // the tagged form
	}
	n.union = newUnion(branches)
	return nil
}

// logical applies a logical type. One that is unknown, or does not belong on its
// base, is ignored as the specification asks: the base type stands. A decimal is
// not, because then its digits would be read as characters.
func (n *node) logical(text *value) error {
	lt := text.get("logicalType")
	if lt == nil || lt.token != tokString {
		return nil
	}
	dated := tokNumber | tokString
	switch name := lt.text; {
	case name == "decimal" && (n.op == opBytes || n.op == opFixed):
		return n.decimal(text)
	case name == "uuid" && n.op == opString:
		n.op, n.want = opUUIDString, "uuid"
	case name == "uuid" && n.op == opFixed && n.size == 16:
		n.op, n.want = opUUIDFixed, "uuid"
	case name == "date" && n.op == opInt:
		n.op, n.want, n.takes = opDate, "date (text or days)", dated
	case name == "time-millis" && n.op == opInt:
		n.op, n.want, n.takes, n.unit = opTime, "time-millis (text or milliseconds of a day)", dated, 1e6
	case name == "time-micros" && n.op == opLong:
		n.op, n.want, n.takes, n.unit = opTime, "time-micros (text or microseconds of a day)", dated, 1e3
	case n.op == opLong && slices.Contains(timestamps[:], name):
		i := slices.Index(timestamps[:], name)
		n.op, n.takes, n.unit = opTimestamp, dated, int64(math.Pow10(6-3*(i%3)))
		n.want = name + " (RFC 3339 text or a number)"
		if i >= 3 {
			n.op = opLocal
			n.want = name + " (ISO 8601 text without zone or a number)"
		}
	}
	return nil
}

var timestamps = [...]string{
	"timestamp-millis", "timestamp-micros", "timestamp-nanos",
	"local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos",
}

func (n *node) decimal(text *value) error {
	precision := text.get("precision")
	if precision == nil {
		return fmt.Errorf("decimal has no precision")
	}
	p, err := precision.integer()
	if err != nil || p < 1 || p > maxPrecision {
		return fmt.Errorf("decimal's precision must be an integer from 1 to %d, not %s", maxPrecision, describe(precision))
	}
	if most := fixedPrecision(n.size); n.op == opFixed && p > int64(most) {
		return fmt.Errorf("decimal's precision %d does not fit a fixed of %d bytes, which holds %d digits", p, n.size, most)
	}
	var s int64
	if scale := text.get("scale"); scale != nil {
		if s, err = scale.integer(); err != nil || s < 0 || s > p {
			return fmt.Errorf("decimal's scale must be an integer from 0 to its precision %d, not %s", p, describe(scale))
		}
	}
	n.op, n.takes = opDecimal, tokNumber|tokString
	n.precision, n.scale = int(p), int(s)
	n.want = fmt.Sprintf("decimal(%d,%d)", p, s)
	return nil
}
