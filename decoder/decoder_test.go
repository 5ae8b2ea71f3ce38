package decoder

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

var (
	idColumn   = RelationColumn{Key: true, Name: "id", TypeOID: 2950, TypeModifier: -1}
	typeColumn = RelationColumn{Name: "type", TypeOID: 25, TypeModifier: -1}
	outbox     = relationFrame(16384, "public", "outbox", idColumn, typeColumn)
	begin      = beginFrame(0x100, 1_000_001, 42)
	commit     = commitFrame(0x100, 0x130, 1_000_001)
	row        = insertFrame(16384, text("1"), text("a.b.v1"))
)

// TestRefused lists what must end a session, with a part of what it says.
func TestRefused(t *testing.T) {
	inside := [][]byte{outbox, begin}
	update := append(u32([]byte{'U'}, 16384), 'N')
	tests := []struct {
		name   string
		before [][]byte
		frame  []byte
		reason string
	}{
		{"empty", nil, nil, "empty message"},
		{"unknown kind", inside, []byte{'X'}, "unknown kind"},
		{"a kind of protocol 2", inside, []byte("S\x00\x00\x00\x01\x01"), "unknown kind"},
		{"nested begin", inside, begin, "begin of 0/100 inside the transaction of 0/100"},
		{"commit alone", nil, commit, "outside a transaction"},
		{"commit twice", [][]byte{begin, commit}, commit, "outside a transaction"},
		{"commit of another", inside, commitFrame(0x101, 0x130, 0), "ends the transaction of 0/100"},
		{"commit ends where it began", inside, commitFrame(0x100, 0x100, 0), "not above"},
		{"commit flags", inside, append([]byte{'C', 1}, commit[2:]...), "unknown flags 0x01"},
		{"left over", inside, append(commit[:len(commit):len(commit)], 0), "1 bytes left over"},
		{"insert outside", [][]byte{outbox}, row, "outside a transaction"},
		{"update outside", [][]byte{outbox}, appendTuple(update, []Column{text("1"), text("2")}), "outside a transaction"},
		{"truncate outside", nil, []byte("T\x00\x00\x00\x01\x00\x00\x00\x40\x00"), "outside a transaction"},
		{"transactional message outside", nil, []byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x01p\x00\x00\x00\x00\x00"), "outside a transaction"},
		{"undescribed relation", [][]byte{begin}, row, "relation 16384 was never described"},
		{"not a new row", inside, append(u32([]byte{'I'}, 16384), 'K', 0, 2, 'n', 'n'), `tuple kind 'K'`},
		{"delete of a new row", inside, append(u32([]byte{'D'}, 16384), 'N', 0, 2, 'n', 'n'), `tuple kind 'N'`},
		{"update without its new row", inside, append(u32([]byte{'U'}, 16384), 'K', 0, 2, 'n', 'n'), "the new row is missing"},
		{"update with two old rows", inside, append(u32([]byte{'U'}, 16384), 'K', 0, 2, 'n', 'n', 'O', 0, 2, 'n', 'n'), `tuple kind 'O'`},
		{"too few columns", inside, insertFrame(16384, text("1")), "1 columns in a row of public.outbox, which has 2"},
		{"too many columns", inside, append(u32([]byte{'I'}, 16384), 'N', 0xff, 0xff), "65535 columns"},
		{"column kind", inside, insertFrame(16384, text("1"), Column{Kind: 'x'}), `column 2 is of unknown kind 'x'`},
		{"column longer than the message", inside, u32(append(u32([]byte{'I'}, 16384), 'N', 0, 2, 'n', 't'), 1), "column 2 has 1 bytes, 0 left"},
		{"negative column length", inside, u32(append(u32([]byte{'I'}, 16384), 'N', 0, 2, 'n', 't'), 0xffffffff), "column 2 has 4294967295 bytes"},
		{"relation with more columns than bytes", nil, append([]byte("R\x00\x00\x00\x01p\x00t\x00d"), 0xff, 0xff), "65535 columns do not fit into 0 bytes"},
		{"name without its end", nil, []byte("R\x00\x00\x00\x01public"), "namespace has no terminating zero"},
		{"more truncated relations than bytes", inside, []byte("T\xff\xff\xff\xff\x00"), "4294967295 relation ids in 0 bytes"},
		{"logical message longer than the frame", nil, []byte("M\x00\x00\x00\x00\x00\x00\x00\x00\x01p\x00\xff\xff\xff\xff"), "content of 4294967295 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var d Decoder
			decodeAll(t, &d, test.before...)
			var m Message
			err := d.Decode(test.frame, &m)
			var refused *Error
			if !errors.As(err, &refused) || !strings.Contains(refused.Error(), test.reason) {
				t.Fatalf("error %v, want one with %q", err, test.reason)
			}
			if cap(m.Columns) > 2 {
				t.Errorf("grew to %d columns for a message that was refused", cap(m.Columns))
			}
			// The decoder is as it was: what was legal before is still.
			if d.InTransaction() {
				decodeAll(t, &d, outbox, row, commit)
			} else {
				decodeAll(t, &d, outbox, begin, row, commit)
			}
		})
	}
}

