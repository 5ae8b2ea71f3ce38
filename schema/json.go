package schema

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// maxDepth bounds how deep a document may nest.
const maxDepth = 256

// Tokens, as a set: what a value may start with.
type tokens uint8

const (
	tokNull tokens = 1 << iota
	tokBool
	tokNumber
	tokString
	tokArray
	tokObject
)

// tokenOf says which token starts with b. Zero means none does.
func tokenOf(b byte) tokens {
	switch {
	case b == '"':
		return tokString
	case b == '-' || '0' <= b && b <= '9':
		return tokNumber
	case b == '{':
		return tokObject
	case b == '[':
		return tokArray
	case b == 'n':
		return tokNull
	case b == 't' || b == 'f':
		return tokBool
	}
	return 0
}

// A failure is where and why reading stopped. It holds no formatted text, so
// that trying one branch of a union and then the next costs nothing.
type failure struct {
	at    int    // offset of the offending value
	want  string // what was expected; "" marks a syntax error
	note  string // why what is there is not it
	found bool   // false: nothing is there
	bare  bool   // note alone says what is there, whatever its value
}

// A scanner reads JSON text. Its methods report failure as false and leave the
// reason in fail; after a failure pos has no meaning.
type scanner struct {
	src     []byte
	pos     int
	depth   int
	scratch []byte // unescaped text and digits: valid until the next use
	rewrite []byte // a float's text: likewise
	fail    failure
	steps   []step
}

func (s *scanner) syntax(at int, note string) bool {
	s.fail = failure{at: at, note: note, found: true}
	return false
}

func (s *scanner) wrong(at int, want, note string) bool {
	s.fail = failure{at: at, want: want, note: note, found: true}
	return false
}

// wrongKey is wrong for a key, which the path names already.
func (s *scanner) wrongKey(want, note string) bool {
	s.fail = failure{want: want, note: note, found: true, bare: true}
	return false
}

// peek is the byte at pos, 0 at the end: no JSON token starts with 0.
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// space steps over white space and returns the byte after it, 0 at the end.
func (s *scanner) space() byte {
	for i := s.pos; i < len(s.src); i++ {
		switch b := s.src[i]; b {
		case ' ', '\n', '\r', '\t':
		default:
			s.pos = i
			return b
		}
	}
	s.pos = len(s.src)
	return 0
}

func (s *scanner) enter() bool {
	s.depth++
	if s.depth > maxDepth {
		s.fail = failure{want: "at most 256 levels of nesting", note: "more", found: true, bare: true}
		return false
	}
	return true
}

func (s *scanner) leave() { s.depth-- }

