package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/replication"
)

// SenderTimeout keeps a session busy for several times wal_sender_timeout: with a
// broker that stalls, with one transaction and a slow broker, and with one
// transaction of another table, of which the relay sees nothing. In none of
// them may the server cut the connection off, or the relay give it up: what is
// read again would take as long again.
//
// Seen red with a relay that sends no status while its reader is held back,
// and with one that takes a busy walsender's silence for a dead link.
func SenderTimeout(t *testing.T, env Env) {
	t.Run("broker stalled", func(t *testing.T) {
		t.Parallel()
		senderTimeoutStalled(t, env)
	})
	t.Run("big transaction, slow broker", func(t *testing.T) {
		t.Parallel()
		senderTimeoutSlow(t, env)
	})
	t.Run("big transaction, another table", func(t *testing.T) {
		t.Parallel()
		senderTimeoutUnpublished(t, env)
	})
	t.Run("big transaction, another table, slow server", func(t *testing.T) {
		t.Parallel()
		silentServer(t, env)
	})
}

// shortTimeout is wal_sender_timeout where a case has to outlast it.
const shortTimeout = 2 * time.Second

func (e Env) layImpatient(t testing.TB) *bed {
	t.Helper()
	e.Brokers = nil // the broker's faults are kfake's
	return e.lay(t, bedOptions{settings: map[string]string{
		"wal_sender_timeout":        fmt.Sprint(shortTimeout.Milliseconds()),
		"logical_decoding_work_mem": "64kB", // decoding a large transaction takes longer so
	}})
}

func senderTimeoutStalled(t *testing.T, env Env) {
	b := env.layImpatient(t)
	b.config = b.config.With("delivery.batch_records", 100)
	relay := b.start()
	steady := b.steady(relay)
	release := holdProduce(b)
	// More than both batches: the reader is held back too.
	b.ledger.Insert(t, 0, 1000)
	steady.outlast(t, harness.Span(3*shortTimeout, time.Minute))
	release()
	b.settle()
	steady.assert(t)
	b.finish(relay, 0)
}

func senderTimeoutSlow(t *testing.T, env Env) {
	b := env.layImpatient(t)
	const rows, batch, pause = 30_000, 1000, 250 * time.Millisecond
	b.config = b.config.With("delivery.batch_records", batch)
	b.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.fake.KeepControl()
		b.fake.SleepControl(func() { time.Sleep(pause) }) // the slow broker
		return nil, nil, false
	})
	relay := b.start()
	steady := b.steady(relay)
	began := time.Now()
	b.ledger.Insert(t, 0, rows)
	b.settle()
	if took := time.Since(began); took < 3*shortTimeout {
		t.Errorf("the broker took %v for a transaction that should outlast %v", took, 3*shortTimeout)
	}
	steady.assert(t)
	b.finish(relay, 0)
}

func senderTimeoutUnpublished(t *testing.T, env Env) {
	b := env.layImpatient(t)
	relay := b.start()
	steady := b.steady(relay)
	b.ledger.Insert(t, 0, 1)
	b.pg.Exec(t, "CREATE TABLE another (n bigint, pad text)",
		"INSERT INTO another SELECT g, repeat('x', 50) FROM generate_series(1, 300000) g")
	b.ledger.Insert(t, 0, 1)
	b.settle()
	steady.assert(t)
	b.finish(relay, 0)
}

// silentServer is the same where wal_sender_timeout is as most have it, a
// minute: a walsender that decodes reads and sends nothing for half of that.
// How long it takes is a matter of the machine and its disk, so it is stopped
// in the middle for longer than any silence that ends a session.
func silentServer(t *testing.T, env Env) {
	env.Brokers = nil
	b := env.lay(t, bedOptions{settings: map[string]string{"wal_sender_timeout": "60s", "logical_decoding_work_mem": "64kB"}})
	relay := b.start()
	steady := b.steady(relay)
	b.ledger.Insert(t, 0, 1)
	b.pg.Exec(t, "CREATE TABLE another (n bigint)")
	b.settle()
	conn, pid := b.conn(), int(steady.sender)
	working := func() bool {
		working, err := replication.Working(t.Context(), conn, uint32(pid))
		if err != nil {
			t.Fatal(err)
		}
		return working
	}
	harness.Eventually(t, patience, "the walsender stopped while it decodes", func() bool {
		b.pg.Exec(t, "INSERT INTO another SELECT generate_series(1, 200000)")
		if !working() || syscall.Kill(pid, syscall.SIGSTOP) != nil {
			return false
		}
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
		if working() {
			return true
		}
		syscall.Kill(pid, syscall.SIGCONT)
		return false
	})
	harness.Eventually(t, patience, "12 s of silence", func() bool {
		var silent bool
		err := conn.QueryRow(t.Context(), "SELECT reply_time < now() - interval '12 s' FROM pg_stat_replication WHERE pid = $1", pid).Scan(&silent)
		if err != nil {
			t.Fatal(err)
		}
		return silent
	})
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.ledger.Insert(t, 0, 1)
	b.settle()
	steady.assert(t)
	b.finish(relay, 0)
}

// holdProduce holds back every produce request at the broker until the function
// that it returns is called.
func holdProduce(b *bed) (release func()) {
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	b.t.Cleanup(release)
	b.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.fake.KeepControl()
		b.fake.SleepControl(func() { <-gate })
		return nil, nil, false
	})
	return release
}

// steady is a session that must last: one walsender, and a relay that has not
// tried again.
type steady struct {
	b      *bed
	relay  *harness.Relay
	sender int32
}

func (b *bed) steady(relay *harness.Relay) *steady {
	b.t.Helper()
	s := &steady{b: b, relay: relay}
	s.sender, _ = s.look(b.t, b.conn())
	return s
}

// look reads who serves the slot, and when the relay last spoke to it.
func (s *steady) look(t testing.TB, conn *pgx.Conn) (pid int32, spoke time.Time) {
	t.Helper()
	err := conn.QueryRow(context.Background(), `SELECT pid, coalesce(reply_time, 'epoch') FROM pg_stat_replication
		WHERE pid = (SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1)`, s.b.ledger.Slot()).Scan(&pid, &spoke)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return pid, spoke
}

// outlast waits until the relay has gone on speaking to the same walsender for so long.
func (s *steady) outlast(t testing.TB, d time.Duration) {
	t.Helper()
	conn := s.b.conn()
	_, begin := s.look(t, conn)
	harness.Eventually(t, d+patience, fmt.Sprintf("statuses for %v", d), func() bool {
		pid, spoke := s.look(t, conn)
		if pid != s.sender {
			t.Fatalf("walsender %d has become %d", s.sender, pid)
		}
		return spoke.Sub(begin) >= d
	})
}

// assert fails the test if the session was not the same all the time.
func (s *steady) assert(t testing.TB) {
	t.Helper()
	if pid, _ := s.look(t, s.b.conn()); pid != s.sender || pid == 0 {
		t.Errorf("walsender %d has become %d", s.sender, pid)
	}
	if n, _ := s.relay.Metrics().Sum("tailer_retries_total", `peer="postgres"`); n != 0 {
		t.Errorf("the relay has built %v sessions anew", n)
	}
}
