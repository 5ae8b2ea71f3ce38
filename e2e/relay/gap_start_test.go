package relay_test

import (
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// The first start, with and without leave to create. Each remedy is typed.
//
// Seen red with a Decide that adopts nothing, one that creates for a relay that
// ran, and with `create` taken for granted.
func TestGapFirstStart(t *testing.T) {
	t.Parallel()
	t.Run("not allowed to create", func(t *testing.T) {
		t.Parallel()
		o := newBare(t, nil)
		hint, _ := o.stops(o.config, 2, `check slot "tailer": it does not exist, and this relay never ran`,
			"tailer init --apply creates it; with postgres.create: true the relay does so itself at its first start")
		o.typed(o.config, hint)
		o.ran()
	})
	t.Run("allowed to create", func(t *testing.T) {
		t.Parallel()
		o := newBare(t, nil)
		config := o.config.With("postgres.create", true)
		relay := o.run(config)
		for _, made := range []string{`CREATE TABLE \"public\".\"outbox\"`, `CREATE PUBLICATION \"tailer\"`, `CREATE TABLE \"public\".\"tailer_state\"`, "pg_create_logical_replication_slot"} {
			if !strings.Contains(relay.Logs(), made) {
				t.Errorf("the log does not tell of %s", made)
			}
		}
		if code := relay.Stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		o.recovers(config, o.order())

		// Once only: what it lost, it does not make again.
		o.pg.Exec(t, "SELECT pg_drop_replication_slot('tailer')")
		hint, _ := o.stops(config, 3, `check slot "tailer": it does not exist, and this relay confirmed up to LSN at TIME: events from LSN up to now, LSN, may be missing`,
			mayBeMissing+"go on from now: tailer slot accept-gap, and then tailer slot create")
		if n := o.text("SELECT count(*)::text FROM pg_replication_slots"); n != "0" {
			t.Errorf("%s slots", n)
		}
		// The gap accepted, it may.
		o.typed(config, strings.TrimSuffix(hint, ", and then tailer slot create"))
		relay = o.run(config)
		relay.WaitLog("going on behind an accepted gap: events in it are not in Kafka", soon)
		relay.Stop()
	})
	t.Run("slot of somebody else", func(t *testing.T) {
		t.Parallel()
		o := newOutbox(t, outboxOptions{})
		id := o.order() // behind the slot, before the relay
		relay := o.run(o.config)
		relay.WaitLog("adopted the slot: this relay never ran, and goes on where the slot stands", soon)
		relay.Stop()
		o.recovers(o.config, id)
	})
	t.Run("no state table", func(t *testing.T) {
		t.Parallel()
		o := newOutbox(t, outboxOptions{})
		o.pg.Exec(t, "DROP TABLE tailer_state, tailer_state_gaps")
		hint, _ := o.stops(o.config, 2, `check state table "public"."tailer_state": it does not exist`,
			"tailer init --apply creates it (with --role NAME, also the relay's rights)")
		o.typed(o.config, hint)
		o.ran()
	})
	t.Run("another table in its place", func(t *testing.T) {
		t.Parallel()
		o := newOutbox(t, outboxOptions{})
		o.pg.Exec(t, "CREATE TABLE mine (n int)")
		config := o.config.With("checkpoint.table", "mine")
		o.init(config)
		o.stops(config, 2, `read state table "public"."mine": column s.system_identifier does not exist (SQLSTATE 42703)`,
			"it is not a table that tailer made: name another one with checkpoint.table, and tailer init --apply creates it")
		config = o.config.With("checkpoint.table", `"Tailer's".""State""`)
		if got := harness.Run(t, config, "init", "--apply"); got.Code != 2 {
			t.Errorf("an unpaired quote: exit code %d", got.Code)
		}
		config = o.config.With("checkpoint.table", `"Tailer's"."a ""State"""`)
		o.init(config)
		o.recovers(config, o.order())
	})
	t.Run("no right to the state table", func(t *testing.T) {
		t.Parallel()
		o := newOutbox(t, outboxOptions{})
		o.pg.Exec(t, "CREATE ROLE relay LOGIN REPLICATION", "GRANT SELECT ON tailer_state, tailer_state_gaps TO relay")
		config := o.config.With("postgres.dsn", o.pg.UserDSN("relay", "", "postgres"))
		byHand := `let its owner run: tailer init --apply --role NAME; or grant by hand: GRANT SELECT, INSERT, UPDATE ON "public"."tailer_state", "public"."tailer_state_gaps" TO "NAME"`
		o.stops(config, 2, `write state table "public"."tailer_state": permission denied for table tailer_state (SQLSTATE 42501)`, byHand)
		o.pg.Exec(t, "REVOKE SELECT ON tailer_state FROM relay")
		hint, _ := o.stops(config, 2, `read state table "public"."tailer_state": permission denied for table tailer_state (SQLSTATE 42501)`, byHand)
		if got := harness.Run(t, o.config, "init", "--apply", "--role", "relay"); got.Code != 0 {
			t.Fatalf("init --role: exit code %d\n%s%s", got.Code, got.Stdout, got.Stderr)
		}
		o.recovers(config, o.order())
		_, sql, _ := strings.Cut(hint, "by hand: ")
		o.pg.Exec(t, "CREATE ROLE second LOGIN REPLICATION", strings.ReplaceAll(sql, "NAME", "second"))
		o.recovers(o.config.With("postgres.dsn", o.pg.UserDSN("second", "", "postgres")), o.order())
	})
}

// The tables of the harness's ledger are those of init.
func TestGapLedgerTables(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	p := newPlant(t, plantOptions{Blind: true})
	const columns = `SELECT string_agg(concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default, identity_generation), E'\n'
		ORDER BY table_name, ordinal_position) FROM information_schema.columns WHERE table_name LIKE 'tailer_state%'`
	if made, kept := o.text(columns), p.pg.Query1(t, columns); made != kept {
		t.Errorf("init makes\n%s\nthe ledger has\n%s", made, kept)
	}
}

// Case S36: a slot of that name that is not ours.
//
// Seen red without each of the checks.
func TestCase_S36_SlotIsNotOurs(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.pg.Exec(t, "CREATE DATABASE elsewhere", "SELECT pg_create_physical_replication_slot('physical')",
		"SELECT pg_create_logical_replication_slot('plugin', 'test_decoding')")
	o.pg.ExecIn(t, "elsewhere", "SELECT pg_create_logical_replication_slot('database', 'pgoutput')")
	o.text("SELECT slot_name::text FROM pg_create_logical_replication_slot('temporary', 'pgoutput', true)")
	const other = "name another slot in postgres.slot; tailer init --apply creates it"
	for slot, c := range map[string]struct{ what, hint string }{
		"physical":  {"it is a physical slot", other},
		"plugin":    {`its output plugin is "test_decoding", not "pgoutput"`, other},
		"database":  {`it belongs to database "elsewhere", and this is "postgres"`, "connect to that database in postgres.dsn, or " + other},
		"temporary": {"it is temporary and ends with the session that created it", other},
	} {
		config := o.config.With("postgres.slot", slot).With("postgres.create", true).With("postgres.publication", "tailer")
		what := `check slot "` + slot + `": ` + c.what
		o.stops(config, 2, what, c.hint)
		for _, command := range []string{"create", "drop", "accept-gap"} {
			if got := harness.Run(t, config, "slot", command); got.Code != 2 {
				t.Errorf("slot %s of %s: exit code %d\n%s", command, slot, got.Code, got.Stdout)
			} else {
				o.says(got.Stderr, what, c.hint)
			}
		}
	}
	free := o.config.With("postgres.slot", "another_one").With("postgres.publication", "tailer")
	o.init(free)
	o.recovers(free, o.order())
}
