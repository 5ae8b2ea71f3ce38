package replication_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

const createOutbox = `CREATE TABLE outbox (id bigserial PRIMARY KEY, payload text)`

// outbox is a server with an outbox table, a publication and a slot.
func outbox(t testing.TB, opt postgres.Options) (*postgres.Server, replication.Config) {
	t.Helper()
	server := postgres.New(t, opt)
	server.Exec(t, createOutbox,
		`CREATE PUBLICATION tailer FOR TABLE outbox WITH (publish = 'insert')`,
		`SELECT pg_create_logical_replication_slot('tailer', 'pgoutput')`)
	return server, config(server)
}

func config(server *postgres.Server) replication.Config {
	return replication.Config{
		DSN: server.DSN("postgres"), Slot: "tailer", Publication: "tailer",
		Table: replication.Table{Schema: "public", Name: "outbox"},
	}
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t testing.TB, cfg replication.Config) *replication.Stream {
	t.Helper()
	s, err := replication.Open(t.Context(), cfg, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(s) })
	return s
}

func shut(s *replication.Stream) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.Close(ctx)
}

// within bounds what must come soon.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// commitEnd is the end position of a pgoutput Commit: what may be confirmed.
func commitEnd(data []byte) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(data[10:])) }

// readRows reads until n rows have come and their transaction has committed,
// and returns the position that may be confirmed then.
func readRows(t testing.TB, s *replication.Stream, n int) pglogrepl.LSN {
	t.Helper()
	ctx := within(t, 60*time.Second)
	for rows := 0; ; {
		f, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d rows: %v", rows, n, err)
		}
		if f.Keepalive {
			continue
		}
		switch f.Data[0] {
		case 'I':
			rows++
		case 'C':
			if rows == n {
				return commitEnd(f.Data)
			}
			if rows > n {
				t.Fatalf("%d rows instead of %d", rows, n)
			}
		}
	}
}

// readUntilError reads on and returns how the stream ended.
func readUntilError(t testing.TB, s *replication.Stream, limit time.Duration) error {
	t.Helper()
	ctx := within(t, limit)
	for {
		if _, err := s.Next(ctx); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("the stream did not end within %v", limit)
			}
			return err
		}
	}
}

func slotState(t testing.TB, cfg replication.Config) replication.SlotState {
	t.Helper()
	ctx := within(t, 20*time.Second)
	conn, err := replication.Connect(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	state, err := replication.InspectSlot(ctx, conn, cfg.Slot)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// eventually waits for a condition that the server fulfils in its own time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestStreamDeliversAndConfirms(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	s := open(t, cfg)
	if s.Confirmed() != s.Start() || s.Start() == 0 {
		t.Fatalf("confirmed %s, start %s", s.Confirmed(), s.Start())
	}
	about := s.Server()
	if about.Version < 140000 || about.SystemID == "" || about.Timeline != 1 || about.Database != "postgres" ||
		about.BackendPID == 0 || about.SenderTimeout != time.Minute || about.VersionText == "" {
		t.Errorf("server: %+v", about)
	}
	if s.Interval() != 3*time.Second {
		t.Errorf("interval %v", s.Interval())
	}
	server.Exec(t, `INSERT INTO outbox (payload) VALUES ('one'), ('two')`)
	end := readRows(t, s, 2)

	// Nothing was confirmed, so nothing may move, whatever was received.
	if got := slotState(t, cfg).ConfirmedFlush; got != s.Start() {
		t.Fatalf("the slot moved to %s before anything was confirmed", got)
	}
	s.Confirm(end)
	eventually(t, "the slot follows the watermark", func() bool { return slotState(t, cfg).ConfirmedFlush == end })

	// Neither an older position nor one that was never sent changes anything.
	s.Confirm(s.Start())
	s.Confirm(end + 1<<30)
	if s.Confirmed() != end {
		t.Errorf("watermark %s, want %s", s.Confirmed(), end)
	}
	if time.Since(s.Heard()) > 20*time.Second {
		t.Errorf("last heard %v", s.Heard())
	}
}

func TestCloseLosesNothingConfirmed(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	for round := range 10 {
		s := open(t, cfg)
		server.Exec(t, `INSERT INTO outbox (payload) VALUES ('x')`)
		end := readRows(t, s, 1)
		s.Confirm(end)
		if err := shut(s); err != nil {
			t.Fatal(err)
		}
		state := slotState(t, cfg)
		if state.ConfirmedFlush < end {
			t.Fatalf("round %d: confirmed %s, the slot has %s", round, end, state.ConfirmedFlush)
		}
		if err := shut(s); err != nil { // again
			t.Fatal(err)
		}
		eventually(t, "the slot is free", func() bool { return !slotState(t, cfg).Active })
	}
}

// The clean restart of a server up to 16 forgets positions that were only
// confirmed, which would repeat events after a clean stop of ours.
func TestCloseSurvivesServerRestart(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	s := open(t, cfg)
	server.Exec(t, `INSERT INTO outbox (payload) SELECT 'x' FROM generate_series(1, 100)`)
	end := readRows(t, s, 100)
	s.Confirm(end)
	if err := shut(s); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart("fast"); err != nil {
		t.Fatal(err)
	}
	if state := slotState(t, cfg); state.ConfirmedFlush < end {
		t.Fatalf("confirmed %s, the slot restarted at %s", end, state.ConfirmedFlush)
	}
}

// A server in the middle of a large transaction answers nothing while it can
// send. What was confirmed before must arrive all the same.
func TestCloseInMidTransaction(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	s := open(t, cfg)
	server.Exec(t, `INSERT INTO outbox (payload) VALUES ('small')`,
		`INSERT INTO outbox (payload) SELECT repeat('x', 200) FROM generate_series(1, 900000)`)
	end := readRows(t, s, 1)
	for range 100 {
		if _, err := s.Next(within(t, 30*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	s.Confirm(end)
	began := time.Now()
	if err := shut(s); err != nil {
		t.Fatal(err)
	}
	t.Logf("closed in %v", time.Since(began))
	if state := slotState(t, cfg); state.ConfirmedFlush < end {
		t.Fatalf("confirmed %s, the slot has %s", end, state.ConfirmedFlush)
	}
	s = open(t, cfg)
	readRows(t, s, 900000)
}

func TestNextStopsWithItsContext(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	s := open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Next(ctx); err != nil {
				result <- err
				return
			}
		}
	}()
	cancel()
	select {
	case err := <-result:
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Next does not return")
	}
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("again: %v", err)
	}
	// The stream is whole: another context goes on.
	server.Exec(t, `INSERT INTO outbox (payload) VALUES ('x')`)
	s.Confirm(readRows(t, s, 1))
	if err := shut(s); err != nil {
		t.Fatal(err)
	}
}
