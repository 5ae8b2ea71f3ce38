package main

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

// newKeepers are two relays of the same slot in a database with the tables.
func newKeepers(t *testing.T) (server *postgres.Server, first, second *keeper) {
	t.Helper()
	server = postgres.New(t, postgres.Options{})
	inDir(t, "")
	env := variables("TAILER_POSTGRES_DSN", server.DSN("postgres"))
	cfg, err := loadConfig("", env, nil, forDatabase)
	if err != nil {
		t.Fatal(err)
	}
	tables := stateTablesOf(cfg)
	server.Exec(t, tables.createState(), tables.createGaps())
	keepers := [2]*keeper{}
	for i := range keepers {
		k := &keeper{tables: tables, config: streamConfig(cfg), log: newLogger(t.Output(), cfg.Log)}
		if err := k.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.close)
		keepers[i] = k
	}
	return server, keepers[0], keepers[1]
}

const storedRow = "SELECT confirmed_lsn || ' ' || coalesce(session, 'none') FROM tailer_state"

// A frozen relay that wakes up after another one took over touches nothing that
// the other has stored, also when it then stops in order.
//
// Seen red with a store that does not look at the session.
func TestStateBelongsToOneSession(t *testing.T) {
	server, first, second := newKeepers(t)
	ctx, system := t.Context(), replication.Server{SystemID: "1", Timeline: 1}
	for _, k := range []*keeper{first, second} {
		if err := k.begin(ctx, system, 100, 100); err != nil {
			t.Fatal(err)
		}
	}
	want := server.Query1(t, storedRow)
	first.keep(ctx, 200+checkpoint.Slack, true)
	if got := server.Query1(t, storedRow); got != want || !first.retired {
		t.Errorf("stored %s, was %s; retired: %t", got, want, first.retired)
	}
	first.retired = false
	first.stop(ctx, 200)
	if got := server.Query1(t, storedRow); got != want {
		t.Errorf("after the stop %s, was %s", got, want)
	}
	if err := first.tables.store(ctx, first.conn, 200, first.session, false); !errors.Is(err, errTakenOver) {
		t.Errorf("got %v", err)
	}
	second.stop(ctx, 300)
	if got := server.Query1(t, storedRow); got != "0/12C none" {
		t.Errorf("stopped in order with %s", got)
	}
}

// A keeper stores when events have flowed for a while or enough WAL has passed,
// opens its connection again, and after a failure waits before it tries again.
func TestKeeperKeeps(t *testing.T) {
	server, k, _ := newKeepers(t)
	ctx := t.Context()
	if err := k.begin(ctx, replication.Server{SystemID: "1", Timeline: 1}, 100, 100); err != nil {
		t.Fatal(err)
	}
	stored := func() string { t.Helper(); return server.Query1(t, "SELECT confirmed_lsn::text FROM tailer_state") }
	const far = pglogrepl.LSN(checkpoint.Slack)
	for _, c := range []struct {
		name   string
		before func()
		lsn    pglogrepl.LSN
		events bool
		want   string
	}{
		{"events at once", func() {}, 200, true, "0/64"},
		{"events after a while", func() { k.at = k.at.Add(-keepEvery) }, 200, true, "0/C8"},
		{"no events", func() { k.at = k.at.Add(-keepEvery) }, 300, false, "0/C8"},
		{"all the slack", func() {}, 200 + far, false, "0/C8"},
		{"more", func() {}, 201 + far, false, "0/10000C9"},
		{"backwards", func() { k.at = k.at.Add(-keepEvery) }, 100, true, "0/10000C9"},
		{"connection ended", func() {
			server.Exec(t, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'tailer'")
		}, 202 + 2*far, false, "0/20000CA"},
		{"right gone", func() { server.Exec(t, "ALTER TABLE tailer_state RENAME TO hidden") }, 203 + 3*far, false, ""},
		{"right back", func() { server.Exec(t, "ALTER TABLE hidden RENAME TO tailer_state") }, 203 + 3*far, false, "0/20000CA"},
		{"and a while later", func() { k.failed = k.failed.Add(-keepEvery) }, 203 + 3*far, false, "0/30000CB"},
	} {
		c.before()
		k.keep(ctx, c.lsn, c.events)
		if c.want == "" {
			if time.Since(k.failed) > time.Minute {
				t.Errorf("%s: did not fail", c.name)
			}
			continue
		}
		if got := stored(); got != c.want {
			t.Errorf("%s: stored %s, want %s", c.name, got, c.want)
		}
	}
	if !k.failed.IsZero() {
		t.Error("still failed")
	}
	(*keeper)(nil).keep(ctx, 1<<40, true) // a standby keeps nothing
}
