package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

func TestStatus(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	m := newMetrics("tailer")
	h := newHealth(m)
	addr, stop, err := serveHTTP(t.Context(), "127.0.0.1:0", h, m, newLogger(t.Output(), LogConfig{"info", "text"}))
	if err != nil {
		t.Fatal(err)
	}
	inDir(t, "")
	env := variables("TAILER_POSTGRES_DSN", server.DSN("postgres"), "TAILER_HTTP_LISTEN", addr)
	read := func() (s status, human string) {
		t.Helper()
		code, stdout, stderr := tailer(t.Context(), env, "status", "--json")
		if err := json.Unmarshal([]byte(stdout), &s); code != 0 || err != nil || stderr != "" {
			t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
		}
		code, human, stderr = tailer(t.Context(), env, "status")
		if code != 0 || stderr != "" {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		return s, human
	}

	s, human := read()
	if s.Slot.Exists || s.Publication.Exists || s.Table.Exists || !s.Relay.Answered || s.Relay.Ready || s.Relay.Says != "starting" {
		t.Errorf("nothing is there yet: %+v", s)
	}
	if strings.Count(human, "! missing: tailer init --apply") != 4 || !strings.Contains(human, "not ready  ! starting") {
		t.Errorf("human:\n%s", human)
	}

	if code, stdout, stderr := tailer(t.Context(), env, "init", "--apply"); code != 0 {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	server.Exec(t, "INSERT INTO outbox (type, payload) SELECT 'a.b.v1', jsonb_build_object('n', n) FROM generate_series(1, 20000) n", "CHECKPOINT")
	h.Active()
	s, human = read()
	if !s.Slot.Exists || s.Slot.Active || s.Slot.WALStatus != "reserved" || s.Slot.LagBytes < 1<<20 || s.Slot.RetainedWALBytes < s.Slot.LagBytes || s.Slot.Problem != "" || s.Slot.ConfirmedFlushLSN == "" {
		t.Errorf("slot %+v", s.Slot)
	}
	if p := s.Publication; !p.Exists || !p.HasTable || !p.Insert || !p.ViaRoot || p.Problem != "" {
		t.Errorf("publication %+v", p)
	}
	if s.Table.Kind != "table" || s.Table.Schema != "public" || s.Table.Name != "outbox" || s.Table.Problem != "" {
		t.Errorf("table %+v", s.Table)
	}
	if s.State.Stored || s.State.Problem != "" || s.State.Table != `"public"."tailer_state"` {
		t.Errorf("state %+v", s.State)
	}
	if !s.Relay.Ready || s.Relay.Says != "active" || s.Relay.Asked != "http://"+addr+"/readyz" {
		t.Errorf("relay %+v", s.Relay)
	}
	if strings.Contains(human, "!") || !strings.Contains(human, "MiB") || !strings.Contains(human, "ready, active") {
		t.Errorf("human:\n%s", human)
	}

	// A slot in use names the process that serves its holder.
	cfg, err := loadConfig("", env, nil, forDatabase)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := replication.Open(t.Context(), streamConfig(cfg), newLogger(t.Output(), cfg.Log))
	if err != nil {
		t.Fatal(err)
	}
	s, human = read()
	pid := stream.Server().BackendPID
	if !s.Slot.Active || s.Slot.ActivePID != int32(pid) || !strings.Contains(human, "in use by server process "+strconv.Itoa(int(pid))) {
		t.Errorf("held by %d: %+v\n%s", pid, s.Slot, human)
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Error(err)
	}
	stop(t.Context())
	s, human = read()
	if s.Relay.Answered || s.Relay.Error == "" || !strings.Contains(human, "no answer: ") {
		t.Errorf("relay %+v", s.Relay)
	}

	server.Exec(t, "ALTER TABLE outbox DROP COLUMN headers", "ALTER PUBLICATION tailer SET (publish = 'delete')")
	s, _ = read()
	if s.Table.Problem != "it lacks columns (headers: headers)" || s.Publication.Problem != "it does not publish inserts" {
		t.Errorf("table %+v, publication %+v", s.Table, s.Publication)
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 8 << 20: "8.0 MiB", 3 << 40: "3.0 TiB", 5 << 50: "5120.0 TiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
