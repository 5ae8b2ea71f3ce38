package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// A pendingDefault waits until all nodes exist: a default may need the defaults
// of a record that is compiled later.
type pendingDefault struct {
	field  *field
	text   *value
	path   string
	active bool // being encoded: meeting it again is a circle
	done   bool
}

// defaults encodes the default of every field.
func (c *compiler) defaults() error {
	byField := make(map[*field]*pendingDefault, len(c.pending))
	for i := range c.pending {
		byField[c.pending[i].field] = &c.pending[i]
	}
	d := defaulter{pending: byField}
	for i := range c.pending {
		if err := d.ready(c.pending[i].field); err != nil {
			return err
		}
	}
	return nil
}

type defaulter struct{ pending map[*field]*pendingDefault }

// ready encodes a field's default if that is not done yet.
func (d *defaulter) ready(f *field) error {
	p := d.pending[f]
	if p.done {
		return nil
	}
	if p.active {
		return at(p.path, "the default contains itself")
	}
	p.active = true
	out, err := d.encode(nil, f.node, p.text)
	if err != nil {
		return at(p.path, "default: %w", err)
	}
	f.def, p.done = out, true
	return nil
}

// encode appends a default by Avro's rules for them: no coercion, logical types
// do not count, a union takes its first branch only.
func (d *defaulter) encode(dst []byte, n *node, v *value) ([]byte, error) {
	mismatch := func() error { return fmt.Errorf("%s does not fit %s", describe(v), n.baseName()) }
	switch n.base {
	case "union":
		out, err := d.encode(zigzag(dst, 0), n.union.branches[0], v)
		if err != nil {
			return nil, fmt.Errorf("%w, the union's first branch, which a default must fit", err)
		}
		return out, nil
	case "null":
		if v.token != tokNull {
			return nil, mismatch()
		}
		return dst, nil
	case "boolean":
		switch {
		case v.token != tokBool:
			return nil, mismatch()
		case v.text == "true":
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case "int", "long":
		i, err := v.integer()
		if err != nil || n.base == "int" && i != int64(int32(i)) {
			return nil, mismatch()
		}
		return zigzag(dst, i), nil
	case "float", "double":
		if v.token != tokNumber {
			return nil, mismatch()
		}
		bits := map[string]int{"float": 32, "double": 64}[n.base]
		f, err := strconv.ParseFloat(v.text, bits)
		if err != nil {
			return nil, mismatch()
		}
		if bits == 32 {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), nil
		}
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), nil
	case "string":
		if v.token != tokString {
			return nil, mismatch()
		}
		return append(zigzag(dst, int64(len(v.text))), v.text...), nil
	case "bytes", "fixed":
		return d.bytes(dst, n, v, mismatch)
	case "enum":
		i := n.index.find([]byte(v.text))
		if v.token != tokString || i < 0 {
			return nil, mismatch()
		}
		return zigzag(dst, int64(i)), nil
	case "array":
		if v.token != tokArray {
			return nil, mismatch()
		}
		return d.block(dst, len(v.items), func(dst []byte, i int) ([]byte, error) {
			return d.encode(dst, n.inner, v.items[i])
		})
	case "map":
		if v.token != tokObject {
			return nil, mismatch()
		}
		return d.block(dst, len(v.members), func(dst []byte, i int) ([]byte, error) {
			m := v.members[i]
			return d.encode(append(zigzag(dst, int64(len(m.key))), m.key...), n.inner, m.value)
		})
	}
	if v.token != tokObject {
		return nil, mismatch()
	}
	return d.record(dst, n, v)
}

func (d *defaulter) bytes(dst []byte, n *node, v *value, mismatch func() error) ([]byte, error) {
	if v.token != tokString {
		return nil, mismatch()
	}
	var raw []byte
	for _, r := range v.text {
		if r > 0xff {
			return nil, mismatch()
		}
		raw = append(raw, byte(r))
	}
	if n.base == "bytes" {
		dst = zigzag(dst, int64(len(raw)))
	} else if len(raw) != n.size {
		return nil, mismatch()
	}
	return append(dst, raw...), nil
}

// block appends the items of an array or map.
func (d *defaulter) block(dst []byte, count int, item func([]byte, int) ([]byte, error)) ([]byte, error) {
	if count > 0 {
		dst = zigzag(dst, int64(count))
	}
	for i := range count {
		var err error
		if dst, err = item(dst, i); err != nil {
			return nil, err
		}
	}
	return append(dst, 0), nil
}

func (d *defaulter) record(dst []byte, n *node, v *value) ([]byte, error) {
	for _, m := range v.members {
		if n.index.find([]byte(m.key)) < 0 {
			return nil, fmt.Errorf("%s has no field %q", n.want, clip(m.key, 100))
		}
	}
	for i := range n.fields {
		f := &n.fields[i]
		var err error
		switch own := v.get(f.name); {
		case own != nil:
			if dst, err = d.encode(dst, f.node, own); err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
		case !f.hasDefault:
			return nil, fmt.Errorf("%s: %w", f.name, errNoDefault)
		default:
			if err = d.ready(f); err != nil {
				return nil, err
			}
			dst = append(dst, f.def...)
		}
	}
	return dst, nil
}

var errNoDefault = errors.New("the field is missing and has no default of its own")

// baseName is what a default must fit.
func (n *node) baseName() string {
	if n.name != "" {
		return n.base + " " + n.name
	}
	return n.base
}

// describe names a value of a schema text in an error.
func describe(v *value) string {
	switch v.token {
	case tokString:
		return "the text " + strconv.Quote(clip(v.text, 40))
	case tokArray:
		return "an array"
	case tokObject:
		return "an object"
	}
	return clip(v.text, 40)
}
