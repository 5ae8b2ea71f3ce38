package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// A relay that makes its slot at its first start waits for every transaction
// that has written: it says for whose, is not ready, and neither the role's
// timeouts nor a SIGTERM leave half a slot behind. When they are over it streams.
//
// Seen red with a creation that obeys the role's statement_timeout.
func TestCase_S17_FirstStartWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	o := newBare(t, nil)
	o.pg.Exec(t, "CREATE ROLE hurried SUPERUSER LOGIN", "ALTER ROLE hurried SET statement_timeout = '200ms'", "ALTER ROLE hurried SET lock_timeout = '200ms'",
		"CREATE TABLE other (n int)")
	o.config = o.config.With("postgres.dsn", o.pg.UserDSN("hurried", "", "postgres")).With("postgres.create", true)
	open := o.pg.Conn(t, "postgres")
	begin := func() {
		t.Helper()
		if _, err := open.Exec(t.Context(), "BEGIN; INSERT INTO other VALUES (1)"); err != nil {
			t.Fatal(err)
		}
	}
	waits := func() *harness.Relay {
		t.Helper()
		relay := harness.StartRelay(t, harness.RelayOptions{Config: o.config})
		relay.WaitLog("waiting for 1 older transactions", loudness)
		relay.WaitLog(fmt.Sprint(open.PgConn().PID()), loudness)
		if code, body := relay.Probe("/readyz"); code != http.StatusServiceUnavailable {
			t.Errorf("/readyz: %d %s", code, body)
		}
		return relay
	}
	slots := func() string { return o.pg.Query1(t, "SELECT count(*)::text FROM pg_replication_slots") }

	begin()
	relay := waits()
	relay.Stop()
	if _, err := open.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, soon, "no slot is left", func() bool { return slots() == "0" })

	begin()
	relay = waits()
	if _, err := open.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	relay.Ready()
	id := o.order()
	if o.read(1, "order")[id] == nil {
		t.Errorf("another event than %s", id)
	}
	if got := slots(); got != "1" {
		t.Errorf("%s slots", got)
	}
}

// Kafka refuses what the relay may not do. The relay names it and what to grant,
// is not ready, confirms nothing and makes no dead letter; granted, it goes on by
// itself.
//
// Seen red with a refusal that counts as the record's own fault.
func TestCase_S24_RefusedAndThenGranted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault kfake.Fault
		says  string
	}{
		"producer id": {kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, TopLevel: true}, "--operation IdempotentWrite --cluster"},
		"produce":     {kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "order", Err: kerr.TopicAuthorizationFailed}, "--operation Write --operation Describe --operation Create --topic order"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutbox(t, outboxOptions{})
			kafka.CreateTopic(t, o.fake.Addrs(), "order", 1, -1, nil)
			id := o.order()
			before := o.slotAt()
			c.fault.Count = -1
			refusal := o.fake.Fault(c.fault)
			relay := harness.StartRelay(t, harness.RelayOptions{Config: o.config})
			relay.WaitNotReady(c.says, loudness)
			hits := refusal.Hits()
			harness.Eventually(t, soon, "it is tried again", func() bool { return refusal.Hits() > hits+1 })
			if at := o.slotAt(); at != before {
				t.Errorf("the slot went from %s to %s", before, at)
			}
			refusal.Remove()
			relay.WaitReady("active", time.Minute)
			if o.read(1, "order", "tailer.dlq")[id] == nil {
				t.Errorf("another event than %s", id)
			}
		})
	}
}

