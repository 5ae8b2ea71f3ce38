package sink

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// maxHeadersDepth bounds the recursion over nested values.
const maxHeadersDepth = 500

// headerScanner reads one headers object. Its methods return what is wrong, or "".
type headerScanner struct {
	in  []byte
	pos int
}

func (s *headerScanner) fault(what string) string {
	return fmt.Sprintf("no JSON at byte %d: %s", s.pos, what)
}

// object reads the whole text.
func (s *headerScanner) object(b *Batch, row *rowHeaders) string {
	if !utf8.Valid(s.in) {
		return "the text is not UTF-8"
	}
	s.space()
	if s.peek() != '{' {
		return s.notObject()
	}
	s.pos++
	for first := true; ; first = false {
		s.space()
		if s.peek() == '}' && first {
			s.pos++
			break
		}
		var fault string
		if row.name, fault = s.name(row.name[:0]); fault != "" {
			return fault
		}
		name := b.builder.names.find(row.name)
		off := len(b.slab)
		value, fault := s.header(b)
		if fault != "" {
			return fault
		}
		switch {
		case name.kind == nameOurs:
			b.slab = b.slab[:off]
		case name.kind >= nameContext:
			row.context[name.kind-nameContext] = value
		default:
			row.set(name.name, value)
		}
		s.space()
		c := s.peek()
		s.pos++
		if c == '}' {
			break
		}
		if c != ',' {
			s.pos--
			return s.fault("expected , or }")
		}
	}
	return s.end()
}

// name reads a member's name and the colon behind it.
func (s *headerScanner) name(dst []byte) ([]byte, string) {
	if s.peek() != '"' {
		return dst, s.fault("expected a name in quotes")
	}
	dst, fault := s.decode(dst)
	if fault != "" {
		return dst, fault
	}
	s.space()
	if s.peek() != ':' {
		return dst, s.fault("expected :")
	}
	s.pos++
	s.space()
	return dst, ""
}

// header reads a member's value as the value of a header.
func (s *headerScanner) header(b *Batch) (span, string) {
	off := len(b.slab)
	var fault string
	switch s.peek() {
	case '"':
		b.slab, fault = s.decode(b.slab)
	case 'n':
		return null, s.literal("null")
	default:
		b.slab, fault = s.compact(b.slab, 1)
	}
	return span{off, len(b.slab)}, fault
}

// notObject judges a text that does not begin as an object. JSON's null alone is good.
func (s *headerScanner) notObject() string {
	if bytes.Contains(s.in, []byte(`"=>`)) {
		return "expected a JSON object, found the text of an hstore; map a column of type json or jsonb"
	}
	found := "text that is no JSON"
	c := s.peek()
	if _, fault := s.compact(nil, 1); fault == "" && s.end() == "" {
		switch {
		case c == 'n':
			return ""
		case c == '"':
			found = "a string"
		case c == '[':
			found = "an array"
		case c == 't', c == 'f':
			found = "a boolean"
		default:
			found = "a number"
		}
	}
	return "expected a JSON object, found " + found
}

// end checks that nothing but white space is left.
func (s *headerScanner) end() string {
	s.space()
	if s.pos < len(s.in) {
		return s.fault("text after the end")
	}
	return ""
}

// peek is the next byte, 0 at the end: no JSON begins or goes on with it.
func (s *headerScanner) peek() byte {
	if s.pos < len(s.in) {
		return s.in[s.pos]
	}
	return 0
}

