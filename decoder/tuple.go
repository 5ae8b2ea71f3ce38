package decoder

import "encoding/binary"

// changeHeader is what every row message starts with: kind, relation id and the
// kind of the tuple that follows.
const changeHeader = 1 + 4 + 1

// change checks the start of a row message and finds its relation. On success
// data has at least changeHeader bytes.
func (d *Decoder) change(data []byte) (*Relation, error) {
	if len(data) < changeHeader {
		return nil, refuse(data, len(data), "a row needs a relation id and a tuple kind, %d bytes in all", changeHeader)
	}
	if !d.open {
		return nil, refuse(data, 0, "a row outside a transaction")
	}
	id := binary.BigEndian.Uint32(data[1:5])
	rel := d.relations.find(id)
	if rel == nil {
		return nil, refuse(data, 1, "relation %d was never described", id)
	}
	return rel, nil
}

// insert: relation id, 'N', tuple.
func (d *Decoder) insert(data []byte, m *Message) error {
	rel, err := d.change(data)
	if err != nil {
		return err
	}
	if data[5] != 'N' {
		return refuse(data, 5, "tuple kind %q where the new row ('N') belongs", data[5])
	}
	// Growth is bounded by the relation, whose own message bore its size out.
	if n := len(rel.Columns); cap(m.Columns) < n {
		m.Columns = make([]Column, n)
	}
	columns := m.Columns[:len(rel.Columns)]
	if err := lastTuple(data, changeHeader, rel, columns); err != nil {
		return err
	}
	m.Relation, m.Columns = rel, columns
	return nil
}

// update: relation id, optionally the old key ('K') or old row ('O') with a
// tuple, then 'N' and the new one. Only its layout is checked: what an update
// says is not relayed.
func (d *Decoder) update(data []byte, m *Message) error {
	rel, err := d.change(data)
	if err != nil {
		return err
	}
	off := 5
	if kind := data[off]; kind == 'K' || kind == 'O' {
		if off, err = tuple(data, off+1, rel, nil); err != nil {
			return err
		}
		if off == len(data) {
			return refuse(data, off, "the new row is missing")
		}
	}
	if data[off] != 'N' {
		return refuse(data, off, "tuple kind %q where the new row ('N') belongs", data[off])
	}
	if err := lastTuple(data, off+1, rel, nil); err != nil {
		return err
	}
	m.Relation = rel
	return nil
}

// delete: relation id, the old key ('K') or old row ('O') with its tuple.
func (d *Decoder) delete(data []byte, m *Message) error {
	rel, err := d.change(data)
	if err != nil {
		return err
	}
	if kind := data[5]; kind != 'K' && kind != 'O' {
		return refuse(data, 5, "tuple kind %q where the old key ('K') or row ('O') belongs", kind)
	}
	if err := lastTuple(data, changeHeader, rel, nil); err != nil {
		return err
	}
	m.Relation = rel
	return nil
}

// lastTuple is tuple for the one that must use up the message.
func lastTuple(data []byte, off int, rel *Relation, columns []Column) error {
	end, err := tuple(data, off, rel, columns)
	if err == nil && end != len(data) {
		err = refuse(data, end, "%d bytes left over", len(data)-end)
	}
	return err
}

// tuple reads the tuple at off into columns, which is nil where it is only
// stepped over and else has the relation's length. It returns where the tuple
// ends.
//
// This is the hot path: a plain loop over an offset, without a sticky error to
// look at before each field.
func tuple(data []byte, off int, rel *Relation, columns []Column) (int, error) {
	if len(data)-off < 2 {
		return 0, refuse(data, off, "column count needs 2 bytes, %d left", len(data)-off)
	}
	count := int(binary.BigEndian.Uint16(data[off:]))
	if count != len(rel.Columns) {
		return 0, refuse(data, off, "%d columns in a row of %s.%s, which has %d",
			count, rel.Namespace, rel.Name, len(rel.Columns))
	}
	off += 2
	for i := range count {
		if off >= len(data) {
			return 0, refuse(data, off, "the message ends before column %d of %d", i+1, count)
		}
		kind := data[off]
		off++
		var value []byte
		switch kind {
		case ColumnText, ColumnBinary:
			if len(data)-off < 4 {
				return 0, refuse(data, off, "length of column %d needs 4 bytes, %d left", i+1, len(data)-off)
			}
			size := uint64(binary.BigEndian.Uint32(data[off:]))
			off += 4
			if size > uint64(len(data)-off) {
				return 0, refuse(data, off, "column %d has %d bytes, %d left", i+1, size, len(data)-off)
			}
			end := off + int(size)
			value = data[off:end:end]
			off = end
		case ColumnNull, ColumnUnchanged:
		default:
			return 0, refuse(data, off-1, "column %d is of unknown kind %q", i+1, kind)
		}
		if columns != nil {
			columns[i] = Column{Kind: kind, Data: value}
		}
	}
	return off, nil
}
