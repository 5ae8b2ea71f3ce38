package postgres

import (
	"net"
	"net/url"
	"regexp"
	"sync"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Stage stands in front of a server and plays a walsender that no real one can
// be made to be: everything passes until a client streams from a slot; then a
// script sees each message of the server on its way and sends what it likes
// instead. What the client answers passes, and is remembered.
//
// A connection has two goroutines, one a direction; the script runs on the
// server's. All end with the test.
type Stage struct {
	t        testing.TB
	server   *Server
	script   Script
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	sender *Sender // of the newest stream
	closed bool
}

// Script gets the payload of each CopyData that the server sends. It is lent.
type Script func(s *Sender, data []byte)

// NewStage opens a stage before a server. Streams that begin play the script.
func NewStage(t testing.TB, server *Server, script Script) *Stage {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Stage{t: t, server: server, script: script, listener: listener, conns: map[net.Conn]struct{}{}}
	s.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		s.mu.Lock()
		s.closed = true
		for conn := range s.conns {
			conn.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

// DSN leads to the server by way of the stage.
func (s *Stage) DSN(db string) string {
	u, err := url.Parse(s.server.DSN(db))
	if err != nil {
		s.t.Fatal(err)
	}
	u.Host = s.listener.Addr().String()
	return u.String()
}

// Play lets streams that begin from now on play another script.
func (s *Stage) Play(script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// Sender is the newest stream; nil before there was one.
func (s *Stage) Sender() *Sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sender
}

// keep remembers a connection, so that it ends with the test.
func (s *Stage) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.conns[conn] = struct{}{}
	}
	return !s.closed
}

func (s *Stage) forget(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	conn.Close()
}

func (s *Stage) serve(conn net.Conn) {
	if !s.keep(conn) {
		conn.Close()
		return
	}
	defer s.forget(conn)
	client := pgproto3.NewBackend(conn, conn)
	hello, err := client.ReceiveStartupMessage()
	if err != nil {
		return
	}
	to, err := net.Dial("tcp", s.server.Addr())
	if err != nil {
		return // the server is down, and so are we
	}
	if !s.keep(to) {
		to.Close()
		return
	}
	defer s.forget(to)
	server := pgproto3.NewFrontend(to, to)
	server.Send(hello)
	if server.Flush() != nil {
		return
	}
	if _, ok := hello.(*pgproto3.StartupMessage); !ok {
		return // a cancel request has no answer
	}
	sender := &Sender{client: client, conn: conn}
	sender.changed = sync.NewCond(&sender.mu)
	var both sync.WaitGroup
	both.Go(func() { defer conn.Close(); s.down(sender, server) })
	s.up(sender, server)
	to.Close()
	both.Wait()
}

var startCommand = regexp.MustCompile(`^START_REPLICATION SLOT \S+ LOGICAL ([0-9A-F]+/[0-9A-F]+)`)

// up passes what the client says.
func (s *Stage) up(sender *Sender, server *pgproto3.Frontend) {
	for {
		message, err := sender.client.Receive()
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *pgproto3.Query:
			if start := startCommand.FindStringSubmatch(m.String); start != nil {
				s.begin(sender, start[1])
			}
		case *pgproto3.CopyData:
			sender.hear(m.Data)
		}
		server.Send(message)
		if server.Flush() != nil {
			return
		}
	}
}

func (s *Stage) begin(sender *Sender, start string) {
	lsn, err := pglogrepl.ParseLSN(start)
	if err != nil {
		s.t.Errorf("stage: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sender.Start = lsn
	script := s.script // Play changes the next one's
	sender.script.Store(&script)
	s.sender = sender
}

// down passes what the server says, a stream by way of the script.
func (s *Stage) down(sender *Sender, server *pgproto3.Frontend) {
	for {
		message, err := server.Receive()
		if err != nil {
			return
		}
		if data, ok := message.(*pgproto3.CopyData); ok {
			if script := sender.script.Load(); script != nil {
				(*script)(sender, data.Data)
				continue
			}
		}
		sender.client.Send(message)
		if sender.client.Flush() != nil {
			return
		}
	}
}
