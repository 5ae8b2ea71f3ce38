package decoder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// oracle says what Decode must do with each message of a stream. pglogrepl
// parses, and where it is laxer than we are the rules are added here:
//
//   - It ignores bytes left over, markers it does not need and unknown flags.
//     So what it understood is written out again, and must give the same bytes.
//   - It keeps no state. The rules about transactions and known relations are
//     the few lines in accept.
//   - It panics where bytes are missing, which counts as refused, and it
//     allocates whatever a length claims, so those are looked at first.
type oracle struct {
	open      *pglogrepl.BeginMessage
	micros    int64 // the open transaction's commit time as sent
	relations map[uint32]*pglogrepl.RelationMessage
}

func newOracle() *oracle { return &oracle{relations: map[uint32]*pglogrepl.RelationMessage{}} }

// accept returns what Decode must make of a frame, or false if it must refuse it.
func (o *oracle) accept(frame []byte) (Message, bool) {
	parsed := parse(frame)
	if parsed == nil || !bytes.Equal(canonical(parsed, frame), frame) {
		return Message{}, false
	}
	var want Message
	if o.open != nil {
		want.CommitLSN, want.XID, want.CommitTime = o.open.FinalLSN, o.open.Xid, unpack(o.micros)
	}
	row := func(id uint32, tuples ...*pglogrepl.TupleData) bool {
		rel := o.relations[id]
		if o.open == nil || rel == nil {
			return false
		}
		for _, tuple := range tuples {
			if tuple == nil {
				continue
			}
			if len(tuple.Columns) != len(rel.Columns) {
				return false
			}
			for _, c := range tuple.Columns {
				if bytes.IndexByte([]byte("ntub"), c.DataType) < 0 {
					return false
				}
			}
		}
		want.Relation = convert(rel)
		return true
	}
	switch p := parsed.(type) {
	case *pglogrepl.BeginMessage:
		if o.open != nil {
			return want, false
		}
		o.open, o.micros = p, int64(binary.BigEndian.Uint64(frame[9:]))
		want.Kind, want.CommitLSN, want.XID, want.CommitTime = KindBegin, p.FinalLSN, p.Xid, unpack(o.micros)
		if year := want.CommitTime.Year(); year > 1700 && year < 2200 && !want.CommitTime.Equal(p.CommitTime) {
			panic(fmt.Sprintf("the oracle reads commit time %v, not %v", p.CommitTime, want.CommitTime))
		}
	case *pglogrepl.CommitMessage:
		if o.open == nil || p.Flags != 0 || p.CommitLSN != o.open.FinalLSN || p.TransactionEndLSN <= p.CommitLSN {
			return want, false
		}
		o.open = nil
		want.Kind, want.EndLSN = KindCommit, p.TransactionEndLSN
		want.CommitTime = unpack(int64(binary.BigEndian.Uint64(frame[18:])))
	case *pglogrepl.RelationMessage:
		o.relations[p.RelationID] = p
		want.Kind, want.Relation = KindRelation, convert(p)
	case *pglogrepl.InsertMessage:
		want.Kind = KindInsert
		if !row(p.RelationID, p.Tuple) {
			return want, false
		}
		for _, c := range p.Tuple.Columns {
			want.Columns = append(want.Columns, Column{Kind: c.DataType, Data: c.Data})
		}
	case *pglogrepl.UpdateMessage:
		want.Kind = KindUpdate
		if !row(p.RelationID, p.OldTuple, p.NewTuple) {
			return want, false
		}
	case *pglogrepl.DeleteMessage:
		want.Kind = KindDelete
		if !row(p.RelationID, p.OldTuple) {
			return want, false
		}
	case *pglogrepl.TruncateMessage:
		want.Kind = KindTruncate
		return want, o.open != nil
	case *pglogrepl.LogicalDecodingMessage:
		want.Kind = KindMessage
		return want, o.open != nil || frame[1]&1 == 0
	case *pglogrepl.OriginMessage:
		want.Kind = KindOrigin
	case *pglogrepl.TypeMessage:
		want.Kind = KindType
	}
	return want, true
}

