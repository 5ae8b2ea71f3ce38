package schema

import (
	"bytes"
	"slices"
)

// record appends an object's fields in schema order. They are encoded where they
// come in the text; if that was not schema order, the encoded bytes are moved,
// which is far cheaper than reading the text again.
func (e *coder) record(n *node, dst []byte) ([]byte, bool) {
	open := e.pos
	if e.peek() != '{' {
		return dst, e.wrong(open, n.want, "")
	}
	if !e.enter() {
		return dst, false
	}
	base, start := len(e.spans), len(dst)
	e.spans = slices.Grow(e.spans, len(n.fields))[:base+len(n.fields)]
	for i := base; i < len(e.spans); i++ {
		e.spans[i].lo = -1
	}

	seen, ordered := 0, true
	e.pos++
	if e.space() == '}' {
		e.pos++
	} else {
		for more := true; more; {
			i, key, ok := e.key(n, seen)
			if !ok {
				return dst, false
			}
			if i < 0 {
				if !e.drop {
					// The key is formatted here and not on the way up: scratch is still its own.
					e.steps = append(e.steps, step{name: string(key), named: true})
					return dst, e.wrongKey("a field of "+n.want, "an unknown field")
				}
				e.dropped++
				ok = e.colon() && e.skip()
			} else {
				if e.spans[base+i].lo >= 0 {
					e.steps = append(e.steps, step{name: n.fields[i].name, named: true})
					return dst, e.wrongKey("each key once", "a duplicate key")
				}
				if ok = e.colon(); ok {
					from := len(dst)
					if dst, ok = e.value(n.fields[i].node, dst); ok {
						e.spans[base+i] = span{from, len(dst)}
						ordered = ordered && i == seen
						seen++
					} else {
						e.steps = append(e.steps, step{name: n.fields[i].name, named: true})
					}
				}
			}
			if !ok {
				return dst, false
			}
			if more, ok = e.comma('}'); !ok {
				return dst, false
			}
			if more {
				e.space()
			}
		}
	}
	if seen < len(n.fields) || !ordered {
		var ok bool
		if dst, ok = e.arrange(n, dst, start, base, open); !ok {
			return dst, false
		}
	}
	e.spans = e.spans[:base]
	e.leave()
	return dst, true
}

// key consumes a key and finds its field, -1 when the record has none. next is
// the field that comes if the text is in schema order: it is tried first.
func (e *coder) key(n *node, next int) (i int, key []byte, ok bool) {
	if e.peek() != '"' {
		return 0, nil, e.syntax(e.pos, "a key must be text in quotes")
	}
	if next < len(n.fields) {
		name := n.fields[next].name
		lo := e.pos + 1
		if hi := lo + len(name); hi < len(e.src) && e.src[hi] == '"' && string(e.src[lo:hi]) == name {
			e.pos = hi + 1
			return next, nil, true
		}
	}
	if key, ok = e.text(); !ok {
		return 0, nil, false
	}
	return n.index.find(key), key, true
}

// arrange puts the fields encoded since start into schema order and adds the
// defaults of those that are missing.
func (e *coder) arrange(n *node, dst []byte, start, base, open int) ([]byte, bool) {
	out := e.permut[:0]
	for i := range n.fields {
		switch s := e.spans[base+i]; {
		case s.lo >= 0:
			out = append(out, dst[s.lo:s.hi]...)
		case n.fields[i].hasDefault:
			out = append(out, n.fields[i].def...)
		default:
			e.steps = append(e.steps, step{name: n.fields[i].name, named: true})
			e.fail = failure{at: open, want: n.fields[i].node.want}
			return dst, false
		}
	}
	e.permut = out
	return append(dst[:start], out...), true
}

// mapping appends an object as a map.
func (e *coder) mapping(n *node, dst []byte) ([]byte, bool) {
	if e.peek() != '{' {
		return dst, e.wrong(e.pos, n.want, "")
	}
	if !e.enter() {
		return dst, false
	}
	base, start := len(e.spans), len(dst)
	dst = append(dst, 0)
	e.pos++
	if e.space() == '}' {
		e.pos++
	} else {
		for more := true; more; {
			e.space()
			if e.peek() != '"' {
				return dst, e.syntax(e.pos, "a key must be text in quotes")
			}
			key, ok := e.text()
			if !ok || !e.colon() {
				return dst, false
			}
			dst = zigzag(dst, int64(len(key)))
			s := span{len(dst), len(dst) + len(key)}
			dst = append(dst, key...)
			e.spans = append(e.spans, s)
			if dst, ok = e.value(n.inner, dst); !ok {
				e.steps = append(e.steps, step{name: string(dst[s.lo:s.hi]), named: true})
				return dst, false
			}
			if more, ok = e.comma('}'); !ok {
				return dst, false
			}
		}
	}
	keys := e.spans[base:]
	count := len(keys)
	if twice, found := duplicate(dst, keys); found {
		e.steps = append(e.steps, step{name: string(dst[twice.lo:twice.hi]), named: true})
		return dst, e.wrongKey("each key once", "a duplicate key")
	}
	e.spans = e.spans[:base]
	e.leave()
	return seal(dst, start, count), true
}

// duplicate finds a key that occurs twice. It may reorder keys.
func duplicate(dst []byte, keys []span) (span, bool) {
	if len(keys) <= 8 {
		for i := range keys {
			for j := range i {
				if bytes.Equal(dst[keys[i].lo:keys[i].hi], dst[keys[j].lo:keys[j].hi]) {
					return keys[i], true
				}
			}
		}
		return span{}, false
	}
	slices.SortFunc(keys, func(a, b span) int {
		return bytes.Compare(dst[a.lo:a.hi], dst[b.lo:b.hi])
	})
	for i := 1; i < len(keys); i++ {
		if bytes.Equal(dst[keys[i].lo:keys[i].hi], dst[keys[i-1].lo:keys[i-1].hi]) {
			return keys[i], true
		}
	}
	return span{}, false
}
