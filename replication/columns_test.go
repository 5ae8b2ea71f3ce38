package replication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

// What a publication does to columns and rows is told with the statement that
// mends it. The statement is run, and then nothing is wrong.
//
// Seen red: a generated column that counted as any other.
func TestPublicationColumns(t *testing.T) {
	for _, version := range []string{"14", "15", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := postgres.New(t, postgres.Options{Version: version})
			conn, err := replication.Connect(t.Context(), config(server))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			table := replication.Table{Schema: "public", Name: "outbox"}
			id, body, tenant := replication.Column{Name: "id", For: "role id"}, replication.Column{Name: "body", For: "role payload"},
				replication.Column{Name: "tenant", For: `header "t"`}
			for _, c := range []struct {
				name, from, to string // servers that it is about
				set            []string
				says, hint     string
				repair         []string
			}{
				{"fits", "", "", nil, "", "", nil},
				{"missing", "", "", []string{`ALTER TABLE outbox DROP COLUMN tenant, DROP COLUMN body`},
					`check the table: columns "body" (role payload), "tenant" (header "t") are not in public.outbox; it has id`,
					`map columns that the table has, or nothing, under outbox.columns (role: column) and outbox.header_columns (header: column)`,
					[]string{`ALTER TABLE outbox ADD body text, ADD tenant text`}},
				{"list", "15", "", []string{`ALTER PUBLICATION tailer SET TABLE outbox (id, tenant)`},
					`check publication "tailer": its column list for public.outbox hides column "body" (role payload)`,
					`ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"; publishes every column of that table, and no other table`,
					[]string{`ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"`}},
				{"filter", "15", "", []string{`ALTER PUBLICATION tailer SET TABLE outbox WHERE (id > 3)`},
					`check publication "tailer": its row filter hides rows of "public"."outbox": WHERE (id > 3)`,
					`ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"; publishes every row of that table, and no other table`,
					[]string{`ALTER PUBLICATION "tailer" SET TABLE "public"."outbox"`}},
				{"generated", "", "17", []string{`ALTER TABLE outbox DROP tenant, ADD tenant text GENERATED ALWAYS AS (upper(body)) STORED`},
					`check publication "tailer": column "tenant" (header "t") of public.outbox is generated, and a server before PostgreSQL 18 does not publish that`,
					`ALTER TABLE "public"."outbox" ALTER COLUMN "tenant" DROP EXPRESSION; makes it a column that the application or a trigger fills; or map another one under outbox.columns`,
					[]string{`ALTER TABLE "public"."outbox" ALTER COLUMN "tenant" DROP EXPRESSION`}},
				{"generated and not asked for", "18", "", []string{`ALTER TABLE outbox DROP tenant, ADD tenant text GENERATED ALWAYS AS (upper(body)) STORED`},
					`check publication "tailer": column "tenant" (header "t") of public.outbox is generated, and publish_generated_columns is none`,
					`ALTER PUBLICATION "tailer" SET (publish_generated_columns = stored);`,
					[]string{`ALTER PUBLICATION "tailer" SET (publish_generated_columns = stored);`}},
				{"generated, by a list", "18", "", []string{`ALTER TABLE outbox DROP tenant, ADD tenant text GENERATED ALWAYS AS (upper(body)) STORED`,
					`ALTER PUBLICATION tailer SET TABLE outbox (id, body, tenant)`}, "", "", nil},
				{"generated when read", "18", "", []string{`ALTER TABLE outbox DROP tenant, ADD tenant text GENERATED ALWAYS AS (upper(body)) VIRTUAL`},
					`check publication "tailer": column "tenant" (header "t") of public.outbox is generated, and not stored, which is never published`,
					`make it GENERATED ALWAYS AS (…) STORED and set publish_generated_columns, or map another one under outbox.columns`,
					[]string{`ALTER TABLE outbox DROP tenant, ADD tenant text`}},
			} {
				if version < c.from || c.to != "" && version > c.to {
					continue
				}
				server.Exec(t, `DROP TABLE IF EXISTS outbox`, `DROP PUBLICATION IF EXISTS tailer`,
					`CREATE TABLE outbox (id int PRIMARY KEY, body text, tenant text)`, `CREATE PUBLICATION tailer FOR TABLE outbox WITH (publish = 'insert')`)
				server.Exec(t, c.set...)
				check := func() error {
					t.Helper()
					p, err := replication.InspectPublication(within(t, 20*time.Second), conn, "tailer", table)
					if err != nil {
						t.Fatal(err)
					}
					return p.Check("tailer", table, id, body, tenant)
				}
				err := check()
				if c.says == "" {
					if err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
					continue
				}
				var e *replication.Error
				if !errors.As(err, &e) || e.Class != replication.Usage || e.Error() != c.says || e.Hint != c.hint {
					t.Errorf("%s:\n%v\nhint: %s\nwant\n%s\nhint: %s", c.name, err, replication.HintOf(err), c.says, c.hint)
				}
				server.Exec(t, c.repair...)
				if err := check(); err != nil {
					t.Errorf("%s, after %q: %v", c.name, c.repair, err)
				}
			}
		})
	}
}

