package postgres

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Sender is a walsender in the hands of a script, which alone may send. The
// questions may be asked by everybody.
type Sender struct {
	Start  pglogrepl.LSN // what START_REPLICATION asked for
	client *pgproto3.Backend
	conn   net.Conn
	script atomic.Pointer[Script] // nil: it does not stream yet

	mu      sync.Mutex
	changed *sync.Cond
	flushed pglogrepl.LSN // the highest flush position the client told
	heard   int           // statuses
	gone    bool
}

// Data sends the payload of a CopyData message.
func (s *Sender) Data(payload []byte) {
	s.client.Send(&pgproto3.CopyData{Data: payload})
	s.gave(s.client.Flush())
}

// Keepalive sends one.
func (s *Sender) Keepalive(end pglogrepl.LSN, reply bool) {
	b := append([]byte{pglogrepl.PrimaryKeepaliveMessageByteID}, make([]byte, 17)...)
	binary.BigEndian.PutUint64(b[1:], uint64(end))
	binary.BigEndian.PutUint64(b[9:], uint64(time.Now().UnixMicro()-sinceEpoch))
	if reply {
		b[17] = 1
	}
	s.Data(b)
}

// sinceEpoch is 2000-01-01, from which Postgres counts microseconds.
const sinceEpoch = 946684800 * 1_000_000

// WAL wraps a message of the output plugin as the server does.
func (s *Sender) WAL(at pglogrepl.LSN, message []byte) {
	b := append([]byte{pglogrepl.XLogDataByteID}, make([]byte, 24)...)
	binary.BigEndian.PutUint64(b[1:], uint64(at))
	binary.BigEndian.PutUint64(b[9:], uint64(at))
	binary.BigEndian.PutUint64(b[17:], uint64(time.Now().UnixMicro()-sinceEpoch))
	s.Data(append(b, message...))
}

// Wire sends bytes that need be no message at all.
func (s *Sender) Wire(b []byte) {
	_, err := s.conn.Write(b)
	s.gave(err)
}

// HangUp ends the connection without a word.
func (s *Sender) HangUp() {
	s.conn.Close()
	s.gave(net.ErrClosed)
}

// gave notes that nobody listens any more.
func (s *Sender) gave(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	s.changed.Broadcast()
}

// hear takes a status of the client.
func (s *Sender) hear(data []byte) {
	if len(data) < 34 || data[0] != pglogrepl.StandbyStatusUpdateByteID {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard++
	s.flushed = max(s.flushed, pglogrepl.LSN(binary.BigEndian.Uint64(data[9:])))
	s.changed.Broadcast()
}

// Flushed is the highest position that the client has confirmed.
func (s *Sender) Flushed() pglogrepl.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushed
}

// Statuses is how many the client has sent.
func (s *Sender) Statuses() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// Await waits for so many more statuses. It is for scripts: no more data flows
// meanwhile. It says whether they came; a script goes on either way.
func (s *Sender) Await(t testing.TB, more int, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.heard + more
	late := time.AfterFunc(limit, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone = true
		s.changed.Broadcast()
	})
	defer late.Stop()
	for s.heard < want && !s.gone {
		s.changed.Wait()
	}
	if s.heard < want {
		t.Errorf("the client sent %d statuses in %v, not %d", more-want+s.heard, limit, more)
	}
	return s.heard >= want
}
