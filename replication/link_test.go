package replication_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

// senderTimeout sets wal_sender_timeout for the session, as a DSN can.
func senderTimeout(cfg replication.Config, timeout string) replication.Config {
	cfg.DSN += "&wal_sender_timeout=" + timeout
	return cfg
}

// wantTransient checks that a stream ended in a way that a new session mends.
func wantTransient(t *testing.T, err error, words ...string) {
	t.Helper()
	if replication.Classify(err) != replication.Transient {
		t.Errorf("class %v: %v", replication.Classify(err), err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
}

// A reader that is held up by the broker for longer than wal_sender_timeout
// keeps its connection, because statuses do not depend on it.
func TestHeldUpReaderKeepsItsConnection(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	s := open(t, senderTimeout(cfg, "1s"))
	if s.Interval() != 250*time.Millisecond || s.Server().SenderTimeout != time.Second {
		t.Fatalf("interval %v, timeout %v", s.Interval(), s.Server().SenderTimeout)
	}
	server.Exec(t, `INSERT INTO outbox (payload) SELECT repeat('x', 1000) FROM generate_series(1, 50000)`)
	time.Sleep(4 * time.Second) // four times the timeout: what is tested is time passing
	s.Confirm(readRows(t, s, 50000))
	if err := shut(s); err != nil {
		t.Error(err)
	}
}

// A relay whose goroutines are wedged must not look alive: the server cuts it
// off and the slot is free for another.
func TestWedgedRelayIsCutOff(t *testing.T) {
	_, cfg := outbox(t, postgres.Options{})
	var alive atomic.Bool
	alive.Store(true)
	cfg.Alive = alive.Load
	s := open(t, senderTimeout(cfg, "1s"))
	ctx := within(t, 30*time.Second)
	for began := time.Now(); time.Since(began) < 2*time.Second; {
		if _, err := s.Next(ctx); err != nil {
			t.Fatalf("while alive: %v", err)
		}
	}
	alive.Store(false)
	wantTransient(t, readUntilError(t, s, 15*time.Second))
	eventually(t, "the slot is free", func() bool { return !slotState(t, cfg).Active })
}

// proxy forwards connections until it is told to swallow everything.
type proxy struct {
	addr  string
	black atomic.Bool
}

func newProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	forward := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if p.black.Load() {
				continue
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", target)
			if err != nil {
				a.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, a, b)
			mu.Unlock()
			wg.Go(func() { forward(a, b) })
			wg.Go(func() { forward(b, a) })
		}
	})
	return p
}

func TestDeadLinkIsNoticed(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	p := newProxy(t, server.Addr())
	cfg.DSN = fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", p.addr)
	s := open(t, senderTimeout(cfg, "2s"))
	// A quiet link that is alive stays: the server answers our statuses.
	ctx := within(t, 30*time.Second)
	for began := time.Now(); time.Since(began) < 3*time.Second; {
		if _, err := s.Next(ctx); err != nil {
			t.Fatalf("while the link lives: %v", err)
		}
	}
	p.black.Store(true)
	began := time.Now()
	wantTransient(t, readUntilError(t, s, 20*time.Second), "nothing heard")
	if took := time.Since(began); took < 3*s.Interval()-s.Interval() || took > 10*time.Second {
		t.Errorf("noticed after %v, the interval is %v", took, s.Interval())
	}
	if err := shut(s); err != nil {
		t.Error(err)
	}
}

func TestTerminatedBackend(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	s := open(t, cfg)
	server.Exec(t, fmt.Sprintf(`SELECT pg_terminate_backend(%d)`, s.Server().BackendPID))
	wantTransient(t, readUntilError(t, s, 20*time.Second), "57P01")
}

func TestFastShutdown(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	s := open(t, cfg)
	server.Exec(t, `INSERT INTO outbox (payload) VALUES ('x')`)
	s.Confirm(readRows(t, s, 1))
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop("fast") }()
	ctx := within(t, 30*time.Second)
	for {
		f, err := s.Next(ctx)
		if err != nil {
			wantTransient(t, err)
			break
		}
		if f.Keepalive {
			s.Confirm(f.WALEnd) // nothing is outstanding
		}
	}
	shut(s)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	_, err := replication.Open(within(t, 20*time.Second), cfg, quietLog())
	if err == nil {
		t.Fatal("opened on a server that is down")
	}
	wantTransient(t, err)
}

// With events that cannot be acknowledged, a server that shuts down would wait
// for us for ever.
func TestFastShutdownWithEventsOutstanding(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	s := open(t, cfg)
	server.Exec(t, `INSERT INTO outbox (payload) VALUES ('x')`)
	readRows(t, s, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop("fast") }()
	began := time.Now()
	wantTransient(t, readUntilError(t, s, 40*time.Second), "shutting down", "leaving")
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("left after %v: acknowledgements get no time", took)
	}
	shut(s)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if err := server.StartAgain(); err != nil {
		t.Fatal(err)
	}
	readRows(t, open(t, cfg), 1) // it comes again
}

