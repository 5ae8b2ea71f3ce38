package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Column is one that the stream must carry, and what for, as the configuration
// calls it: role payload, header "region".
type Column struct{ Name, For string }

func (c Column) String() string { return fmt.Sprintf("%q (%s)", c.Name, c.For) }

// TableColumn is a column as the catalogue has it.
type TableColumn struct {
	Name      string
	Generated string // as pg_attribute.attgenerated: "", "s" (stored) or "v" (virtual, from 18 on)
}

// published tells whether the publication sends a column. A generated one is
// sent only where the server names it, and says the truth in that: from 18 on.
func (p *PublicationState) published(c TableColumn) bool {
	if c.Generated != "" {
		return p.version >= 180000 && slices.Contains(p.sent, c.Name)
	}
	return p.Columns == nil || slices.Contains(p.Columns, c.Name)
}

// checkColumns tells why the stream will not carry what it needs. All that is
// wrong in one way is told at once.
func (p PublicationState) checkColumns(publication string, t Table, need []Column) error {
	var missing, hidden, generated []Column
	var first TableColumn // of generated
	for _, n := range need {
		i := slices.IndexFunc(p.TableColumns, func(c TableColumn) bool { return c.Name == n.Name })
		switch {
		case i < 0:
			missing = append(missing, n)
		case p.published(p.TableColumns[i]):
		case p.TableColumns[i].Generated == "", p.TableColumns[i].Generated == "s" && p.version >= 180000 && p.Columns != nil:
			hidden = append(hidden, n)
		default:
			if generated = append(generated, n); len(generated) == 1 {
				first = p.TableColumns[i]
			}
		}
	}
	table := pgx.Identifier{t.Schema, t.Name}.Sanitize()
	alter := "ALTER PUBLICATION " + pgx.Identifier{publication}.Sanitize()
	fault := func(object, hint, why string) error {
		return &Error{Op: "check", Object: object, Class: Usage, Hint: hint, Err: errors.New(why), unpublished: true}
	}
	switch {
	case len(missing) > 0:
		var have []string
		for _, c := range p.TableColumns {
			have = append(have, c.Name)
		}
		what, verb := listed(missing)
		return fault("the table", "map columns that the table has, or nothing, under outbox.columns (role: column) and outbox.header_columns (header: column)",
			fmt.Sprintf("%s %s not in %s; it has %s", what, verb, t, strings.Join(have, ", ")))
	case len(hidden) > 0:
		what, _ := listed(hidden)
		return fault(quoted("publication", publication), alter+" SET TABLE "+table+"; publishes every column of that table, and no other table",
			fmt.Sprintf("its column list for %s hides %s", t, what))
	case len(generated) > 0:
		what, verb := listed(generated)
		why := fmt.Sprintf("%s of %s %s generated, ", what, t, verb)
		plain := "ALTER TABLE " + table + " ALTER COLUMN " + pgx.Identifier{first.Name}.Sanitize() + " DROP EXPRESSION; makes it a column that the application or a trigger fills; or map another one under outbox.columns"
		switch {
		case p.version < 180000:
			return fault(quoted("publication", publication), plain, why+"and a server before PostgreSQL 18 does not publish that")
		case first.Generated == "s":
			return fault(quoted("publication", publication), alter+" SET (publish_generated_columns = stored);", why+"and publish_generated_columns is none")
		}
		return fault(quoted("publication", publication), "make it GENERATED ALWAYS AS (…) STORED and set publish_generated_columns, or map another one under outbox.columns",
			why+"and not stored, which is never published")
	}
	return nil
}

// listed names columns, and the verb that goes with so many.
func listed(columns []Column) (names, verb string) {
	var all []string
	for _, c := range columns {
		all = append(all, c.String())
	}
	if len(all) == 1 {
		return "column " + all[0], "is"
	}
	return "columns " + strings.Join(all, ", "), "are"
}

// Warning is what is told and does not stop the relay.
type Warning struct{ Text, Hint string }

// Warnings are about what works and is better otherwise.
func (p PublicationState) Warnings(publication string, t Table) []Warning {
	if !p.Exists {
		return nil
	}
	var w []Warning
	name := pgx.Identifier{publication}.Sanitize()
	if p.AllTables {
		w = append(w, Warning{
			fmt.Sprintf("publication %q is FOR ALL TABLES: the server sends the changes of every table, and the relay skips them", publication),
			"make one for the outbox alone, and once the relay has caught up name it in postgres.publication: CREATE PUBLICATION tailer_outbox FOR TABLE " +
				pgx.Identifier{t.Schema, t.Name}.Sanitize() + " WITH (publish = 'insert', publish_via_partition_root = true);",
		})
	}
	if p.TableExists && p.HasTable && !p.Identity && (p.Update || p.Delete) {
		w = append(w, Warning{
			fmt.Sprintf("publication %q publishes updates and deletes of %s, which has no replica identity: the application's UPDATE and DELETE fail there", publication, t),
			"ALTER PUBLICATION " + name + " SET (publish = 'insert');",
		})
	}
	return w
}
