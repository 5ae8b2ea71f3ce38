package relay_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// checked is an entry of `tailer doctor --json`.
type checked struct{ Check, Status, Says, Type string }

// doctor runs `tailer doctor` in both forms, which must agree, and returns what
// is not as it should be: "fail postgres.slot: …\n> …".
func (o *outbox) doctor(config harness.Config, code int) (wrong []string) {
	o.t.Helper()
	got := harness.Run(o.t, config, "doctor", "--json")
	var d struct {
		ExitCode int `json:"exit_code"`
		Checks   []checked
	}
	if err := json.Unmarshal([]byte(got.Stdout), &d); err != nil {
		o.t.Fatalf("%v\n%s%s", err, got.Stdout, got.Stderr)
	}
	if got.Code != code || d.ExitCode != code {
		o.t.Errorf("exit code %d, in the JSON %d, want %d\n%s%s", got.Code, d.ExitCode, code, got.Stdout, got.Stderr)
	}
	text := harness.Run(o.t, config, "doctor")
	if text.Code != code {
		o.t.Errorf("exit code %d without --json", text.Code)
	}
	// The walsender of the command before may still be there.
	senders := regexp.MustCompile(`\d+ of \d+ senders`)
	shown := senders.ReplaceAllString(text.Stdout, "some senders")
	for _, c := range d.Checks {
		c.Says = senders.ReplaceAllString(c.Says, "some senders")
		words := fmt.Sprintf("%-4s  %-21s ", c.Status, c.Check)
		if c.Status != "ok" { // what is well has numbers that move
			words += c.Says + "\n"
		}
		if !strings.Contains(shown, words) || !strings.Contains(shown, c.Type) {
			o.t.Errorf("the text has not %+v:\n%s", c, text.Stdout)
		}
		if c.Status == "ok" || c.Status == "skip" {
			continue
		}
		line := c.Status + " " + c.Check + ": " + c.Says
		if c.Type != "" {
			line += "\n> " + c.Type
		}
		wrong = append(wrong, line)
	}
	return wrong
}

