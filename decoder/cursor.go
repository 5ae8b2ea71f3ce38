package decoder

import (
	"bytes"
	"encoding/binary"
)

// cursor reads the fields of one message in order. Its error is sticky: after
// the first field that does not fit, every read gives zero and end returns what
// went wrong, so a message is read straight down and checked once. Rows are
// read without it; see tuple.go.
type cursor struct {
	data []byte
	off  int // Invariant: 1 <= off <= len(data)
	err  error
}

func newCursor(data []byte) cursor { return cursor{data: data, off: 1} }

// take returns the next n bytes, or nil if they are not there.
func (c *cursor) take(n int, field string) []byte {
	if c.err != nil {
		return nil
	}
	if left := len(c.data) - c.off; n > left {
		c.err = refuse(c.data, c.off, "%s needs %d bytes, %d left", field, n, left)
		return nil
	}
	b := c.data[c.off : c.off+n : c.off+n]
	c.off += n
	return b
}

func (c *cursor) uint8(field string) uint8 {
	if b := c.take(1, field); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint16(field string) uint16 {
	if b := c.take(2, field); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32(field string) uint32 {
	if b := c.take(4, field); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64(field string) uint64 {
	if b := c.take(8, field); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// text steps over a zero-terminated string and returns where it lies, without
// the zero.
func (c *cursor) text(field string) (from, to int) {
	if c.err != nil {
		return 0, 0
	}
	n := bytes.IndexByte(c.data[c.off:], 0)
	if n < 0 {
		c.err = refuse(c.data, c.off, "%s has no terminating zero", field)
		return 0, 0
	}
	from, to = c.off, c.off+n
	c.off = to + 1
	return from, to
}

// end returns the first error, or one if bytes are left over.
func (c *cursor) end() error {
	if c.err == nil && c.off != len(c.data) {
		c.err = refuse(c.data, c.off, "%d bytes left over", len(c.data)-c.off)
	}
	return c.err
}
