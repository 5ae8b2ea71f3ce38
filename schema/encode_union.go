package schema

import "slices"

// A union is how to find the branch of a value. All of it is decided when the
// schema is compiled, but for what depends on the value itself.
type union struct {
	branches []*node
	null     int            // the null branch, -1 without one
	tags     map[string]int // the name Avro's JSON encoding gives each branch but null
	// Candidates for a token, in the order to try them.
	boolean, whole, fraction, text, array, object []int
}

func newUnion(branches []*node) *union {
	u := &union{branches: branches, null: -1, tags: map[string]int{}}
	var ints, reals, raw []int
	var single []int // float, which goes behind double
	for i, b := range branches {
		if b.op == opNull {
			u.null = i
			continue
		}
		u.tags[b.tag()] = i
		if b.takes&tokBool != 0 {
			u.boolean = append(u.boolean, i)
		}
		if b.takes&tokNumber != 0 {
			switch b.op {
			case opFloat:
				single = append(single, i)
			case opDouble, opDecimal:
				reals = append(reals, i)
			default:
				ints = append(ints, i)
			}
		}
		if b.takes&tokString != 0 {
			if b.op == opBytes || b.op == opFixed {
				raw = append(raw, i)
			} else {
				u.text = append(u.text, i)
			}
		}
		if b.takes&tokArray != 0 {
			u.array = append(u.array, i)
		}
		if b.takes&tokObject != 0 {
			u.object = append(u.object, i)
		}
	}
	reals = append(reals, single...)
	u.whole = slices.Concat(ints, reals)
	u.fraction = slices.Concat(reals, ints)
	u.text = append(u.text, raw...)
	return u
}

// tag is the name Avro's JSON encoding gives the branch n.
func (n *node) tag() string {
	if n.name != "" {
		return n.name
	}
	return n.base
}

func (e *coder) unionValue(n *node, dst []byte) ([]byte, bool) {
	u := n.union
	var candidates []int
	switch tokenOf(e.peek()) {
	case tokNull:
		if u.null < 0 {
			return dst, e.wrong(e.pos, n.want, "")
		}
		return zigzag(dst, int64(u.null)), e.literal("null")
	case tokBool:
		candidates = u.boolean
	case tokNumber:
		if candidates = u.whole; len(candidates) > 1 && !e.integral() {
			candidates = u.fraction
		}
	case tokString:
		candidates = u.text
	case tokArray:
		candidates = u.array
	case tokObject:
		return e.unionObject(n, dst)
	}
	if len(candidates) == 0 {
		return dst, e.wrong(e.pos, n.want, "")
	}
	if len(candidates) == 1 {
		return e.branch(u, candidates[0], dst)
	}
	// Several take the token. Only scalars get here, as a union has one array at
	// most, so trying them costs no more than reading the text once for each.
	at, length := e.pos, len(dst)
	for _, i := range candidates {
		var ok bool
		if dst, ok = e.branch(u, i, dst[:length]); ok {
			return dst, true
		}
		if e.fail.want == "" {
			return dst, false // not JSON: no branch will take it
		}
		e.pos = at
	}
	return dst, e.wrong(at, n.want, "no branch takes it")
}

func (e *coder) branch(u *union, i int, dst []byte) ([]byte, bool) {
	return e.value(u.branches[i], zigzag(dst, int64(i)))
}

func (e *coder) unionObject(n *node, dst []byte) ([]byte, bool) {
	u := n.union
	at := e.pos
	i, ok := e.tagged(n)
	if !ok {
		return dst, false
	}
	if i >= 0 {
		if dst, ok = e.branch(u, i, dst); !ok {
			e.steps = append(e.steps, step{name: u.branches[i].tag(), named: true})
			return dst, false
		}
		e.space()
		e.pos++ // the closing brace: tagged saw it
		e.leave()
		return dst, true
	}
	e.pos = at
	switch len(u.object) {
	case 0:
		return dst, e.wrong(at, n.want, "")
	case 1:
		return e.branch(u, u.object[0], dst)
	}
	if i, ok = e.fittest(u); !ok {
		return dst, false
	}
	e.pos = at
	return e.branch(u, i, dst)
}

