package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tailer-relay/tailer/replication"
)

// step is one object that the relay needs. It is made when absent and never
// altered: what is there but does not fit is reported.
type step struct {
	what string // "publication tailer"
	sql  string
	// look says whether the object is there, and what about it does not fit.
	look func(context.Context, replication.Querier) (found, error)
	slot bool // creating it waits, see createSlot
}

// found is what a look at an object found.
type found struct {
	exists bool
	misfit string // why the relay will refuse it
	remedy string // what to type about that
	gap    bool   // events may be missing: a person must decide
}

// initSteps are what `init` makes, in the only right order: the publication
// must be older than the slot, because the slot decodes with the catalogue of
// its own position.
func initSteps(cfg *Config, role string) []step {
	table := replication.Table{Schema: cfg.Outbox.TableSchema, Name: cfg.Outbox.TableName}
	var steps []step
	for _, schema := range slices.Compact([]string{table.Schema, cfg.Checkpoint.TableSchema}) {
		if schema == "public" {
			continue
		}
		steps = append(steps, step{
			what: "schema " + quoteIdent(schema),
			sql:  "CREATE SCHEMA " + quoteIdent(schema),
			look: exists("SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)", schema),
		})
	}
	steps = append(steps, step{
		what: "table " + quoteIdent(table.Schema, table.Name),
		sql:  createTable(cfg),
		look: func(ctx context.Context, q replication.Querier) (found, error) {
			state, err := inspectTable(ctx, q, cfg)
			return state.found(table), err
		},
	}, step{
		what: "publication " + quoteIdent(cfg.Postgres.Publication),
		sql: fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
			quoteIdent(cfg.Postgres.Publication), quoteIdent(table.Schema, table.Name)),
		look: func(ctx context.Context, q replication.Querier) (found, error) {
			state, err := replication.InspectPublication(ctx, q, cfg.Postgres.Publication, table)
			return publicationFound(state, cfg), err
		},
	})
	if role != "" {
		steps = append(steps, roleSteps(role, databaseName(cfg))...)
	}
	steps = append(steps, stateSteps(cfg, role)...)
	return append(steps, step{
		what: "slot " + cfg.Postgres.Slot,
		sql:  fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", quoteText(cfg.Postgres.Slot)),
		slot: true,
		look: func(ctx context.Context, q replication.Querier) (found, error) {
			state, err := replication.InspectSlot(ctx, q, cfg.Postgres.Slot)
			if err != nil {
				return found{}, err
			}
			var database string
			if err := q.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
				return found{}, err
			}
			return judged(state.Exists, state.Check(cfg.Postgres.Slot, database)), nil
		},
	})
}

// stateSteps make the tables in which a relay remembers. The relay's role writes
// there, and nowhere else.
func stateSteps(cfg *Config, role string) []step {
	t := stateTablesOf(cfg)
	const table = `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2)`
	steps := []step{
		{what: "state table " + t.stateSQL(), sql: t.createState(), look: exists(table, t.schema, t.state)},
		{what: "state table " + t.gapsSQL(), sql: t.createGaps(), look: exists(table, t.schema, t.gaps)},
	}
	if role == "" {
		return steps
	}
	if t.schema != "public" {
		steps = append(steps, step{
			what: "privilege USAGE of role " + quoteIdent(role),
			sql:  fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", quoteIdent(t.schema), quoteIdent(role)),
			look: exists(`SELECT coalesce(bool_or(has_schema_privilege(oid, $2::text, 'USAGE')), false)
				FROM pg_catalog.pg_roles WHERE rolname = $1`, role, t.schema),
		})
	}
	return append(steps, step{
		what: "privileges on the state tables of role " + quoteIdent(role),
		sql:  t.grant(role),
		look: exists(`SELECT coalesce(bool_and(has_table_privilege(r.oid, t.name, p.name)), false) FROM pg_catalog.pg_roles AS r,
			unnest($2::text[]) AS t(name), unnest('{SELECT, INSERT, UPDATE}'::text[]) AS p(name) WHERE r.rolname = $1`,
			role, []string{t.stateSQL(), t.gapsSQL()}),
	})
}

// exists makes a look out of a query that answers yes or no.
func exists(query string, args ...any) func(context.Context, replication.Querier) (found, error) {
	return func(ctx context.Context, q replication.Querier) (f found, err error) {
		err = q.QueryRow(ctx, query, args...).Scan(&f.exists)
		return f, err
	}
}

// columnTypes are the types of a created table's columns, by role.
var columnTypes = map[string]string{
	"id":            "uuid PRIMARY KEY DEFAULT gen_random_uuid()",
	"occurred_at":   "timestamptz NOT NULL DEFAULT now()",
	"aggregatetype": "text NOT NULL",
	"type":          "text NOT NULL",
	"payload":       "jsonb",
	"headers":       "jsonb",
}

// createTable has the preset's columns under the names that the configuration
// gives them, and those that it adds.
func createTable(cfg *Config) string {
	var lines []string
	have := map[string]bool{}
	add := func(column, typ string) {
		if column != "" && !have[column] {
			have[column] = true
			lines = append(lines, "    "+quoteIdent(column)+" "+typ)
		}
	}
	for _, role := range roles {
		typ := columnTypes[role]
		if typ == "" {
			typ = "text"
		}
		add(cfg.Outbox.Roles[role], typ)
	}
	for _, p := range cfg.Outbox.HeaderColumns {
		add(p.Value, "text")
	}
	switch cfg.Outbox.Preset {
	case "default":
		add("sent_at", "timestamptz")
	case "simple":
		add("published", "boolean NOT NULL DEFAULT false")
		add("published_at", "timestamptz")
	}
	return fmt.Sprintf("CREATE TABLE %s (\n%s\n)", quoteIdent(cfg.Outbox.TableSchema, cfg.Outbox.TableName), strings.Join(lines, ",\n"))
}

