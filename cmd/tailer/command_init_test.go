package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/postgres"
)

// objects are what init may have made, as the catalogue shows them.
const objects = `SELECT coalesce(string_agg(o, E'\n' ORDER BY o), '') FROM (
	SELECT 'table ' || schemaname || '.' || tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
	UNION ALL SELECT 'publication ' || p.pubname || ' of ' || t.schemaname || '.' || t.tablename || ' ' ||
			pubinsert || pubupdate || pubdelete || pubtruncate || pubviaroot || puballtables
		FROM pg_publication p JOIN pg_publication_tables t USING (pubname)
	UNION ALL SELECT 'role ' || rolname || ' ' || rolcanlogin || rolreplication || rolsuper FROM pg_roles WHERE rolname !~ '^pg_|^postgres$'
	UNION ALL SELECT 'slot ' || slot_name || ' ' || plugin || ' ' || database FROM pg_replication_slots) AS all_of_them(o)`

// remembers are the two tables in which a relay does.
const remembers = "\ntable public.tailer_state\ntable public.tailer_state_gaps"

func TestInit(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	for _, c := range []struct {
		name    string
		yaml    string
		args    []string
		created string
		columns string
		insert  string // must fit the created table
		skipped int    // statements of the second run
	}{
		{
			name: "default", args: []string{"--role", "relay"},
			created: "publication tailer of public.outbox truefalsefalsefalsetruefalse\nrole relay truetruefalse\nslot tailer pgoutput default\ntable public.outbox" + remembers,
			columns: "id uuid, occurred_at timestamptz, aggregate_id text, type text, payload jsonb, headers jsonb, sent_at timestamptz",
			insert:  `INSERT INTO outbox (aggregate_id, type, payload) VALUES ('a', 'b.c.v1', '{}')`, skipped: 8,
		},
		{
			name: "debezium", yaml: "outbox: {preset: debezium}\npostgres: {slot: dbz}\n",
			created: "publication tailer of public.outbox truefalsefalsefalsetruefalse\nrole relay truetruefalse\nslot dbz pgoutput debezium\ntable public.outbox" + remembers,
			columns: "id uuid, aggregatetype text, aggregateid text, type text, payload jsonb",
			insert:  `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('a', 'b', 'c', '{}')`, skipped: 5,
		},
		{
			name: "columns", yaml: "outbox: {columns: {type: event_type, tenant: customer, headers: ''}, header_columns: {region: region, customer: customer}}\npostgres: {slot: cols}\n",
			created: "publication tailer of public.outbox truefalsefalsefalsetruefalse\nrole relay truetruefalse\nslot cols pgoutput columns\ntable public.outbox" + remembers,
			columns: "id uuid, occurred_at timestamptz, aggregate_id text, event_type text, payload jsonb, customer text, region text, sent_at timestamptz",
			insert:  `INSERT INTO outbox (event_type, customer, region) VALUES ('a.b.v1', 'c', 'r')`, skipped: 5,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			server.Exec(t, "CREATE DATABASE "+quoteIdent(c.name))
			inDir(t, c.yaml)
			env := variables("TAILER_POSTGRES_DSN", server.DSN(c.name))
			args := append([]string{"init"}, c.args...)

			// Without --apply nothing is touched.
			before := server.Query1In(t, c.name, objects)
			code, script, stderr := tailer(t.Context(), env, args...)
			if after := server.Query1In(t, c.name, objects); code != 0 || after != before {
				t.Fatalf("exit %d, %s: printing created %s", code, stderr, after)
			}
			args = append(args, "--apply")
			code, stdout, stderr := tailer(t.Context(), env, args...)
			if code != 0 {
				t.Fatalf("exit %d: %s%s", code, stdout, stderr)
			}
			made := server.Query1In(t, c.name, objects)
			want := c.created
			if others := strings.Split(before, "\n"); before != "" {
				for _, line := range others { // slots are the whole server's
					if strings.HasPrefix(line, "slot ") {
						want += "\n" + line
					}
				}
			}
			if sorted(made) != sorted(want) {
				t.Errorf("created\n%s\nwant\n%s", made, want)
			}
			columns := server.Query1In(t, c.name, `SELECT string_agg(a.attname || ' ' || t.typname, ', ' ORDER BY attnum) FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid
				WHERE attrelid = 'public.outbox'::regclass AND attnum > 0`)
			if columns != c.columns {
				t.Errorf("columns\n%s\nwant\n%s", columns, c.columns)
			}
			server.ExecIn(t, c.name, c.insert)

			// Again: everything is skipped, statement by statement, and nothing changes.
			code, again, stderr := tailer(t.Context(), env, args...)
			if code != 0 || strings.Count(again, " exists, skipped:\n") != c.skipped || nonComments(again) != "" {
				t.Errorf("second run: exit %d, %s%s", code, again, stderr)
			}
			if after := server.Query1In(t, c.name, objects); after != made {
				t.Errorf("second run changed\n%s\nto\n%s", made, after)
			}
			// Everything that the first run ran, the printed script has.
			for statement := range strings.SplitSeq(nonComments(stdout), ";\n") {
				if !strings.Contains(script, statement) {
					t.Errorf("ran %s, which is not in the script\n%s", statement, script)
				}
			}
		})
	}
}

