package replication_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

// refused opens a stream that must be refused.
func refused(t testing.TB, cfg replication.Config, class replication.Class, words ...string) {
	t.Helper()
	s, err := replication.Open(within(t, 20*time.Second), cfg, quietLog())
	if err == nil {
		shut(s)
		t.Errorf("opened; wanted %v with %q", class, words)
		return
	}
	if got := replication.Classify(err); got != class {
		t.Errorf("class %v, want %v: %v", got, class, err)
	}
	hint := replication.HintOf(err)
	if hint == "" {
		t.Errorf("no hint: %v", err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error()+" "+hint, word) {
			t.Errorf("%q is not in: %v\nhint: %s", word, err, hint)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	server.Exec(t, `CREATE DATABASE other`, `CREATE TABLE "My Table" (id int)`,
		`CREATE PUBLICATION updates FOR TABLE outbox WITH (publish = 'update,delete')`,
		`CREATE PUBLICATION empty`,
		`CREATE TABLE parted (id int) PARTITION BY RANGE (id)`,
		`CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)`,
		`CREATE PUBLICATION leaves FOR TABLE parted`,
		`SELECT pg_create_physical_replication_slot('physical', true)`,
		`SELECT pg_create_logical_replication_slot('wrong_plugin', 'test_decoding')`,
		`SELECT pg_create_logical_replication_slot('prepared', 'pgoutput', false, true)`,
		`CREATE ROLE plain LOGIN`, `CREATE ROLE nologin REPLICATION`)
	server.ExecIn(t, "other", `SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')`)

	for _, c := range []struct {
		name   string
		change func(*replication.Config)
		class  replication.Class
		words  []string
	}{
		{"no slot", func(c *replication.Config) { c.Slot = "gone" }, replication.Gap, []string{`slot "gone"`, "does not exist", "tailer init --apply"}},
		{"no slot name", func(c *replication.Config) { c.Slot = "No Slot" }, replication.Usage, []string{"postgres.slot"}},
		{"physical slot", func(c *replication.Config) { c.Slot = "physical" }, replication.Usage, []string{"physical"}},
		{"other plugin", func(c *replication.Config) { c.Slot = "wrong_plugin" }, replication.Usage, []string{"test_decoding"}},
		{"other database", func(c *replication.Config) { c.Slot = "elsewhere" }, replication.Usage, []string{`"other"`, `"postgres"`}},
		{"two-phase slot", func(c *replication.Config) { c.Slot = "prepared" }, replication.Usage, []string{"two_phase"}},
		{"no publication", func(c *replication.Config) { c.Publication = "gone" }, replication.Gap, []string{`publication "gone"`, "tailer init --apply"}},
		{"no inserts", func(c *replication.Config) { c.Publication = "updates" }, replication.Usage, []string{`ALTER PUBLICATION "updates" SET (publish = 'insert')`}},
		{"no such table", func(c *replication.Config) { c.Table.Name = "gone" }, replication.Usage, []string{`"public"."gone"`, "outbox.table"}},
		{"no such schema", func(c *replication.Config) { c.Table.Schema = "gone" }, replication.Usage, []string{`"gone"."outbox"`}},
		{"table not published", func(c *replication.Config) { c.Publication = "empty" }, replication.Usage, []string{`ALTER PUBLICATION "empty" ADD TABLE "public"."outbox"`}},
		{"quoted table", func(c *replication.Config) { c.Table.Name = "My Table" }, replication.Usage, []string{`ADD TABLE "public"."My Table"`}},
		{"partitions under their own names", func(c *replication.Config) { c.Publication, c.Table.Name = "leaves", "parted" }, replication.Usage, []string{"publish_via_partition_root = true"}},
		{"no such database", func(c *replication.Config) { c.DSN = server.DSN("gone") }, replication.Usage, []string{`"gone"`, "3D000"}},
		{"no right to replicate", func(c *replication.Config) { c.DSN = server.UserDSN("plain", "", "postgres") }, replication.Usage, []string{"REPLICATION"}},
		{"no login", func(c *replication.Config) { c.DSN = server.UserDSN("nologin", "", "postgres") }, replication.Auth, []string{"LOGIN"}},
		{"unknown parameter", func(c *replication.Config) { c.DSN += "&wall_sender_timeout=1" }, replication.Usage, []string{"wall_sender_timeout"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := cfg
			c.change(&cfg)
			refused(t, cfg, c.class, c.words...)
		})
	}
}

func TestOpenNamesWalLevel(t *testing.T) {
	server := postgres.New(t, postgres.Options{Settings: map[string]string{"wal_level": "replica"}})
	refused(t, config(server), replication.Usage, "wal_level", "rds.logical_replication")
}

func TestOddNames(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	server.Exec(t, `CREATE SCHEMA "My-App"`, `CREATE TABLE "My-App"."Out'box" (id int)`,
		`CREATE PUBLICATION "Outbox Pub,'x""y" FOR TABLE "My-App"."Out'box"`,
		`SELECT pg_create_logical_replication_slot('1slot', 'pgoutput')`)
	cfg := config(server)
	cfg.Slot, cfg.Publication, cfg.Table = "1slot", `Outbox Pub,'x"y`, replication.Table{Schema: "My-App", Name: "Out'box"}
	s := open(t, cfg)
	server.Exec(t, `INSERT INTO "My-App"."Out'box" VALUES (1)`)
	s.Confirm(readRows(t, s, 1))
	if err := shut(s); err != nil {
		t.Fatal(err)
	}
}

func TestInspectPublication(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			server, cfg := outbox(t, postgres.Options{Version: version})
			server.Exec(t, `CREATE TABLE parted (id int, at int) PARTITION BY RANGE (id)`,
				`CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)`,
				`CREATE PUBLICATION root FOR TABLE parted WITH (publish_via_partition_root = true)`,
				`CREATE PUBLICATION leaf FOR TABLE parted_1`,
				`CREATE PUBLICATION everything FOR ALL TABLES`)
			if version == "18" {
				server.Exec(t, `CREATE PUBLICATION part FOR TABLE outbox (id) WHERE (id > 3)`)
			}
			ctx := within(t, 20*time.Second)
			conn, err := replication.Connect(ctx, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			inspect := func(publication, table string) replication.PublicationState {
				t.Helper()
				p, err := replication.InspectPublication(ctx, conn, publication, replication.Table{Schema: "public", Name: table})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			if p := inspect("tailer", "outbox"); !p.Exists || !p.Insert || p.Update || p.Delete || p.Truncate || !p.TableExists ||
				!p.HasTable || p.AllTables || p.RowFilter != "" || p.Columns != nil || p.Partitioned {
				t.Errorf("%+v", p)
			}
			if p := inspect("root", "parted"); !p.HasTable || !p.ViaRoot || !p.Partitioned || p.LeavesOnly || !p.Update {
				t.Errorf("%+v", p)
			}
			if p := inspect("root", "parted_1"); p.HasTable { // its rows come as the root's
				t.Errorf("%+v", p)
			}
			if p := inspect("leaf", "parted"); p.HasTable || !p.LeavesOnly {
				t.Errorf("%+v", p)
			}
			if p := inspect("everything", "outbox"); !p.HasTable || !p.AllTables {
				t.Errorf("%+v", p)
			}
			if p := inspect("gone", "gone"); p.Exists || p.TableExists || p.HasTable {
				t.Errorf("%+v", p)
			}
			if version == "18" {
				if p := inspect("part", "outbox"); p.RowFilter != "(id > 3)" || fmt.Sprint(p.Columns) != "[id]" {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

func TestSlotStatePositions(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	state := slotState(t, cfg)
	if !state.Exists || state.Active || state.Plugin != "pgoutput" || state.Database != "postgres" || state.Lost() ||
		state.WALStatus != "reserved" || state.ConfirmedFlush == 0 || state.RestartLSN == 0 || state.CurrentWAL < state.ConfirmedFlush {
		t.Fatalf("%+v", state)
	}
	lag, retained := state.Lag(), state.Retained()
	server.Exec(t, `INSERT INTO outbox (payload) SELECT repeat('x', 1000) FROM generate_series(1, 1000)`)
	state = slotState(t, cfg)
	if state.Lag() < lag+1e6 || state.Retained() < retained+1e6 || state.Retained() < state.Lag() {
		t.Errorf("lag %d then %d, retained %d then %d", lag, state.Lag(), retained, state.Retained())
	}
	s := open(t, cfg)
	if state := slotState(t, cfg); !state.Active || uint32(state.ActivePID) != s.Server().BackendPID {
		t.Errorf("%+v, the stream's process is %d", state, s.Server().BackendPID)
	}
	cfg.Slot = "gone"
	if state := slotState(t, cfg); state.Exists || state.CurrentWAL == 0 || state.Lag() != 0 || state.Retained() != 0 {
		t.Errorf("%+v", state)
	}
}

func TestSlotHeldByAnother(t *testing.T) {
	_, cfg := outbox(t, postgres.Options{})
	first := open(t, cfg)
	_, err := replication.Open(within(t, 20*time.Second), cfg, quietLog())
	var active *replication.ActiveError
	if !errors.As(err, &active) || active.PID != first.Server().BackendPID || active.Slot != cfg.Slot {
		t.Fatalf("%v", err)
	}
	if replication.Classify(err) != replication.Transient {
		t.Error("a standby would end")
	}
	if err := shut(first); err != nil {
		t.Fatal(err)
	}
	second := open(t, cfg) // the slot is free when Close returns
	if second.Start() < first.Confirmed() {
		t.Errorf("starts at %s, behind %s", second.Start(), first.Confirmed())
	}
}

func TestSlotLost(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{Settings: map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}})
	for range 4 {
		server.Exec(t, `SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))`, `SELECT pg_switch_wal()`, `CHECKPOINT`)
	}
	refused(t, cfg, replication.Gap, "lost", "tailer slot accept-gap, tailer slot drop, and then tailer slot create")
}

// A publication that is created after the slot does not exist in the slot's
// past, and never will.
func TestSlotOlderThanPublication(t *testing.T) {
	for _, version := range []string{"15", "18"} {
		t.Run(version, func(t *testing.T) {
			server := postgres.New(t, postgres.Options{Version: version})
			server.Exec(t, createOutbox,
				`ALTER ROLE postgres SET client_min_messages = 'error'`, // would hide the warning of 18
				`SELECT pg_create_logical_replication_slot('tailer', 'pgoutput')`,
				`INSERT INTO outbox (payload) VALUES ('unreadable')`,
				`CREATE PUBLICATION tailer FOR TABLE outbox WITH (publish = 'insert')`)
			s, err := replication.Open(within(t, 10*time.Second), config(server), quietLog())
			if err == nil { // else the server was faster than our last look at the slot
				err = readUntilError(t, s, 10*time.Second)
				if _, again := s.Next(t.Context()); again != err {
					t.Errorf("the error does not stay: %v", again)
				}
				if err := shut(s); err != nil {
					t.Error(err)
				}
			}
			if replication.Classify(err) != replication.Gap {
				t.Fatalf("class %v: %v", replication.Classify(err), err)
			}
			if !strings.Contains(err.Error(), "older than publication") || !strings.Contains(replication.HintOf(err), "pg_replication_slot_advance('tailer'") {
				t.Errorf("%v\nhint: %s", err, replication.HintOf(err))
			}
			if version == "15" && !strings.Contains(err.Error(), " at 0/") {
				t.Errorf("no position: %v", err)
			}
			eventually(t, "the slot is free", func() bool { return !slotState(t, config(server)).Active })
			// The remedy that the hint names works.
			server.Exec(t, `SELECT pg_replication_slot_advance('tailer', pg_current_wal_lsn())`)
			s = open(t, config(server))
			server.Exec(t, `INSERT INTO outbox (payload) VALUES ('readable')`)
			readRows(t, s, 1)
		})
	}
}