// judged is what the relay's own judgement of an object says about it.
func judged(exists bool, err error) found {
	f := found{exists: exists}
	var e *replication.Error
	if exists && errors.As(err, &e) {
		f.misfit, f.remedy, f.gap = e.Err.Error(), e.Hint, e.Class == replication.Gap
	}
	return f
}

// publicationFound is about the columns that the table has: which it lacks is
// said of the table.
func publicationFound(p replication.PublicationState, cfg *Config) found {
	need := slices.DeleteFunc(neededColumns(cfg), func(n replication.Column) bool {
		return !slices.ContainsFunc(p.TableColumns, func(c replication.TableColumn) bool { return c.Name == n.Name })
	})
	return judged(p.Exists, p.Check(cfg.Postgres.Publication, streamConfig(cfg).Table, need...))
}

// mappedColumns are the columns that the configuration names, by what for.
func mappedColumns(cfg *Config) Pairs {
	var out Pairs
	for _, role := range roles {
		if c := cfg.Outbox.Roles[role]; c != "" {
			out = append(out, Pair{role, c})
		}
	}
	for _, p := range cfg.Outbox.HeaderColumns {
		out = append(out, Pair{"header " + p.Name, p.Value})
	}
	return out
}

// roleSteps make a role that may stream: LOGIN, REPLICATION and CONNECT are all
// it needs for that, no SELECT on the outbox. Its password is the operator's to set.
func roleSteps(role, database string) []step {
	grant := fmt.Sprintf("GRANT CONNECT ON DATABASE %s TO %s", quoteIdent(database), quoteIdent(role))
	if database == "" {
		grant = fmt.Sprintf("DO $do$ BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %%I TO %%I', current_database(), %s); END $do$", quoteText(role))
	}
	return []step{{
		what: "role " + quoteIdent(role),
		sql:  fmt.Sprintf("CREATE ROLE %s LOGIN REPLICATION", quoteIdent(role)),
		look: func(ctx context.Context, q replication.Querier) (found, error) {
			var f found
			var fits bool
			err := q.QueryRow(ctx, `SELECT count(*) > 0, coalesce(bool_or(rolsuper OR (rolcanlogin AND rolreplication)), false)
				FROM pg_catalog.pg_roles WHERE rolname = $1`, role).Scan(&f.exists, &fits)
			if f.exists && !fits {
				f.misfit = "it lacks LOGIN or REPLICATION"
				f.remedy = "ALTER ROLE " + quoteIdent(role) + " LOGIN REPLICATION; (on a managed service grant its replication role instead)"
			}
			return f, err
		},
	}, {
		what: "privilege CONNECT of role " + quoteIdent(role),
		sql:  grant,
		look: exists(`SELECT coalesce(bool_or(has_database_privilege(oid, current_database(), 'CONNECT')), false)
			FROM pg_catalog.pg_roles WHERE rolname = $1`, role),
	}}
}

// databaseName is what the connection string names, "" when it cannot be told
// without connecting.
func databaseName(cfg *Config) string {
	pc, err := pgconn.ParseConfig(cfg.Postgres.DSN.Reveal())
	if err != nil || cfg.Postgres.DSN == "" {
		return ""
	}
	if pc.Database == "" {
		return pc.User
	}
	return pc.Database
}

// tableState is what the catalogue says about the outbox table.
type tableState struct {
	Exists   bool     `json:"exists"`
	Kind     string   `json:"kind,omitempty"` // table, partitioned table, or what it is instead
	Unlogged bool     `json:"unlogged,omitempty"`
	Missing  []string `json:"missing_columns,omitempty"` // "role: column"
}

// inspectTable compares the table with the columns that the configuration maps.
func inspectTable(ctx context.Context, q replication.Querier, cfg *Config) (tableState, error) {
	var s tableState
	var columns []string
	err := q.QueryRow(ctx, `SELECT count(*) > 0,
			coalesce(max(CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view'
				WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'no table' END), ''),
			coalesce(bool_or(c.relpersistence <> 'p'), false),
			coalesce(array_agg(a.attname::text) FILTER (WHERE a.attname IS NOT NULL), '{}')
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE n.nspname = $1 AND c.relname = $2`, cfg.Outbox.TableSchema, cfg.Outbox.TableName).
		Scan(&s.Exists, &s.Kind, &s.Unlogged, &columns)
	if err != nil || !s.Exists {
		return s, err
	}
	have := map[string]bool{}
	for _, c := range columns {
		have[c] = true
	}
	for _, m := range mappedColumns(cfg) {
		if !have[m.Value] {
			s.Missing = append(s.Missing, m.Name+": "+m.Value)
		}
	}
	return s, nil
}

func (s tableState) found(t replication.Table) found {
	f := found{exists: s.Exists}
	switch {
	case !s.Exists:
	case s.Kind != "table" && s.Kind != "partitioned table":
		f.misfit, f.remedy = "it is a "+s.Kind, "name a table with outbox.table"
	case s.Unlogged:
		f.misfit = "it is unlogged or temporary, which is never published"
		f.remedy = "ALTER TABLE " + quoteIdent(t.Schema, t.Name) + " SET LOGGED;"
	case len(s.Missing) > 0:
		f.misfit = "it lacks columns (" + strings.Join(s.Missing, ", ") + ")"
		f.remedy = "map the table's own with outbox.columns, or choose outbox.preset"
	}
	return f
}
