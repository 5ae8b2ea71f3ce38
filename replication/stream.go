package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Table names a table as the catalogue does, without quoting or case folding.
type Table struct{ Schema, Name string }

func (t Table) String() string { return t.Schema + "." + t.Name }

// Config is what a Stream needs to know.
type Config struct {
	DSN         string                 // anything pgconn.ParseConfig understands
	Password    func() (string, error) // called for every new connection; nil: the DSN's own
	Slot        string
	Publication string
	Table       Table                 // what the publication must contain: the root of a partitioned table
	Columns     []Column              // what it must send of the table
	Warn        func(Warning)         // told at every opening; nil: logged
	Alive       func() bool           // while false no status is sent, so that the server cuts a wedged relay off; nil: always
	notice      func(*pgconn.PgError) // told of notices on ordinary connections; nil: nobody
	Busy        func() bool           // whether the server was seen, over another connection, to be at work for this stream: see Working; nil: never
}

// Server is what the server said about itself at connect.
type Server struct {
	Version       int // as server_version_num: 150018
	VersionText   string
	SystemID      string
	Timeline      int32
	Database      string
	BackendPID    uint32        // the walsender's
	Flushed       pglogrepl.LSN // where its WAL ended at connect
	SenderTimeout time.Duration // wal_sender_timeout as it holds for this session; 0: off
}

// Stream is a running START_REPLICATION. See the package's documentation for
// who may call what.
type Stream struct {
	cfg      Config
	log      *slog.Logger
	server   Server
	start    pglogrepl.LSN
	interval time.Duration
	born     time.Time // the zero of clock

	conn   net.Conn
	socket *backlogConn // below conn; nil where reads are not batched
	hijack *pgconn.HijackedConn

	// Owned by the reader, and by Close after it.
	in     messageReader
	err    error // the end of the stream; sticky
	done   <-chan struct{}
	unhook func() bool
	bye    farewell
	age    ageMeter
	delay  delayMeter

	// confirmed is the watermark. Invariant: start <= confirmed <= received; it only grows.
	confirmed atomic.Uint64
	// received is the highest position the server sent.
	received  atomic.Uint64
	requested atomic.Bool  // the server waits for a status
	heard     atomic.Int64 // clock of the last successful read
	said      atomic.Int64 // clock of when the server sent the newest frame
	waiting   atomic.Int64 // clock since which the reader waits in a read; 0: it does not

	// mu guards the read deadline and the reason why it was pulled.
	mu     sync.Mutex
	reason error // why the reader is interrupted for good
	hooked int   // the watched context's number: a hook of an earlier one does nothing

	status   statusFrame   // owned by the status writer, then by Close
	wake     chan struct{} // capacity 1
	closing  chan struct{}
	reported chan struct{} // closed when the status writer has ended

	closed   sync.Once
	closeErr error
}

// Start is where the slot stood when the stream began.
func (s *Stream) Start() pglogrepl.LSN { return s.start }

// Server tells what the server said about itself.
func (s *Stream) Server() Server { return s.server }

// Interval is the time between two statuses that ask the server for a reply.
func (s *Stream) Interval() time.Duration { return s.interval }

// Confirm tells that everything up to lsn is settled: the server may forget it.
// A position not above an earlier one changes nothing. One that the server has
// not sent is refused, because the server would believe it and skip what lies
// before.
func (s *Stream) Confirm(lsn pglogrepl.LSN) {
	for {
		old := s.confirmed.Load()
		if uint64(lsn) <= old {
			return
		}
		if received := s.received.Load(); uint64(lsn) > received {
			s.log.Error("a position beyond what the server sent is not confirmed",
				"lsn", lsn.String(), "received", pglogrepl.LSN(received).String())
			return
		}
		if s.confirmed.CompareAndSwap(old, uint64(lsn)) {
			s.nudge()
			return
		}
	}
}

// Confirmed is the watermark: the highest position given to Confirm.
func (s *Stream) Confirmed() pglogrepl.LSN { return pglogrepl.LSN(s.confirmed.Load()) }

// Heard is when the server sent the newest of what Next has returned, on our
// clock. It stands still while nobody calls Next.
func (s *Stream) Heard() time.Time { return s.born.Add(time.Duration(s.said.Load())) }

// clock is the time since the stream was opened, never 0.
func (s *Stream) clock() time.Duration { return time.Since(s.born) + 1 }

// Read is one wait for the socket, as the messageReader's source.
func (s *streamSource) Read(p []byte) (int, error) {
	s.waiting.Store(int64(s.clockOf()))
	n, err := s.conn.Read(p)
	s.waiting.Store(0)
	if n > 0 {
		s.heard.Store(int64(s.clockOf()))
	}
	return n, err
}

