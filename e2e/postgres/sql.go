package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlLimit bounds a statement of a test: more than a minute is a hang.
const sqlLimit = 60 * time.Second

// Conn opens a connection that ends with the test.
func (s *Server) Conn(t testing.TB, db string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sqlLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN(db))
	if err != nil {
		t.Fatalf("connect to %s: %v", db, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	})
	return conn
}

// Exec runs statements in the database postgres, each on its own.
func (s *Server) Exec(t testing.TB, sql ...string) {
	t.Helper()
	s.ExecIn(t, "postgres", sql...)
}

// ExecIn is Exec in another database.
func (s *Server) ExecIn(t testing.TB, db string, sql ...string) {
	t.Helper()
	if err := s.Run(db, sql...); err != nil {
		t.Fatal(err)
	}
}

// Run is ExecIn for callers that have no test, or a goroutine of one.
func (s *Server) Run(db string, sql ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), sqlLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN(db))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", db, err)
	}
	defer conn.Close(context.Background())
	for _, statement := range sql {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%.200s: %w", statement, err)
		}
	}
	return nil
}

// Query1 returns the one value of a query in the database postgres as text;
// NULL is empty, and no row fails the test.
func (s *Server) Query1(t testing.TB, sql string, args ...any) string {
	t.Helper()
	return s.Query1In(t, "postgres", sql, args...)
}

// Query1In is Query1 in another database.
func (s *Server) Query1In(t testing.TB, db, sql string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sqlLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN(db))
	if err != nil {
		t.Fatalf("connect to %s: %v", db, err)
	}
	defer conn.Close(context.Background())
	// The extended protocol would give some types in binary.
	rows, err := conn.Query(ctx, sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
	if err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatalf("%.200s: no row (%v)", sql, rows.Err())
	}
	text := string(rows.RawValues()[0])
	rows.Close()
	if err := rows.Err(); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
	return text
}
