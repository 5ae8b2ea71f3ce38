package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// PartitionAfterStart makes partitions of the outbox under a running relay in every way
// there is: each kind's events arrive, from one uninterrupted session.
//
// Seen red with a relay that knows the table only by the first description of
// it that comes: each partition brings one; and, for the log, with one that warns
// of another table at each partition's description.
func PartitionAfterStart(t *testing.T, env Env) {
	b := env.lay(t, bedOptions{})
	b.pg.Exec(t,
		"DROP TABLE outbox",
		`CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), aggregate_id text, type text NOT NULL, payload jsonb, headers jsonb,
			occurred_at timestamptz DEFAULT clock_timestamp(), sent_at timestamptz, PRIMARY KEY (id, aggregate_id)) PARTITION BY LIST (aggregate_id)`,
		"CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES IN ('key-0')",
		fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE outbox", b.ledger.Slot()))
	relay := b.start()
	steady := b.steady(relay)
	b.ledger.Insert(t, 0, 3)
	b.settle()

	for key, make := range []string{
		1: "CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN ('key-1')",
		2: "CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT",
		3: `CREATE TABLE outbox_3 (LIKE outbox INCLUDING ALL);
			ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES IN ('key-3')`,
		4: `CREATE TABLE outbox_4 PARTITION OF outbox FOR VALUES IN ('key-4') PARTITION BY HASH (id);
			CREATE TABLE outbox_4_even PARTITION OF outbox_4 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
			CREATE TABLE outbox_4_odd PARTITION OF outbox_4 FOR VALUES WITH (MODULUS 2, REMAINDER 1)`,
	} {
		if make == "" {
			continue
		}
		b.pg.Exec(t, strings.Split(make, ";")...)
		b.ledger.Insert(t, key, 10)
	}
	// A partition that is made and filled in one transaction, and rows that
	// name the partition and not the table.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := b.conn()
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	for _, sql := range []string{
		"CREATE TABLE outbox_5 PARTITION OF outbox FOR VALUES IN ('key-5')",
		`WITH drawn AS (UPDATE counter SET n = n + 1 WHERE key = 'key-5' RETURNING n)
			INSERT INTO outbox (aggregate_id, type, payload) SELECT 'key-5', '` + b.typ + `', jsonb_build_object('n', n) FROM drawn`,
		`WITH drawn AS (UPDATE counter SET n = n + 1 WHERE key = 'key-1' RETURNING n)
			INSERT INTO outbox_1 (aggregate_id, type, payload) SELECT 'key-1', '` + b.typ + `', jsonb_build_object('n', n) FROM drawn`,
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}

	b.ledger.WaitDelivered(t, b.consumer, patience)
	steady.assert(t)
	if logged(relay, "another table") {
		t.Error("the relay takes a partition for another table")
	}
	if records := b.finish(relay, 0); len(records) != 45 {
		t.Errorf("%d records of 45 events", len(records))
	}
}
