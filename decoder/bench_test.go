package decoder

import (
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
)

// orders is an outbox as users have it, and a row of it of 327 bytes.
func orders() (relation, insert []byte) {
	column := func(name string, oid uint32) RelationColumn {
		return RelationColumn{Name: name, TypeOID: oid, TypeModifier: -1}
	}
	relation = relationFrame(16384, "public", "outbox", column("id", 2950), column("aggregate_id", 25), column("event_type", 25),
		column("payload", 3802), column("headers", 3802), column("occurred_at", 1184), column("correlation_id", 25),
		column("causation_id", 25), column("traceparent", 25), column("tenant", 25), column("sent_at", 1184))
	null := Column{Kind: ColumnNull}
	columns := []Column{text("0e37df36-f698-4b1c-9f30-b1e1a1a5b0b4"), text("order-12345"), text("shop.order_placed.v1"),
		text(""), null, text("2024-02-29 12:34:56.789012+00"), null, null, null, null, null}
	columns[3] = text(strings.Repeat("p", 327-len(insertFrame(16384, columns...))))
	return relation, insertFrame(16384, columns...)
}

// TestNoAllocation: no message costs memory, a repeated relation included.
func TestNoAllocation(t *testing.T) {
	relation, insert := orders()
	var d Decoder
	typ := []byte("Y\x00\x00\x40\x02public\x00mood\x00")
	origin := []byte("O\x00\x00\x00\x00\x00\x00\x00\x01elsewhere\x00")
	notice := []byte("M\x00\x00\x00\x00\x00\x00\x00\x00\x01p\x00\x00\x00\x00\x03end")
	truncate := []byte("T\x00\x00\x00\x01\x00\x00\x00\x40\x00")
	nulls := append([]byte{0, 11}, strings.Repeat("n", 11)...)
	update := append(append(append(u32([]byte{'U'}, 16384), 'K'), nulls...), append([]byte{'N'}, insert[6:]...)...)
	remove := append(append(u32([]byte{'D'}, 16384), 'K'), nulls...)
	frames := [][]byte{notice, begin, origin, typ, relation, insert, update, remove, truncate, notice, commit}
	var m Message
	decodeAll(t, &d, relation)
	if allocs := testing.AllocsPerRun(100, func() {
		for _, frame := range frames {
			if err := d.Decode(frame, &m); err != nil {
				t.Fatal(err)
			}
		}
	}); allocs != 0 {
		t.Errorf("a transaction allocates %v times", allocs)
	}
}

func BenchmarkInsert(b *testing.B) {
	relation, insert := orders()
	var d Decoder
	m := decodeAll(b, &d, relation, begin, insert)
	b.SetBytes(int64(len(insert)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(insert, &m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTransaction is a transaction of one row: three messages.
func BenchmarkTransaction(b *testing.B) {
	relation, insert := orders()
	var d Decoder
	m := decodeAll(b, &d, relation, begin, insert, commit)
	b.ReportAllocs()
	for b.Loop() {
		for _, frame := range [...][]byte{begin, insert, commit} {
			if err := d.Decode(frame, &m); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkRelation is a definition sent again unchanged, as after an ANALYZE.
func BenchmarkRelation(b *testing.B) {
	relation, _ := orders()
	var d Decoder
	m := decodeAll(b, &d, relation)
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(relation, &m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInsertPglogrepl is the oracle on the same row, to compare with.
func BenchmarkInsertPglogrepl(b *testing.B) {
	_, insert := orders()
	b.SetBytes(int64(len(insert)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pglogrepl.Parse(insert); err != nil {
			b.Fatal(err)
		}
	}
}
