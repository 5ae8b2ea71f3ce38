package docs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/tailer-relay/tailer/e2e/docs/page"
	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

const debeziumTable = "CREATE TABLE public.outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb)"

// A slot and a publication as Debezium leaves them, by a reader that received
// everything and confirmed a half: tailer sends the other half, and changes over
// to a publication of its own without losing a row. e2e/docs/real does it with
// Debezium itself.
//
// Seen red with the new publication used from before it was made.
func TestFromDebezium(t *testing.T) {
	t.Parallel()
	doc := page.Open(t, "from-debezium.md", "")
	pg := postgres.New(t, postgres.Options{})
	pg.Exec(t, "CREATE DATABASE shop")
	pg.ExecIn(t, "shop", debeziumTable, "CREATE TABLE orders (id int)", "CREATE PUBLICATION dbz_publication FOR ALL TABLES",
		"SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
	insert := func(from, to int) {
		t.Helper()
		for n := from; n <= to; n++ {
			pg.ExecIn(t, "shop", fmt.Sprintf("BEGIN; INSERT INTO orders VALUES (%d); INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('Order', 'o', 'OrderPlaced', '%d'); COMMIT", n, n))
		}
	}
	insert(1, 20)
	confirmHalf(t, pg, 20)

	fake := kafka.NewFake(t, kafka.FakeOptions{})
	at := newPlace(t, pg, "127.0.0.1:9092", fake.Addrs()[0])
	at.write("tailer.yaml", doc.Next("yaml"))
	if out := at.sh(doc.Next("sh")); strings.Count(out, "skipped") != 3 {
		t.Errorf("not only the state tables were made:\n%s", out)
	}
	if got := at.sql("shop", "SELECT plugin || ' ' || active FROM pg_replication_slots WHERE slot_name = 'debezium';"); got != "pgoutput false" {
		t.Fatalf("the slot: %s", got)
	}
	doc.Says("`plugin` has to be `pgoutput`", "`active` has to be `f`")
	at.sql("shop", doc.Next("sql"))
	const health = "bin/tailer health --config tailer.yaml"
	relay := at.start(doc.Next("sh"))
	at.ready(health, relay)
	insert(21, 30)
	consumer := harness.NewConsumer(t, fake.Addrs(), "outbox.event.Order", "outbox.dlq")
	wait := func(from, to int) {
		t.Helper()
		for i, r := range consumer.WaitLen(to-from+1, waitLimit) {
			if string(r.Value) != fmt.Sprint(from+i) || string(r.Key) != "o" || len(r.Headers) != 1 || r.Headers[0].Key != "id" {
				t.Fatalf("record %d has key %s, value %s, headers %v", i, r.Key, r.Value, r.Headers)
			}
		}
	}
	wait(11, 30)

	// A publication of its own, with rows on both sides of its making.
	insert(31, 35)
	at.sql("shop", doc.Next("sql"))
	insert(36, 40)
	passed := doc.Next("sql")
	harness.Eventually(t, waitLimit, passed, func() bool { return at.sql("shop", passed) == "t" })
	relay.stop()
	insert(41, 45)
	relay = at.start(doc.Next("sh"))
	at.ready(health, relay)
	at.sql("shop", doc.Next("sql"))
	insert(46, 50)
	wait(11, 50)
	relay.stop()
	doc.End()
	if n := len(consumer.CatchUp(waitLimit)); n != 40 {
		t.Errorf("%d records of the 40 events that were not confirmed before", n)
	}
}

// confirmHalf reads so many transactions as any client of pgoutput does, and
// confirms the first half of them.
func confirmHalf(t *testing.T, pg *postgres.Server, transactions int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	conn, err := pgconn.Connect(ctx, pg.DSN("shop")+"&replication=database")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := pglogrepl.StartReplication(ctx, conn, "debezium", 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'dbz_publication'"}}); err != nil {
		t.Fatal(err)
	}
	var half pglogrepl.LSN
	for seen := 0; seen < transactions; {
		message, err := conn.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		data, ok := message.(*pgproto3.CopyData)
		if !ok || data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		x, err := pglogrepl.ParseXLogData(data.Data[1:])
		if err != nil {
			t.Fatal(err)
		}
		if x.WALData[0] != 'C' {
			continue
		}
		m, err := pglogrepl.Parse(x.WALData)
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == transactions/2 {
			half = m.(*pglogrepl.CommitMessage).TransactionEndLSN
		}
	}
	if err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: half, WALFlushPosition: half, WALApplyPosition: half}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, waitLimit, "the confirmed position", func() bool {
		return pg.Query1(t, "SELECT confirmed_flush_lsn = $1::pg_lsn FROM pg_replication_slots", half.String()) == "t"
	})
	conn.Close(context.Background())
	harness.Eventually(t, 10*time.Second, "the slot to be free", func() bool {
		return pg.Query1(t, "SELECT active FROM pg_replication_slots") == "f"
	})
}