func unpack(micros int64) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).
		AddDate(0, 0, int(micros/86_400_000_000)).
		Add(time.Duration(micros%86_400_000_000) * time.Microsecond)
}

func convert(p *pglogrepl.RelationMessage) *Relation {
	rel := &Relation{ID: p.RelationID, Namespace: p.Namespace, Name: p.RelationName, ReplicaIdentity: p.ReplicaIdentity}
	for _, c := range p.Columns {
		rel.Columns = append(rel.Columns, RelationColumn{Key: c.Flags&1 == 1, Name: c.Name, TypeOID: c.DataType, TypeModifier: c.TypeModifier})
	}
	return rel
}

// parse runs pglogrepl, and gives nil for an error or a panic.
func parse(frame []byte) (m pglogrepl.Message) {
	if len(frame) == 0 || oversized(frame) {
		return nil
	}
	// Two minimal messages are below the lengths it asks for.
	switch {
	case len(frame) == 8 && frame[0] == 'I' && bytes.Equal(frame[5:], []byte("N\x00\x00")):
		return &pglogrepl.InsertMessage{RelationID: binary.BigEndian.Uint32(frame[1:]), Tuple: &pglogrepl.TupleData{}}
	case len(frame) == 6 && frame[0] == 'T' && bytes.Equal(frame[1:5], make([]byte, 4)):
		return &pglogrepl.TruncateMessage{Option: frame[5]}
	}
	defer func() {
		if recover() != nil {
			m = nil
		}
	}()
	m, err := pglogrepl.Parse(frame)
	if err != nil {
		return nil
	}
	return m
}

// oversized finds a length or count that pglogrepl would allocate before it
// noticed, by a panic, that the bytes are not there.
func oversized(frame []byte) bool {
	switch frame[0] {
	case 'T':
		return len(frame) >= 5 && uint64(binary.BigEndian.Uint32(frame[1:]))*4 > uint64(len(frame))
	case 'I', 'U', 'D':
	default:
		return false
	}
	rest := frame[min(len(frame), 5):]
	for len(rest) >= 3 { // a tuple kind and a column count
		columns := int(binary.BigEndian.Uint16(rest[1:]))
		rest = rest[3:]
		for ; columns > 0 && len(rest) > 0; columns-- {
			kind := rest[0]
			rest = rest[1:]
			if kind != 't' && kind != 'b' {
				continue
			}
			if len(rest) < 4 {
				return false
			}
			size := uint64(binary.BigEndian.Uint32(rest))
			if size > uint64(len(rest)-4) {
				return true
			}
			rest = rest[4+size:]
		}
	}
	return false
}