func sorted(lines string) string {
	m := map[string]bool{}
	for l := range strings.SplitSeq(lines, "\n") {
		m[l] = true
	}
	b, _ := json.Marshal(m) // in the keys' order
	return string(b)
}

func nonComments(sql string) string {
	var out []string
	for line := range strings.SplitSeq(sql, "\n") {
		if line != "" && !strings.HasPrefix(line, "--") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// The script that init prints does by hand what --apply does.
func TestInitScript(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	inDir(t, "")
	_, script, _ := tailer(t.Context(), variables(), "init", "--role", `relay's "own"`)
	for statement := range strings.SplitSeq(strings.TrimSuffix(nonComments(script), ";"), ";\n") {
		server.Exec(t, statement)
	}
	code, stdout, stderr := tailer(t.Context(), variables("TAILER_POSTGRES_DSN", server.DSN("postgres")), "init", "--apply", "--role", `relay's "own"`)
	if code != 0 || nonComments(stdout) != "" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// Case S37: names that need quoting.
func TestCase_S37_Quoting(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	for i, c := range []struct{ database, publication, schema, table, written, slot string }{
		{"plain", `Outbox Pub,'x`, "My-App", "Outbox", "My-App.Outbox", "1slot"},
		{"awkward", `"Outbox Pub,'x"`, `a.b"c`, `x"; DROP TABLE y; --`, `"a.b""c"."x""; DROP TABLE y; --"`, "2slot"},
		{`db "quoted"`, `back\slash`, "public", `tab\'le`, `tab\'le`, "3slot"},
	} {
		t.Run(c.database, func(t *testing.T) {
			server.Exec(t, "CREATE DATABASE "+quoteIdent(c.database))
			inDir(t, "")
			env := variables("TAILER_POSTGRES_DSN", server.DSN(c.database), "TAILER_POSTGRES_PUBLICATION", c.publication,
				"TAILER_OUTBOX_TABLE", c.written, "TAILER_POSTGRES_SLOT", c.slot)
			args := []string{"init", "--apply", "--role", `Role "` + string(rune('A'+i)) + `"`}
			if code, stdout, stderr := tailer(t.Context(), env, args...); code != 0 {
				t.Fatalf("exit %d: %s%s", code, stdout, stderr)
			}
			if got := server.Query1In(t, c.database, "SELECT pubname || ' of ' || schemaname || '.' || tablename FROM pg_publication_tables"); got != c.publication+" of "+c.schema+"."+c.table {
				t.Errorf("published: %s", got)
			}
			if code, stdout, stderr := tailer(t.Context(), env, args...); code != 0 || nonComments(stdout) != "" {
				t.Errorf("second run: exit %d: %s%s", code, stdout, stderr)
			}
			// The slot decodes the table through the publication.
			server.ExecIn(t, c.database, "INSERT INTO "+quoteIdent(c.schema, c.table)+" (type) VALUES ('a.b.v1')")
			if got := server.Query1In(t, c.database, "SELECT count(*) > 0 FROM pg_logical_slot_peek_binary_changes("+quoteText(c.slot)+
				", NULL, NULL, 'proto_version', '1', 'publication_names', "+quoteText(quoteIdent(c.publication))+") WHERE get_byte(data, 0) = ascii('I')"); got != "true" && got != "t" {
				t.Errorf("the insert is not in the slot: %s", got)
			}
		})
	}
}

// Case S17: a slot's creation waits for older transactions.
func TestCase_S17_SlotCreationWaits(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	server.Exec(t, "CREATE TABLE other (n int)",
		"CREATE ROLE hurried SUPERUSER LOGIN", "ALTER ROLE hurried SET statement_timeout = '200ms'", "ALTER ROLE hurried SET lock_timeout = '200ms'",
		"CREATE DATABASE elsewhere")
	env := []string{"TAILER_POSTGRES_DSN", server.UserDSN("hurried", "", "postgres"), "TAILER_LOG_FORMAT", "json"}
	inDir(t, "")

	// An open transaction that has written, in any database, and one that has not.
	conn := server.Conn(t, "elsewhere")
	begin := func() (commit func()) {
		if _, err := conn.Exec(t.Context(), "BEGIN; CREATE TABLE IF NOT EXISTS t (n int); INSERT INTO t VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
				t.Error(err)
			}
		}
	}
	reader := server.Conn(t, "postgres")
	if _, err := reader.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM other"); err != nil {
		t.Fatal(err)
	}
	slots := func() string { return server.Query1(t, "SELECT count(*) FROM pg_replication_slots") }
	waiting := func() bool {
		return server.Query1(t, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_create_logical%' AND wait_event_type = 'Lock'") == "1"
	}
	gone := func() bool {
		return server.Query1(t, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_create_logical%' AND pid <> pg_backend_pid() AND state = 'active'") == "0"
	}

	t.Run("interrupted", func(t *testing.T) {
		commit := begin()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		result := make(chan string, 1)
		go func() {
			_, _, stderr := tailer(ctx, variables(env...), "init", "--apply")
			result <- stderr
		}()
		within(t, 20*time.Second, "the creation waits", waiting)
		cancel()
		if stderr := <-result; stderr != "tailer: interrupted before slot tailer was created; none is left behind\n" {
			t.Errorf("got %s", stderr)
		}
		// At once, not only after the transaction's end.
		if !gone() || slots() != "0" {
			t.Errorf("%s slots while the transaction is open", slots())
		}
		commit()
		if slots() != "0" {
			t.Error("a slot was left behind")
		}
	})

	for name, signal := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			commit := begin()
			cmd := tailerProcess(pairs(env), "init", "--apply")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			within(t, 20*time.Second, "the creation waits", waiting)
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); signal == syscall.SIGTERM && code != 1 {
				t.Errorf("exit %d: %s", code, stderr.String())
			}
			within(t, 20*time.Second, "the server gives up", gone)
			commit()
			if slots() != "0" {
				t.Error("a slot was left behind")
			}
		})
	}

	t.Run("waits and goes on", func(t *testing.T) {
		commit := begin()
		cmd := tailerProcess(pairs(env), "init", "--apply")
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		watchdog := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		defer watchdog.Stop()
		var line struct {
			Msg, Slot string
			Pids      []int
		}
		if err := json.NewDecoder(stderr).Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Msg != "waiting for 1 older transactions" || line.Slot != "tailer" || len(line.Pids) != 1 || line.Pids[0] != int(conn.PgConn().PID()) {
			t.Errorf("logged %+v", line)
		}
		if slots() != "1" { // it is there while it is made, but not yet to be used
			t.Errorf("%s slots", slots())
		}
		commit()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if slots() != "1" {
			t.Error("no slot")
		}
	})
}

