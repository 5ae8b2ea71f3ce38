package replication

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// Frame is one message of the replication stream.
//
// Data is lent: it points into the Stream's buffer and is valid until the next
// call of Next.
type Frame struct {
	// Keepalive tells that the frame carries no data, only WALEnd.
	Keepalive bool

	// WALStart is the position the server gave to a data frame. It orders
	// nothing: rows of transactions that overlap come with falling positions.
	WALStart pglogrepl.LSN

	// WALEnd of a keepalive is how far the server has decoded; it may be
	// confirmed once everything received before is settled and no transaction
	// is open. In a data frame it only repeats WALStart.
	WALEnd pglogrepl.LSN

	ReplyRequested bool // keepalive only; already answered by the status writer

	Data []byte // pgoutput message, nil for a keepalive

	sent int64 // by the server's clock: microseconds since 2000
}

const (
	frameXLogData  = 'w'
	frameKeepalive = 'k'

	xlogHeaderLen = 1 + 8 + 8 + 8
	keepaliveLen  = 1 + 8 + 8 + 1
)

// pgEpochUnixMicro is 2000-01-01 00:00:00 UTC, from which Postgres counts microseconds.
const pgEpochUnixMicro = 946684800 * 1_000_000

// parseFrame reads the payload of a CopyData message.
func parseFrame(b []byte) (Frame, error) {
	if len(b) == 0 {
		return Frame{}, &protocolError{"empty replication frame"}
	}
	switch b[0] {
	case frameXLogData:
		if len(b) < xlogHeaderLen {
			return Frame{}, &protocolError{fmt.Sprintf("XLogData frame of %d bytes, its header alone has %d", len(b), xlogHeaderLen)}
		}
		return Frame{
			WALStart: pglogrepl.LSN(binary.BigEndian.Uint64(b[1:])),
			WALEnd:   pglogrepl.LSN(binary.BigEndian.Uint64(b[9:])),
			sent:     int64(binary.BigEndian.Uint64(b[17:])),
			Data:     b[xlogHeaderLen:len(b):len(b)],
		}, nil
	case frameKeepalive:
		if len(b) != keepaliveLen {
			return Frame{}, &protocolError{fmt.Sprintf("keepalive frame of %d bytes instead of %d", len(b), keepaliveLen)}
		}
		return Frame{
			Keepalive:      true,
			WALEnd:         pglogrepl.LSN(binary.BigEndian.Uint64(b[1:])),
			sent:           int64(binary.BigEndian.Uint64(b[9:])),
			ReplyRequested: b[17] != 0,
		}, nil
	}
	return Frame{}, &protocolError{fmt.Sprintf("unknown replication frame %#02x", b[0])}
}

// statusLen is the length of a standby status update: kind, three positions,
// a time and the flag that asks for a reply.
const statusLen = 1 + 8 + 8 + 8 + 8 + 1

// statusFrame is a whole CopyData message with a standby status update in it.
type statusFrame [1 + 4 + statusLen]byte

// fill writes the status. Write, flush and apply are the same position: the
// server keeps WAL for flush, and a write position ahead of it would only
// tempt somebody to read more into it.
func (f *statusFrame) fill(lsn pglogrepl.LSN, now time.Time, reply bool) {
	f[0] = 'd'
	binary.BigEndian.PutUint32(f[1:], 4+statusLen)
	f[5] = 'r'
	binary.BigEndian.PutUint64(f[6:], uint64(lsn))
	binary.BigEndian.PutUint64(f[14:], uint64(lsn))
	binary.BigEndian.PutUint64(f[22:], uint64(lsn))
	binary.BigEndian.PutUint64(f[30:], uint64(now.UnixMicro()-pgEpochUnixMicro))
	f[38] = 0
	if reply {
		f[38] = 1
	}
}
