package replication_test

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

// A link on which nothing comes is kept for as long as the server is known to
// be at work, and not longer.
func TestBusyServerMayBeSilent(t *testing.T) {
	_, cfg := outbox(t, postgres.Options{})
	var idle atomic.Bool
	var asked atomic.Int32
	cfg.Busy = func() bool { asked.Add(1); return !idle.Load() }
	s := open(t, senderTimeout(cfg, "2s"))
	pid := int(s.Server().BackendPID)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Next(context.Background()); err != nil {
				ended <- err
				return
			}
		}
	}()
	for asked.Load() < 5 {
		select {
		case err := <-ended:
			t.Fatalf("ended while the server is at work: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	idle.Store(true)
	select {
	case err := <-ended:
		wantTransient(t, err, "nothing heard")
	case <-time.After(20 * time.Second):
		t.Fatal("the stream goes on")
	}
}

// A walsender that decodes a transaction of which nothing is published works;
// one that waits for its client, or for more WAL, does not.
func TestWorking(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{Settings: map[string]string{"logical_decoding_work_mem": "64kB"}})
	server.Exec(t, "CREATE TABLE another (n bigint)")
	s := open(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			if _, err := s.Next(ctx); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { stop(); reading.Wait() }) // before the stream is closed
	conn := server.Conn(t, "postgres")
	wait := func(want bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; {
			working, err := replication.Working(t.Context(), conn, s.Server().BackendPID)
			if err != nil {
				t.Fatal(err)
			}
			if working == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("working is %t and should be %t", working, want)
			}
		}
	}
	wait(false)
	server.Exec(t, "INSERT INTO another SELECT generate_series(1, 200000)")
	wait(true)
	wait(false)
	if working, err := replication.Working(t.Context(), conn, 1); working || err != nil {
		t.Errorf("a process that is not there: %t, %v", working, err)
	}
}
