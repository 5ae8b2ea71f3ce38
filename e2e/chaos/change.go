package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// change does what an operator does to the table while all goes on. What the
// server cannot do in this moment is left.
func (m *machine) change(began time.Time, changes []Change) {
	for n, c := range changes {
		time.Sleep(time.Until(began.Add(c.At)))
		var statements []string
		switch c.Kind {
		case "analyze":
			statements = []string{"ANALYZE outbox"}
		case "add column":
			statements = []string{fmt.Sprintf("ALTER TABLE outbox ADD COLUMN note%d text DEFAULT 'x'", n)}
		case "drop column":
			statements = []string{"ALTER TABLE outbox DROP COLUMN IF EXISTS note0", "ALTER TABLE outbox DROP COLUMN IF EXISTS note1"}
		case "new partition":
			// Rows go there from now on.
			m.parts++
			statements = []string{
				fmt.Sprintf("CREATE TABLE outbox_%d PARTITION OF outbox FOR VALUES IN (%d)", m.parts, m.parts),
				fmt.Sprintf("ALTER TABLE outbox ALTER COLUMN part SET DEFAULT %d", m.parts),
			}
		case "checkpoint":
			statements = []string{"CHECKPOINT"}
		case "switch wal":
			statements = []string{"SELECT pg_switch_wal()"}
		case "index":
			statements = []string{"CREATE INDEX IF NOT EXISTS outbox_type ON outbox (type)", "DROP INDEX outbox_type"}
		}
		m.log.change(c.Kind, m.apply(statements))
	}
}

// apply runs statements in one transaction where they may be in one, and does not
// wait long for a lock: writers queue behind it.
func (m *machine) apply(statements []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, m.ledger.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, "SET lock_timeout = '2s'"); err != nil {
		return err
	}
	if len(statements) == 1 {
		_, err := conn.Exec(ctx, statements[0])
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, s := range statements {
			if _, err := tx.Exec(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}
