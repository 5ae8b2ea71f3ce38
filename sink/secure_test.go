package sink

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

func TestCompressions(t *testing.T) {
	for _, name := range []string{"", "lz4", "none", "snappy", "zstd", "gzip"} {
		c := fakeCluster(t, kfake.SeedTopics(1, "a"))
		p, _ := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.Compression = name })
		text := strings.Repeat("all work and no play ", 200)
		publish(t, p, batchOf(t, ev{"a", "k", text}, ev{"a", "k", text}))
		recs := topicOf(t, c.ListenAddrs(), "a")
		if len(recs) != 2 || string(recs[1].Value) != text {
			t.Fatalf("%s: read back %d records", name, len(recs))
		}
		want := map[string]uint8{"": 3, "lz4": 3, "none": 0, "snappy": 2, "zstd": 4, "gzip": 1}[name]
		if got := recs[0].Attrs.CompressionType(); got != want {
			t.Errorf("%s: the batch's codec is %d, want %d", name, got, want)
		}
	}
}

const secret = "correct-horse-battery"

// Each mechanism logs in. A wrong secret holds, and is read again at the next connection. The fake hangs up on it;
// Kafka answers with a code, which comes first here.
func TestSASL(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			// Topics can be read back through PLAIN whatever the mechanism under test.
			c := fakeCluster(t, kfake.SeedTopics(1, "a"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "reader", "r"), kfake.Superuser(mechanism, "relay", secret))
			read := kgo.SASL(plain.Auth{User: "reader", Pass: "r"}.AsMechanism())
			var pass atomic.Value
			pass.Store("wrong-" + secret)
			var asked atomic.Int32
			p, w := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) {
				cfg.SASL = SASLConfig{Mechanism: mechanism, Username: "relay", Password: func() (string, error) { asked.Add(1); return pass.Load().(string), nil }}
			})
			p.slow = 300 * time.Millisecond
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Err: kerr.SaslAuthenticationFailed, Count: -1})
			err := p.Ping(context.Background())
			if Classify(err) != Auth || !strings.Contains(hintOf(err), `"relay"`) {
				t.Errorf("ping: %v (%v), hint %q", err, Classify(err), hintOf(err))
			}
			if err != nil && strings.Contains(err.Error()+hintOf(err), secret) {
				t.Errorf("the secret is in: %v", err)
			}
			done := background(context.Background(), p, batchOf(t, series("a", "k", "e", 1, 10)...))
			eventually(t, "the topic is blocked by the login", func() bool { return strings.Contains(w.cause("a"), "SASL_AUTHENTICATION_FAILED") })
			running(t, done, "the login is refused")
			h.Remove()
			eventually(t, "the topic is blocked by the broker hanging up", func() bool { return strings.Contains(w.cause("a"), "check kafka.tls and kafka.sasl") })
			running(t, done, "the secret is wrong")
			before := asked.Load()
			pass.Store(secret)
			if err := result(t, done); err != nil {
				t.Fatal(err)
			}
			if asked.Load() <= before {
				t.Error("the secret was not read again")
			}
			if err := p.Ping(context.Background()); err != nil {
				t.Errorf("ping: %v", err)
			}
			wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a", read), labels(series("a", "k", "e", 1, 10))...)
			if strings.Contains(w.logged(), secret) || strings.Contains(strings.Join(w.causes, "\n"), secret) {
				t.Error("the secret was logged")
			}
		})
	}
}

// A login refused for long ends publishing, so that the relay can stop with its exit code.
func TestLoginRefusedForLong(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", secret))
	p, _ := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) {
		cfg.SASL = SASLConfig{Mechanism: "PLAIN", Username: "relay", Password: func() (string, error) { return "no", nil }}
	})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Err: kerr.SaslAuthenticationFailed, Count: -1})
	p.slow, p.patience = 100*time.Millisecond, 500*time.Millisecond
	b := batchOf(t, ev{"a", "k", "e"})
	err := result(t, background(context.Background(), p, b))
	if Classify(err) != Auth || hintOf(err) == "" || !b.Settled() {
		t.Errorf("error %v (%v), hint %q, settled %v", err, Classify(err), hintOf(err), b.Settled())
	}
}

// The same with a record in flight whose fate is not known: kgo never gives it up by itself.
func TestLoginRefusedForLongWithARecordInFlight(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", secret))
	p, w := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) {
		cfg.SASL = SASLConfig{Mechanism: "PLAIN", Username: "relay", Password: func() (string, error) { return secret, nil }}
	})
	p.slow, p.patience, p.abort = 100*time.Millisecond, 500*time.Millisecond, 200*time.Millisecond
	publish(t, p, batchOf(t, ev{"a", "k", "e0"}))
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Err: kerr.SaslAuthenticationFailed, Count: -1})
		return nil, errors.New("hang up"), true
	})
	b := batchOf(t, ev{"a", "k", "e1"})
	err := result(t, background(context.Background(), p, b))
	if Classify(err) != Auth || !strings.Contains(hintOf(err), `"relay"`) || !b.Settled() {
		t.Errorf("error %v (%v), hint %q, settled %v", err, Classify(err), hintOf(err), b.Settled())
	}
	if w.acked != 1 || w.deadLetters() != 0 {
		t.Errorf("acked %d, dead letters %v", w.acked, w.dead)
	}
}

