package schema

import (
	"encoding/binary"
	"math"
	"sync"
	"unicode/utf8"
)

// An op is what a node does with a value: its Avro type and logical type in one.
type op uint8

const (
	opNull op = iota
	opBoolean
	opInt
	opLong
	opFloat
	opDouble
	opString
	opBytes
	opFixed
	opEnum
	opArray
	opMap
	opRecord
	opUnion
	opUUIDString
	opUUIDFixed
	opDecimal // on bytes: size is -1
	opDate
	opTime      // of day, in units of unit nanoseconds
	opTimestamp // likewise, since 1970
	opLocal
)

// A node is one compiled schema. Invariant: after Compile nothing in it changes,
// so any number of goroutines may encode with it.
type node struct {
	op   op
	base string // Avro's name of the type, without logical type
	name string // full name of record, enum and fixed, else ""
	want string // what to call it in an error
	// takes is the tokens a value may start with.
	takes tokens

	fields   []field // record
	required int     // how many of them have no default
	symbols  []string
	index    nameIndex // of fields or symbols
	inner    *node     // items of an array, values of a map
	size     int       // fixed; -1 for a decimal on bytes
	union    *union

	precision, scale int
	unit             int64
}

type field struct {
	name       string
	node       *node
	def        []byte // the default, encoded
	hasDefault bool
}

// A span is a range of offsets, or a pair of counts.
type span struct{ lo, hi int }

// A coder is the state of one Append. It is pooled: a document borrows one from
// its first byte to its last.
type coder struct {
	scanner
	drop bool // unknown fields are dropped, not refused
	// dropped counts them.
	dropped uint64
	// spans is a stack: a record keeps where its fields' bytes are, a map where
	// its keys are, a union its branches' scores.
	spans  []span
	limbs  []uint64 // a decimal wider than 64 bits
	permut []byte   // a record's fields on their way into schema order
}

var coders = sync.Pool{New: func() any { return new(coder) }}

// keep is the most scratch memory a pooled coder may hold on to; an outsized
// document must not pin its size for ever.
const keep = 1 << 20

func (e *coder) release() {
	e.src, e.fail, e.steps = nil, failure{}, e.steps[:0]
	if cap(e.scratch)+cap(e.rewrite)+cap(e.permut)+16*cap(e.spans)+8*cap(e.limbs) <= keep {
		coders.Put(e)
	}
}

// value consumes one value and appends it. On failure what was appended is
// garbage.
func (e *coder) value(n *node, dst []byte) ([]byte, bool) {
	switch n.op {
	case opRecord:
		return e.record(n, dst)
	case opString:
		return e.string(n, dst)
	case opUnion:
		return e.unionValue(n, dst)
	case opInt:
		v, ok := e.integer(math.MinInt32, math.MaxInt32, n.want)
		return zigzag(dst, v), ok
	case opLong:
		v, ok := e.integer(math.MinInt64, math.MaxInt64, n.want)
		return zigzag(dst, v), ok
	case opDouble:
		v, ok := e.float(64, n.want)
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v)), ok
	case opFloat:
		v, ok := e.float(32, n.want)
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(v))), ok
	case opDecimal:
		return e.decimal(dst, n.precision, n.scale, n.size, n.want)
	case opBoolean:
		return e.boolean(n, dst)
	case opNull:
		if e.peek() != 'n' {
			return dst, e.wrong(e.pos, n.want, "")
		}
		return dst, e.literal("null")
	case opArray:
		return e.array(n, dst)
	case opMap:
		return e.mapping(n, dst)
	case opEnum:
		return e.enum(n, dst)
	case opBytes, opFixed:
		return e.bytes(n, dst)
	case opUUIDString, opUUIDFixed:
		return e.uuid(n, dst)
	default:
		return e.temporal(n, dst)
	}
}

func (e *coder) boolean(n *node, dst []byte) ([]byte, bool) {
	switch e.peek() {
	case 't':
		return append(dst, 1), e.literal("true")
	case 'f':
		return append(dst, 0), e.literal("false")
	}
	return dst, e.wrong(e.pos, n.want, "")
}

func (e *coder) string(n *node, dst []byte) ([]byte, bool) {
	if e.peek() != '"' {
		return dst, e.wrong(e.pos, n.want, "")
	}
	text, ok := e.text()
	return append(zigzag(dst, int64(len(text))), text...), ok
}