// finds wants exactly these complaints.
func (o *outbox) finds(config harness.Config, code int, want ...string) {
	o.t.Helper()
	got := o.doctor(config, code)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		o.t.Errorf("doctor finds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each fault is made on real servers, is what doctor finds and nothing else, with
// the code by which the relay exits; what doctor says to type is run, and doctor
// finds nothing any more. It changes nothing: the relay starts at the end.
//
// Seen red with a doctor that takes every error for well.
func TestDoctor(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{settings: map[string]string{"max_replication_slots": "3"}})
	o.finds(o.config, 0)

	for _, c := range []struct {
		fault, want, repair string
		code                int
	}{
		{`ALTER PUBLICATION tailer SET (publish = 'update')`,
			"fail postgres.publication: check publication \"tailer\": it does not publish inserts\n> ALTER PUBLICATION \"tailer\" SET (publish = 'insert');",
			`ALTER PUBLICATION "tailer" SET (publish = 'insert');`, 2},
		{`ALTER PUBLICATION tailer SET TABLE outbox WHERE (type = 'x')`,
			"fail postgres.publication: check publication \"tailer\": its row filter hides rows of \"public\".\"outbox\": WHERE (type = 'x'::text)\n" +
				"> ALTER PUBLICATION \"tailer\" SET TABLE \"public\".\"outbox\"; publishes every row of that table, and no other table",
			`ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"`, 2},
		{`ALTER PUBLICATION tailer SET TABLE outbox (id, type, payload, headers, occurred_at)`,
			"fail outbox.columns: check publication \"tailer\": its column list for public.outbox hides column \"aggregate_id\" (role key)\n" +
				"> ALTER PUBLICATION \"tailer\" SET TABLE \"public\".\"outbox\"; publishes every column of that table, and no other table",
			`ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"`, 2},
		{`ALTER TABLE outbox RENAME headers TO meta`,
			"fail outbox.columns: check the table: column \"headers\" (role headers) is not in public.outbox; it has id, occurred_at, aggregate_id, type, payload, meta, sent_at\n" +
				"> map columns that the table has, or nothing, under outbox.columns (role: column) and outbox.header_columns (header: column)",
			`ALTER TABLE outbox RENAME meta TO headers`, 2},
		{`ALTER TABLE outbox RENAME TO old`,
			"fail outbox.table: there is no table \"public\".\"outbox\"\n> tailer init --apply; or name another one in outbox.table",
			`ALTER TABLE old RENAME TO outbox`, 2},
		{`ALTER TABLE tailer_state RENAME TO moved`,
			"fail checkpoint.table: check state table \"public\".\"tailer_state\": it does not exist\n> tailer init --apply creates it (with --role NAME, also the relay's rights)",
			`ALTER TABLE moved RENAME TO tailer_state`, 2},
		{`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey; ALTER PUBLICATION tailer SET (publish = 'insert, update')`,
			"warn postgres.publication: publication \"tailer\" publishes updates and deletes of public.outbox, which has no replica identity: the application's UPDATE and DELETE fail there\n" +
				"> ALTER PUBLICATION \"tailer\" SET (publish = 'insert');",
			`ALTER PUBLICATION "tailer" SET (publish = 'insert');`, 0},
	} {
		o.pg.Exec(t, c.fault)
		o.finds(o.config, c.code, c.want)
		o.pg.Exec(t, c.repair)
		o.finds(o.config, 0)
	}

	// The slot: never there, no place for it, and gone under a relay that ran.
	o.pg.Exec(t, "SELECT pg_drop_replication_slot('tailer')")
	o.finds(o.config, 2, "fail postgres.slot: check slot \"tailer\": it does not exist, and this relay never ran\n"+
		"> tailer init --apply creates it; with postgres.create: true the relay does so itself at its first start")
	o.pg.Exec(t, "SELECT pg_create_physical_replication_slot('p' || n) FROM generate_series(1, 3) n")
	if got := o.doctor(o.config, 2); len(got) != 2 || !strings.HasPrefix(got[0], "fail postgres.capacity: 3 of 3 slots and some senders ") ||
		!strings.Contains(got[0], "ALTER SYSTEM SET max_replication_slots = 7; and restart Postgres") {
		t.Errorf("without a free slot doctor finds %q", got)
	}
	o.pg.Exec(t, "ALTER SYSTEM SET max_replication_slots = 7")
	if err := o.pg.Restart("fast"); err != nil {
		t.Fatal(err)
	}
	o.conn = o.pg.Conn(t, "postgres")
	o.init(o.config)
	o.finds(o.config, 0)
	o.recovers(o.config, o.order())
	o.pg.Exec(t, "SELECT pg_drop_replication_slot('tailer')")
	if got := o.doctor(o.config, 3); len(got) != 1 || !strings.Contains(got[0], "may be missing\n> a person must decide: ") {
		t.Errorf("a slot that is gone: %q", got)
	}
	for _, command := range [][]string{{"slot", "accept-gap"}, {"slot", "create"}} {
		if got := harness.Run(t, o.config, command...); got.Code != 0 {
			t.Fatalf("%v: %s", command, got.Stderr)
		}
	}
	o.finds(o.config, 0)

	// Kafka and schemas.
	without := o.config.With("kafka.topics.create", false).With("routing.topic", "absent")
	if got := o.doctor(without, 1); len(got) != 1 || !strings.Contains(got[0], "fail kafka.topics: kafka: check topic absent: UNKNOWN_TOPIC_OR_PARTITION") ||
		!strings.Contains(got[0], "--create --topic absent) or set kafka.topics.create: true") {
		t.Errorf("a topic that may not be made: %q", got)
	}
	o.finds(o.config.With("routing.topic", "absent"), 0)
	dir := schemaFolder(t, map[string]string{"order.placed.v1": `{"type":"record","name":"R","fields":[{"name":"n","type":["null","long"],"default":"null"}]}`})
	if got := o.doctor(o.config.With("schema", harness.Config{"dir": dir}), 2); len(got) != 1 || !strings.HasPrefix(got[0], "fail schema: ") || !strings.Contains(got[0], "order.placed.v1.avsc") {
		t.Errorf("a schema that cannot be: %q", got)
	}
	o.recovers(o.config, o.order())
}

// Nothing answers, a server that is not set up for it, a role that may not: each
// is told apart from the others, and what cannot be asked is not guessed.
//
// Seen red with a doctor that takes every error for well.
func TestCase_S33_DoctorTellsServersAndRights(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.pg.Exec(t, "CREATE ROLE plain LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain")
	config := o.config.With("postgres.dsn", o.pg.UserDSN("plain", "", "postgres"))
	if got := o.doctor(config, 2); len(got) != 1 || !strings.HasPrefix(got[0], "fail postgres.replication: connect to database") || !strings.Contains(got[0], "ALTER ROLE name WITH REPLICATION") {
		t.Errorf("a role without REPLICATION: %q", got)
	}
	o.pg.Exec(t, "ALTER ROLE plain WITH REPLICATION")
	o.finds(config, 0)

	physical := postgres.New(t, postgres.Options{Settings: map[string]string{"wal_level": "replica"}})
	config = o.config.With("postgres.dsn", physical.DSN("postgres")).With("outbox.table", "pg_catalog.pg_class")
	got := o.doctor(config, 2)
	if len(got) == 0 || got[0] != "fail postgres.server: check the server: wal_level is \"replica\", logical decoding needs \"logical\"\n"+
		"> ALTER SYSTEM SET wal_level = 'logical'; and restart Postgres; on managed services set rds.logical_replication = 1, cloudsql.logical_decoding = on, or azure.replication_support = logical" {
		t.Errorf("wal_level: %q", got)
	}
	physical.Exec(t, "ALTER SYSTEM SET wal_level = 'logical'")
	if err := physical.Restart("fast"); err != nil {
		t.Fatal(err)
	}
	config = o.config.With("postgres.dsn", physical.DSN("postgres"))
	o.init(config)
	o.finds(config, 0)

	nobody := o.config.With("postgres.dsn", "postgres://127.0.0.1:1/postgres?sslmode=disable").With("kafka.brokers", []string{"127.0.0.1:1"})
	if got := o.doctor(nobody, 1); len(got) != 2 || !strings.HasPrefix(got[0], "fail postgres.connection: ") || !strings.HasPrefix(got[1], "fail kafka.brokers: ") {
		t.Errorf("nobody answers: %q", got)
	}
}
