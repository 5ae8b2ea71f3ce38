package schema

import (
	"errors"
	"fmt"
	"strconv"
)

// A value is a piece of a schema text: ordered, and with numbers as written,
// which encoding/json's maps and floats would lose.
type value struct {
	token   tokens
	text    string // a string's text, a number's or literal's own
	items   []*value
	members []member
}

type member struct {
	key   string
	value *value
}

// get returns an object's member, nil when it is not there.
func (v *value) get(key string) *value {
	for i := range v.members {
		if v.members[i].key == key {
			return v.members[i].value
		}
	}
	return nil
}

// readValue reads a whole JSON text.
func readValue(text []byte) (*value, error) {
	s := scanner{src: text}
	s.space()
	v, ok := s.value()
	if !ok || !s.end() {
		if s.fail.want != "" {
			return nil, fmt.Errorf("the text nests deeper than %d levels", maxDepth)
		}
		line := 1
		for _, b := range text[:min(s.fail.at, len(text))] {
			if b == '\n' {
				line++
			}
		}
		return nil, fmt.Errorf("not valid JSON, line %d: %s", line, s.fail.note)
	}
	return v, nil
}

func (s *scanner) value() (*value, bool) {
	v := &value{token: tokenOf(s.peek())}
	from := s.pos
	switch v.token {
	case tokString:
		text, ok := s.text()
		v.text = string(text)
		return v, ok
	case tokArray:
		return v, s.items(v)
	case tokObject:
		return v, s.members(v)
	}
	ok := s.skip()
	if ok {
		v.text = string(s.src[from:s.pos])
	}
	return v, ok
}

func (s *scanner) items(v *value) bool {
	if !s.enter() {
		return false
	}
	defer s.leave()
	s.pos++
	if s.space() == ']' {
		s.pos++
		return true
	}
	for more := true; more; {
		s.space()
		item, ok := s.value()
		if !ok {
			return false
		}
		v.items = append(v.items, item)
		if more, ok = s.comma(']'); !ok {
			return false
		}
	}
	return true
}

func (s *scanner) members(v *value) bool {
	if !s.enter() {
		return false
	}
	defer s.leave()
	s.pos++
	if s.space() == '}' {
		s.pos++
		return true
	}
	seen := map[string]bool{}
	for more := true; more; {
		at := s.pos
		if s.space() != '"' {
			return s.syntax(s.pos, "a key must be text in quotes")
		}
		key, ok := s.text()
		if !ok {
			return false
		}
		m := member{key: string(key)}
		if seen[m.key] {
			return s.syntax(at, "the key "+strconv.Quote(m.key)+" occurs twice in one object")
		}
		seen[m.key] = true
		if !s.colon() {
			return false
		}
		if m.value, ok = s.value(); !ok {
			return false
		}
		v.members = append(v.members, m)
		if more, ok = s.comma('}'); !ok {
			return false
		}
	}
	return true
}

// integer is the value of a number written as an integer.
func (v *value) integer() (int64, error) {
	if v.token != tokNumber {
		return 0, errors.New("not a number")
	}
	return strconv.ParseInt(v.text, 10, 64)
}
