package relay_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// trustDB lets the test's own superuser in without TLS, and nobody else.
const trustDB = "host all postgres 127.0.0.1/32 trust"

// newSecureOutbox has a server that offers TLS; rules of pg_hba.conf come before
// that of the test itself. Its configuration has no way to Kafka yet.
func newSecureOutbox(t *testing.T, rules ...string) *outbox {
	t.Helper()
	o := &outbox{t: t, pg: postgres.New(t, postgres.Options{TLS: true, HBA: append(rules, trustDB)})}
	o.config = harness.Config{
		"postgres": harness.Config{"dsn": o.pg.DSN("postgres")},
		"kafka":    harness.Config{"topics": harness.Config{"create": true}},
		"schema":   harness.Config{"mode": "off"},
	}
	o.init(o.config)
	o.conn = o.pg.Conn(t, "postgres")
	return o
}

// secureDSN is the address of the server for a role that speaks TLS.
func (o *outbox) secureDSN(role, parameters string) string {
	dsn, _, _ := strings.Cut(o.pg.UserDSN(role, "", "postgres"), "?")
	return dsn + "?" + parameters
}

// How the relay's two connections to Postgres were made, in the server's words.
func (o *outbox) encrypted(want string) {
	o.t.Helper()
	harness.Eventually(o.t, loudness, "the server to say of the relay's connections "+want, func() bool {
		return o.text(`SELECT coalesce(string_agg(DISTINCT backend_type || ' ' || ssl || ' ' || coalesce(client_dn, ''), ', '), '')
			FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'tailer'`) == want
	})
}

func TestTLSToPostgres(t *testing.T) {
	t.Parallel()
	o := newSecureOutbox(t, "hostssl all postgres 127.0.0.1/32 cert", "hostssl all relay 127.0.0.1/32 scram-sha-256")
	o.fake = kafka.NewFake(t, kafka.FakeOptions{})
	o.config = o.config.With("kafka.brokers", o.fake.Addrs())
	o.pg.Exec(t, "CREATE ROLE relay LOGIN REPLICATION PASSWORD 'open-sesame'", grantState)
	files := o.pg.TLS()
	verified := "sslmode=verify-full&sslrootcert=" + files.CA
	mutual := verified + "&sslcert=" + files.ClientCert + "&sslkey=" + files.ClientKey
	secret := []string{"TAILER_POSTGRES_PASSWORD=open-sesame"}

	for _, c := range []struct {
		name, dsn, encrypted string
		env                  []string
	}{
		{"server verified, password", o.secureDSN("relay", verified), "client backend true , walsender true ", secret},
		{"encrypted only", o.secureDSN("relay", "sslmode=require"), "client backend true , walsender true ", secret},
		{"mutual", o.secureDSN("postgres", mutual), "client backend true /CN=postgres, walsender true /CN=postgres", nil},
	} {
		config := o.config.With("postgres.dsn", c.dsn)
		id := o.order()
		relay := o.run(config, c.env...)
		o.encrypted(c.encrypted)
		// Commands connect as the relay does.
		if got := harness.RunEnv(t, config, c.env, "status"); got.Code != 0 {
			t.Errorf("%s: status: %+v", c.name, got)
		}
		relay.Stop()
		o.recovers(config.With("postgres.dsn", o.pg.DSN("postgres")), id)
	}

	for _, c := range []struct {
		name, dsn, says, hint string
		env                   []string
	}{
		{"another authority", o.secureDSN("relay", "sslmode=verify-full&sslrootcert="+files.OtherCA), "unknown authority", "sslrootcert", secret},
		{"no certificate", o.secureDSN("postgres", verified), "certificate", "sslcert", nil},
		{"no TLS", o.pg.UserDSN("relay", "", "postgres"), "no encryption", "pg_hba.conf", secret},
	} {
		relay := harness.StartRelay(t, harness.RelayOptions{Config: o.config.With("postgres.dsn", c.dsn), Env: c.env})
		relay.WaitNotReady(c.says, loudness)
		relay.WaitLog(c.hint, loudness)
		relay.Kill()
		got := harness.RunEnv(t, o.config.With("postgres.dsn", c.dsn), c.env, "status")
		if got.Code != 1 || !strings.Contains(got.Stderr, c.says) || !strings.Contains(got.Stderr, "hint: ") || !strings.Contains(got.Stderr, c.hint) {
			t.Errorf("%s: status: %+v", c.name, got)
		}
	}
	// An authority that is not there is no matter of patience.
	gone := o.config.With("postgres.dsn", o.secureDSN("relay", "sslmode=verify-full&sslrootcert=/nowhere/ca.crt"))
	relay := harness.StartRelay(t, harness.RelayOptions{Config: gone})
	if code := relay.WaitExit(loudness); code != 2 || !strings.Contains(relay.Logs(), "/nowhere/ca.crt") {
		t.Errorf("exit code %d without the authority's file\n%s", code, relay.Logs())
	}
}

