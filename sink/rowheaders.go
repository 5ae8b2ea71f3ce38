package sink

import (
	"slices"
	"strings"
)

// The row's headers column is a JSON object, of type json, jsonb or text. Its rules:
//
//   - NULL, null and {} give no header. Anything else that is no object, and text that is no JSON, makes the row a
//     dead letter "invalid" with path $headers. So does the text of an hstore.
//   - A string gives its bytes, with every escape decoded exactly, \u0000 to a zero byte. Half a surrogate pair has no
//     bytes and is invalid.
//   - A number, true and false give their text as it stands. null gives no header. An object or an array gives its
//     JSON without white space, its strings and numbers untouched.
//   - Any name may be used, the empty one too, and one with a line feed: Kafka's names are counted, not quoted.
//   - Of a name that comes twice the last value counts, at the first one's place, as jsonb has it.
//   - Names of ours are dropped, in upper and lower case: a row can neither set nor double a header that tailer sets.
//     Entries for correlation and trace context, in upper or lower case, are taken where their column is NULL or not
//     mapped, under the header's own name.

const (
	// maxNames bounds the memory of the interned names: rows may make theirs up.
	maxNames     = 4096
	maxNameBytes = 256
	// fewEntries is up to where a name that comes twice is looked for by reading the others.
	fewEntries = 24
)

// rowHeaders is what the last row's headers column said. Values are in the batch's slab.
type rowHeaders struct {
	entries []rowEntry
	context [numContext]span
	index   map[string]int // name to place in entries, once there are many
	name    []byte         // scratch
}

type rowEntry struct {
	name  string
	value span
}

func (h *rowHeaders) reset() {
	if cap(h.entries) > maxNames {
		h.entries, h.index, h.name = nil, nil, nil
	}
	h.entries = h.entries[:0]
	for i := range h.context {
		h.context[i] = null
	}
}

// set notes an entry, or replaces the one of the same name.
func (h *rowHeaders) set(name string, value span) {
	if len(h.entries) < fewEntries {
		for i := range h.entries {
			if h.entries[i].name == name {
				h.entries[i].value = value
				return
			}
		}
		h.entries = append(h.entries, rowEntry{name, value})
		return
	}
	if len(h.entries) == fewEntries {
		if h.index == nil {
			h.index = make(map[string]int)
		}
		clear(h.index)
		for i, e := range h.entries {
			h.index[e.name] = i
		}
	}
	if i, ok := h.index[name]; ok {
		h.entries[i].value = value
		return
	}
	h.index[name] = len(h.entries)
	h.entries = append(h.entries, rowEntry{name, value})
}

// readRowHeaders reads the event's headers column into the builder's row. After a rejection the row has no headers.
func (b *Batch) readRowHeaders(ev *Event) *Rejection {
	row := &b.builder.row
	row.reset()
	if ev.Headers == nil || b.builder.cfg.Profile == Debezium {
		return nil
	}
	slab := len(b.slab)
	s := headerScanner{in: ev.Headers}
	if fault := s.object(b, row); fault != "" {
		row.reset()
		b.slab = b.slab[:slab]
		return &Rejection{Reason: ReasonInvalid, Path: "$headers", Message: fault}
	}
	return nil
}

// nameKind is what becomes of an entry of that name.
type nameKind uint8

const (
	nameFree nameKind = iota
	nameOurs
	nameContext // nameContext + n is the context header n
)

type rowName struct {
	name string
	kind nameKind
}

// names interns the names of row headers, so that a known one costs no allocation.
type names struct {
	known   map[string]rowName
	columns []string // lower-case names of the header columns
}

func (n *names) find(name []byte) rowName {
	if known, ok := n.known[string(name)]; ok {
		return known
	}
	found := rowName{name: string(name)}
	found.kind = n.kindOf(lowerASCII(found.name))
	if len(name) <= maxNameBytes {
		if n.known == nil {
			n.known = make(map[string]rowName)
		}
		if len(n.known) >= maxNames {
			clear(n.known)
		}
		n.known[found.name] = found
	}
	return found
}

func (n *names) kindOf(lower string) nameKind {
	switch {
	case strings.HasPrefix(lower, prefixCloudEvents), strings.HasPrefix(lower, prefixDeadLetter),
		slices.Contains(ourNames, lower), slices.Contains(n.columns, lower):
		return nameOurs
	}
	if i := slices.Index(contextNames[:], lower); i >= 0 {
		return nameContext + nameKind(i)
	}
	return nameFree
}