// TestPositions follows the fields that describe a transaction over its borders.
func TestPositions(t *testing.T) {
	when := time.Date(2000, 1, 1, 0, 0, 1, 1000, time.UTC)
	notice := []byte("M\x00\x00\x00\x00\x00\x00\x00\x00\x01p\x00\x00\x00\x00\x00")
	var d Decoder
	var m Message
	for _, step := range []struct {
		frame  []byte
		kind   Kind
		inside bool // after it
		want   Message
	}{
		{notice, KindMessage, false, Message{}},
		{begin, KindBegin, true, Message{CommitLSN: 0x100, XID: 42, CommitTime: when}},
		{outbox, KindRelation, true, Message{CommitLSN: 0x100, XID: 42, CommitTime: when}},
		{row, KindInsert, true, Message{CommitLSN: 0x100, XID: 42, CommitTime: when}},
		{notice, KindMessage, true, Message{CommitLSN: 0x100, XID: 42, CommitTime: when}},
		{commit, KindCommit, false, Message{CommitLSN: 0x100, XID: 42, CommitTime: when, EndLSN: 0x130}},
		{notice, KindMessage, false, Message{}},
		{begin, KindBegin, true, Message{CommitLSN: 0x100, XID: 42, CommitTime: when}},
	} {
		if err := d.Decode(step.frame, &m); err != nil {
			t.Fatal(err)
		}
		if m.Kind != step.kind || d.InTransaction() != step.inside || m.CommitLSN != step.want.CommitLSN ||
			m.EndLSN != step.want.EndLSN || m.XID != step.want.XID || m.CommitTime != step.want.CommitTime {
			t.Fatalf("%s: %+v, want %+v", step.kind, m, step.want)
		}
		if (m.Kind == KindInsert) != (len(m.Columns) > 0) {
			t.Fatalf("%s: columns %v", m.Kind, m.Columns)
		}
	}
}

func TestTimestamps(t *testing.T) {
	for micros, want := range map[int64]string{
		0:                         "2000-01-01T00:00:00Z",
		-1:                        "1999-12-31T23:59:59.999999Z",
		762_525_296_789_012:       "2024-02-29T12:34:56.789012Z",
		9_223_371_331_199_999_999: "294276-12-31T23:59:59.999999Z", // the last one Postgres has
	} {
		if got := timestamp(micros).Format("2006-01-02T15:04:05.999999Z07:00"); got != want {
			t.Errorf("%d is %s, want %s", micros, got, want)
		}
	}
}

// TestBorrowed: columns lie in the frame, and cannot be made to overwrite it.
func TestBorrowed(t *testing.T) {
	var d Decoder
	frame := insertFrame(16384, text("one"), text(""))
	m := decodeAll(t, &d, outbox, begin, frame)
	if string(m.Columns[0].Data) != "one" || m.Columns[1].Data == nil || len(m.Columns[1].Data) != 0 {
		t.Fatalf("columns %q", m.Columns)
	}
	before := bytes.Clone(frame)
	_ = append(m.Columns[0].Data, "overwritten"...)
	_ = append(m.Columns[1].Data, "overwritten"...)
	if !bytes.Equal(frame, before) {
		t.Fatal("appending to a column wrote into the frame")
	}
	copy(frame[bytes.Index(frame, []byte("one")):], "two")
	if string(m.Columns[0].Data) != "two" {
		t.Fatal("the column is a copy")
	}
	first := &m.Columns[0]
	if err := d.Decode(row, &m); err != nil || &m.Columns[0] != first {
		t.Fatalf("the next row (error %v) did not reuse the columns", err)
	}
}

