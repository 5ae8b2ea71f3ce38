package relay_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// exits starts a relay that must exit by itself, soon, and returns the hint.
func (o *outbox) exits(config harness.Config, code int, says ...string) (hint string) {
	o.t.Helper()
	relay := harness.StartRelay(o.t, harness.RelayOptions{Config: config})
	if got := relay.WaitExit(loudness); got != code {
		o.t.Fatalf("exit code %d, want %d\n%s", got, code, relay.Logs())
	}
	return o.ended(relay, says...)
}

// ended checks the last words of a relay: one line of what is wrong, one of what
// to type.
func (o *outbox) ended(relay *harness.Relay, says ...string) (hint string) {
	o.t.Helper()
	_, last, found := strings.Cut(relay.Logs(), "\ntailer: ")
	if strings.HasPrefix(relay.Logs(), "tailer: ") {
		last, found = relay.Logs(), true
	}
	what, hint, hinted := strings.Cut(last, "\nhint: ")
	if !found || !hinted {
		o.t.Fatalf("no error with a hint at the end of\n%s", relay.Logs())
	}
	for _, text := range says {
		if !strings.Contains(what, text) {
			o.t.Errorf("the error does not say %q: %s", text, what)
		}
	}
	return strings.TrimSpace(hint)
}

// recovers runs the relay after what the hint named was done, and wants the
// event that waits.
func (o *outbox) recovers(config harness.Config, id string) {
	o.t.Helper()
	relay := o.run(config)
	consumer := harness.NewConsumer(o.t, o.fake.Addrs(), "order")
	defer consumer.Close()
	harness.Eventually(o.t, waitLimit, "event "+id, func() bool {
		for _, r := range consumer.Records() {
			if r.ID() == id {
				return true
			}
		}
		return false
	})
	if code := relay.Stop(); code != 0 {
		o.t.Errorf("exit code %d after SIGTERM", code)
	}
}

func (o *outbox) order() string { o.t.Helper(); return o.insert("order-1", "order.placed.v1", `{}`) }

// statement takes the one SQL statement out of a hint that begins so.
func (o *outbox) statement(hint, begins string) string {
	o.t.Helper()
	sql := regexp.MustCompile(regexp.QuoteMeta(begins) + `[^;]*`).FindString(hint)
	if sql == "" {
		o.t.Fatalf("no %s in the hint: %s", begins, hint)
	}
	return strings.TrimSpace(sql)
}

// named fails the test unless the hint names the command that the test types next.
func (o *outbox) named(hint, command string) {
	o.t.Helper()
	if !strings.Contains(hint, command) {
		o.t.Fatalf("the hint does not name %q: %s", command, hint)
	}
}

