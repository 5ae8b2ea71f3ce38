package harness

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// pair is a connection through a proxy, from both of its ends.
func pair(t *testing.T, p *Proxy, server net.Listener) (client, served net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if served, err = server.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); served.Close() })
	return client, served
}

// reads wants a read to end with the text, or with an error that is or is not a
// timeout.
func reads(t *testing.T, from net.Conn, want string, timeout bool) {
	t.Helper()
	limit := 10 * time.Second
	if timeout {
		limit = 100 * time.Millisecond
	}
	from.SetReadDeadline(time.Now().Add(limit))
	buf := make([]byte, 16)
	n, err := from.Read(buf)
	if string(buf[:n]) != want || want == "" && os.IsTimeout(err) != timeout {
		t.Errorf("read %q, %v; want %q, timeout %v", buf[:n], err, want, timeout)
	}
}

func TestProxy(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	p := NewProxy(t, server.Addr().String())

	client, served := pair(t, p, server)
	io.WriteString(client, "there")
	reads(t, served, "there", false)

	p.Freeze()
	io.WriteString(served, "late")
	reads(t, client, "", true)
	p.Thaw()
	reads(t, client, "late", false)

	began := time.Now()
	p.Delay(100 * time.Millisecond)
	io.WriteString(served, "slow")
	reads(t, client, "slow", false)
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("a delayed text came after %v", took)
	}
	p.Delay(0)

	// The server is gone, and the client hears neither that nor anything else.
	p.LoseServer()
	reads(t, served, "", false)
	io.WriteString(client, "into the void")
	reads(t, client, "", true)
	client.Close()

	client, served = pair(t, p, server)
	p.LoseClient()
	reads(t, client, "", false)
	io.WriteString(served, "into the void")
	reads(t, served, "", true)

	p.Refuse(true)
	client, err = net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	reads(t, client, "", false)
	p.Refuse(false)
	client, served = pair(t, p, server)
	io.WriteString(served, "again")
	reads(t, client, "again", false)
	p.Cut()
	reads(t, client, "", false)
}