// literal consumes word, whose first byte was seen.
func (s *scanner) literal(word string) bool {
	end := s.pos + len(word)
	if end > len(s.src) || string(s.src[s.pos:end]) != word {
		return s.syntax(s.pos, "no value begins so")
	}
	s.pos = end
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, in the high bit of each byte, the bytes of w that end a run of
// plain string text: quote, backslash, control and non-ASCII. The lowest mark is
// exact, those above it may be off, so only the lowest is used.
func special(w uint64) uint64 {
	q := w ^ ones*'"'
	b := w ^ ones*'\\'
	return ((q-ones)&^q | (b-ones)&^b | (w-ones*0x20)&^w | w) & highs
}

// str consumes a string and returns the bounds of its text between the quotes.
// The text is valid UTF-8; escapes in it are not yet checked.
func (s *scanner) str() (lo, hi int, escaped, ok bool) {
	src := s.src
	i := s.pos + 1
	lo = i
	var wide bool
	for {
		for i+8 <= len(src) {
			m := special(binary.LittleEndian.Uint64(src[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(src) {
			return 0, 0, false, s.syntax(lo-1, "the text has no closing quote")
		}
		switch b := src[i]; {
		case b == '"':
			if wide && !utf8.Valid(src[lo:i]) {
				return 0, 0, false, s.syntax(lo-1, "the text is not valid UTF-8")
			}
			s.pos = i + 1
			return lo, i, escaped, true
		case b == '\\':
			escaped = true
			i += 2
		case b < ' ':
			return 0, 0, false, s.syntax(i, "a control character is not escaped")
		case b >= utf8.RuneSelf:
			wide = true
			for i < len(src) && src[i] >= utf8.RuneSelf {
				i++
			}
		default:
			i++
		}
	}
}

// text consumes a string and returns its text, borrowed from the source or from
// scratch until the next call.
func (s *scanner) text() ([]byte, bool) {
	lo, hi, escaped, ok := s.str()
	if !ok {
		return nil, false
	}
	if !escaped {
		return s.src[lo:hi:hi], true
	}
	return s.unescape(lo, hi)
}

// unescape decodes src[lo:hi] into scratch.
func (s *scanner) unescape(lo, hi int) ([]byte, bool) {
	raw := s.src[lo:hi]
	out := s.scratch[:0]
	for i := 0; i < len(raw); {
		b := raw[i]
		if b != '\\' {
			out = append(out, b)
			i++
			continue
		}
		// str stepped over the byte after each backslash, so there is one.
		switch e := raw[i+1]; e {
		case '"', '\\', '/':
			out = append(out, e)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hex4(raw[i+2:])
			if !ok {
				return nil, s.syntax(lo+i, "an escape without four hexadecimal digits")
			}
			if 0xd800 <= r && r < 0xe000 {
				low, ok := rune(0), false
				if r < 0xdc00 && len(raw) >= i+12 && raw[i+6] == '\\' && raw[i+7] == 'u' {
					low, ok = hex4(raw[i+8:])
				}
				if !ok || low < 0xdc00 || low >= 0xe000 {
					return nil, s.syntax(lo+i, "half of a surrogate pair")
				}
				r = (r-0xd800)<<10 + (low - 0xdc00) + 0x10000
				i += 6
			}
			out = utf8.AppendRune(out, r)
			i += 4
		default:
			return nil, s.syntax(lo+i, "an unknown escape")
		}
		i += 2
	}
	s.scratch = out
	return out, true
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		d, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// skip consumes any value, checking its syntax.
func (s *scanner) skip() bool {
	switch b := s.peek(); tokenOf(b) {
	case tokNull:
		return s.literal("null")
	case tokBool:
		if b == 't' {
			return s.literal("true")
		}
		return s.literal("false")
	case tokNumber:
		_, ok := s.number()
		return ok
	case tokString:
		return s.skipString()
	case tokArray:
		return s.skipArray()
	case tokObject:
		return s.skipObject()
	}
	return s.syntax(s.pos, "no value begins so")
}

func (s *scanner) skipString() bool {
	lo, hi, escaped, ok := s.str()
	if ok && escaped {
		_, ok = s.unescape(lo, hi)
	}
	return ok
}

func (s *scanner) skipArray() bool {
	if !s.enter() {
		return false
	}
	defer s.leave()
	s.pos++
	if s.space() == ']' {
		s.pos++
		return true
	}
	for {
		s.space()
		if !s.skip() {
			return false
		}
		more, ok := s.comma(']')
		if !ok || !more {
			return ok
		}
	}
}

func (s *scanner) skipObject() bool {
	if !s.enter() {
		return false
	}
	defer s.leave()
	s.pos++
	if s.space() == '}' {
		s.pos++
		return true
	}
	for {
		if s.space() != '"' {
			return s.syntax(s.pos, "a key must be text in quotes")
		}
		if !s.skipString() || !s.colon() || !s.skip() {
			return false
		}
		more, ok := s.comma('}')
		if !ok || !more {
			return ok
		}
	}
}

// comma consumes the comma before another element (more), or the closing byte.
func (s *scanner) comma(closing byte) (more, ok bool) {
	switch s.space() {
	case ',':
		s.pos++
		return true, true
	case closing:
		s.pos++
		return false, true
	}
	return false, s.syntax(s.pos, "a comma or a closing bracket is missing")
}

// colon consumes the colon between a key and its value, and the space around it.
func (s *scanner) colon() bool {
	if s.space() != ':' {
		return s.syntax(s.pos, "a colon is missing after a key")
	}
	s.pos++
	s.space()
	return true
}

// end checks that only white space is left.
func (s *scanner) end() bool {
	if s.space(); s.pos < len(s.src) {
		return s.syntax(s.pos, "the document has ended and more follows")
	}
	return true
}