func pairs(env []string) []string {
	var out []string
	for i := 0; i < len(env); i += 2 {
		out = append(out, env[i]+"="+env[i+1])
	}
	return out
}

// What is there but does not fit is reported, not altered.
func TestInitReportsMisfits(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	server.Exec(t, "CREATE DATABASE elsewhere", "CREATE ROLE weak LOGIN",
		"CREATE TABLE lacking (id uuid, type text)", "CREATE UNLOGGED TABLE unlogged (id uuid, occurred_at timestamptz, aggregate_id text, type text, payload jsonb, headers jsonb)",
		"CREATE VIEW view AS SELECT 1 AS id", "CREATE PUBLICATION empty", "CREATE TABLE outbox (id uuid, occurred_at timestamptz, aggregate_id text, type text, payload jsonb, headers jsonb)",
		"CREATE PUBLICATION updates FOR TABLE outbox WITH (publish = 'update')", "CREATE PUBLICATION good FOR TABLE outbox",
		"CREATE TABLE root (LIKE outbox) PARTITION BY LIST (type)", "CREATE TABLE leaf PARTITION OF root FOR VALUES IN ('a')", "CREATE PUBLICATION leaves FOR TABLE root",
		"SELECT pg_create_physical_replication_slot('physical')", "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
	server.ExecIn(t, "elsewhere", "SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')")
	inDir(t, "")
	for _, c := range []struct{ args, want, remedy string }{
		{"--outbox-table lacking --postgres-publication x1", `table "public"."lacking" does not fit: it lacks columns (occurred_at: occurred_at, key: aggregate_id, payload: payload, headers: headers)`, "outbox.columns"},
		{"--outbox-table view --postgres-publication x2", `table "public"."view" does not fit: it is a view`, ""},
		{"--postgres-publication empty", `publication "empty" does not fit: it does not contain "public"."outbox"`, `ALTER PUBLICATION "empty" ADD TABLE "public"."outbox";`},
		{"--postgres-publication updates", `publication "updates" does not fit: it does not publish inserts`, `ALTER PUBLICATION "updates" SET (publish = 'insert');`},
		{"--outbox-table root --postgres-publication leaves", `publication "leaves" does not fit: it publishes the partitions of "public"."root" under their own names`, `ALTER PUBLICATION "leaves" SET (publish_via_partition_root = true);`},
		{"--postgres-publication good --role weak", `role "weak" does not fit: it lacks LOGIN or REPLICATION`, `ALTER ROLE "weak" LOGIN REPLICATION;`},
		{"--postgres-publication good --postgres-slot physical", "slot physical does not fit: it is a physical slot", "postgres.slot"},
		{"--postgres-publication good --postgres-slot elsewhere", `slot elsewhere does not fit: it belongs to database "elsewhere", and this is "postgres"`, "postgres.slot"},
	} {
		args := append([]string{"init", "--apply", "--postgres-slot", "mine"}, strings.Fields(c.args)...)
		code, stdout, stderr := tailer(t.Context(), variables("TAILER_POSTGRES_DSN", server.DSN("postgres")), args...)
		if strings.Contains(c.args, " view ") { // Postgres itself refuses what follows
			if code == 0 || !strings.Contains(stdout, "it does not fit: it is a view") {
				t.Errorf("%s: exit %d: %s%s", c.args, code, stdout, stderr)
			}
			continue
		}
		if want := "tailer: " + c.want + "\nhint: the lines above say what to type; init never alters or drops\n"; code != 2 || stderr != want {
			t.Errorf("%s: exit %d, got\n%s\nwant\n%s", c.args, code, stderr, want)
		}
		if !strings.Contains(stdout, c.remedy) {
			t.Errorf("%s: no %s in\n%s", c.args, c.remedy, stdout)
		}
	}
	if version, _ := strconv.Atoi(server.Version()); version >= 15 {
		server.Exec(t, "CREATE PUBLICATION narrow FOR TABLE outbox (id, type) WITH (publish = 'insert')")
		code, _, stderr := tailer(t.Context(), variables("TAILER_POSTGRES_DSN", server.DSN("postgres")), "init", "--apply", "--postgres-slot", "mine", "--postgres-publication", "narrow")
		if code != 2 || !strings.HasPrefix(stderr, `tailer: publication "narrow" does not fit: its column list for public.outbox hides columns "occurred_at" (role occurred_at), "aggregate_id" (role key), "payload" (role payload), "headers" (role headers)`+"\n") {
			t.Errorf("narrow: exit %d: %s", code, stderr)
		}
	}
	// An unlogged table cannot be published: said before Postgres says it.
	code, stdout, stderr := tailer(t.Context(), variables("TAILER_POSTGRES_DSN", server.DSN("postgres")), "init", "--apply", "--outbox-table", "unlogged", "--postgres-publication", "x3")
	if code == 0 || !strings.Contains(stdout, `ALTER TABLE "public"."unlogged" SET LOGGED;`) || !strings.Contains(stderr, `create publication "x3"`) {
		t.Errorf("unlogged: exit %d: %s%s", code, stdout, stderr)
	}
	// A publication made for a slot that is older.
	code, stdout, _ = tailer(t.Context(), variables("TAILER_POSTGRES_DSN", server.DSN("postgres")), "init", "--apply", "--postgres-slot", "mine", "--postgres-publication", "late")
	if code != 0 || !strings.Contains(stdout, "the slot is older than the publication") {
		t.Errorf("late: exit %d: %s", code, stdout)
	}
}

func TestInitErrors(t *testing.T) {
	server := postgres.New(t, postgres.Options{Settings: map[string]string{"wal_level": "replica"}, HBA: []string{"host all secretive 127.0.0.1/32 scram-sha-256", "local all all trust", "host all all 127.0.0.1/32 trust"}})
	server.Exec(t, "CREATE ROLE secretive LOGIN PASSWORD 'right'", "CREATE ROLE poor LOGIN")
	inDir(t, "")
	code, stdout, stderr := tailer(t.Context(), variables("TAILER_POSTGRES_DSN", server.DSN("postgres")), "init", "--apply")
	if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "tailer: check the server: wal_level is \"replica\", logical decoding needs \"logical\"\nhint: ALTER SYSTEM SET wal_level = 'logical';") {
		t.Errorf("wal_level: exit %d: %s%s", code, stdout, stderr)
	}
	code, _, stderr = tailer(t.Context(), variables("TAILER_POSTGRES_DSN", server.DSN("nowhere")), "init", "--apply")
	if code != 2 || !strings.Contains(stderr, "nowhere") {
		t.Errorf("no database: exit %d: %s", code, stderr)
	}
	for name, env := range map[string][]string{
		"in the DSN":  {"TAILER_POSTGRES_DSN", server.UserDSN("secretive", "hunter2", "postgres")},
		"by variable": {"TAILER_POSTGRES_DSN", server.UserDSN("secretive", "", "postgres"), "TAILER_POSTGRES_PASSWORD", "hunter2"},
	} {
		code, stdout, stderr = tailer(t.Context(), variables(append(env, "TAILER_LOG_LEVEL", "debug")...), "init", "--apply")
		if code != 1 || !strings.Contains(stderr, "secretive") || strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("%s: exit %d: %s%s", name, code, stdout, stderr)
		}
	}
	code, _, stderr = tailer(t.Context(), variables("TAILER_POSTGRES_DSN", "host=127.0.0.1 port=1"), "status")
	if code != 1 || !strings.HasPrefix(stderr, "tailer: ") {
		t.Errorf("no server: exit %d: %s", code, stderr)
	}
}

func TestInitWithoutPrivilege(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	server.Exec(t, "CREATE ROLE poor LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	inDir(t, "")
	code, _, stderr := tailer(t.Context(), variables("TAILER_POSTGRES_DSN", server.UserDSN("poor", "", "postgres")), "init", "--apply")
	if code != 2 || !strings.HasPrefix(stderr, `tailer: create table "public"."outbox": `) || !strings.Contains(stderr, "\nhint: connect as the table's owner") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
