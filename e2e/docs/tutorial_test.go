package docs_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/docs/page"
	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// The tutorial against own servers, typed from its first line to its last.
func TestTutorialWithTheBinary(t *testing.T) {
	t.Parallel()
	doc := page.Open(t, "tutorial.md", "## With the binary")
	pg := postgres.New(t, postgres.Options{HBA: []string{
		"host all relay 127.0.0.1/32 scram-sha-256", "host all all 127.0.0.1/32 trust", "local all all trust"}})
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	at := newPlace(t, pg, "127.0.0.1:9092", fake.Addrs()[0])

	// 1: what make would run, into the folder of the test: others use the tree's own.
	build, version, _ := strings.Cut(doc.Next("sh"), "\n")
	if build != "make build" {
		t.Fatalf("the tutorial builds by %q", build)
	}
	makeBuild(t, filepath.Join(at.dir, "bin"))
	if out := at.sh(version); !strings.HasPrefix(out, "tailer ") {
		t.Errorf("%s printed %s", version, out)
	}

	// 2
	if level := at.sql("postgres", doc.Next("sql")); level != "logical" {
		t.Fatalf("wal_level is %s", level)
	}
	at.sql("postgres", doc.Next("sql"))

	// 3 and 4
	at.sh(doc.Next("sh"))
	printed := at.sh(doc.Next("sh"))
	doc.Says("the outbox, a publication, two small tables in which the relay remembers how far it came, a slot", "Eight lines are enough")
	for _, object := range []string{`CREATE TABLE "public"."outbox"`, "CREATE PUBLICATION", "tailer_state\" (", "tailer_state_gaps\" (", "pg_create_logical_replication_slot"} {
		if strings.Count(printed, object) != 2 {
			t.Errorf("init did not print and then run %s:\n%s", object, printed)
		}
	}

	// 5
	run, health := doc.Next("sh"), doc.Next("sh")
	relay := at.start(run)
	at.ready(health, relay)

	// 6 and 7
	at.sql("shop", doc.Next("sql"))
	consumer := harness.NewConsumer(t, fake.Addrs(), "order", "tailer.dlq")
	record := consumer.WaitLen(1, waitLimit)[0]
	if id, _ := record.Header("ce_id"); record.Topic != "order" || string(record.Key) != "order-42" || id != pg.Query1In(t, "shop", "SELECT id::text FROM outbox") || record.Sequence() == "" {
		t.Errorf("the record is in %s with key %q and headers %v", record.Topic, record.Key, record.Headers)
	}
	at.kcat(doc.Next("sh"), "key order-42", `"order_id": 42`, "ce_type=order.placed.v1")
	relay.stop()

	// 8
	at.sh(doc.Next("sh"))
	relay = at.start(doc.Next("sh"))
	at.ready(health, relay)
	at.sql("shop", doc.Next("sql"))
	for _, r := range consumer.WaitLen(3, waitLimit)[1:] {
		reason, _ := r.Header("dlq_reason")
		path, _ := r.Header("dlq_path")
		switch string(r.Key) {
		case "order-43":
			if r.Topic != "order" {
				t.Errorf("the event that fits is in %s: %v", r.Topic, r.Headers)
			}
		case "order-44":
			doc.Says("`dlq_reason` is `" + reason + "`, `dlq_path` is `" + path + "`")
			if r.Topic != "tailer.dlq" {
				t.Errorf("the event that does not fit is in %s", r.Topic)
			}
		default:
			t.Errorf("a record with key %q", r.Key)
		}
	}
	at.kcat(doc.Next("sh"), "key order-44", "dlq_reason=invalid")
	relay.stop()

	// 9: the role may do nothing but stream, and its password is asked for.
	at.sh(doc.Next("sh"))
	at.sql("shop", doc.Next("sql"))
	if got := pg.Query1In(t, "shop", "SELECT has_table_privilege('relay', 'public.outbox', 'SELECT')"); got != "f" {
		t.Error("the relay's role may read the table")
	}
	few := doc.Next("sh")
	relay = at.start(few)
	at.ready(health, relay)
	pg.ExecIn(t, "shop", `INSERT INTO outbox (aggregate_id, type, payload) VALUES ('order-45', 'order.placed.v1', '{"order_id": 45, "total": "1.00"}')`)
	consumer.WaitLen(4, waitLimit)
	if wrong, _, log := at.try(strings.NewReplacer("change me", "another", "; ", ";").Replace(strings.Split(few, "\n")[0]) + "\n" +
		"bin/tailer status --postgres-dsn postgres://relay@127.0.0.1:5432/shop --postgres-password-file relay.password"); wrong == 0 {
		t.Errorf("another password was taken as well\n%s", log)
	}

	// 10
	if out := at.sh(doc.Next("sh")); !strings.Contains(out, "active") || !strings.Contains(out, "tailer") {
		t.Errorf("status printed\n%s", out)
	}
	relay.stop()
	at.sh(doc.Next("sh"))
	at.sql("shop", doc.Next("sql"))
	if n := pg.Query1(t, "SELECT count(*) FROM pg_replication_slots"); n != "0" {
		t.Errorf("%s slots are left", n)
	}
	doc.End()
	if n := consumer.Len(); n != 4 {
		t.Errorf("%d records of 4 events", n)
	}
}

// makeBuild builds the binary by the command that make prints.
func makeBuild(t *testing.T, into string) {
	t.Helper()
	dry := exec.Command("make", "--no-print-directory", "-n", "build")
	dry.Dir = "../.."
	out, err := dry.Output()
	if err != nil || !strings.Contains(string(out), " -o bin/tailer ") {
		t.Fatalf("make -n build: %v\n%s", err, out)
	}
	path := filepath.Join(into, "tailer.built")
	cmd := exec.Command("sh", "-e", "-c", strings.ReplaceAll(string(out), "-o bin/tailer ", "-o '"+path+"' "))
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	if out, err := exec.Command("mv", path, filepath.Join(into, "tailer")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