func TestSessionParameters(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{Version: "17"})
	server.Exec(t, `CREATE TABLE odd (a timestamptz, b bytea, c interval, d float8, e regclass, f money)`,
		`ALTER PUBLICATION tailer ADD TABLE odd`)
	for _, set := range []string{"DateStyle = 'German'", "TimeZone = 'Asia/Tokyo'", "bytea_output = 'escape'", "IntervalStyle = 'sql_standard'",
		"extra_float_digits = -5", "client_encoding = 'LATIN1'", "statement_timeout = '1s'", "idle_session_timeout = '1s'", "transaction_timeout = '1s'",
		"idle_in_transaction_session_timeout = '1s'", "search_path = 'public'", "standard_conforming_strings = 'off'"} {
		server.Exec(t, `ALTER ROLE postgres SET `+set)
	}
	// Nor may the DSN, in whatever case.
	cfg.DSN += "&datestyle=SQL&TIMEZONE=Asia%2FTokyo&options=" + strings.ReplaceAll(url.QueryEscape("-c bytea_output=escape -c lc_monetary=C"), "+", "%20")
	s := open(t, cfg)
	server.Exec(t, `INSERT INTO odd VALUES ('2026-01-02 03:04:05.678901+09', decode('00ff', 'hex'), '1 day 2 hours', 0.1::float8 + 0.2::float8, 'public.outbox', 12.5)`)
	ctx := within(t, 20*time.Second)
	var row string
	for row == "" {
		f, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !f.Keepalive && f.Data[0] == 'I' {
			row = string(f.Data)
		}
	}
	for _, want := range []string{"2026-01-01 18:04:05.678901+00", `\x00ff`, "1 day 02:00:00", "0.30000000000000004", "public.outbox", "12.5"} {
		if !strings.Contains(row, want) {
			t.Errorf("%q is not in %q", want, row)
		}
	}
	s.Confirm(s.Confirmed())
	if err := shut(s); err != nil {
		t.Error(err)
	}
}

// The secret is read again for every connection, so that a changed one is used.
func TestPasswordIsReadAtEveryConnect(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{HBA: []string{
		"local all all trust", "host all postgres 127.0.0.1/32 trust", "host all relay 127.0.0.1/32 scram-sha-256"}})
	server.Exec(t, `CREATE ROLE relay LOGIN REPLICATION PASSWORD 'first'`)
	cfg.DSN = server.UserDSN("relay", "stale", "postgres")
	var secret atomic.Value
	secret.Store("first")
	var calls atomic.Int32
	cfg.Password = func() (string, error) { calls.Add(1); return secret.Load().(string), nil }
	s := open(t, cfg)
	if calls.Load() < 2 {
		t.Errorf("%d calls for a stream and its queries", calls.Load())
	}
	if err := shut(s); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, `ALTER ROLE relay PASSWORD 'second'`)
	refused(t, cfg, replication.Auth, "28P01", "postgres.password_file")
	secret.Store("second")
	s = open(t, cfg)
	if err := shut(s); err != nil {
		t.Fatal(err)
	}
	cfg.Password = func() (string, error) { return "", io.ErrClosedPipe }
	refused(t, cfg, replication.Auth, "password")
}

func TestTLSAndUnixSockets(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{TLS: true, HBA: []string{"local all all trust", "host all all 127.0.0.1/32 trust"}})
	files := server.TLS()
	plain := cfg.DSN
	tls := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslcert=%s sslkey=%s ", server.Port(), files.ClientCert, files.ClientKey)
	for name, dsn := range map[string]string{
		"verify-full": tls + "sslmode=verify-full sslrootcert=" + files.CA,
		"unix socket": server.SocketDSN("postgres"),
		// The first host is down, the second is asked for what it is.
		"several hosts": fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=1,%d user=postgres dbname=postgres target_session_attrs=primary sslmode=prefer", server.Port()),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.DSN = dsn
			s := open(t, cfg)
			server.Exec(t, `INSERT INTO outbox (payload) SELECT repeat('x', 300) FROM generate_series(1, 20000)`)
			s.Confirm(readRows(t, s, 20000))
			if name == "verify-full" && server.Query1(t, fmt.Sprintf(`SELECT ssl FROM pg_stat_ssl WHERE pid = %d`, s.Server().BackendPID)) != "t" {
				t.Error("not encrypted")
			}
			if err := shut(s); err != nil {
				t.Error(err)
			}
		})
	}
	cfg.DSN = tls + "sslmode=verify-full sslrootcert=" + files.OtherCA
	if _, err := replication.Open(within(t, 20*time.Second), cfg, quietLog()); replication.Classify(err) != replication.Auth {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
	cfg.DSN = plain + "&target_session_attrs=standby"
	if _, err := replication.Open(within(t, 20*time.Second), cfg, quietLog()); err == nil || replication.Classify(err) != replication.Transient {
		t.Errorf("no host of the kind that is asked for: %v", err)
	}
}