// TestRelationChanges: a new definition is a new pointer and leaves the old one
// alone, also inside a transaction; a repeated definition is the same pointer.
func TestRelationChanges(t *testing.T) {
	var d Decoder
	frame := slices.Clone(outbox)
	first := decodeAll(t, &d, frame).Relation
	clear(frame) // a relation borrows nothing
	if again := decodeAll(t, &d, outbox).Relation; again != first {
		t.Error("a repeated definition is a new pointer")
	}
	if m := decodeAll(t, &d, begin, row); m.Relation != first {
		t.Error("the row's relation is not the one described")
	}
	added := relationFrame(16384, "public", "outbox", idColumn, typeColumn, RelationColumn{Name: "tenant", TypeOID: 25, TypeModifier: 9})
	second := decodeAll(t, &d, added).Relation
	if second == first || len(second.Columns) != 3 || second.Columns[2] != (RelationColumn{Name: "tenant", TypeOID: 25, TypeModifier: 9}) {
		t.Errorf("after DDL: %+v", second)
	}
	var m Message
	if err := d.Decode(row, &m); err == nil {
		t.Error("a row of the old definition was accepted")
	}
	if m := decodeAll(t, &d, insertFrame(16384, text("1"), text("a"), Column{Kind: ColumnNull})); m.Relation != second {
		t.Error("the row's relation is not the new one")
	}
	other := decodeAll(t, &d, relationFrame(16385, "", "other", idColumn)).Relation
	if m := decodeAll(t, &d, insertFrame(16384, text("1"), text("a"), text("b"))); m.Relation != second || other == second {
		t.Error("relations are mixed up")
	}
	want := &Relation{ID: 16384, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd', Columns: []RelationColumn{idColumn, typeColumn}}
	if !sameRelation(first, want) {
		t.Errorf("the old definition is now %+v", first)
	}
}

// TestRelationsBounded: what is remembered of relations has an end, and only
// what is current counts.
func TestRelationsBounded(t *testing.T) {
	var d Decoder
	var m Message
	name := strings.Repeat("n", 1<<16)
	for i := range 2 * maxRelationBytes >> 16 {
		frame := relationFrame(1, fmt.Sprint(i), name)
		if err := d.Decode(frame, &m); err != nil {
			t.Fatalf("change %d of one relation: %v", i, err)
		}
	}
	accepted := 1
	for id := uint32(2); ; id++ {
		err := d.Decode(relationFrame(id, "", name), &m)
		if err != nil {
			if !strings.Contains(err.Error(), "publish the outbox table alone") {
				t.Fatal(err)
			}
			break
		}
		accepted++
		if accepted > maxRelationBytes>>16 {
			t.Fatalf("%d relations of %d bytes are remembered", accepted, len(name))
		}
	}
	if accepted < maxRelationBytes>>16-1 {
		t.Fatalf("refused after %d relations of %d bytes", accepted, len(name))
	}
	decodeAll(t, &d, relationFrame(2, "", "small"), outbox, begin, row) // room again
}

func TestCase_S31_HarmlessKindsAreSteppedOver(t *testing.T) {
	seen := map[Kind]int{}
	var d Decoder
	var m Message
	for _, frame := range readFrames(t, "pg18") {
		if err := d.Decode(frame, &m); err != nil {
			t.Fatalf("%x: %v", frame, err)
		}
		seen[m.Kind]++
	}
	for kind := KindBegin; kind <= KindMessage; kind++ {
		if seen[kind] == 0 {
			t.Errorf("the recording holds no %s", kind)
		}
	}
	if d.InTransaction() {
		t.Error("the recording ends inside a transaction")
	}
}

// TestRecordingsHoldEveryTuple: the golden files do not show what is stepped
// over, so the oracle says that each form of it was there to be stepped over.
func TestRecordingsHoldEveryTuple(t *testing.T) {
	for _, name := range captures {
		seen := map[byte]bool{}
		for _, frame := range readFrames(t, name) {
			switch m := parse(frame).(type) {
			case *pglogrepl.UpdateMessage:
				seen[m.OldTupleType] = true
				for _, c := range m.NewTuple.Columns {
					seen[c.DataType] = true
				}
			case *pglogrepl.DeleteMessage:
				seen[m.OldTupleType+'a'-'A'] = true
			case *pglogrepl.InsertMessage:
				for _, c := range m.Tuple.Columns {
					seen[c.DataType] = true
				}
			}
		}
		value := ColumnText
		if name == "pg15-binary" {
			value = ColumnBinary
		}
		for _, kind := range []byte{0, 'K', 'O', 'k', 'o', ColumnNull, ColumnUnchanged, value} {
			if !seen[kind] {
				t.Errorf("%s holds no tuple or column of kind %q", name, kind)
			}
		}
	}
}

func TestCase_D12_PositionsAre64BitNumbers(t *testing.T) {
	ordered := []string{"0/1", "0/FFFFFFFF", "1/0", "1/1", "7FFFFFFF/FFFFFFFF", "80000000/0", "FFFFFFFF/FFFFFFFE", "FFFFFFFF/FFFFFFFF"}
	for i, s := range ordered[:len(ordered)-1] {
		lsn, err := pglogrepl.ParseLSN(s)
		if err != nil {
			t.Fatal(err)
		}
		end, err := pglogrepl.ParseLSN(ordered[i+1])
		if err != nil {
			t.Fatal(err)
		}
		var d Decoder
		m := decodeAll(t, &d, beginFrame(lsn, 0, 1), commitFrame(lsn, end, 0))
		if m.CommitLSN != lsn || m.EndLSN != end || m.CommitLSN.String() != s || m.EndLSN.String() != ordered[i+1] {
			t.Errorf("commit %s end %s, want %s and %s", m.CommitLSN, m.EndLSN, s, ordered[i+1])
		}
		d = Decoder{}
		decodeAll(t, &d, beginFrame(end, 0, 1))
		if err := d.Decode(commitFrame(end, lsn, 0), &m); err == nil {
			t.Errorf("an end of %s was taken to be above %s", lsn, end)
		}
	}
}

func TestKindNames(t *testing.T) {
	seen := map[string]bool{}
	for kind := KindBegin; kind <= KindMessage; kind++ {
		if name := kind.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("kind %d is called %q", kind, name)
		} else {
			seen[name] = true
		}
	}
	if Kind(0).String() != "unknown" || Kind(200).String() != "unknown" {
		t.Error("a kind that is none has a name")
	}
}