// streamSource keeps Read off the Stream's own method set.
type streamSource Stream

func (s *streamSource) clockOf() time.Duration { return (*Stream)(s).clock() }

// Next returns the next frame, which is lent until the next call. It allocates
// nothing.
//
// When ctx ends, a Next that waits returns its error, and the stream can go on
// with another context; frames that are already here may still be returned
// before. Any other error ends the stream: call Close.
func (s *Stream) Next(ctx context.Context) (Frame, error) {
	if s.err != nil {
		return Frame{}, s.err
	}
	if done := ctx.Done(); done != s.done {
		s.watch(ctx, done)
	}
	for {
		kind, body, err := s.in.message()
		if err != nil {
			return Frame{}, s.readFailed(ctx, err)
		}
		if kind != 'd' {
			if err := s.aside(kind, body); err != nil {
				return Frame{}, s.fail(err)
			}
			continue
		}
		f, err := parseFrame(body)
		if err != nil {
			return Frame{}, s.fail(&Error{Op: "read", Object: "the replication stream", Class: classifyCause(err), Err: err})
		}
		if end := uint64(max(f.WALStart, f.WALEnd)); end > s.received.Load() {
			s.received.Store(end)
		}
		if said := s.delay.sentAt(s.heard.Load(), f.sent); said > s.said.Load() {
			s.said.Store(said)
		}
		if s.socket != nil && !f.Keepalive {
			s.socket.behind = s.age.behind(&f)
		}
		if f.ReplyRequested {
			s.requested.Store(true)
			s.nudge()
			if s.bye.asked(s.born.Add(time.Duration(s.heard.Load())), f.WALEnd) {
				return Frame{}, s.fail(&Error{Op: "read", Object: "the replication stream", Class: Transient,
					Err: fmt.Errorf("the server is shutting down and waits for %d bytes that are not acknowledged yet: leaving, so that it can", int64(f.WALEnd)-int64(s.Confirmed()))})
			}
		}
		return f, nil
	}
}

// release lets go of the context that was watched last.
func (s *Stream) release() {
	if s.unhook != nil {
		s.unhook()
		s.unhook = nil
	}
}

// watch lets the end of ctx interrupt reads. Only a new context costs anything.
func (s *Stream) watch(ctx context.Context, done <-chan struct{}) {
	s.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooked++
	s.done = done
	if s.reason == nil {
		s.conn.SetReadDeadline(time.Time{}) // an error here comes again at the read
	}
	if done == nil {
		return
	}
	number := s.hooked
	s.unhook = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.hooked == number {
			s.conn.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

// interrupt ends the reader's waiting for good.
func (s *Stream) interrupt(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		s.reason = reason
	}
	s.conn.SetReadDeadline(time.Unix(1, 0))
}

// readFailed finds out why a read failed: the caller, the status writer or the link.
func (s *Stream) readFailed(ctx context.Context, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.mu.Lock()
		reason := s.reason
		s.mu.Unlock()
		if reason != nil {
			return s.fail(reason)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return s.fail(&Error{Op: "read", Object: "the replication stream", Class: classifyCause(err), Err: err})
}

func (s *Stream) fail(err error) error {
	s.err = err
	return err
}

// aside handles what comes beside the frames.
func (s *Stream) aside(kind byte, body []byte) error {
	switch kind {
	case 'E':
		var m pgproto3.ErrorResponse
		if err := m.Decode(body); err != nil {
			return &Error{Op: "read", Object: "the replication stream", Class: Auth, Err: err}
		}
		return streamError("stream from", s.cfg, pgconn.ErrorResponseToPgError(&m))
	case 'N':
		var m pgproto3.NoticeResponse
		if err := m.Decode(body); err != nil {
			return &Error{Op: "read", Object: "the replication stream", Class: Auth, Err: err}
		}
		return s.notice(pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(&m)))
	case 'S', 'A':
		return nil // a parameter changed, a NOTIFY: nothing to us
	case 'c', 'C', 'Z':
		// A fast shutdown ends the stream with CommandComplete.
		return &Error{Op: "read", Object: "the replication stream", Class: Transient,
			Err: errors.New("the server ended the stream: it is shutting down")}
	}
	err := &protocolError{fmt.Sprintf("unexpected message %q in the replication stream", kind)}
	return &Error{Op: "read", Object: "the replication stream", Class: classifyCause(err), Err: err}
}

// notice logs a notice, unless it is the one by which PostgreSQL 18 tells that
// it skips rows.
func (s *Stream) notice(n *pgconn.PgError) error {
	if skipsPublication(n) {
		return gapByPublication("stream from", s.cfg, n)
	}
	s.log.Info("notice from the server", "severity", n.Severity, "notice", describe(n))
	return nil
}
