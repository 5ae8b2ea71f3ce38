package decoder

// Relation is a published table as its rows are sent: the columns that the
// publication's column list leaves, in the table's order. Immutable.
type Relation struct {
	ID              uint32
	Namespace       string // empty for pg_catalog
	Name            string
	ReplicaIdentity byte // d default, n nothing, f full, i index
	Columns         []RelationColumn

	// wire is the whole message that defined it. The names above are parts of
	// it, and a repetition is recognised by it.
	wire string
}

// RelationColumn is one column of a Relation.
type RelationColumn struct {
	Key          bool // part of the replica identity
	Name         string
	TypeOID      uint32
	TypeModifier int32
}

// maxRelationBytes bounds what a session remembers of relations, by their cost:
// room for some 40,000 outbox tables. In memory it is at most about four times
// that. A server sends a definition once, so forgetting
// one would make its rows unreadable; past the bound the session ends instead,
// and the next one starts with none.
const maxRelationBytes = 16 << 20

// minRelationColumn is the least a column takes in a Relation message: flags, a
// name's zero, type and modifier.
const minRelationColumn = 1 + 1 + 4 + 4

// relations holds the current definition of each relation by its id.
type relations struct {
	byID map[uint32]*Relation
	last *Relation // the one found last: most streams have a single table
	size int       // Invariant: the sum of cost over byID, <= maxRelationBytes
}

// cost is what a definition of so many bytes on the wire counts for: those, and
// something for the struct and the map, or tables without columns were free.
func cost(wire int) int { return wire + 128 }

func (r *relations) find(id uint32) *Relation {
	if r.last != nil && r.last.ID == id {
		return r.last
	}
	rel := r.byID[id]
	if rel != nil {
		r.last = rel
	}
	return rel
}

func (r *relations) put(rel *Relation, size int) {
	if r.byID == nil {
		r.byID = make(map[uint32]*Relation)
	}
	r.byID[rel.ID] = rel
	r.last = rel
	r.size = size
}

// relation: id, namespace, name, replica identity, columns of flags, name, type
// and modifier each. The server sends one before the first row of a table, and
// again when anything about the table may have changed, also in the middle of a
// transaction.
func (d *Decoder) relation(data []byte, m *Message) error {
	c := newCursor(data)
	id := c.uint32("relation id")
	if c.err != nil {
		return c.err
	}
	old := d.relations.find(id)
	if old != nil && old.wire == string(data) {
		m.Relation = old
		return nil
	}

	// Two passes: the first proves the layout, so that the second can slice
	// one copy of the message without looking, and nothing is built from a
	// count that the bytes do not bear out.
	c.text("namespace")
	c.text("relation name")
	c.uint8("replica identity")
	count := int(c.uint16("column count"))
	if left := len(data) - c.off; c.err == nil && count*minRelationColumn > left {
		return refuse(data, c.off-2, "%d columns do not fit into %d bytes", count, left)
	}
	for range count {
		c.uint8("column flags")
		c.text("column name")
		c.uint32("column type")
		c.uint32("column type modifier")
	}
	if err := c.end(); err != nil {
		return err
	}
	size := d.relations.size + cost(len(data))
	if old != nil {
		size -= cost(len(old.wire))
	}
	if size > maxRelationBytes {
		return refuse(data, 0, "definitions of %d relations exceed %d MiB; publish the outbox table alone",
			len(d.relations.byID)+1, maxRelationBytes>>20)
	}

	rel := buildRelation(data, count)
	d.relations.put(rel, size)
	m.Relation = rel
	return nil
}

// buildRelation reads a message whose layout has been proved.
func buildRelation(data []byte, count int) *Relation {
	rel := &Relation{wire: string(data), Columns: make([]RelationColumn, count)}
	c := newCursor(data)
	name := func() string {
		from, to := c.text("")
		return rel.wire[from:to]
	}
	rel.ID = c.uint32("")
	rel.Namespace = name()
	rel.Name = name()
	rel.ReplicaIdentity = c.uint8("")
	c.uint16("")
	for i := range rel.Columns {
		col := &rel.Columns[i]
		col.Key = c.uint8("")&1 != 0 // the only flag there is; Postgres masks it too
		col.Name = name()
		col.TypeOID = c.uint32("")
		col.TypeModifier = int32(c.uint32(""))
	}
	return rel
}
