// Package decoder turns the messages of Postgres's pgoutput plugin, protocol
// version 1, into Go values without copying them.
//
// One Decoder belongs to one replication session and to the goroutine that
// reads it. It does no I/O, starts no goroutine and takes no lock. A session
// that ends takes its Decoder with it: the server sends every relation anew
// after a reconnect, so nothing is worth keeping.
//
// Rules of the package:
//
//   - Nothing from the wire is trusted. Every length and count is compared with
//     the bytes that are left before it is used, and before anything grows.
//     Malformed input gives an *Error, never a panic.
//   - A message must be used up exactly. Left-over bytes mean that the sender
//     and we disagree on the layout, and then no byte of it can be believed.
//   - An unknown kind is an error and never skipped: skipping would lose
//     whatever it stood for.
//   - A row costs no allocation. The columns of an insert point into the frame.
//   - A refused message leaves the Decoder as it was.
package decoder

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// Decoder decodes the messages of one session, in their order. The zero value
// is ready for the session's first message.
type Decoder struct {
	// open is whether a Begin has come without its Commit. The three fields
	// after it describe that transaction and are zero while open is false.
	open       bool
	commitLSN  pglogrepl.LSN
	commitTime time.Time
	xid        uint32

	relations relations
}

// InTransaction reports whether the last message decoded lies inside a
// transaction: after its Begin and before its Commit.
func (d *Decoder) InTransaction() bool { return d.open }

// Decode reads one message into m, overwriting every field of it. The columns
// it fills borrow data's memory; see Message.
//
// A non-nil error is an *Error. It means that the session's bytes can no longer
// be understood; m is then of no use.
func (d *Decoder) Decode(data []byte, m *Message) error {
	if len(data) == 0 {
		return &Error{Reason: "empty message"}
	}
	m.EndLSN = 0
	m.Relation = nil
	m.Columns = m.Columns[:0]

	var err error
	switch data[0] {
	case 'I':
		m.Kind, err = KindInsert, d.insert(data, m)
	case 'B':
		m.Kind, err = KindBegin, d.begin(data)
	case 'C':
		// The Commit still belongs to its transaction, so the fields that
		// describe it are copied before commit closes it.
		m.Kind = KindCommit
		m.CommitLSN, m.CommitTime, m.XID = d.commitLSN, d.commitTime, d.xid
		return d.commit(data, m)
	case 'R':
		m.Kind, err = KindRelation, d.relation(data, m)
	case 'U':
		m.Kind, err = KindUpdate, d.update(data, m)
	case 'D':
		m.Kind, err = KindDelete, d.delete(data, m)
	case 'T':
		m.Kind, err = KindTruncate, d.truncate(data)
	case 'Y':
		m.Kind, err = KindType, d.typ(data)
	case 'O':
		m.Kind, err = KindOrigin, d.origin(data)
	case 'M':
		m.Kind, err = KindMessage, d.message(data)
	default:
		m.Kind, err = 0, refuse(data, 0, "unknown kind of message for protocol version 1")
	}
	m.CommitLSN, m.CommitTime, m.XID = d.commitLSN, d.commitTime, d.xid
	return err
}

// Error says why a message was refused.
type Error struct {
	Kind   byte   // the message's first byte; 0 for an empty message
	Offset int    // where in the message, counted from that byte
	Reason string // what was found there, and what was expected
}

func (e *Error) Error() string {
	if e.Kind == 0 {
		return "pgoutput: " + e.Reason
	}
	return fmt.Sprintf("pgoutput message %q, byte %d: %s", e.Kind, e.Offset, e.Reason)
}

// refuse builds the error for a message that has at least its kind.
func refuse(data []byte, offset int, format string, args ...any) error {
	return &Error{Kind: data[0], Offset: offset, Reason: fmt.Sprintf(format, args...)}
}