// All walsenders are taken by others: the server's word and what to raise are
// said, and when one is free the relay streams.
//
// Seen red with a refused connection that counts as a wrong configuration.
func TestCase_S33_NoWalsenderIsFree(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{settings: map[string]string{"max_wal_senders": "1"}})
	taken, err := pgx.Connect(t.Context(), o.pg.DSN("postgres")+"&replication=database")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close(t.Context())
	relay := harness.StartRelay(t, harness.RelayOptions{Config: o.config})
	relay.WaitNotReady("SQLSTATE 53300", loudness)
	if _, body := relay.Probe("/readyz"); !strings.Contains(body, "max_wal_senders") {
		t.Errorf("/readyz: %s", body)
	}
	relay.WaitLog("raise max_connections or max_wal_senders, or end clients that are no longer needed", loudness)
	if err := taken.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	relay.WaitReady("active", time.Minute)
	relay.Stop()
	o.recovers(o.config, o.order())
}

// The DSN leads to a standby. Before 16 that cannot be decoded from: the relay
// waits, not ready, and says so; with the primary beside it in the DSN it is
// found, whatever the order. As soon as the standby is promoted the first relay
// goes on by itself, as in a failover.
//
// Seen red with a standby that counts as a mistake to exit for.
func TestCase_S35_Standby(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{settings: map[string]string{"hot_standby": "on"}})
	primary := newOutbox(t, outboxOptions{})
	o.becomeStandby(t)

	relay := harness.StartRelay(t, harness.RelayOptions{Config: o.config})
	relay.WaitNotReady("it is a standby, and before PostgreSQL 16 only a primary decodes", loudness)
	relay.WaitLog("point postgres.dsn at the primary, or list all hosts and add target_session_attrs=read-write", loudness)

	both := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=primary", o.pg.Addr(), primary.pg.Addr())
	primary.recovers(primary.config.With("postgres.dsn", both), primary.order())

	if got := o.pg.Query1(t, "SELECT pg_promote()::text"); got != "true" {
		t.Fatalf("pg_promote: %s", got)
	}
	relay.WaitReady("active", time.Minute)
	relay.Stop()
	o.again()
	o.recovers(o.config, o.order())
}

// becomeStandby starts the server again as a hot standby that follows nobody.
func (o *outbox) becomeStandby(t *testing.T) {
	t.Helper()
	if err := o.pg.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	o.signal("standby.signal")
	if err := o.pg.StartAgain(); err != nil {
		t.Fatal(err)
	}
}

// Something that no try mends is tried all the same, for it may be mended from
// outside: in pauses that grow, over no more connections and slots than at first,
// and with as few lines.
//
// Seen red with a pause that does not grow.
func TestCase_S30_NoTightLoop(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	door := harness.NewProxy(t, o.pg.Addr())
	relay := o.run(o.config.With("postgres.dsn", "postgres://postgres@"+door.Addr()+"/postgres?sslmode=disable"))
	backends := func() string {
		return o.pg.Query1(t, "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'tailer'")
	}
	door.Refuse(true)
	door.Cut()
	tries := func() int { return strings.Count(relay.Logs(), `"msg":"session ended"`) }
	harness.Eventually(t, soon, "some tries", func() bool { return tries() >= 3 })
	seen, began := tries(), time.Now()
	for time.Since(began) < harness.Span(8*time.Second, 5*time.Minute) {
		if got := backends(); got != "0" && time.Since(began) > 2*time.Second {
			t.Fatalf("%s connections of a relay that cannot connect", got)
		}
		time.Sleep(100 * time.Millisecond) // between two looks
	}
	// Doubled each time, up to 5 s: by now at most one a second.
	if more, most := tries()-seen, int(time.Since(began).Seconds()); more > most {
		t.Errorf("%d tries in %v", more, time.Since(began))
	}
	if lines := strings.Count(relay.Logs(), "\n"); lines > 20+3*tries() {
		t.Errorf("%d lines for %d tries", lines, tries())
	}
	door.Refuse(false)
	relay.WaitReady("active", time.Minute)
	if got := o.pg.Query1(t, "SELECT count(*)::text FROM pg_replication_slots"); got != "1" {
		t.Errorf("%s slots", got)
	}
	relay.Stop()
	o.recovers(o.config, o.order())
}
