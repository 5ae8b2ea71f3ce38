package replication

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The walsender makes one send of every message, and a client that is woken by
// each of them costs both sides a system call and a context switch a message.
// During a backlog the kernel is therefore told to wake us only when lowat
// bytes wait (SO_RCVLOWAT). Caught up, every byte must leave at once, so it is
// engaged by the rate of arrival and given up by the first read that a backlog
// would have filled in time.
const (
	lowat = 64 << 10 // below, the kernel wakes too often; above, nothing is gained

	// A backlog fills lowat in 1 to 3 ms. fallback is the longest that a
	// message can wait for others behind it, once at the end of a backlog.
	fallback = 5 * time.Millisecond

	// Engaged when engageBytes arrive within engageWindow: 8 MB/s, a third of
	// what a walsender sends to a plain read loop.
	engageBytes  = 32 << 10
	engageWindow = 4 * time.Millisecond

	// A load close to the threshold must not pay the fallback again and again:
	// after an engagement that ended early the next has to wait, longer each time.
	minHoldoff = 10 * time.Millisecond
	maxHoldoff = 640 * time.Millisecond
	worthwhile = 16 // reads that make an engagement a good one

	// A caller with a smaller buffer than smallRead is served from one of readAhead.
	smallRead = 16 << 10
	readAhead = 128 << 10
)

// backlogConn is a TCP connection that batches its reads during a backlog. It
// sits below TLS, where a message is a record and a record is a read.
//
// Read has one caller at a time; the other methods may be called by anyone.
type backlogConn struct {
	net.Conn
	raw syscall.RawConn

	engaged atomic.Bool

	// Owned by the reader.
	window     time.Time // when the bytes of rate began to count
	rate       int
	fills      int // reads of the current engagement
	holdoff    time.Duration
	engageFrom time.Time

	// ahead[r:w] was read for a caller whose own buffer was small: TLS reads
	// record by record.
	ahead []byte
	r, w  int

	mu sync.Mutex
	// owner is the read deadline that the owner set, zero for none. The
	// socket's own deadline is never later.
	owner time.Time
}

// newBacklogConn wraps c if it is a TCP connection on a system that knows
// SO_RCVLOWAT as needed here; else it returns nil.
func newBacklogConn(c net.Conn) *backlogConn {
	if !lowatSupported {
		return nil
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil // on Unix sockets the option has no effect
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return &backlogConn{Conn: tcp, raw: raw}
}

func (c *backlogConn) Read(p []byte) (int, error) {
	if c.r < c.w {
		n := copy(p, c.ahead[c.r:c.w])
		c.r += n
		return n, nil
	}
	if len(p) >= smallRead || len(p) == 0 {
		return c.read(p)
	}
	if c.ahead == nil {
		c.ahead = make([]byte, readAhead)
	}
	n, err := c.read(c.ahead)
	c.r, c.w = 0, n
	if n == 0 {
		return 0, err
	}
	c.r = copy(p, c.ahead[:n])
	return c.r, nil // a socket's error comes again with the next read
}

// read reads from the socket, however long the owner's deadline lets it.
func (c *backlogConn) read(p []byte) (int, error) {
	for {
		engaged := c.engaged.Load()
		if engaged {
			if err := c.limit(time.Now().Add(fallback)); err != nil {
				return 0, err
			}
		}
		n, err := c.Conn.Read(p)
		if engaged && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.expired() {
			// No backlog any more. What has come meanwhile is there to be read.
			if err := c.disengage(); err != nil {
				return 0, err
			}
			continue
		}
		if n > 0 {
			c.observe(n)
		}
		return n, err
	}
}

// observe decides by the rate of arrival whether there is a backlog.
func (c *backlogConn) observe(n int) {
	if c.engaged.Load() {
		c.fills++
		return
	}
	now := time.Now()
	if now.Sub(c.window) > engageWindow {
		// What this read brought may have waited for long: it says nothing.
		c.window, c.rate = now, 0
		return
	}
	c.rate += n
	if c.rate < engageBytes || now.Before(c.engageFrom) {
		return
	}
	if setLowat(c.raw, lowat) == nil {
		c.fills = 0
		c.engaged.Store(true)
	} else {
		c.engageFrom = now.Add(time.Hour) // not on this socket
	}
}

func (c *backlogConn) disengage() error {
	now := time.Now()
	if c.fills >= worthwhile {
		c.holdoff = 0
	} else {
		c.holdoff = min(max(2*c.holdoff, minHoldoff), maxHoldoff)
	}
	c.engageFrom = now.Add(c.holdoff)
	c.window, c.rate = now, 0
	c.engaged.Store(false)
	if err := setLowat(c.raw, 1); err != nil {
		return err // never stay in a state that delays a lone message
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetReadDeadline(c.owner)
}

// limit sets the socket's deadline, unless the owner's is earlier.
func (c *backlogConn) limit(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.owner.IsZero() && c.owner.Before(t) {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *backlogConn) expired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.owner.IsZero() && !time.Now().Before(c.owner)
}

func (c *backlogConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = t
	return c.Conn.SetReadDeadline(t)
}

func (c *backlogConn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}