// The contract's exit codes. Each error names the object, each hint what to
// type; the test types it, and the relay goes on.
//
// Seen red with a missing slot that counts as a mistake of the configuration.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	patient := refusedLogins(t) // their minute passes while the rest runs

	for name, check := range map[string]func(o *outbox){
		"missing slot": func(o *outbox) {
			o.pg.Exec(o.t, "SELECT pg_drop_replication_slot('tailer')")
			hint := o.exits(o.config, 2, `slot "tailer"`, "does not exist, and this relay never ran")
			o.named(hint, "tailer init --apply")
			o.init(o.config)
			o.recovers(o.config, o.order())
		},
		"missing publication": func(o *outbox) {
			o.pg.Exec(o.t, "DROP PUBLICATION tailer")
			hint := o.exits(o.config, 3, `publication "tailer"`, "does not exist")
			o.named(hint, "tailer init --apply")
			o.named(hint, "created again")
			o.pg.Exec(o.t, "SELECT pg_drop_replication_slot('tailer')")
			o.init(o.config)
			o.recovers(o.config, o.order())
		},
		"slot older than its publication": func(o *outbox) {
			o.pg.Exec(o.t, "DROP PUBLICATION tailer")
			o.order()
			o.init(o.config)
			hint := o.exits(o.config, 3, `slot "tailer"`, `older than publication "tailer"`)
			o.pg.Exec(o.t, o.statement(hint, "SELECT pg_replication_slot_advance"))
			o.recovers(o.config, o.order())
		},
		"publication without inserts": func(o *outbox) {
			o.pg.Exec(o.t, "ALTER PUBLICATION tailer SET (publish = 'update, delete')")
			hint := o.exits(o.config, 2, `publication "tailer"`, "does not publish inserts")
			o.pg.Exec(o.t, o.statement(hint, "ALTER PUBLICATION"))
			o.recovers(o.config, o.order())
		},
		"publication of another table": func(o *outbox) {
			o.pg.Exec(o.t, "CREATE TABLE other (id int PRIMARY KEY)", "ALTER PUBLICATION tailer SET TABLE other")
			hint := o.exits(o.config, 2, `publication "tailer"`, `"public"."outbox"`)
			o.pg.Exec(o.t, o.statement(hint, "ALTER PUBLICATION"))
			o.recovers(o.config, o.order())
		},
		"missing column": func(o *outbox) {
			id := o.order()
			wrong := o.config.With("outbox.columns", harness.Config{"tenant": "tenant_id"})
			hint := o.exits(wrong, 2, "tenant_id", "tenant", "public.outbox", "aggregate_id")
			o.named(hint, "outbox.columns")
			o.recovers(o.config, id)
		},
		"column dropped under a running relay": func(o *outbox) {
			wide := o.config.With("outbox.header_columns", harness.Config{"region": "region"})
			o.pg.Exec(o.t, "ALTER TABLE outbox ADD region text")
			relay := o.run(wide)
			o.pg.Exec(o.t, "ALTER TABLE outbox DROP region")
			id := o.order()
			if code := relay.WaitExit(loudness); code != 2 {
				o.t.Fatalf("exit code %d", code)
			}
			o.named(o.ended(relay, "region"), "outbox.header_columns")
			o.recovers(o.config, id)
		},
		"slot of another database": func(o *outbox) {
			o.pg.Exec(o.t, "CREATE DATABASE elsewhere")
			hint := o.exits(o.config.With("postgres.dsn", o.pg.DSN("elsewhere")), 2, `slot "tailer"`, `"postgres"`, `"elsewhere"`)
			o.named(hint, "postgres.dsn")
			o.recovers(o.config, o.order())
		},
		"no such database": func(o *outbox) {
			hint := o.exits(o.config.With("postgres.dsn", o.pg.DSN("nowhere")), 2, "nowhere")
			o.named(hint, "postgres.dsn")
		},
		"no right to replicate": func(o *outbox) {
			o.pg.Exec(o.t, "CREATE ROLE plain LOGIN", "GRANT SELECT, INSERT, UPDATE ON tailer_state, tailer_state_gaps TO plain")
			config := o.config.With("postgres.dsn", o.pg.UserDSN("plain", "", "postgres"))
			hint := o.exits(config, 2)
			o.named(hint, "ALTER ROLE name WITH REPLICATION")
			o.pg.Exec(o.t, "ALTER ROLE plain WITH REPLICATION")
			o.recovers(config, o.order())
		},
		"schema that cannot be": func(o *outbox) {
			dir := schemaFolder(o.t, map[string]string{
				"order.placed.v1": `{"type":"record","name":"R","fields":[{"name":"n","type":["null","long"],"default":"null"}]}`,
				"order.paid.v1":   `{"type":"record","name":"R","fields":[{"name":"n","type":"money"}]}`,
			})
			relay := harness.StartRelay(o.t, harness.RelayOptions{Config: o.config.With("schema", harness.Config{"dir": dir})})
			if code := relay.WaitExit(loudness); code != 2 {
				o.t.Errorf("exit code %d", code)
			}
			for _, text := range []string{"order.placed.v1.avsc", "order.paid.v1.avsc", "money"} {
				if !strings.Contains(relay.Logs(), text) {
					o.t.Errorf("nothing is said of %s in\n%s", text, relay.Logs())
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) { check(newOutbox(t, outboxOptions{})) })
	}

	t.Run("configuration", func(t *testing.T) {
		got := harness.Run(t, harness.Config{
			"postgres": harness.Config{"dsn": "postgres://127.0.0.1/shop", "slott": "x", "slot": "Not A Slot"},
			"outbox":   harness.Config{"preset": "plain", "null_key": "drop"},
			"kafka":    harness.Config{"brokers": []string{"127.0.0.1:1"}, "compression": 7},
			"schema":   harness.Config{"registry": harness.Config{"url": "${NOWHERE_DEFINED}"}},
			"delivery": harness.Config{"mode": "exactly_once"},
		}, "run")
		if got.Code != 2 {
			t.Errorf("exit code %d", got.Code)
		}
		for _, text := range []string{"postgres.slott", "nearest is postgres.slot", "Not A Slot", "outbox.preset", "outbox.null_key", "kafka.compression", "NOWHERE_DEFINED", "exactly_once", "tailer.yaml:", "hint: "} {
			if !strings.Contains(got.Stderr, text) {
				t.Errorf("nothing is said of %q in\n%s", text, got.Stderr)
			}
		}
	})
	patient(t)
}