// Every login over TLS, with and without a certificate of the relay's own. Seen
// red with a client that does not verify.
func TestTLSAndSASLToKafka(t *testing.T) {
	t.Parallel()
	const secret = "open-sesame"
	o := newSecureOutbox(t)
	files := o.pg.TLS()
	server, err := files.ServerCertificate()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	own, err := tls.LoadX509KeyPair(files.ClientCert, files.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mechanism   string
		tls, mutual bool
	}{
		{"", true, false},
		{"", true, true},
		{"PLAIN", true, false},
		{"PLAIN", false, false},
		{"SCRAM-SHA-256", true, true},
		{"SCRAM-SHA-512", true, false},
		{"SCRAM-SHA-512", false, false},
	} {
		name := c.mechanism + map[bool]string{true: " TLS"}[c.tls] + map[bool]string{true: " mutual"}[c.mutual]
		var broker []kfake.Opt
		var reader []kgo.Opt
		config := o.config
		var env []string
		if c.mechanism != "" {
			broker = append(broker, kfake.EnableSASL(), kfake.Superuser(c.mechanism, "relay", secret), kfake.Superuser("PLAIN", "reader", "r"))
			reader = append(reader, kgo.SASL(plain.Auth{User: "reader", Pass: "r"}.AsMechanism()))
			config = config.With("kafka.sasl", harness.Config{"mechanism": c.mechanism, "username": "relay"})
			env = append(env, "TAILER_KAFKA_SASL_PASSWORD="+secret)
		}
		if c.tls {
			conf := &tls.Config{Certificates: []tls.Certificate{server}}
			if c.mutual {
				conf.ClientAuth, conf.ClientCAs = tls.RequireAndVerifyClientCert, pool
			}
			broker = append(broker, kfake.TLS(conf))
			reader = append(reader, kgo.DialTLSConfig(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}))
			config = config.With("kafka.tls", harness.Config{"enabled": true, "ca_file": files.CA})
		}
		fake := kafka.NewFake(t, kafka.FakeOptions{Options: broker})
		config = config.With("kafka.brokers", fake.Addrs())
		if c.mutual {
			refused := harness.StartRelay(t, harness.RelayOptions{Config: config, Env: env})
			refused.WaitNotReady("certificate", loudness)
			refused.WaitLog("kafka.tls", loudness)
			refused.Kill()
			config = config.With("kafka.tls.cert_file", files.ClientCert).With("kafka.tls.key_file", files.ClientKey)
		}
		if c.tls {
			refused := harness.StartRelay(t, harness.RelayOptions{Config: config.With("kafka.tls.ca_file", files.OtherCA), Env: env})
			refused.WaitNotReady("unknown authority", loudness)
			refused.WaitLog("kafka.tls", loudness)
			refused.Kill()
		}
		id := o.order()
		relay := o.run(config, env...)
		consumer := harness.NewConsumerWith(t, fake.Addrs(), []string{"order"}, reader...)
		if got := consumer.WaitLen(1, waitLimit)[0].ID(); got != id {
			t.Errorf("%s: event %s, want %s", name, got, id)
		}
		if code := relay.Stop(); code != 0 {
			t.Errorf("%s: exit code %d after SIGTERM", name, code)
		}
		consumer.Close()
	}
}
