package schema

import (
	"errors"
	"math"
	"strconv"
	"unsafe"
)

// number consumes a JSON number and returns its text.
func (s *scanner) number() ([]byte, bool) {
	n := numberLen(s.src[s.pos:])
	if n == 0 {
		return nil, s.syntax(s.pos, "not a number by JSON's grammar")
	}
	lit := s.src[s.pos : s.pos+n]
	s.pos += n
	return lit, true
}

// numberLen is the length of the JSON number at the start of b, 0 when there is
// none or when it runs on as no number may (012, 1.x, 1e).
func numberLen(b []byte) int {
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	n := digits(b[i:])
	if n == 0 || n > 1 && b[i] == '0' {
		return 0
	}
	i += n
	if i < len(b) && b[i] == '.' {
		if n = digits(b[i+1:]); n == 0 {
			return 0
		}
		i += 1 + n
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if n = digits(b[i:]); n == 0 {
			return 0
		}
		i += n
	}
	return i
}

func digits(b []byte) int {
	for i, c := range b {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(b)
}

// integral reports whether the number at pos is written without fraction and
// exponent.
func (s *scanner) integral() bool {
	for _, c := range s.src[s.pos:] {
		switch {
		case '0' <= c && c <= '9' || c == '-':
		case c == '.' || c|0x20 == 'e':
			return false
		default:
			return true
		}
	}
	return true
}

// A scaled number is ±0.digits × 10^point: digits has neither leading nor
// trailing zeros and is empty for zero. It is exact, and no larger than its text
// whatever the exponent.
type scaled struct {
	digits []byte // borrowed from the text or from scratch
	point  int
	neg    bool
}

// farPoint is where exponents saturate: beyond anything any type can hold, and
// far enough from overflow that sums of a few stay exact.
const farPoint = 1 << 40

// scale takes a number's text apart.
func (s *scanner) scale(lit []byte) scaled {
	var n scaled
	if lit[0] == '-' {
		n.neg = true
		lit = lit[1:]
	}
	whole := digits(lit)
	n.digits, n.point = lit[:whole], whole
	rest := lit[whole:]
	if len(rest) > 0 && rest[0] == '.' {
		frac := digits(rest[1:])
		s.scratch = append(append(s.scratch[:0], n.digits...), rest[1:1+frac]...)
		n.digits = s.scratch
		rest = rest[1+frac:]
	}
	if len(rest) > 0 {
		n.point += exponent(rest[1:])
	}
	for len(n.digits) > 0 && n.digits[0] == '0' {
		n.digits = n.digits[1:]
		n.point--
	}
	for len(n.digits) > 0 && n.digits[len(n.digits)-1] == '0' {
		n.digits = n.digits[:len(n.digits)-1]
	}
	if len(n.digits) == 0 {
		n.point = 0
	}
	return n
}

func exponent(b []byte) int {
	neg := b[0] == '-'
	if neg || b[0] == '+' {
		b = b[1:]
	}
	e := 0
	for _, c := range b {
		if e = e*10 + int(c-'0'); e > farPoint {
			e = farPoint
		}
	}
	if neg {
		return -e
	}
	return e
}

// integer consumes an integral number in [min, max].
func (s *scanner) integer(min, max int64, want string) (int64, bool) {
	at := s.pos
	src := s.src
	i := at
	neg := i < len(src) && src[i] == '-'
	if neg {
		i++
	}
	// 18 digits cannot overflow; what is longer, or not plain, goes the slow way.
	first := i
	var v int64
	for i < len(src) && i-first < 18 {
		d := src[i] - '0'
		if d > 9 {
			break
		}
		v = v*10 + int64(d)
		i++
	}
	if i == first || src[first] == '0' && i-first > 1 || i < len(src) && !endsInteger(src[i]) {
		var ok bool
		if v, ok = s.slowInteger(want); !ok {
			return 0, false
		}
	} else {
		if neg {
			v = -v
		}
		s.pos = i
	}
	if v < min || v > max {
		return 0, s.wrong(at, want, "out of range")
	}
	return v, true
}

func endsInteger(c byte) bool {
	return (c < '0' || c > '9') && c != '.' && c|0x20 != 'e'
}

func (s *scanner) slowInteger(want string) (int64, bool) {
	at := s.pos
	if tokenOf(s.peek()) != tokNumber {
		return 0, s.wrong(at, want, "")
	}
	lit, ok := s.number()
	if !ok {
		return 0, false
	}
	n := s.scale(lit)
	switch {
	case len(n.digits) > n.point:
		return 0, s.wrong(at, want, "not an integer")
	case n.point > 19:
		return 0, s.wrong(at, want, "out of range")
	}
	v, ok := n.int64(n.point)
	if !ok {
		return 0, s.wrong(at, want, "out of range")
	}
	return v, true
}

// int64 is the integer of the first width digits, width ≤ 19, with zeros where
// digits end before.
func (n scaled) int64(width int) (int64, bool) {
	var u uint64
	if len(n.digits) > 0 {
		for i := range width {
			u *= 10
			if i < len(n.digits) {
				u += uint64(n.digits[i] - '0')
			}
		}
	}
	switch {
	case !n.neg && u <= math.MaxInt64:
		return int64(u), true
	case n.neg && u <= 1<<63:
		return -int64(u), true
	}
	return 0, false
}

// float consumes a number and rounds it to the nearest float of the size.
func (s *scanner) float(bits int, want string) (float64, bool) {
	at := s.pos
	if tokenOf(s.peek()) != tokNumber {
		return 0, s.wrong(at, want, "")
	}
	lit, ok := s.number()
	if !ok {
		return 0, false
	}
	if len(lit) > 32 {
		lit = s.normal(lit)
	}
	// ParseFloat neither keeps nor changes its argument, so the text can be lent
	// as a string instead of copied.
	f, err := strconv.ParseFloat(unsafe.String(&lit[0], len(lit)), bits)
	if errors.Is(err, strconv.ErrRange) && math.IsInf(f, 0) {
		return 0, s.wrong(at, want, "out of range")
	}
	return f, true
}

// normal rewrites a number as ±0.digits e point. ParseFloat stops counting an
// exponent at 10000, which is wrong for a number whose digits run as far the
// other way; so written, 5000 is already far beyond every float.
func (s *scanner) normal(lit []byte) []byte {
	n := s.scale(lit)
	out := s.rewrite[:0]
	if n.neg {
		out = append(out, '-')
	}
	out = append(append(out, "0."...), n.digits...)
	out = append(out, "0e"...)
	out = strconv.AppendInt(out, int64(max(-5000, min(5000, n.point))), 10)
	s.rewrite = out
	return out
}

// zigzag appends v as Avro writes int and long.
func zigzag(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}
