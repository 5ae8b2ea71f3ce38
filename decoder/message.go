package decoder

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Kind is the kind of a message. The zero Kind belongs to none.
type Kind uint8

// The kinds of protocol version 1.
const (
	KindBegin Kind = iota + 1
	KindCommit
	KindRelation
	KindType
	KindInsert
	KindUpdate
	KindDelete
	KindTruncate
	KindOrigin
	KindMessage
)

var kindNames = [...]string{
	"unknown", "begin", "commit", "relation", "type", "insert",
	"update", "delete", "truncate", "origin", "message",
}

// String is the kind's name in lower case, fit for a metric label.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return kindNames[0]
	}
	return kindNames[k]
}

// Message is one decoded message. The caller keeps one and passes it to every
// Decode, which reuses the memory of Columns.
//
// Columns and the bytes they point to are borrowed: they are valid until the
// next Decode with this Message or until the frame's memory is reused,
// whichever comes first. Everything else may be kept.
type Message struct {
	Kind Kind

	// CommitLSN is the transaction's commit LSN: the Begin's final LSN, which
	// the Commit must repeat. It is set on every message inside the
	// transaction, Begin and Commit included, and 0 outside.
	CommitLSN pglogrepl.LSN

	// EndLSN is where the transaction's commit record ends: what may be
	// confirmed once the transaction is done with. Only on a Commit.
	EndLSN pglogrepl.LSN

	// CommitTime is the transaction's commit time in UTC, to the microsecond.
	// Like XID it is set wherever CommitLSN is, and zero elsewhere.
	CommitTime time.Time
	XID        uint32

	// Relation is the new definition on a Relation message, and on an Insert,
	// Update or Delete the table's definition at that moment. It is immutable.
	// A changed definition is another pointer; a repeated one is the same, so
	// what was derived from it can be kept by pointer.
	Relation *Relation

	// Columns is the new row of an Insert, in Relation.Columns' order and
	// number. Empty on every other kind.
	Columns []Column
}

// The kinds of a column.
const (
	ColumnNull      byte = 'n'
	ColumnText      byte = 't'
	ColumnUnchanged byte = 'u' // a toasted value that an update did not touch; not sent
	ColumnBinary    byte = 'b'
)

// Column is one value of a row. Data is nil for null and unchanged columns, and
// not nil, though perhaps empty, for the others. It is capped at its length, so
// appending to it copies instead of overwriting the column behind it.
type Column struct {
	Kind byte
	Data []byte
}
