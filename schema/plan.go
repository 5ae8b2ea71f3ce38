package schema

import (
	"fmt"
	"strings"

	"github.com/tailer-relay/tailer/decoder"
)

// Mapping names the column behind each role of an outbox row. An empty name
// means the role is not mapped. Names stand as in the catalogue, without case
// folding.
type Mapping struct {
	ID, Key, Type, Payload, Headers, OccurredAt, CorrelationID, CausationID, Traceparent, Tenant, AggregateType string
	HeaderColumns                                                                                               []HeaderColumn
	// Debezium renders header columns, and bpchar in id and key, as the
	// Outbox Event Router does; see column.go.
	Debezium bool
}

// HeaderColumn sends a column's value under a header name.
type HeaderColumn struct{ Header, Column string }

// Plan says where each role's value stands in the rows of one relation, and
// how it is rendered. It is immutable; a relation sent again after DDL needs a
// new one, since columns may have moved.
type Plan struct {
	table string
	names []string // column names in wire order, for errors
	width int      // Invariant: every index below is < width

	id, key, typ, payload, headers cell
	correlation, causation, trace  cell
	tenant, aggregateType          cell
	occurredAt                     cell
	headerColumns                  []cell
	used                           []int // wire indexes that any role reads, each once
}

// cell is one role's place and rendering.
type cell struct {
	index  int // -1: not mapped
	format format
	digits int // of a second's fraction, where the format has one
}

// Row is one outbox row by role. Its values are borrowed: they point into the
// frame the row was decoded from or into the Row's own scratch, and are valid
// until the next call of Plan.Row with the same Row or until the frame's
// memory is reused, whichever comes first. nil is NULL or not mapped; an empty
// value is never nil.
type Row struct {
	ID, Key, Type, Payload, Headers, CorrelationID, CausationID, Traceparent, Tenant, AggregateType []byte
	// OccurredAt is the instant as RFC 3339 in UTC with six digits, nil where
	// the column holds none that has such a form (infinity, BC, a year above
	// 9999, text that is no timestamp).
	OccurredAt []byte
	// OccurredAtText is the column's own text, whatever it says.
	OccurredAtText []byte
	// HeaderColumns are in the order of Mapping.HeaderColumns.
	HeaderColumns [][]byte

	scratch []byte // what had to be rendered anew; grows to the largest row and stays
}

// PlanError is a mapping that a relation cannot serve. A person has to change
// the configuration, the table or the publication.
type PlanError struct {
	Table  string   // schema.table
	Role   string   // "payload", or `header "x"` for a header column
	Column string   // what the mapping asked for
	Have   []string // the columns the server sends
}

func (e *PlanError) Error() string {
	have := "no columns at all"
	if len(e.Have) > 0 {
		have = strings.Join(e.Have, ", ")
	}
	return fmt.Sprintf("column %q (role %s) is not in %s; it has %s", e.Column, e.Role, e.Table, have)
}

// Hint says what to look at: a column may exist in the table and still be
// missing from the stream.
func (e *PlanError) Hint() string {
	return "map another column under outbox.columns or outbox.header_columns, or add it to the publication's column list; before PostgreSQL 18 a generated column is never sent"
}

// Compile looks up every mapped column of rel by name and chooses its
// rendering by type OID.
func (m Mapping) Compile(rel *decoder.Relation) (*Plan, error) {
	p := &Plan{table: rel.Namespace + "." + rel.Name, width: len(rel.Columns)}
	byName := make(map[string]int, len(rel.Columns))
	for i, c := range rel.Columns {
		byName[c.Name] = i
		p.names = append(p.names, c.Name)
	}
	var first error
	seen := make([]bool, len(rel.Columns))
	place := func(role, column string) (int, decoder.RelationColumn) {
		if column == "" {
			return -1, decoder.RelationColumn{}
		}
		i, ok := byName[column]
		if !ok {
			if first == nil {
				first = &PlanError{Table: p.table, Role: role, Column: column, Have: p.names}
			}
			return -1, decoder.RelationColumn{}
		}
		if !seen[i] {
			seen[i] = true
			p.used = append(p.used, i)
		}
		return i, rel.Columns[i]
	}
	for _, r := range []struct {
		role, column string
		to           *cell
		choose       func(oid uint32, debezium bool) format
	}{
		{"id", m.ID, &p.id, identityFormat},
		{"key", m.Key, &p.key, identityFormat},
		{"type", m.Type, &p.typ, textFormat},
		{"payload", m.Payload, &p.payload, payloadFormat},
		{"headers", m.Headers, &p.headers, documentFormat},
		{"occurred_at", m.OccurredAt, &p.occurredAt, instantFormat},
		{"correlation_id", m.CorrelationID, &p.correlation, textFormat},
		{"causation_id", m.CausationID, &p.causation, textFormat},
		{"traceparent", m.Traceparent, &p.trace, textFormat},
		{"tenant", m.Tenant, &p.tenant, textFormat},
		{"aggregatetype", m.AggregateType, &p.aggregateType, textFormat},
	} {
		i, col := place(r.role, r.column)
		*r.to = cell{index: i}
		if i >= 0 {
			r.to.format = r.choose(col.TypeOID, m.Debezium)
		}
	}
	for _, h := range m.HeaderColumns {
		i, col := place(fmt.Sprintf("header %q", h.Header), h.Column)
		c := cell{index: i}
		if i >= 0 {
			c.format, c.digits = headerFormat(col, m.Debezium)
		}
		p.headerColumns = append(p.headerColumns, c)
	}
	if first != nil {
		return nil, first
	}
	return p, nil
}