func (s *headerScanner) space() {
	for s.pos < len(s.in) {
		switch s.in[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *headerScanner) literal(word string) string {
	if !bytes.HasPrefix(s.in[s.pos:], []byte(word)) {
		return s.fault("expected a value")
	}
	s.pos += len(word)
	return ""
}

// compact appends the value at pos without the white space between its tokens.
func (s *headerScanner) compact(dst []byte, depth int) ([]byte, string) {
	if depth > maxHeadersDepth {
		return dst, fmt.Sprintf("nested deeper than %d", maxHeadersDepth)
	}
	start := s.pos
	var fault string
	switch c := s.peek(); c {
	case '{', '[':
		return s.compactMembers(dst, c, depth)
	case '"':
		fault = s.skipString()
	case 't':
		fault = s.literal("true")
	case 'f':
		fault = s.literal("false")
	case 'n':
		fault = s.literal("null")
	default:
		fault = s.number()
	}
	if fault != "" {
		return dst, fault
	}
	return append(dst, s.in[start:s.pos]...), ""
}

// compactMembers is compact for an object or an array, which begins with open.
func (s *headerScanner) compactMembers(dst []byte, open byte, depth int) ([]byte, string) {
	closing := open + 2 // ] and } both come two after their opening
	dst = append(dst, open)
	s.pos++
	s.space()
	if s.peek() == closing {
		s.pos++
		return append(dst, closing), ""
	}
	for {
		var fault string
		if open == '{' {
			start := s.pos
			if s.peek() != '"' {
				return dst, s.fault("expected a name in quotes")
			}
			if fault = s.skipString(); fault != "" {
				return dst, fault
			}
			dst = append(dst, s.in[start:s.pos]...)
			s.space()
			if s.peek() != ':' {
				return dst, s.fault("expected :")
			}
			s.pos++
			dst = append(dst, ':')
			s.space()
		}
		if dst, fault = s.compact(dst, depth+1); fault != "" {
			return dst, fault
		}
		s.space()
		switch s.peek() {
		case closing:
			s.pos++
			return append(dst, closing), ""
		case ',':
			s.pos++
			dst = append(dst, ',')
			s.space()
		default:
			return dst, s.fault("expected , or " + string(rune(closing)))
		}
	}
}

// number steps over a number.
func (s *headerScanner) number() string {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if s.digits() == 0 {
		return s.fault("expected a value")
	}
	if s.peek() == '.' {
		s.pos++
		if s.digits() == 0 {
			return s.fault("expected a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if s.digits() == 0 {
			return s.fault("expected a digit")
		}
	}
	return ""
}

func (s *headerScanner) digits() int {
	start := s.pos
	for s.pos < len(s.in) && s.in[s.pos] >= '0' && s.in[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// skipString steps over the string at pos.
func (s *headerScanner) skipString() string {
	for s.pos++; ; {
		switch c := s.peek(); {
		case c == '"':
			s.pos++
			return ""
		case c == '\\':
			if _, fault := s.escape(); fault != "" {
				return fault
			}
		case c < ' ':
			return s.badStringByte()
		default:
			s.pos++
		}
	}
}

// decode appends the bytes of the string at pos.
func (s *headerScanner) decode(dst []byte) ([]byte, string) {
	s.pos++
	for {
		start := s.pos
		for s.pos < len(s.in) && s.in[s.pos] >= ' ' && s.in[s.pos] != '"' && s.in[s.pos] != '\\' {
			s.pos++
		}
		dst = append(dst, s.in[start:s.pos]...)
		switch s.peek() {
		case '"':
			s.pos++
			return dst, ""
		case '\\':
			r, fault := s.escape()
			if fault != "" {
				return dst, fault
			}
			if utf16.IsSurrogate(r) {
				if r, fault = s.lowHalf(r); fault != "" {
					return dst, fault
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			return dst, s.badStringByte()
		}
	}
}

func (s *headerScanner) badStringByte() string {
	if s.pos >= len(s.in) {
		return s.fault("the string has no end")
	}
	return s.fault("a control character must be escaped")
}

// lowHalf reads the second half of a surrogate pair.
func (s *headerScanner) lowHalf(high rune) (rune, string) {
	if s.peek() == '\\' && s.pos+1 < len(s.in) && s.in[s.pos+1] == 'u' {
		low, fault := s.escape()
		if fault != "" {
			return 0, fault
		}
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return r, ""
		}
	}
	return 0, s.fault("half a surrogate pair")
}

// escape reads an escape. A surrogate is returned as it stands.
func (s *headerScanner) escape() (rune, string) {
	s.pos++
	c := s.peek()
	s.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), ""
	case 'b':
		return '\b', ""
	case 'f':
		return '\f', ""
	case 'n':
		return '\n', ""
	case 'r':
		return '\r', ""
	case 't':
		return '\t', ""
	case 'u':
		var r rune
		for range 4 {
			d := hexDigit(s.peek())
			if d < 0 {
				return 0, s.fault("expected four hex digits")
			}
			r = r<<4 | d
			s.pos++
		}
		return r, ""
	}
	s.pos--
	return 0, s.fault("no such escape")
}

func hexDigit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}
