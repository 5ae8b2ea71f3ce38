// Capture records what a real Postgres sends, for the tests of package decoder:
//
//	go run ./decoder/testdata/capture -dsn postgres://postgres@127.0.0.1:5432/postgres > decoder/testdata/pg15.frames
//
// The server must be a fresh one with wal_level=logical, version 14 or newer;
// the program creates tables, an origin, a publication and a temporary slot. Each
// line of its output is one pgoutput message in hexadecimal. After a new
// capture, `go test ./decoder -update` writes the golden files anew.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const setup = `
CREATE TYPE mood AS ENUM ('happy', 'sad');
CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_id text, event_type text NOT NULL, payload jsonb, headers jsonb,
  occurred_at timestamptz, mood mood, amount numeric(12,2), raw bytea, doc text);
ALTER TABLE outbox ALTER doc SET STORAGE EXTERNAL;
CREATE TABLE whole (id int, note text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE listed (id int PRIMARY KEY, secret text, note varchar(20));
CREATE TABLE "Odd ""Näme" (k int, "Spalte ü" text);
CREATE TABLE empty ();
CREATE PUBLICATION capture FOR TABLE outbox, whole, listed (id, note), "Odd ""Näme", empty WITH (publish = 'insert, update, delete, truncate');
SELECT pg_replication_origin_create('elsewhere');
`

// Each step is sent as one simple query, so several statements without BEGIN are one transaction.
var steps = []string{
	`INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000001', 'order-1', 'shop.order_placed.v1', '{"n": 9007199254740993, "é": "ü"}', NULL,
	   '2024-02-29 12:34:56.789012+02', 'happy', 12.30, '\x00ff10', '')`,
	`BEGIN; INSERT INTO outbox (id, event_type) SELECT ('00000000-0000-0000-0000-00000000001' || i)::uuid, 'shop.bulk.v1' FROM generate_series(0, 3) i;
	 SAVEPOINT s; INSERT INTO outbox (id, event_type) VALUES ('00000000-0000-0000-0000-0000000000ff', 'shop.never.v1'); ROLLBACK TO s; COMMIT`,
	`INSERT INTO outbox (id, event_type, doc) VALUES ('00000000-0000-0000-0000-000000000002', 'shop.toast.v1', repeat('x', 2100))`,
	`UPDATE outbox SET aggregate_id = 'order-2' WHERE event_type = 'shop.toast.v1'`,
	`UPDATE outbox SET id = '00000000-0000-0000-0000-000000000003' WHERE event_type = 'shop.toast.v1'`,
	`DELETE FROM outbox WHERE event_type = 'shop.toast.v1'`,
	`INSERT INTO whole VALUES (1, 'a'), (2, NULL)`,
	`UPDATE whole SET note = 'b' WHERE id = 1`,
	`DELETE FROM whole WHERE id = 2`,
	`INSERT INTO listed VALUES (1, 'not sent', 'sent')`,
	`INSERT INTO empty DEFAULT VALUES`,
	`INSERT INTO "Odd ""Näme" VALUES (7, E'tab\tand zero-free')`,
	`TRUNCATE outbox, whole RESTART IDENTITY CASCADE`,
	`BEGIN; INSERT INTO outbox (id, event_type) VALUES ('00000000-0000-0000-0000-000000000020', 'shop.insert_delete.v1'); DELETE FROM outbox; COMMIT`,
	`SELECT pg_logical_emit_message(true, 'prefix', 'transactional')`,
	`SELECT pg_logical_emit_message(false, 'prefix', 'at once')`,
	`BEGIN; SELECT pg_logical_emit_message(true, 'p', 'rolled back'); SELECT pg_logical_emit_message(false, '', ''); ROLLBACK`,
	`SELECT pg_replication_origin_session_setup('elsewhere')`,
	`BEGIN; SELECT pg_replication_origin_xact_setup('AB/CDEF0123', '2020-01-01 00:00:00+00');
	 INSERT INTO outbox (id, event_type) VALUES ('00000000-0000-0000-0000-000000000030', 'shop.replicated.v1'); COMMIT`,
	`SELECT pg_replication_origin_session_reset()`,
	`BEGIN; INSERT INTO outbox (id, event_type) VALUES ('00000000-0000-0000-0000-000000000040', 'shop.before.v1');
	 ALTER TABLE outbox ADD COLUMN tenant text DEFAULT 'none';
	 INSERT INTO outbox (id, event_type) VALUES ('00000000-0000-0000-0000-000000000041', 'shop.added.v1');
	 ALTER TABLE outbox DROP COLUMN doc; ALTER TABLE outbox RENAME aggregate_id TO "key";
	 INSERT INTO outbox (id, event_type, "key") VALUES ('00000000-0000-0000-0000-000000000042', 'shop.dropped.v1', 'k'); COMMIT`,
	`ANALYZE outbox`,
	`INSERT INTO outbox (id, event_type) VALUES ('00000000-0000-0000-0000-000000000050', 'shop.after_analyze.v1')`,
	`SELECT pg_logical_emit_message(true, 'the', 'end')`,
}

func main() {
	dsn := flag.String("dsn", "", "the server")
	binary := flag.Bool("binary", false, "ask for values in binary")
	flag.Parse()
	if err := capture(context.Background(), *dsn, *binary); err != nil {
		log.Fatal(err)
	}
}

func capture(ctx context.Context, dsn string, binary bool) error {
	sql, err := pgconn.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer sql.Close(ctx)
	version := sql.ParameterStatus("server_version")
	create := setup
	if strings.HasPrefix(version, "14") { // no column lists yet
		create = strings.Replace(create, "listed (id, note)", "listed", 1)
	}
	if _, err := sql.Exec(ctx, create).ReadAll(); err != nil {
		return fmt.Errorf("set up: %w", err)
	}

	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config.RuntimeParams["replication"] = "database"
	stream, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer stream.Close(ctx)
	slot, err := pglogrepl.CreateReplicationSlot(ctx, stream, "capture", "pgoutput", pglogrepl.CreateReplicationSlotOptions{Temporary: true})
	if err != nil {
		return fmt.Errorf("create the slot: %w", err)
	}
	start, err := pglogrepl.ParseLSN(slot.ConsistentPoint)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if _, err := sql.Exec(ctx, step).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}

	args := []string{"proto_version '1'", "publication_names 'capture'", "messages 'true'"}
	if binary {
		args = append(args, "binary 'true'")
	}
	if err := pglogrepl.StartReplication(ctx, stream, "capture", start, pglogrepl.StartReplicationOptions{PluginArgs: args}); err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	fmt.Fprintf(os.Stdout, "# PostgreSQL %s, binary %v\n", version, binary)
	for ended := false; ; {
		msg, err := stream.ReceiveMessage(ctx)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		data, ok := msg.(*pgproto3.CopyData)
		if !ok {
			return fmt.Errorf("unexpected %T: %v", msg, msg)
		}
		if data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		x, err := pglogrepl.ParseXLogData(data.Data[1:])
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "%x\n", x.WALData)
		switch x.WALData[0] {
		case 'M':
			ended = bytes.HasSuffix(x.WALData, []byte("the\x00\x00\x00\x00\x03end"))
		case 'C':
			if ended {
				return nil
			}
		}
	}
}
