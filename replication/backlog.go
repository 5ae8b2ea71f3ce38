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
// bytes wait (SO_RCVLOWAT). Caught up, every byte must leave at once.
//
// Two conditions make a backlog: the events are old when the server sends them,
// which the Stream sees from their commit times, and they come densely. A wait
// for more then adds a fraction to a delay that is there anyway. A rate alone
// would not do: on a busy machine the walsender pauses for longer than a
// message may be held back.
const (
	lowat = 64 << 10 // below, the kernel wakes too often; above, nothing is gained

	// fallback is the longest that a message waits for others behind it. A
	// walsender with a processor to itself fills lowat in 1 to 3 ms.
	fallback = 5 * time.Millisecond

	// Dense is engageBytes within engageWindow.
	engageBytes  = 8 << 10
	engageWindow = 4 * time.Millisecond

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
	behind bool      // events are old when they are sent
	window time.Time // when the bytes of dense began to count
	dense  int

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
		if engaged && !c.behind {
			if err := c.disengage(); err != nil {
				return 0, err
			}
			engaged = false
		}
		if engaged {
			if err := c.limit(time.Now().Add(fallback)); err != nil {
				return 0, err
			}
		}
		n, err := c.Conn.Read(p)
		if engaged && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.expired() {
			// The backlog is at its end, or the server was held up. What has
			// come meanwhile is there to be read.
			if err := c.disengage(); err != nil {
				return 0, err
			}
			continue
		}
		if n > 0 && c.behind && !engaged {
			c.observe(n)
		}
		return n, err
	}
}

// observe engages when bytes come densely.
func (c *backlogConn) observe(n int) {
	now := time.Now()
	if now.Sub(c.window) > engageWindow {
		// What this read brought may have waited for long: it says nothing.
		c.window, c.dense = now, 0
		return
	}
	c.dense += n
	if c.dense >= engageBytes && setLowat(c.raw, lowat) == nil {
		c.engaged.Store(true)
	}
}

func (c *backlogConn) disengage() error {
	c.window, c.dense = time.Now(), 0
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
