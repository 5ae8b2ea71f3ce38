package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/host"
)

// Wire lies between a kfake and its clients, and is where a test makes the
// network fail: brokers that refuse connections, requests that never arrive,
// answers that are lost although the request took effect. kfake's own faults
// always answer.
//
//	wire := kafka.NewWire(t)
//	fake := kafka.NewFake(t, kafka.FakeOptions{Options: []kfake.Opt{wire.Opt()}})
//	wire.On(func(r *kafka.Request) kafka.Fate { ... })
//
// It has no goroutines; it works in those of kfake's connections.
type Wire struct {
	t testing.TB

	mu   sync.Mutex
	up   *sync.Cond
	down bool
	hook func(*Request) Fate
	open map[*wireConn]struct{}
}

// Request is a request on the wire. Client is the client id.
type Request struct {
	Client string
	kmsg.Request
}

// Fate is what becomes of a request and its answer.
type Fate int

const (
	Pass        Fate = iota
	LoseRequest      // it never arrives, nor does anything after it on its connection, and nothing is closed
	LoseAnswer       // it takes effect; from its answer on nothing comes back on its connection, and nothing is closed
	CutAnswer        // it takes effect, and in place of the answer the connection ends
)

// NewWire makes a wire that passes everything.
func NewWire(t testing.TB) *Wire {
	w := &Wire{t: t, open: map[*wireConn]struct{}{}}
	w.up = sync.NewCond(&w.mu)
	return w
}

// Opt puts the wire in front of a cluster.
func (w *Wire) Opt() kfake.Opt { return kfake.ListenFn(w.listen) }

// On decides about every request from now on; nil passes all. The function runs
// before the broker sees the request, in the connection's own goroutine: it may
// block, which holds back that connection alone, but only until the test ends.
func (w *Wire) On(hook func(*Request) Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = hook
}

// Down ends all connections and refuses new ones, as stopped brokers do.
func (w *Wire) Down() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	w.up.Broadcast()
	for c := range w.open {
		c.Conn.Close()
	}
}

// Up lets clients in again.
func (w *Wire) Up() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
	w.up.Broadcast()
}

// Cut ends all connections; new ones are taken.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.Conn.Close()
	}
}

func (w *Wire) listen(network, address string) (net.Listener, error) {
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if number == "0" {
		// A port that stays ours while nobody listens on it.
		port, err := host.NewPort()
		if err != nil {
			return nil, err
		}
		w.t.Cleanup(port.Release)
		address = fmt.Sprintf("127.0.0.1:%d", port.Number)
	}
	addr, err := net.ResolveTCPAddr(network, address)
	if err != nil {
		return nil, err
	}
	l := &wireListener{wire: w, addr: addr}
	if l.inner, err = net.ListenTCP(network, addr); err != nil {
		return nil, err
	}
	go l.follow()
	return l, nil
}

// wireListener is a listener that listens only while the wire is up.
type wireListener struct {
	wire *Wire
	addr *net.TCPAddr

	// Guarded by the wire's mu.
	inner  *net.TCPListener // nil while down
	closed bool
}

func (l *wireListener) Addr() net.Addr { return l.addr }

func (l *wireListener) Close() error {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.closed = true
	l.wire.up.Broadcast()
	return nil
}

// follow opens and closes the port as the wire goes up and down. It ends with
// the listener.
func (l *wireListener) follow() {
	w := l.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if l.inner != nil && (w.down || l.closed) {
			l.inner.Close()
			l.inner = nil
		}
		if l.closed {
			return
		}
		if l.inner == nil && !w.down {
			inner, err := net.ListenTCP("tcp", l.addr)
			if err != nil {
				w.t.Errorf("the broker at %v cannot listen again: %v", l.addr, err)
				l.closed = true
			}
			l.inner = inner
			w.up.Broadcast()
			continue
		}
		w.up.Wait()
	}
}

func (l *wireListener) Accept() (net.Conn, error) {
	w := l.wire
	for {
		w.mu.Lock()
		for l.inner == nil && !l.closed {
			w.up.Wait()
		}
		inner, closed := l.inner, l.closed
		w.mu.Unlock()
		if closed || inner == nil {
			return nil, net.ErrClosed
		}
		conn, err := inner.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			continue // down, or closed for good: see above
		case err != nil:
			return nil, err
		}
		c := &wireConn{Conn: conn, wire: w, fates: map[int32]Fate{}}
		w.mu.Lock()
		if w.down {
			w.mu.Unlock()
			conn.Close()
			continue
		}
		w.open[c] = struct{}{}
		w.mu.Unlock()
		return c, nil
	}
}

// wireConn reads requests whole and looks at each before it passes it on. kfake
// reads from one goroutine at a time and writes each answer with one Write.
type wireConn struct {
	net.Conn
	wire *Wire

	frame []byte // what is left of the request that is being passed on

	mu    sync.Mutex
	fates map[int32]Fate // by correlation id, of requests that took effect
	mute  bool           // no answer passes any more
}

func (c *wireConn) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.open, c)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}

func (c *wireConn) Read(p []byte) (int, error) {
	if len(c.frame) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.frame)
	c.frame = c.frame[n:]
	return n, nil
}

// next reads a request and decides about it.
func (c *wireConn) next() error {
	var size [4]byte
	if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
		return err
	}
	frame := append(size[:], make([]byte, binary.BigEndian.Uint32(size[:]))...)
	if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
		return err
	}
	c.wire.mu.Lock()
	hook := c.wire.hook
	c.wire.mu.Unlock()
	if hook != nil {
		req, correlation, err := parseRequest(frame[4:])
		if err != nil {
			return err
		}
		switch fate := hook(req); fate {
		case LoseRequest:
			_, err := io.Copy(io.Discard, c.Conn) // until the client gives up
			return errors.Join(io.EOF, err)
		case LoseAnswer, CutAnswer:
			c.mu.Lock()
			c.fates[correlation] = fate
			c.mu.Unlock()
		}
	}
	c.frame = frame
	return nil
}

func parseRequest(body []byte) (*Request, int32, error) {
	r := kbin.Reader{Src: body}
	req := &Request{Request: kmsg.RequestForKey(r.Int16())}
	version, correlation, client := r.Int16(), r.Int32(), r.NullableString()
	if req.Request == nil {
		return nil, 0, errors.New("a request of an unknown kind")
	}
	if client != nil {
		req.Client = *client
	}
	req.SetVersion(version)
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	return req, correlation, req.ReadFrom(r.Src)
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	fate := c.fates[int32(binary.BigEndian.Uint32(p[4:8]))]
	c.mute = c.mute || fate == LoseAnswer
	mute := c.mute
	c.mu.Unlock()
	switch {
	case mute:
		return len(p), nil
	case fate == CutAnswer:
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// Batches are the record batches of a produce request, by topic; none of
// another request. The cluster resolves the ids that topics go by on the wire.
func (r *Request) Batches(c *kfake.Cluster) map[string][]kmsg.RecordBatch {
	produce, ok := r.Request.(*kmsg.ProduceRequest)
	if !ok {
		return nil
	}
	batches := map[string][]kmsg.RecordBatch{}
	for _, topic := range produce.Topics {
		name := topic.Topic
		if info := c.TopicIDInfo(topic.TopicID); name == "" && info != nil {
			name = info.Topic
		}
		for _, partition := range topic.Partitions {
			var b kmsg.RecordBatch
			if b.ReadFrom(partition.Records) == nil {
				batches[name] = append(batches[name], b)
			}
		}
	}
	return batches
}