// Seen red: a table that has a primary key and REPLICA IDENTITY NOTHING.
func TestPublicationWarnings(t *testing.T) {
	server, cfg := outbox(t, postgres.Options{})
	server.Exec(t, `CREATE PUBLICATION everything FOR ALL TABLES`, `CREATE PUBLICATION inserts FOR TABLE outbox WITH (publish = 'insert')`,
		`CREATE PUBLICATION plain FOR TABLE outbox`, `CREATE TABLE keyless (id int NOT NULL)`, `CREATE UNIQUE INDEX by_id ON keyless (id)`,
		`ALTER PUBLICATION plain ADD TABLE keyless`)
	conn, err := replication.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, c := range []struct {
		change, publication, table string
		warnings                   []replication.Warning
	}{
		{``, "inserts", "outbox", nil},
		{``, "plain", "outbox", nil},
		{``, "gone", "outbox", nil},
		{``, "plain", "keyless", []replication.Warning{{
			`publication "plain" publishes updates and deletes of public.keyless, which has no replica identity: the application's UPDATE and DELETE fail there`,
			`ALTER PUBLICATION "plain" SET (publish = 'insert');`}}},
		{`ALTER TABLE keyless REPLICA IDENTITY USING INDEX by_id`, "plain", "keyless", nil},
		{`ALTER TABLE keyless REPLICA IDENTITY FULL`, "plain", "keyless", nil},
		{`ALTER TABLE outbox REPLICA IDENTITY NOTHING`, "inserts", "outbox", nil},
		{``, "everything", "outbox", []replication.Warning{{
			`publication "everything" is FOR ALL TABLES: the server sends the changes of every table, and the relay skips them`,
			`make one for the outbox alone, and once the relay has caught up name it in postgres.publication: CREATE PUBLICATION tailer_outbox FOR TABLE "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true);`,
		}, {
			`publication "everything" publishes updates and deletes of public.outbox, which has no replica identity: the application's UPDATE and DELETE fail there`,
			`ALTER PUBLICATION "everything" SET (publish = 'insert');`}}},
	} {
		if c.change != "" {
			server.Exec(t, c.change)
		}
		table := replication.Table{Schema: "public", Name: c.table}
		p, err := replication.InspectPublication(within(t, 20*time.Second), conn, c.publication, table)
		if err != nil {
			t.Fatal(err)
		}
		got := p.Warnings(c.publication, table)
		if len(got) != len(c.warnings) {
			t.Errorf("%+v: %+v", c, got)
			continue
		}
		for i := range got {
			if got[i] != c.warnings[i] {
				t.Errorf("%s, %s:\n%+v\nwant\n%+v", c.publication, c.table, got[i], c.warnings[i])
			}
		}
	}
}
