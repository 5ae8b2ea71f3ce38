package replication

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"
)

// tape is a connection that plays the same bytes for ever, 64 KiB at a time.
type tape struct {
	net.Conn
	b []byte
	i int
}

func (c *tape) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), 64<<10)], c.b[c.i:])
	c.i = (c.i + n) % len(c.b)
	return n, nil
}

func (c *tape) SetReadDeadline(time.Time) error { return nil }

// playing is a stream without a server: transactions of one row of 327 bytes.
func playing() *Stream {
	var b []byte
	for range 1000 {
		begin := append([]byte("B"), make([]byte, 20)...)
		b = append(b, wire('d', xlogData(1000, 1000, 5, string(begin)))...)
		b = append(b, wire('d', xlogData(1000, 1000, 5, "I"+string(make([]byte, 335))))...)
		b = append(b, wire('d', xlogData(1100, 1100, 5, "C"+string(make([]byte, 25))))...)
		b = append(b, wire('d', keepalive(1100, 5, 0))...)
	}
	s := &Stream{conn: &tape{b: b}, log: slog.New(slog.DiscardHandler), born: time.Now(), wake: make(chan struct{}, 1), interval: time.Second}
	s.in = newMessageReader((*streamSource)(s))
	s.socket = &backlogConn{}
	return s
}

func TestNextAllocatesNothing(t *testing.T) {
	s := playing()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := s.Next(ctx); err != nil { // a new context costs once
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10_000, func() {
		if _, err := s.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
	if n := testing.AllocsPerRun(1000, func() { s.Confirm(s.Confirmed() + 1) }); n != 0 {
		t.Errorf("%v allocations a confirmation", n)
	}
}

func BenchmarkNext(b *testing.B) {
	s := playing()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
