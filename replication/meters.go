package replication

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pglogrepl"
)

// What a stream concludes from its frames' times and positions. None of it does
// I/O; all of it belongs to the reader.

// ageMeter tells whether events are old when the server sends them. Both times
// are the server's, so its clock need not agree with ours.
type ageMeter struct {
	commit int64 // of the open transaction, microseconds since 2000
	old    bool
}

// Between the two limits the answer stays what it was. Both lie well above
// what a caught-up server on a busy machine takes.
const (
	oldFrom  = 25 * time.Millisecond
	oldUntil = 10 * time.Millisecond
)

func (m *ageMeter) behind(f *Frame) bool {
	// Begin: its kind, the final position, the commit time.
	if len(f.Data) >= 17 && f.Data[0] == 'B' {
		m.commit = int64(binary.BigEndian.Uint64(f.Data[9:]))
	}
	age := time.Duration(f.sent-m.commit) * time.Microsecond
	switch {
	case age >= oldFrom:
		m.old = true
	case age < oldUntil:
		m.old = false
	}
	return m.old
}

// delayMeter finds out when a frame was sent, on our clock. What comes out of a
// socket may have lain there, behind a reader that was held back, or for as long
// as the whole process was frozen; then it is no sign that the server still
// speaks to us. The server's clock need not agree with ours: the frame that was
// the shortest time under way tells how far they are apart.
type delayMeter struct {
	apart int64 // our clock less the server's, nanoseconds
	known bool
}

// sentAt takes our clock when the frame was read, in nanoseconds, and the
// server's when it was sent, in microseconds.
func (m *delayMeter) sentAt(read, sent int64) int64 {
	sent *= int64(time.Microsecond)
	if apart := read - sent; !m.known || apart < m.apart {
		m.apart, m.known = apart, true
	}
	return sent + m.apart
}

// farewell recognises a server that waits for us before it can shut down: it
// asks for a reply again and again at the same position.
type farewell struct {
	at          pglogrepl.LSN
	first, last time.Time
	count       int
}

const (
	// grace is how long we go on then; what is acknowledged meanwhile is
	// confirmed, and a server that has everything ends the stream itself.
	grace = 5 * time.Second
	// A server in normal operation asks once in half its wal_sender_timeout,
	// and never when it hears a status four times in it.
	graceRequests = 50
	graceGap      = time.Second
)

func (f *farewell) asked(now time.Time, at pglogrepl.LSN) (leave bool) {
	if at != f.at || now.Sub(f.last) > graceGap {
		*f = farewell{at: at, first: now}
	}
	f.last = now
	f.count++
	return f.count >= graceRequests && now.Sub(f.first) >= grace
}
