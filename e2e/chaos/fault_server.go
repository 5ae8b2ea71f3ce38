package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

func (m *machine) crashServer(uint64) fault { return act{m.pg.Crash, m.pg.StartAgain} }

func (m *machine) killServer(uint64) fault { return act{m.pg.Kill, m.pg.StartAgain} }

func (m *machine) restartServer(uint64) fault {
	return act{func() error { return m.pg.Stop("fast") }, m.pg.StartAgain}
}

// fillServer fills the disk of the WAL and has the server want more of it: it
// panics, and cannot recover before there is room.
func (m *machine) fillServer(uint64) fault {
	return act{
		func() error {
			if err := m.wal.fill(); err != nil {
				return err
			}
			// The answer is the server's end, sooner or later.
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			conn, err := pgx.Connect(ctx, m.ledger.DSN())
			if err != nil {
				return fmt.Errorf("connect to the server whose disk is full: %w", err)
			}
			defer conn.Close(context.Background())
			for range 8 {
				if _, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(false, 'chaos', 'x'), pg_switch_wal()"); err != nil {
					return nil
				}
			}
			return fmt.Errorf("the server goes on with a full disk")
		},
		func() error {
			if err := m.wal.clear(); err != nil {
				return err
			}
			if err := m.pg.Crash(); err != nil { // what may be left of it
				return err
			}
			return m.pg.StartAgain()
		},
	}
}

func (m *machine) endWalsender(uint64) fault {
	return m.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
}

// endBackends ends the writers' connections, too.
func (m *machine) endBackends(uint64) fault {
	return m.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')")
}

func (m *machine) sql(statement string) fault {
	return act{begin: func() error { return m.pg.Run("postgres", statement) }}
}

func (m *machine) cutServer(pick uint64) fault {
	return act{
		func() error {
			m.link.Refuse(pick%2 == 0)
			m.link.Cut()
			return nil
		},
		func() error { m.link.Refuse(false); return nil },
	}
}

func (m *machine) freezeLink(uint64) fault {
	return act{func() error { m.link.Freeze(); return nil }, func() error { m.link.Thaw(); return nil }}
}

func (m *machine) slowLink(pick uint64) fault {
	delay := 5*time.Millisecond + time.Duration(pick%uint64(150*time.Millisecond))
	return act{func() error { m.link.Delay(delay); return nil }, func() error { m.link.Delay(0); return nil }}
}

func (m *machine) loseServer(uint64) fault {
	return act{begin: func() error { m.link.LoseServer(); return nil }}
}

func (m *machine) loseRelay(uint64) fault {
	return act{begin: func() error { m.link.LoseClient(); return nil }}
}

func (m *machine) refuseRegistry(uint64) fault {
	return act{
		func() error {
			m.registry.Refuse(true)
			m.registry.Cut()
			return nil
		},
		func() error { m.registry.Refuse(false); return nil },
	}
}

func (m *machine) freezeRegistry(uint64) fault {
	return act{func() error { m.registry.Freeze(); return nil }, func() error { m.registry.Thaw(); return nil }}
}

func (m *machine) fillCache(uint64) fault { return act{m.cache.fill, m.cache.clear} }