// tagged looks whether the object at pos is Avro's JSON form of a branch, an
// object whose only key names it. If so it returns the branch and leaves pos at
// the value, one level deeper. Otherwise it returns -1.
func (e *coder) tagged(n *node) (branch int, ok bool) {
	u := n.union
	open := e.pos
	e.pos++
	if e.space() != '"' {
		return -1, true
	}
	lo, hi, escaped, ok := e.str()
	if !ok {
		return 0, false
	}
	if escaped {
		return -1, true // no name of a type needs an escape
	}
	i, known := u.tags[string(e.src[lo:hi])]
	if !known {
		return -1, true
	}
	if !e.enter() || !e.colon() {
		return 0, false
	}
	value, token := e.pos, tokenOf(e.peek())
	if !e.skip() {
		return 0, false
	}
	if e.space() != '}' || u.branches[i].takes&token == 0 {
		e.leave()
		return -1, true
	}
	key := e.src[lo:hi]
	for _, j := range u.object {
		if u.branches[j].fitsAlone(key, token) {
			return 0, e.wrong(open, n.want, "ambiguous: its key is a branch's name as well as a key of "+u.branches[j].want)
		}
	}
	e.pos = value
	return i, true
}

// fitsAlone reports whether an object with this key and no other may be a plain
// value of n.
func (n *node) fitsAlone(key []byte, token tokens) bool {
	if n.op == opMap {
		return n.inner.takes&token != 0
	}
	i := n.index.find(key)
	if i < 0 || n.fields[i].node.takes&token == 0 {
		return false
	}
	rest := n.required
	if !n.fields[i].hasDefault {
		rest--
	}
	return rest == 0
}

// fittest reads the keys of the object at pos and picks the record or map of the
// union that they fit best; the first of equals, a record before a map.
func (e *coder) fittest(u *union) (branch int, ok bool) {
	if !e.enter() {
		return 0, false
	}
	defer e.leave()
	base := len(e.spans)
	defer func() { e.spans = e.spans[:base] }()
	for range u.object {
		e.spans = append(e.spans, span{}) // lo: what speaks against it, hi: required fields met
	}
	// A value of the wrong kind or a missing field weighs more than any number of
	// unknown ones, which may be dropped.
	const heavy = 1 << 32
	e.pos++
	if e.space() != '}' {
		for more := true; more; {
			if e.space() != '"' {
				return 0, e.syntax(e.pos, "a key must be text in quotes")
			}
			lo, hi, escaped, ok := e.str()
			if !ok {
				return 0, false
			}
			key := e.src[lo:hi]
			if escaped {
				if key, ok = e.unescape(lo, hi); !ok {
					return 0, false
				}
			}
			// The token is needed beside the key, which may live in scratch: the colon
			// does not touch scratch.
			if !e.colon() {
				return 0, false
			}
			token := tokenOf(e.peek())
			for k, i := range u.object {
				score, n := &e.spans[base+k], u.branches[i]
				if n.op == opMap {
					if n.inner.takes&token == 0 {
						score.lo += heavy
					}
					continue
				}
				f := n.index.find(key)
				switch {
				case f < 0:
					score.lo++
					continue
				case n.fields[f].node.takes&token == 0:
					score.lo += heavy
				}
				if !n.fields[f].hasDefault {
					score.hi++
				}
			}
			if !e.skip() {
				return 0, false
			}
			if more, ok = e.comma('}'); !ok {
				return 0, false
			}
		}
	}
	best := -1
	for k, i := range u.object {
		n, score := u.branches[i], &e.spans[base+k]
		if n.op != opMap {
			score.lo += max(0, n.required-score.hi) * heavy
		}
		if best < 0 || score.lo < e.spans[base+best].lo ||
			score.lo == e.spans[base+best].lo && u.branches[u.object[best]].op == opMap {
			best = k
		}
	}
	return u.object[best], true
}