// canonical writes a parsed message. Times are taken from the frame, because
// pglogrepl's overflow outside the years 1678 to 2262, and so are the flags of
// a logical message, of which it keeps one.
func canonical(parsed pglogrepl.Message, frame []byte) []byte {
	b := []byte{byte(parsed.Type())}
	switch p := parsed.(type) {
	case *pglogrepl.BeginMessage:
		return beginFrame(p.FinalLSN, int64(binary.BigEndian.Uint64(frame[9:])), p.Xid)
	case *pglogrepl.CommitMessage:
		b = commitFrame(p.CommitLSN, p.TransactionEndLSN, int64(binary.BigEndian.Uint64(frame[18:])))
		b[1] = p.Flags
	case *pglogrepl.OriginMessage:
		b = str(u64(b, uint64(p.CommitLSN)), p.Name)
	case *pglogrepl.TypeMessage:
		b = str(str(u32(b, p.DataType), p.Namespace), p.Name)
	case *pglogrepl.RelationMessage:
		b = append(str(str(u32(b, p.RelationID), p.Namespace), p.RelationName), p.ReplicaIdentity)
		b = u16(b, p.ColumnNum)
		for _, c := range p.Columns {
			b = u32(u32(str(append(b, c.Flags), c.Name), c.DataType), uint32(c.TypeModifier))
		}
	case *pglogrepl.InsertMessage:
		b = canonicalTuple(append(u32([]byte{'I'}, p.RelationID), 'N'), p.Tuple)
	case *pglogrepl.UpdateMessage:
		b = u32(b, p.RelationID)
		if p.OldTuple != nil {
			b = canonicalTuple(append(b, p.OldTupleType), p.OldTuple)
		}
		b = canonicalTuple(append(b, 'N'), p.NewTuple)
	case *pglogrepl.DeleteMessage:
		b = canonicalTuple(append(u32(b, p.RelationID), p.OldTupleType), p.OldTuple)
	case *pglogrepl.TruncateMessage:
		b = append(u32([]byte{'T'}, p.RelationNum), p.Option)
		for _, id := range p.RelationIDs {
			b = u32(b, id)
		}
	case *pglogrepl.LogicalDecodingMessage:
		b = str(u64(append(b, frame[1]), uint64(p.LSN)), p.Prefix)
		b = append(u32(b, uint32(len(p.Content))), p.Content...)
	}
	return b
}

func canonicalTuple(b []byte, tuple *pglogrepl.TupleData) []byte {
	columns := make([]Column, len(tuple.Columns))
	for i, c := range tuple.Columns {
		columns[i] = Column{Kind: c.DataType, Data: c.Data}
	}
	return appendTuple(b, columns)
}

// compare fails unless Decode did what the oracle says.
func compare(t testing.TB, frame []byte, got *Message, err error, want Message, ok bool) {
	t.Helper()
	if (err == nil) != ok {
		t.Fatalf("%q: error %v, want accepted=%v", frame, err, ok)
	}
	if err != nil {
		e, isError := err.(*Error)
		if !isError || e.Offset < 0 || e.Offset > len(frame) || e.Reason == "" || len(frame) > 0 && e.Kind != frame[0] {
			t.Fatalf("%q: malformed error %#v", frame, err)
		}
		return
	}
	if got.Kind != want.Kind || got.CommitLSN != want.CommitLSN || got.EndLSN != want.EndLSN || got.XID != want.XID ||
		!got.CommitTime.Equal(want.CommitTime) || got.CommitTime.Location() != time.UTC {
		t.Fatalf("%q:\n got %+v\nwant %+v", frame, *got, want)
	}
	if (got.Relation == nil) != (want.Relation == nil) {
		t.Fatalf("%q: relation %+v, want %+v", frame, got.Relation, want.Relation)
	}
	if got.Relation != nil && !sameRelation(got.Relation, want.Relation) {
		t.Fatalf("%q: relation %+v, want %+v", frame, got.Relation, want.Relation)
	}
	if len(got.Columns) != len(want.Columns) {
		t.Fatalf("%q: %d columns, want %d", frame, len(got.Columns), len(want.Columns))
	}
	for i, c := range got.Columns {
		w := want.Columns[i]
		hasData := c.Kind == ColumnText || c.Kind == ColumnBinary
		if c.Kind != w.Kind || !bytes.Equal(c.Data, w.Data) || (c.Data != nil) != hasData || cap(c.Data) != len(c.Data) {
			t.Fatalf("%q: column %d is %c %q, want %c %q", frame, i, c.Kind, c.Data, w.Kind, w.Data)
		}
	}
}

func sameRelation(a, b *Relation) bool {
	if a.ID != b.ID || a.Namespace != b.Namespace || a.Name != b.Name || a.ReplicaIdentity != b.ReplicaIdentity || len(a.Columns) != len(b.Columns) {
		return false
	}
	for i := range a.Columns {
		if a.Columns[i] != b.Columns[i] {
			return false
		}
	}
	return true
}