func (e *coder) enum(n *node, dst []byte) ([]byte, bool) {
	at := e.pos
	if e.peek() != '"' {
		return dst, e.wrong(at, n.want, "")
	}
	text, ok := e.text()
	if !ok {
		return dst, false
	}
	i := n.index.find(text)
	if i < 0 {
		return dst, e.wrong(at, n.want, "not one of its symbols")
	}
	return zigzag(dst, int64(i)), true
}

// bytes appends text one byte for each code point.
func (e *coder) bytes(n *node, dst []byte) ([]byte, bool) {
	at := e.pos
	if e.peek() != '"' {
		return dst, e.wrong(at, n.want, "")
	}
	text, ok := e.text()
	if !ok {
		return dst, false
	}
	points := utf8.RuneCount(text)
	if n.op == opBytes {
		dst = zigzag(dst, int64(points))
	} else if points != n.size {
		return dst, e.wrong(at, n.want, "of another length")
	}
	for i := 0; i < len(text); {
		b := text[i]
		if b < utf8.RuneSelf {
			dst = append(dst, b)
			i++
			continue
		}
		if b > 0xc3 { // U+0080 to U+00FF begin with C2 and C3
			return dst, e.wrong(at, n.want, "a character above U+00FF")
		}
		dst = append(dst, b<<6|text[i+1]&0x3f)
		i += 2
	}
	return dst, true
}

func (e *coder) uuid(n *node, dst []byte) ([]byte, bool) {
	at := e.pos
	if e.peek() != '"' {
		return dst, e.wrong(at, n.want, "")
	}
	text, ok := e.text()
	if !ok {
		return dst, false
	}
	id, ok := readUUID(text)
	if !ok {
		return dst, e.wrong(at, n.want, noteForm)
	}
	if n.op == opUUIDFixed {
		return append(dst, id[:]...), true
	}
	dst = append(dst, 36*2) // the length, as zigzag writes it
	for _, c := range text {
		if 'A' <= c && c <= 'F' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst, true
}

// temporal appends a date, a time or a timestamp.
func (e *coder) temporal(n *node, dst []byte) ([]byte, bool) {
	at := e.pos
	if e.peek() != '"' {
		min, max := int64(math.MinInt64), int64(math.MaxInt64)
		switch n.op {
		case opDate:
			min, max = math.MinInt32, math.MaxInt32
		case opTime:
			min, max = 0, nanosPerDay/n.unit-1
		}
		v, ok := e.integer(min, max, n.want)
		return zigzag(dst, v), ok
	}
	text, ok := e.text()
	if !ok {
		return dst, false
	}
	var v int64
	var note string
	switch n.op {
	case opDate:
		v, note = readDate(text)
	case opTime:
		v, note = readTime(text, n.unit)
	default:
		v, note = readTimestamp(text, n.unit, n.op == opLocal)
	}
	if note != "" {
		return dst, e.wrong(at, n.want, note)
	}
	return zigzag(dst, v), true
}

// seal writes the count of the block that starts at start, whose first byte was
// left free for it, and the empty block that ends it.
func seal(dst []byte, start, count int) []byte {
	if count == 0 {
		dst[start] = 0
		return dst
	}
	var buf [binary.MaxVarintLen64]byte
	head := zigzag(buf[:0], int64(count))
	if extra := len(head) - 1; extra > 0 {
		dst = append(dst, buf[:extra]...) // grow; overwritten by the move
		copy(dst[start+len(head):], dst[start+1:len(dst)-extra])
	}
	copy(dst[start:], head)
	return append(dst, 0)
}

func (e *coder) array(n *node, dst []byte) ([]byte, bool) {
	if e.peek() != '[' {
		return dst, e.wrong(e.pos, n.want, "")
	}
	if !e.enter() {
		return dst, false
	}
	start := len(dst)
	dst = append(dst, 0)
	e.pos++
	count := 0
	if e.space() == ']' {
		e.pos++
	} else {
		for more := true; more; count++ {
			e.space()
			var ok bool
			if dst, ok = e.value(n.inner, dst); !ok {
				e.steps = append(e.steps, step{index: count})
				return dst, false
			}
			if more, ok = e.comma(']'); !ok {
				return dst, false
			}
		}
	}
	e.leave()
	return seal(dst, start, count), true
}
