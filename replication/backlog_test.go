//go:build linux

package replication

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// loopback is a TCP connection to itself: what peer writes, the conn reads.
func loopback(t testing.TB) (*backlogConn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newBacklogConn(client)
	if c == nil {
		t.Fatal("a TCP connection is not wrapped")
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return c, server.(*net.TCPConn)
}

// flood writes messages of a row's size until it is stopped.
func flood(peer *net.TCPConn) (stop func()) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		row := make([]byte, 150)
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := peer.Write(row); err != nil {
				return
			}
		}
	})
	return func() {
		close(done)
		peer.SetWriteDeadline(time.Unix(1, 0)) // it may be blocked: nobody reads now
		wg.Wait()
		peer.SetWriteDeadline(time.Time{})
	}
}

// engage reads a flood until the connection takes it for a backlog.
func engage(t *testing.T, c *backlogConn, peer *net.TCPConn, buf []byte) {
	t.Helper()
	c.behind = true
	stop := flood(peer)
	defer stop()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	defer c.SetReadDeadline(time.Time{})
	for !c.engaged.Load() {
		if _, err := c.Read(buf); err != nil {
			t.Fatalf("not engaged: %v", err)
		}
	}
}

// drain reads what is left of a flood.
func drain(t *testing.T, c *backlogConn, buf []byte) {
	t.Helper()
	for {
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Read(buf); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Time{})
			return
		}
	}
}

func TestBacklogBatchesReads(t *testing.T) {
	c, peer := loopback(t)
	buf := make([]byte, readBuffer)
	engage(t, c, peer, buf)
	stop := flood(peer)
	defer stop()
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	// Many reads come early on a busy machine; in a quiet moment most are full ones.
	const window = 100
	for best := 0; best < window/2; {
		full := 0
		for range window {
			n, err := c.Read(buf)
			if err != nil {
				t.Fatalf("of %d reads in a row at most %d brought %d bytes: %v", window, best, lowat, err)
			}
			if n >= lowat {
				full++
			}
		}
		best = max(best, full)
	}
}

func TestBacklogNeedsAge(t *testing.T) {
	c, peer := loopback(t)
	buf := make([]byte, readBuffer)
	stop := flood(peer)
	for range 2000 {
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
		if c.engaged.Load() {
			t.Fatal("engaged although events are young")
		}
	}
	stop()
	drain(t, c, buf)
	// Caught up again, an engagement ends with the next read.
	engage(t, c, peer, buf)
	drain(t, c, buf)
	engage(t, c, peer, buf)
	c.behind = false
	if _, err := peer.Write([]byte("x")); err != nil { // engage may have read everything
		t.Fatal(err)
	}
	if _, err := c.Read(buf); err != nil {
		t.Fatal(err)
	}
	if c.engaged.Load() {
		t.Error("still engaged")
	}
}

func TestBacklogNeedsDensity(t *testing.T) {
	c, peer := loopback(t)
	c.behind = true
	buf := make([]byte, readBuffer)
	// Old events that come one by one, as they do when the server's WAL is
	// flushed late: each leaves at once.
	for range 50 {
		if _, err := peer.Write(make([]byte, 150)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
		if c.engaged.Load() {
			t.Fatal("engaged by lone messages")
		}
	}
	// One large read after a pause of ours says nothing either.
	if _, err := peer.Write(make([]byte, lowat)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * engageWindow)
	if _, err := c.Read(buf); err != nil {
		t.Fatal(err)
	}
	if c.engaged.Load() {
		t.Error("engaged by what had waited")
	}
}

// The end of a backlog: what is less than a low water mark must not stay in
// the kernel for longer than the fallback, and then messages leave at once.
func TestBacklogTail(t *testing.T) {
	c, peer := loopback(t)
	buf := make([]byte, readBuffer)
	engage(t, c, peer, buf)
	drain(t, c, buf)
	var worst time.Duration
	for range 20 {
		engage(t, c, peer, buf)
		// Empty the socket, still engaged, then send a tail.
		for {
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(buf); err != nil {
				break
			}
		}
		c.SetReadDeadline(time.Time{})
		if err := setLowat(c.raw, lowat); err != nil {
			t.Fatal(err)
		}
		c.engaged.Store(true)
		if _, err := peer.Write([]byte("tail")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n, err := c.Read(buf)
		if err != nil || n != 4 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		worst = max(worst, time.Since(began))
		drain(t, c, buf)
		if c.engaged.Load() {
			t.Fatal("engaged at rest")
		}
	}
	if worst > 500*time.Millisecond { // 5 ms, and a busy machine's scheduler
		t.Errorf("a tail waited for %v", worst)
	}
	// At rest: many lone messages, each with its own answer. With the low
	// water mark left on, every one of them would cost the fallback.
	go io.Copy(peer, peer)
	began := time.Now()
	const rounds = 1000
	for range rounds {
		if _, err := c.Write([]byte("lone")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf[:4]); err != nil {
			t.Fatal(err)
		}
	}
	if each := time.Since(began) / rounds; each > fallback/2 {
		t.Errorf("a lone message takes %v", each)
	}
}

func TestBacklogKeepsOwnersDeadline(t *testing.T) {
	c, peer := loopback(t)
	buf := make([]byte, readBuffer)
	engage(t, c, peer, buf)
	drain(t, c, buf)

	for _, engaged := range []bool{false, true} {
		restore := func() {
			if engaged {
				c.behind = true
				if err := setLowat(c.raw, lowat); err != nil {
					t.Fatal(err)
				}
			}
			c.engaged.Store(engaged)
		}
		restore()
		began := time.Now()
		c.SetReadDeadline(began.Add(60 * time.Millisecond))
		if n, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) < 60*time.Millisecond {
			t.Errorf("engaged %v: %d, %v after %v", engaged, n, err, time.Since(began))
		}
		// An interruption from another goroutine gets through.
		restore()
		c.SetReadDeadline(time.Time{})
		time.AfterFunc(30*time.Millisecond, func() { c.SetReadDeadline(time.Unix(1, 0)) })
		if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("engaged %v: %v", engaged, err)
		}
		if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("engaged %v: the interruption is forgotten: %v", engaged, err)
		}
		c.SetDeadline(time.Time{})
	}
	// The end of the stream wakes at once, whatever the low water mark.
	c.engaged.Store(false)
	if err := setLowat(c.raw, lowat); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	if _, err := c.Read(buf); err != io.EOF {
		t.Error(err)
	}
}

func TestBacklogReadsAheadForSmallBuffers(t *testing.T) {
	c, peer := loopback(t)
	var want []byte
	for i := range 100_000 {
		want = append(want, byte(i), byte(i>>8))
	}
	go func() {
		peer.Write(want)
		peer.CloseWrite()
	}()
	var got []byte
	buf := make([]byte, 1+2*smallRead)
	for i := 0; ; i++ {
		n, err := c.Read(buf[:1+(i*7919)%len(buf)])
		got = append(got, buf[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes instead of %d, or others", len(got), len(want))
	}
	if n, err := c.Read(nil); n != 0 || err != nil && err != io.EOF {
		t.Errorf("empty read: %d, %v", n, err)
	}
}

func TestOnlyTCPIsWrapped(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if newBacklogConn(a) != nil {
		t.Error("a pipe is wrapped")
	}
}
