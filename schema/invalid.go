package schema

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Invalid says why a document is not valid for its schema. It is permanent: the
// same document fails the same way each time.
type Invalid struct {
	Path     string // where, as a JSON path: $.items[2].price, $["odd key"]
	Expected string // what the schema wants there
	// Found is what is there, "" when nothing is. It may quote up to 40 bytes of
	// the document, so logs above debug should leave it out.
	Found string
}

func (e *Invalid) Error() string {
	if e.Found == "" {
		return e.Path + ": required field is missing"
	}
	return e.Path + ": expected " + e.Expected + ", found " + e.Found
}

// A step is one part of a path, collected from the inside out while a failure
// unwinds.
type step struct {
	name  string
	index int // used when name is not
	named bool
}

func pathOf(steps []step) string {
	var b strings.Builder
	b.WriteByte('$')
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
		switch {
		case !s.named:
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(s.index))
			b.WriteByte(']')
		case isName(s.name):
			b.WriteByte('.')
			b.WriteString(s.name)
		default:
			b.WriteByte('[')
			b.WriteString(strconv.Quote(clip(s.name, 200)))
			b.WriteByte(']')
		}
	}
	return b.String()
}

// clip shortens s to at most n bytes without cutting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// isName reports whether s is a name by Avro's rule: [A-Za-z_][A-Za-z0-9_]*.
func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || i > 0 && '0' <= c && c <= '9' {
			continue
		}
		return false
	}
	return s != ""
}
