package schema

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/hamba/avro/v2"
)

// This is the one file that knows hamba/avro. It parses a schema and gives the
// tree. What it reads otherwise than Java, or loses, is settled before and
// beside it: names arrive resolved, references inlined, and defaults, logical
// types and everything else that does not shape the tree is taken from the text
// itself (parse_names.go, compile.go).

// A tree is a schema as hamba parsed it: what the rest of the package passes on.
type tree = avro.Schema

// A parsed schema is the tree beside the text it came from.
type parsed struct {
	tree tree
	text *value // names are full names
	// defs are the texts of all named types by full name, also of references.
	defs map[string]*value
}

// parse reads a schema text and those it refers to.
func parse(text []byte, refs [][]byte) (*parsed, error) {
	r := resolver{defs: map[string]*value{}}
	own, err := r.readAll(text, refs)
	if err != nil {
		return nil, err
	}
	plain := plainWriter{defs: r.defs, written: map[string]bool{}}
	plain.schema(own)
	// A private cache for every parse: the package's default one keeps every named
	// type for the life of the process and would hand an old version to a new text.
	tree, err := avro.ParseBytesWithCache(plain.out.Bytes(), "", &avro.SchemaCache{})
	if err != nil {
		return nil, fmt.Errorf("not an Avro schema: %w", err)
	}
	return &parsed{tree: tree, text: own, defs: r.defs}, nil
}

// A plainWriter writes a resolved schema with nothing but its structure, every
// named type in full where it is first used.
type plainWriter struct {
	out     bytes.Buffer
	defs    map[string]*value
	written map[string]bool
}

func (w *plainWriter) schema(v *value) {
	switch v.token {
	case tokArray:
		w.list(v.items, w.schema)
		return
	case tokString:
		switch def := w.defs[v.text]; {
		case def == nil:
			w.quote(v.text) // a primitive
		case w.written[v.text]:
			w.quote(toTree(v.text))
		default:
			w.schema(def)
		}
		return
	}
	w.out.WriteString(`{"type":`)
	w.quote(v.get("type").text)
	for _, m := range v.members {
		switch m.key {
		case "name":
			if w.defs[m.value.text] == v {
				w.written[m.value.text] = true
				w.member(m.key)
				w.quote(toTree(m.value.text))
			}
		case "size":
			w.member(m.key)
			w.out.WriteString(m.value.text)
		case "symbols":
			w.member(m.key)
			w.list(m.value.items, func(s *value) { w.quote(s.text) })
		case "items", "values":
			w.member(m.key)
			w.schema(m.value)
		case "fields":
			w.member(m.key)
			w.list(m.value.items, w.field)
		}
	}
	w.out.WriteByte('}')
}

func (w *plainWriter) field(f *value) {
	w.out.WriteString(`{"name":`)
	w.quote(f.get("name").text)
	w.out.WriteString(`,"type":`)
	w.schema(f.get("type"))
	w.out.WriteByte('}')
}

func (w *plainWriter) list(items []*value, one func(*value)) {
	w.out.WriteByte('[')
	for i, v := range items {
		if i > 0 {
			w.out.WriteByte(',')
		}
		one(v)
	}
	w.out.WriteByte(']')
}

func (w *plainWriter) member(key string) {
	w.out.WriteByte(',')
	w.quote(key)
	w.out.WriteByte(':')
}

// rootless stands for the empty namespace in the tree: hamba moves a name without
// namespace into the one around it, also where the text says that it has none.
const rootless = "tailer__none."

func toTree(full string) string {
	if strings.Contains(full, ".") {
		return full
	}
	return rootless + full
}

func fromTree(full string) string { return strings.TrimPrefix(full, rootless) }

// quote writes a name. The resolver let only names through, so nothing in it
// needs more than Go's escapes.
func (w *plainWriter) quote(s string) { w.out.WriteString(strconv.Quote(s)) }

// shape is what the tree says of one schema.
type shape struct {
	kind    string // Avro's name of the type
	name    string
	fields  []shapeField
	symbols []string
	size    int
	inner   tree
	types   []tree
}

type shapeField struct {
	name string
	tree tree
}

// shapeOf opens one level of the tree.
func shapeOf(s tree) shape {
	if ref, ok := s.(*avro.RefSchema); ok {
		s = ref.Schema()
	}
	out := shape{kind: string(s.Type())}
	switch s := s.(type) {
	case *avro.RecordSchema:
		out.name = fromTree(s.FullName())
		out.kind = "record" // an error is a record by another name
		for _, f := range s.Fields() {
			out.fields = append(out.fields, shapeField{f.Name(), f.Type()})
		}
	case *avro.EnumSchema:
		out.name, out.symbols = fromTree(s.FullName()), s.Symbols()
	case *avro.FixedSchema:
		out.name, out.size = fromTree(s.FullName()), s.Size()
	case *avro.ArraySchema:
		out.inner = s.Items()
	case *avro.MapSchema:
		out.inner = s.Values()
	case *avro.UnionSchema:
		out.types = s.Types()
	}
	return out
}
