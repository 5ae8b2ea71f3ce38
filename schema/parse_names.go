package schema

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

var primitives = []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string"}

// References returns the full names a schema text defines and those it refers to
// without defining them, each once and in the order of the text.
func References(text []byte) (defined, referenced []string, err error) {
	v, err := readValue(text)
	if err != nil {
		return nil, nil, err
	}
	r := resolver{defs: map[string]*value{}, open: true}
	if err := r.schema(v, "", ""); err != nil {
		return nil, nil, err
	}
	for _, name := range r.missing {
		if r.defs[name] == nil && !slices.Contains(referenced, name) {
			referenced = append(referenced, name)
		}
	}
	return r.order, referenced, nil
}

// A resolver checks the structure of schema texts and rewrites every name in
// them to its full name, by the specification's rules for namespaces.
type resolver struct {
	defs  map[string]*value // named types by full name
	order []string          // their names as they were met
	// outer holds the names that other texts define.
	outer map[string]bool
	// open: an unknown name is noted in missing instead of being an error.
	open    bool
	missing []string
}

// readAll reads text and refs, and returns text's value with its names resolved.
func (r *resolver) readAll(text []byte, refs [][]byte) (*value, error) {
	own, err := readValue(text)
	if err != nil {
		return nil, err
	}
	r.outer = map[string]bool{} // what refs define
	var others []*value
	for i, ref := range refs {
		if bytes.Equal(ref, text) || slices.ContainsFunc(refs[:i], func(o []byte) bool { return bytes.Equal(o, ref) }) {
			continue // the same text reached by two ways
		}
		defined, _, err := References(ref)
		if err != nil {
			return nil, fmt.Errorf("reference %d: %w", i+1, err)
		}
		for _, name := range defined {
			r.outer[name] = true
		}
		v, err := readValue(ref)
		if err != nil {
			return nil, fmt.Errorf("reference %d: %w", i+1, err)
		}
		others = append(others, v)
	}
	// References may refer back to what text defines; within text itself a name has
	// to be defined before it is used, as every other reader demands.
	mine, _, err := References(text)
	if err != nil {
		return nil, err
	}
	theirs := r.outer
	r.outer = maps.Clone(theirs)
	for _, name := range mine {
		r.outer[name] = true
	}
	for i, v := range others {
		if err := r.schema(v, "", ""); err != nil {
			return nil, fmt.Errorf("reference %d: %w", i+1, err)
		}
	}
	r.outer = theirs
	if err := r.schema(own, "", ""); err != nil {
		return nil, err
	}
	return own, nil
}

