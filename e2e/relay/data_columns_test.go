package relay_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// Every row of the table in docs/columns.md, on a real server: as header column
// all in one event, as key and as payload each in a relay of its own.
//
// Seen red with a char(n) that keeps its padding, and a bytea that is sent as hex.
func TestColumnTypesAreAsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/columns.md")
	if err != nil {
		t.Fatal(err)
	}
	type column struct{ typ, written, key, header, payload string }
	var columns []column
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), " | ") {
			cell = strings.Trim(strings.TrimSpace(cell), "*")
			cells = append(cells, cell[1:len(cell)-1])
		}
		if len(cells) != 5 {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		columns = append(columns, column{cells[0], cells[1], cells[2], cells[3], cells[4]})
	}
	if len(columns) < 19 {
		t.Fatalf("the table has %d rows", len(columns))
	}
	names := harness.Config{}
	var sqlColumns, list, values []string
	for i, c := range columns {
		name := fmt.Sprintf("c%d", i)
		names[name] = name
		sqlColumns, list = append(sqlColumns, name+" "+c.typ), append(list, name)
		values = append(values, "'"+c.written+"'")
	}
	types := []string{"CREATE EXTENSION hstore", "CREATE EXTENSION citext", "CREATE TYPE mood AS ENUM ('fine', 'bad')", "CREATE DOMAIN money_text AS numeric(10, 2)"}
	table := strings.TrimSuffix(jsonTable, ")") + ", " + strings.Join(sqlColumns, ", ") + ")"
	o := newOutbox(t, outboxOptions{
		before:   append(types, table),
		settings: map[string]string{"max_replication_slots": "50", "max_wal_senders": "50"},
		config:   map[string]any{"outbox.header_columns": names},
	})
	id := o.row("type, payload, "+strings.Join(list, ", "), "'order.placed.v1', '{}', "+strings.Join(values, ", "))
	o.run(o.config).Stop()
	record := o.read(1, "order")[id]
	for i, c := range columns {
		if got, _ := record.Header(list[i]); got != c.header {
			t.Errorf("%s %s as a header is %q, want %q", c.typ, c.written, got, c.header)
		}
	}
	for i, c := range columns {
		t.Run(c.typ, func(t *testing.T) {
			t.Parallel()
			slot := list[i]
			config := o.config.With("postgres.slot", slot).With("outbox.header_columns", harness.Config{}).
				With("outbox.columns", harness.Config{"key": slot, "payload": slot}).With("routing.topic", slot)
			applied := harness.Run(t, config, "init", "--apply")
			if applied.Code != 0 {
				t.Fatalf("init: %s", applied.Stderr)
			}
			o.pg.Exec(t, fmt.Sprintf("INSERT INTO outbox (type, %s) VALUES ('order.placed.v1', '%s')", slot, c.written))
			relay := harness.StartRelay(t, harness.RelayOptions{Config: config}).Ready()
			consumer := harness.NewConsumer(t, o.fake.Addrs(), slot)
			// Rows of the other types have NULL here, and are dead letters.
			for _, r := range consumer.WaitLen(1, waitLimit) {
				if r.Key == nil || (string(r.Key) != c.key || string(r.Value) != c.payload) {
					t.Errorf("%s %s is the key %q and the payload %q, want %q and %q", c.typ, c.written, r.Key, r.Value, c.key, c.payload)
				}
			}
			relay.Stop()
		})
	}
}
