package harness

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes TCP connections on to a server, and is where a test makes the
// network fail. Two goroutines a connection copy; all end with the test.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	thawed  *sync.Cond
	target  string
	frozen  bool
	refuses bool
	delay   time.Duration
	closed  bool
	links   map[*link]struct{}
}

// link is a connection through a proxy.
type link struct {
	client, server net.Conn
	// left is the end that does not know yet that the other one is gone; nil
	// while both live. Guarded by the proxy's mu.
	left net.Conn
}

// NewProxy starts a proxy to the server at target.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, links: map[*link]struct{}{}}
	p.thawed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.thawed.Broadcast()
		p.mu.Unlock()
		listener.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Freeze makes the network a black hole: nothing arrives any more on either
// side, not even the end of a connection.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

// Thaw ends a Freeze; what was under way arrives.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
	p.thawed.Broadcast()
}

// Delay makes whatever is passed on arrive so much later, 32 KiB at a time; 0
// ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refuse ends new connections at once, until it is called with false.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = refuse
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.client.Close()
		l.server.Close()
	}
}

// LoseServer ends all connections towards the server, and the clients are not
// told: what they send goes nowhere, and nothing comes back.
func (p *Proxy) LoseServer() {
	p.lose(func(l *link) (gone, left net.Conn) { return l.server, l.client })
}

// LoseClient ends all connections towards the clients, and the server is not
// told.
func (p *Proxy) LoseClient() {
	p.lose(func(l *link) (gone, left net.Conn) { return l.client, l.server })
}

func (p *Proxy) lose(ends func(*link) (gone, left net.Conn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.left == nil {
			var gone net.Conn
			gone, l.left = ends(l)
			gone.Close()
		}
	}
}

// Redirect sends new connections to another server and ends those to the old one.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Cut()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// pass waits while the network is frozen, and then says whether to go on.
func (p *Proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen && !p.closed {
		p.thawed.Wait()
	}
	return !p.closed
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.pass() {
		return
	}
	p.mu.Lock()
	target, refuses := p.target, p.refuses
	p.mu.Unlock()
	if refuses {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	l := &link{client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.closed {
		client.Close()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	var both sync.WaitGroup
	both.Go(func() { p.copy(l, server, client) })
	p.copy(l, client, server)
	both.Wait()
}

// copy passes on what comes and then the end, neither of them while the network
// is frozen, nor to an end whose other one is lost.
func (p *Proxy) copy(l *link, to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.pass() {
			return
		}
		p.mu.Lock()
		left, delay := l.left, p.delay
		p.mu.Unlock()
		if left == to {
			return
		}
		if n > 0 && left == nil {
			if delay > 0 {
				time.Sleep(delay)
			}
			_, werr := to.Write(buf[:n])
			p.mu.Lock()
			lost := l.left != nil // meanwhile, which is what the error is about
			p.mu.Unlock()
			if werr != nil && !lost {
				err = werr
			}
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}
