package schema

import (
	"math"
	"math/bits"
)

// maxPrecision bounds the work one decimal can cause: conversion is quadratic in
// its digits. No database or language in use goes further.
const maxPrecision = 4096

// fixedPrecision is how many decimal digits size bytes of two's complement hold.
func fixedPrecision(size int) int {
	return int(math.Floor(float64(8*size-1) * math.Log10(2)))
}

// decimal consumes a number, or text that holds one, and appends it unscaled: as
// bytes when size is negative, else as a fixed of that size.
func (e *coder) decimal(dst []byte, precision, scale, size int, want string) ([]byte, bool) {
	at := e.pos
	var lit []byte
	var ok bool
	switch tokenOf(e.peek()) {
	case tokNumber:
		lit, ok = e.number()
	case tokString:
		lit, ok = e.text()
		if ok && (len(lit) == 0 || numberLen(lit) != len(lit)) {
			return dst, e.wrong(at, want, "text that is not a number")
		}
	default:
		return dst, e.wrong(at, want, "")
	}
	if !ok {
		return dst, false
	}
	n := e.scale(lit)
	if len(n.digits) == 0 {
		return appendInt(dst, 0, size), true
	}
	switch width := n.point + scale; {
	case len(n.digits) > width:
		return dst, e.wrong(at, want, "finer than the scale")
	case width > precision:
		return dst, e.wrong(at, want, "more digits than the precision")
	case width <= 18:
		v, _ := n.int64(width)
		return appendInt(dst, v, size), true
	default:
		return e.appendBig(dst, n, width, size), true
	}
}

// appendInt appends v big-endian: minimal with its length before it, or sign
// extended to size.
func appendInt(dst []byte, v int64, size int) []byte {
	n := size
	if size < 0 {
		n = (bits.Len64(uint64(v^v>>63)) + 8) / 8
		dst = zigzag(dst, int64(n))
	}
	for i := n - 1; i >= 0; i-- {
		// A shift beyond 63 leaves the sign, which is the extension.
		dst = append(dst, byte(v>>(8*uint(i))))
	}
	return dst
}

// appendBig does the same for a number of any width.
func (e *coder) appendBig(dst []byte, n scaled, width, size int) []byte {
	limbs := e.limbs[:0] // little-endian
	for i := 0; i < width; {
		chunk, pow := uint64(0), uint64(1)
		for ; i < width && pow < 1e19; i++ {
			chunk *= 10
			pow *= 10
			if i < len(n.digits) {
				chunk += uint64(n.digits[i] - '0')
			}
		}
		carry := chunk
		for j, l := range limbs {
			hi, lo := bits.Mul64(l, pow)
			lo, c := bits.Add64(lo, carry, 0)
			limbs[j], carry = lo, hi+c
		}
		if carry > 0 {
			limbs = append(limbs, carry)
		}
	}
	limbs = append(limbs, 0) // room for the sign
	if n.neg {
		carry := uint64(1)
		for j, l := range limbs {
			limbs[j], carry = bits.Add64(^l, carry, 0)
		}
	}
	e.limbs = limbs

	var sign byte
	if n.neg {
		sign = 0xff
	}
	at := func(i int) byte { // byte i, from the least significant
		if i/8 >= len(limbs) {
			return sign
		}
		return byte(limbs[i/8] >> (8 * uint(i%8)))
	}
	length := size
	if size < 0 {
		length = 8 * len(limbs)
		for length > 1 && at(length-1) == sign && (at(length-2)^sign)&0x80 == 0 {
			length--
		}
		dst = zigzag(dst, int64(length))
	}
	for i := length - 1; i >= 0; i-- {
		dst = append(dst, at(i))
	}
	return dst
}