func TestPasswordFileUnreadable(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(1, "a"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", secret))
	p, _ := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) {
		cfg.SASL = SASLConfig{Mechanism: "PLAIN", Username: "relay", Password: func() (string, error) {
			_, err := os.ReadFile(filepath.Join(t.TempDir(), "gone"))
			return "", err
		}}
	})
	err := p.Ping(context.Background())
	if Classify(err) != Auth || !errors.Is(err, os.ErrNotExist) || !strings.Contains(hintOf(err), "password_file") {
		t.Errorf("ping: %v (%v), hint %q", err, Classify(err), hintOf(err))
	}
}

func TestPing(t *testing.T) {
	c := fakeCluster(t)
	p, _ := publisherFor(t, c.ListenAddrs(), nil)
	if err := p.Ping(context.Background()); err != nil {
		t.Errorf("ping: %v", err)
	}
	p, _ = publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.DLQTopic = "absent.dlq" })
	if err := p.Ping(context.Background()); Classify(err) != Hold || !strings.Contains(err.Error(), "absent.dlq") || !strings.Contains(hintOf(err), "--create --topic absent.dlq") {
		t.Errorf("ping without a dead letter topic: %v, hint %q", err, hintOf(err))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	p, _ = publisherFor(t, []string{nobody}, nil)
	if err := p.Ping(context.Background()); Classify(err) != Transient || !strings.Contains(err.Error(), nobody) || hintOf(err) == "" {
		t.Errorf("ping without a broker: %v (%v), hint %q", err, Classify(err), hintOf(err))
	}
}

// authority issues certificates into a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", nil)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.crt and NAME.key; without a parent the certificate is an authority's own.
func (a *authority) issue(name string, mutate func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	parent, signer := a.cert, a.key
	if parent == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, signer = tmpl, key
	}
	if mutate != nil {
		mutate(tmpl)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// server is a broker's TLS configuration that wants a client certificate of the authority where mutual.
func (a *authority) server(mutual bool) *tls.Config {
	a.issue("broker", func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = []string{"broker.test"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	pair, err := tls.LoadX509KeyPair(a.file("broker.crt"), a.file("broker.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}}
	if mutual {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		cfg.ClientCAs = x509.NewCertPool()
		cfg.ClientCAs.AddCert(a.cert)
	}
	return cfg
}

func TestTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	client := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	a.issue("relay", client)
	other.issue("relay", client)
	mine := TLSConfig{Enabled: true, CAFile: a.file("ca.crt"), CertFile: a.file("relay.crt"), KeyFile: a.file("relay.key")}
	for _, tt := range []struct {
		name   string
		mutual bool
		cfg    TLSConfig
		ok     bool
	}{
		{"server only", false, TLSConfig{Enabled: true, CAFile: a.file("ca.crt")}, true},
		{"by server name", false, TLSConfig{Enabled: true, CAFile: a.file("ca.crt"), ServerName: "broker.test"}, true},
		{"wrong server name", false, TLSConfig{Enabled: true, CAFile: a.file("ca.crt"), ServerName: "elsewhere.test"}, false},
		{"authority unknown", false, TLSConfig{Enabled: true}, false},
		{"mutual", true, mine, true},
		{"mutual without certificate", true, TLSConfig{Enabled: true, CAFile: a.file("ca.crt")}, false},
		{"mutual, certificate of another authority", true, TLSConfig{Enabled: true, CAFile: a.file("ca.crt"), CertFile: other.file("relay.crt"), KeyFile: other.file("relay.key")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := fakeCluster(t, kfake.SeedTopics(1, "a"), kfake.TLS(a.server(tt.mutual)))
			conf, err := NewTLS(tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			p, _ := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.TLS = conf })
			if err := p.Ping(context.Background()); (err == nil) != tt.ok {
				t.Fatalf("ping: %v", err)
			} else if !tt.ok && (Classify(err) != Auth || !strings.Contains(hintOf(err), "kafka.tls")) {
				t.Errorf("ping: %v (%v), hint %q", err, Classify(err), hintOf(err))
			}
			if !tt.ok {
				return
			}
			publish(t, p, batchOf(t, series("a", "k", "e", 1, 10)...))
			mine, err := NewTLS(mine)
			if err != nil {
				t.Fatal(err)
			}
			wantValues(t, "a", topicOf(t, c.ListenAddrs(), "a", kgo.DialTLSConfig(mine)), labels(series("a", "k", "e", 1, 10))...)
		})
	}
}

// A certificate that expires is replaced on disk and used by the next connection.
func TestClientCertificateIsReadAgain(t *testing.T) {
	a := newAuthority(t)
	a.issue("relay", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	c := fakeCluster(t, kfake.TLS(a.server(true)))
	conf, err := NewTLS(TLSConfig{Enabled: true, CAFile: a.file("ca.crt"), CertFile: a.file("relay.crt"), KeyFile: a.file("relay.key")})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.TLS = conf })
	if err := p.Ping(context.Background()); Classify(err) != Auth {
		t.Errorf("with an expired certificate: %v", err)
	}
	a.issue("relay", nil)
	if err := p.Ping(context.Background()); err != nil {
		t.Errorf("with a new certificate: %v", err)
	}
}

func TestNewTLSChecksFiles(t *testing.T) {
	a := newAuthority(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]TLSConfig{
		"holds no PEM": {Enabled: true, CAFile: empty}, "no such file": {Enabled: true, CAFile: empty + "x"},
		"belong together": {Enabled: true, CertFile: a.file("ca.crt")}, "kafka.tls.cert_file": {Enabled: true, CertFile: empty, KeyFile: empty},
		"enabled is false": {CAFile: a.file("ca.crt")},
	} {
		if _, err := NewTLS(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	if conf, err := NewTLS(TLSConfig{}); conf != nil || err != nil {
		t.Errorf("off: %v, %v", conf, err)
	}
}
