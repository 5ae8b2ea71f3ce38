package replication

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Peek decodes a little of what a slot that nobody uses still has to send, and
// moves nothing. It finds a slot that is older than its publication, of which
// nothing but decoding tells: then its error has the class Gap. What cannot be
// told within two seconds, or because the slot is in use meanwhile, is nil; so
// it is on PostgreSQL 14 where the publication had existed before, was dropped
// and made again: decoding in an ordinary session raised no error there, the
// stream's does.
//
// It has a connection of its own, because decoding goes by the catalogue caches
// of its session: see Open.
func Peek(ctx context.Context, cfg Config) error {
	var skipped *pgconn.PgError
	cfg.notice = func(n *pgconn.PgError) {
		if skipsPublication(n) {
			skipped = n
		}
	}
	conn, err := Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	if _, err := conn.Exec(ctx, "SET statement_timeout = '2s'"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT count(*) FROM pg_catalog.pg_logical_slot_peek_binary_changes($1, NULL, 1, 'proto_version', '1', 'publication_names', $2)`,
		cfg.Slot, pgx.Identifier{cfg.Publication}.Sanitize())
	var pg *pgconn.PgError
	switch {
	case skipped != nil:
		return gapByPublication("decode from", cfg, skipped)
	case errors.As(err, &pg) && classifyState(pg.Code) != Transient:
		return streamError("decode from", cfg, pg)
	}
	return nil
}