// refusedLogins starts a relay that Postgres refuses and one that Kafka refuses.
// What it returns waits for their exit, which must come when the patience with
// a secret that may be on its way is over: not at once, and not never.
func refusedLogins(t *testing.T) (wait func(t *testing.T)) {
	t.Helper()
	database := newOutbox(t, outboxOptions{})
	database.pg.Exec(t, "CREATE ROLE relay LOGIN REPLICATION PASSWORD 'right-secret'")
	if err := database.pg.SetHBA("host all relay 127.0.0.1/32 scram-sha-256", "host all all 127.0.0.1/32 trust"); err != nil {
		t.Fatal(err)
	}
	broker := &outbox{t: t, pg: postgres.New(t, postgres.Options{}),
		fake: kafka.NewFake(t, kafka.FakeOptions{Options: []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", "right-secret")}})}
	// A Kafka answers a wrong password with this code, where kfake hangs up.
	broker.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Err: kerr.SaslAuthenticationFailed, Count: -1})
	broker.config = database.config.With("postgres.dsn", broker.pg.DSN("postgres")).With("kafka.brokers", broker.fake.Addrs()).
		With("kafka.sasl", harness.Config{"mechanism": "PLAIN", "username": "relay"})
	broker.init(broker.config)

	began := time.Now()
	relays := map[string]*harness.Relay{
		"postgres": harness.StartRelay(t, harness.RelayOptions{Config: database.config.With("postgres.dsn", database.pg.UserDSN("relay", "wrong-secret", "postgres"))}),
		"kafka":    harness.StartRelay(t, harness.RelayOptions{Config: broker.config, Env: []string{"TAILER_KAFKA_SASL_PASSWORD=wrong-secret"}}),
	}
	relays["postgres"].WaitNotReady("28P01", loudness)
	relays["kafka"].WaitNotReady("SASL_AUTHENTICATION_FAILED", loudness)
	return func(t *testing.T) {
		t.Helper()
		for peer, relay := range relays {
			if code := relay.WaitExit(90*time.Second - time.Since(began)); code != 1 {
				t.Errorf("%s: exit code %d", peer, code)
			}
			if lasted := time.Since(began); lasted < 50*time.Second {
				t.Errorf("%s: patience ended after %v", peer, lasted)
			}
			hint := (&outbox{t: t}).ended(relay)
			if !strings.Contains(hint, "password") && !strings.Contains(hint, "secret") {
				t.Errorf("%s: the hint does not speak of the password: %s", peer, hint)
			}
			if strings.Contains(relay.Logs(), "wrong-secret") {
				t.Errorf("%s: the password is in the log", peer)
			}
		}
	}
}