// Row fills r from the columns of one insert. It allocates only while r's
// scratch grows. An error means the message does not belong to the plan's
// relation or is not what was asked of the server, never a bad value: what
// cannot be rendered stands as its text.
func (p *Plan) Row(cols []decoder.Column, r *Row) error {
	if len(cols) != p.width {
		return fmt.Errorf("row of %s has %d columns, its relation has %d", p.table, len(cols), p.width)
	}
	for _, i := range p.used {
		if k := cols[i].Kind; k != decoder.ColumnText && k != decoder.ColumnNull {
			return p.kindError(i, k)
		}
	}
	if cap(r.scratch) > maxScratch {
		r.scratch = nil // one huge row must not hold its memory for ever
	}
	r.scratch = r.scratch[:0]
	r.ID = r.render(cols, p.id)
	r.Key = r.render(cols, p.key)
	r.Type = r.render(cols, p.typ)
	r.Payload = r.render(cols, p.payload)
	r.Headers = r.render(cols, p.headers)
	r.CorrelationID = r.render(cols, p.correlation)
	r.CausationID = r.render(cols, p.causation)
	r.Traceparent = r.render(cols, p.trace)
	r.Tenant = r.render(cols, p.tenant)
	r.AggregateType = r.render(cols, p.aggregateType)

	r.OccurredAt = nil
	r.OccurredAtText = r.render(cols, cell{index: p.occurredAt.index})
	if r.OccurredAtText != nil && p.occurredAt.format == formatInstant {
		start := len(r.scratch)
		if out, ok := appendRFC3339(r.scratch, trimBlanks(r.OccurredAtText)); ok {
			r.scratch = out
			r.OccurredAt = out[start:len(out):len(out)]
		}
	}

	r.HeaderColumns = r.HeaderColumns[:0]
	for _, c := range p.headerColumns {
		r.HeaderColumns = append(r.HeaderColumns, r.render(cols, c))
	}
	return nil
}

// kindError is apart so that Row stays free of formatting.
func (p *Plan) kindError(i int, kind byte) error {
	switch kind {
	case decoder.ColumnUnchanged:
		return fmt.Errorf("row of %s: column %q is an unchanged TOAST value, which an insert never has", p.table, p.names[i])
	case decoder.ColumnBinary:
		return fmt.Errorf("row of %s: column %q came in binary form, which was not asked for", p.table, p.names[i])
	}
	return fmt.Errorf("row of %s: column %q has unknown kind %q", p.table, p.names[i], kind)
}

// maxScratch is what a Row keeps between rows.
const maxScratch = 4 << 20

// empty is what every empty value points to: not nil, since nil is NULL.
var empty = []byte{}

// emptyObject is an hstore without a pair, whose text is empty.
var emptyObject = []byte("{}")

// render gives one column's value, from the frame where its text stands as it
// is, else from scratch. A value rendered earlier stays valid when scratch
// moves: its slice keeps the old array.
func (r *Row) render(cols []decoder.Column, c cell) []byte {
	if c.index < 0 || cols[c.index].Kind == decoder.ColumnNull {
		return nil
	}
	text := cols[c.index].Data
	if len(text) == 0 {
		if c.format == formatHstore {
			return emptyObject
		}
		return empty
	}
	switch c.format {
	case formatText, formatInstant:
		return text
	case formatTrim:
		return trimBlanks(text)
	}
	start := len(r.scratch)
	out, ok := c.format.append(r.scratch, text, c.digits)
	if !ok {
		return text
	}
	r.scratch = out
	if len(out) == start {
		return empty
	}
	return out[start:len(out):len(out)]
}