// at prefixes an error with a place in the schema.
func at(path string, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// schema resolves one schema inside namespace ns. path is where it stands:
// record names and field names with dots.
func (r *resolver) schema(v *value, ns, path string) error {
	switch v.token {
	case tokString:
		return r.reference(v, ns, path)
	case tokArray:
		return r.union(v, ns, path)
	case tokObject:
		return r.complex(v, ns, path)
	}
	return at(path, "a schema must be a name, an object or an array, not %s", clip(v.text, 40))
}

func (r *resolver) reference(v *value, ns, path string) error {
	if slices.Contains(primitives, v.text) {
		return nil
	}
	full := v.text
	if !strings.Contains(full, ".") && ns != "" {
		full = ns + "." + full
	}
	known := func(name string) bool { return r.defs[name] != nil || r.outer[name] }
	if !known(full) && known(v.text) {
		full = v.text // like Java: a name without namespace is seen from everywhere
	}
	if !known(full) {
		if !r.open {
			return at(path, "unknown type %q", full)
		}
		if err := checkFullName(full); err != nil {
			return at(path, "unknown type: %w", err)
		}
		r.missing = append(r.missing, full)
	}
	v.text = full
	return nil
}

func (r *resolver) union(v *value, ns, path string) error {
	if len(v.items) == 0 {
		return at(path, "a union needs at least one branch")
	}
	seen := map[string]bool{}
	for _, b := range v.items {
		if b.token == tokArray {
			return at(path, "a union may not hold a union")
		}
		if err := r.schema(b, ns, path); err != nil {
			return err
		}
		tag := b.text
		if b.token == tokObject {
			if tag = b.get("type").text; b.get("name") != nil && isNamed(tag) {
				tag = b.get("name").text
			}
		}
		if seen[tag] {
			return at(path, "the union has two branches %q", tag)
		}
		seen[tag] = true
	}
	return nil
}

func isNamed(kind string) bool {
	return kind == "record" || kind == "error" || kind == "enum" || kind == "fixed"
}

func (r *resolver) complex(v *value, ns, path string) error {
	kind := v.get("type")
	if kind == nil || kind.token != tokString {
		return at(path, "\"type\" must be a name here")
	}
	switch kind.text {
	case "array", "map":
		key := map[string]string{"array": "items", "map": "values"}[kind.text]
		inner := v.get(key)
		if inner == nil {
			return at(path, "%s has no %q", kind.text, key)
		}
		return r.schema(inner, ns, join(path, key))
	case "record", "error", "enum", "fixed":
		full, err := r.define(v, ns, path)
		if err != nil {
			return err
		}
		switch kind.text {
		case "enum":
			return checkSymbols(v, full)
		case "fixed":
			size := v.get("size")
			if size == nil {
				return at(full, "fixed has no \"size\"")
			}
			if n, err := size.integer(); err != nil || n < 0 || n > 1<<30 {
				return at(full, "size must be an integer from 0 to %d", 1<<30)
			}
			return nil
		}
		return r.fields(v, full)
	}
	if err := r.reference(kind, ns, path); err != nil {
		return err
	}
	if !slices.Contains(primitives, kind.text) {
		*v = *kind // {"type": "a.Name"} says no more than "a.Name"
	}
	return nil
}

// define gives a named type its full name.
func (r *resolver) define(v *value, ns, path string) (string, error) {
	name := v.get("name")
	if name == nil || name.token != tokString {
		return "", at(path, "%s has no name", v.get("type").text)
	}
	full := name.text
	if !strings.Contains(full, ".") {
		if own := v.get("namespace"); own != nil {
			if own.token != tokString && own.token != tokNull {
				return "", at(path, "the namespace of %q must be text", full)
			}
			ns = own.text
			if own.token == tokNull {
				ns = ""
			}
		}
		if ns != "" {
			full = ns + "." + full
		}
	}
	if err := checkFullName(full); err != nil {
		return "", at(path, "%w", err)
	}
	if slices.Contains(primitives, full) {
		return "", at(path, "%q is the name of a primitive type", full)
	}
	if r.defs[full] != nil {
		return "", at(path, "%q is defined twice", full)
	}
	name.text = full
	r.defs[full] = v
	r.order = append(r.order, full)
	return full, nil
}

func (r *resolver) fields(v *value, full string) error {
	fields := v.get("fields")
	if fields == nil || fields.token != tokArray {
		return at(full, "record has no array of fields")
	}
	ns := ""
	if dot := strings.LastIndexByte(full, '.'); dot >= 0 {
		ns = full[:dot]
	}
	seen := map[string]bool{}
	for i, f := range fields.items {
		if f.token != tokObject {
			return at(full, "field %d is not an object", i+1)
		}
		name := f.get("name")
		switch {
		case name == nil || name.token != tokString:
			return at(full, "field %d has no name", i+1)
		case !isName(name.text):
			return at(full, "field %w", nameError(name.text))
		case seen[name.text]:
			return at(full, "field %q is defined twice", name.text)
		case f.get("type") == nil:
			return at(join(full, name.text), "field has no type")
		}
		seen[name.text] = true
		if err := r.schema(f.get("type"), ns, join(full, name.text)); err != nil {
			return err
		}
	}
	return nil
}

func checkSymbols(v *value, full string) error {
	symbols := v.get("symbols")
	if symbols == nil || symbols.token != tokArray || len(symbols.items) == 0 {
		return at(full, "enum has no symbols")
	}
	seen := map[string]bool{}
	for i, s := range symbols.items {
		switch {
		case s.token != tokString:
			return at(full, "symbol %d is not text", i+1)
		case !isName(s.text):
			return at(full, "symbol %w", nameError(s.text))
		case seen[s.text]:
			return at(full, "symbol %q occurs twice", s.text)
		}
		seen[s.text] = true
	}
	if def := v.get("default"); def != nil && (def.token != tokString || !seen[def.text]) {
		return at(full, "the enum's default %s is not one of its symbols", describe(def))
	}
	return nil
}

func checkFullName(full string) error {
	for part := range strings.SplitSeq(full, ".") {
		if !isName(part) {
			return nameError(full)
		}
	}
	return nil
}

func nameError(name string) error {
	if name == "" {
		return errors.New("name is empty")
	}
	return fmt.Errorf("name %q is not one Avro allows: letters, digits and _, not beginning with a digit", clip(name, 100))
}

func join(path, part string) string {
	if path == "" {
		return part
	}
	return path + "." + part
}
