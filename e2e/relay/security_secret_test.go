package relay_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// passwordOnly lets roles in by password, and the test's superuser without.
var passwordOnly = []string{"host all relay 127.0.0.1/32 scram-sha-256", "host all all 127.0.0.1/32 trust"}

// secretFile is a file with a secret that a test rotates.
func secretFile(t *testing.T, secret string) (path string, rotate func(secret string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	rotate = func(secret string) {
		t.Helper()
		// As secrets are mounted: a new file takes the place of the old one.
		if err := os.WriteFile(path+".new", []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	rotate(secret)
	return path, rotate
}

// A password that is changed at the server first and in its file a little later
// costs a pause, not a restart: each new connection reads the file.
//
// Seen red with a relay that reads the files once, at its start.
func TestCase_S25_PasswordsRotate(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, outboxOptions{})
	o.fake = kafka.NewFake(t, kafka.FakeOptions{Options: []kfake.Opt{kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "reader", "r"), kfake.Superuser("SCRAM-SHA-512", "relay", "kafka-first")}})
	reader := kgo.SASL(plain.Auth{User: "reader", Pass: "r"}.AsMechanism())
	o.pg.Exec(t, "CREATE ROLE relay LOGIN REPLICATION PASSWORD 'pg-first'", grantState)
	if err := o.pg.SetHBA(passwordOnly...); err != nil {
		t.Fatal(err)
	}
	pgFile, rotatePG := secretFile(t, "pg-first")
	kafkaFile, rotateKafka := secretFile(t, "kafka-first")
	relay := o.run(o.config.With("postgres.dsn", o.pg.UserDSN("relay", "", "postgres")).With("postgres.password_file", pgFile).
		With("kafka.brokers", o.fake.Addrs()).
		With("kafka.sasl", harness.Config{"mechanism": "SCRAM-SHA-512", "username": "relay", "password_file": kafkaFile}))
	consumer := harness.NewConsumerWith(t, o.fake.Addrs(), []string{"order"}, reader)
	o.order()
	consumer.WaitLen(1, waitLimit)

	o.pg.Exec(t, "ALTER ROLE relay PASSWORD 'pg-second'", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'relay'")
	relay.WaitNotReady("28P01", loudness)
	o.order()
	rotatePG("pg-second")
	relay.WaitReady("active", waitLimit)
	consumer.WaitLen(2, waitLimit)

	client, err := kgo.NewClient(kgo.SeedBrokers(o.fake.Addrs()...), reader)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	changed, err := kadm.NewClient(client).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: "relay", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "kafka-second"}})
	if err == nil {
		err = changed.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	// An answer that is an error ends the connection.
	o.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("cut"), true
	})
	o.order()
	relay.WaitNotReady("kafka.sasl", waitLimit)
	rotateKafka("kafka-second")
	relay.WaitReady("active", waitLimit)
	consumer.WaitDistinct(3, waitLimit)
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	for _, secret := range []string{"pg-first", "pg-second", "kafka-first", "kafka-second"} {
		if strings.Contains(relay.Logs(), secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
}

// With every peer healthy, and then with every peer refusing, in each way that a
// secret can be given: none appears where anybody looks.
//
// Seen red with an error that quotes the connection string.
func TestSecretsAreShownNowhere(t *testing.T) {
	t.Parallel()
	const inDSN, byVariable, byFile, inURL = "dsn-s3cret", "variable-s3cret", "file-s3cret", "url-s3cret"
	var refuse atomic.Bool
	var user, pass atomic.Value
	schema := `{"type":"record","name":"R","fields":[]}`
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, _ := r.BasicAuth()
		user.Store(u)
		pass.Store(p)
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		if refuse.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			w.Write([]byte(`{"error_code":401,"message":"no"}`))
			return
		}
		w.Write([]byte(`{"subject":"order.placed.v1","version":1,"id":7,"schema":` + strconv.Quote(schema) + `}`))
	}))
	t.Cleanup(registry.Close)
	o := newOutbox(t, outboxOptions{})
	o.fake = kafka.NewFake(t, kafka.FakeOptions{Options: []kfake.Opt{kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "reader", "r"), kfake.Superuser("PLAIN", "relay", byVariable)}})
	o.pg.Exec(t, "CREATE ROLE relay LOGIN REPLICATION PASSWORD '"+inDSN+"'", grantState)
	if err := o.pg.SetHBA(passwordOnly...); err != nil {
		t.Fatal(err)
	}
	file, _ := secretFile(t, byFile)
	config := o.config.With("postgres.dsn", o.pg.UserDSN("relay", inDSN, "postgres")).
		With("kafka.brokers", o.fake.Addrs()).
		With("kafka.sasl", harness.Config{"mechanism": "PLAIN", "username": "relay"}).
		With("log.level", "debug")
	env := []string{"TAILER_KAFKA_SASL_PASSWORD=" + byVariable}
	withRegistry := func(r harness.Config) harness.Config {
		return config.With("schema", harness.Config{"registry": r})
	}
	hide := func(where, text string) {
		t.Helper()
		for _, secret := range []string{inDSN, byVariable, byFile, inURL} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %s:\n%s", secret, where, text)
			}
		}
	}
	look := func(relay *harness.Relay) {
		t.Helper()
		for _, path := range []string{"/metrics", "/readyz", "/healthz"} {
			code, body := relay.Probe(path)
			if code == 0 {
				t.Errorf("%s: %s", path, body)
			}
			hide(path, body)
		}
		// What any user of the machine can list.
		list, err := os.ReadFile("/proc/" + strconv.Itoa(relay.PID()) + "/cmdline")
		if errors.Is(err, os.ErrNotExist) { // not Linux
			list, err = exec.CommandContext(t.Context(), "ps", "-ww", "-o", "args=", "-p", strconv.Itoa(relay.PID())).Output()
		}
		if err != nil || !strings.Contains(string(list), "--config") {
			t.Errorf("list the process: %v\n%s", err, list)
		}
		hide("the list of processes", string(list))
		hide("the log", relay.Logs())
	}

	// By variable, and by file.
	consumer := harness.NewConsumerWith(t, o.fake.Addrs(), []string{"order", "tailer.dlq"}, kgo.SASL(plain.Auth{User: "reader", Pass: "r"}.AsMechanism()))
	for i, c := range []struct {
		registry   harness.Config
		env        []string
		user, pass string
	}{
		{harness.Config{"url": registry.URL, "username": "robot"}, []string{"TAILER_SCHEMA_REGISTRY_PASSWORD=" + byVariable}, "robot", byVariable},
		{harness.Config{"url": registry.URL, "username": "clerk", "password_file": file}, nil, "clerk", byFile},
	} {
		relay := o.run(withRegistry(c.registry), append(c.env, env...)...)
		o.order()
		record := consumer.WaitLen(i+1, waitLimit)[i]
		if user.Load() != c.user || pass.Load() != c.pass {
			t.Errorf("the registry was asked by %v with %v", user.Load(), pass.Load())
		}
		if got, _ := record.Header("ce_dataschema"); got != registry.URL+"/schemas/ids/7" {
			t.Errorf("ce_dataschema is %q", got)
		}
		look(relay)
		if i == 0 {
			relay.Stop()
			hide("the log", relay.Logs())
			continue
		}
		// Everybody refuses: the registry a new type, then Postgres, then Kafka.
		refuse.Store(true)
		o.insert("k", "order.changed.v1", `{}`)
		relay.WaitNotReady("order.changed.v1", loudness)
		look(relay)
		relay.Kill()
	}
	o.pg.Exec(t, "ALTER ROLE relay PASSWORD 'another'")
	relay := harness.StartRelay(t, harness.RelayOptions{Config: config, Env: env})
	relay.WaitNotReady("28P01", loudness)
	look(relay)
	relay.Kill()
	for _, args := range [][]string{{"status"}, {"init", "--apply"}, {"init"}} {
		got := harness.RunEnv(t, config, env, args...)
		hide(strings.Join(args, " "), got.Stdout+got.Stderr)
	}
	wrong := []string{"TAILER_KAFKA_SASL_PASSWORD=wrong-" + byVariable}
	relay = harness.StartRelay(t, harness.RelayOptions{Config: config.With("postgres.dsn", o.pg.DSN("postgres")), Env: wrong})
	relay.WaitNotReady("kafka", loudness)
	look(relay)
	// Mistakes in the strings that hold them.
	for _, broken := range []harness.Config{
		config.With("postgres.dsn", "postgres://relay:"+inDSN+"@127.0.0.1:port/postgres"),
		config.With("postgres.dsn", "host=127.0.0.1 password='"+inDSN),
		withRegistry(harness.Config{"url": "http://robot:" + inURL + "@127.0.0.1"}),
		withRegistry(harness.Config{"url": "ftp://robot:" + inURL + "@127.0.0.1"}),
		withRegistry(harness.Config{"url": "http://robot:" + inURL + "@127.0.0.1:port"}),
	} {
		got := harness.RunEnv(t, broken, env, "run")
		if got.Code != 2 {
			t.Errorf("exit code %d\n%s", got.Code, got.Stderr)
		}
		hide("an error of the configuration", got.Stderr)
	}
}
