package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tailer-relay/tailer/internal/backoff"
)

// KafkaConfig says how to reach the brokers and what to do about topics.
type KafkaConfig struct {
	Brokers     []string
	ClientID    string      // "" is tailer
	Compression string      // lz4 (also ""), none, snappy, zstd, gzip
	TLS         *tls.Config // from NewTLS; nil is plain text
	SASL        SASLConfig
	Topics      TopicsConfig
	DLQTopic    string

	dial func(ctx context.Context, network, address string) (net.Conn, error) // tests only
}

// SASLConfig is a login. An empty mechanism is none.
type SASLConfig struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
	Username  string
	// Password is called for every connection, so a rotated secret is used by the next one.
	Password func() (string, error)
}

// TopicsConfig says whether missing topics are created, and how. -1 leaves a number to the broker.
type TopicsConfig struct {
	Create      bool
	Partitions  int32
	Replication int16
	Config      map[string]string
}

// TLSConfig names the files of a TLS connection.
type TLSConfig struct {
	Enabled                   bool
	CAFile, CertFile, KeyFile string // PEM
	ServerName                string // "" is the broker's host name
}

// NewTLS reads the files and makes the configuration of a TLS client; nil when TLS is off. The client certificate is
// read again at each connection, so that it may be renewed on disk.
func NewTLS(cfg TLSConfig) (*tls.Config, error) {
	if !cfg.Enabled {
		if cfg.CAFile != "" || cfg.CertFile != "" || cfg.KeyFile != "" || cfg.ServerName != "" {
			return nil, errors.New("kafka.tls: files are named but kafka.tls.enabled is false")
		}
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName}
	var errs []error
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("kafka.tls.ca_file: %w", err))
		} else {
			t.RootCAs = x509.NewCertPool()
			if !t.RootCAs.AppendCertsFromPEM(pem) {
				errs = append(errs, fmt.Errorf("kafka.tls.ca_file: %s holds no PEM certificate", cfg.CAFile))
			}
		}
	}
	switch {
	case (cfg.CertFile == "") != (cfg.KeyFile == ""):
		errs = append(errs, errors.New("kafka.tls: cert_file and key_file belong together, one is missing"))
	case cfg.CertFile != "":
		load := func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("kafka.tls.cert_file, key_file: %w", err)
			}
			return &c, nil
		}
		if _, err := load(); err != nil {
			errs = append(errs, err)
		}
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

const (
	// maxRequest is the largest produce request. It is the brokers' own default (socket.request.max.bytes): a larger
	// one would not be refused but cut off, again and again, and no record would ever be found guilty.
	maxRequest = 100 << 20
	// defaultLimit is the size of a batch where the topic's max.message.bytes is not known: kgo's own, below Kafka's.
	defaultLimit = 1_000_012
	// recordTries is how often kgo sends a batch again after a retriable answer before it gives up and we are told
	// why. With metadataAge between two tries that is two seconds, about a leader's election.
	recordTries = 8
	// unknownTries is the same for a topic that is not known: it may be new.
	unknownTries = 3
	// metadataAge bounds how often metadata is asked for, and so how soon a retry comes. With kgo's default of five
	// seconds four retries took twenty.
	metadataAge = 250 * time.Millisecond
	// requestPatience bounds requests other than produce, retries included, so that their true error comes out.
	requestPatience = 4 * time.Second
)

func codec(name string) (kgo.Opt, error) {
	client := func(c kgo.CompressionCodec) (kgo.Opt, error) {
		return kgo.ProducerBatchCompression(c, kgo.NoCompression()), nil
	}
	switch strings.ToLower(name) {
	case "", "lz4":
		return kgo.WithCompressor(&lz4Compressor{}), nil
	case "none":
		return client(kgo.NoCompression())
	case "snappy":
		return client(kgo.SnappyCompression())
	case "zstd":
		return client(kgo.ZstdCompression())
	case "gzip":
		return client(kgo.GzipCompression())
	}
	return nil, fmt.Errorf("kafka.compression: %q is none of lz4, none, snappy, zstd, gzip", name)
}

// mechanism is nil without a login.
func (s SASLConfig) mechanism() (sasl.Mechanism, error) {
	if s.Mechanism == "" {
		return nil, nil
	}
	if s.Username == "" || s.Password == nil {
		return nil, fmt.Errorf("kafka.sasl: mechanism %s needs username and password_file", s.Mechanism)
	}
	password := func() (string, error) {
		pass, err := s.Password()
		if err == nil && pass == "" {
			err = errors.New("it is empty")
		}
		if err != nil {
			return "", &secretError{err}
		}
		return pass, nil
	}
	login := func(context.Context) (scram.Auth, error) {
		pass, err := password()
		return scram.Auth{User: s.Username, Pass: pass}, err
	}
	switch strings.ToUpper(s.Mechanism) {
	case "PLAIN":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := password()
			return plain.Auth{User: s.Username, Pass: pass}, err
		}), nil
	case "SCRAM-SHA-256":
		return scram.Sha256(login), nil
	case "SCRAM-SHA-512":
		return scram.Sha512(login), nil
	}
	return nil, fmt.Errorf("kafka.sasl.mechanism: %q is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", s.Mechanism)
}

// options are common to both clients. What is not here is as kgo has it: acks=all, idempotent, no delivery timeout (it
// would age a record by its own timestamp), no creation of topics by asking for them.
func (cfg KafkaConfig) options() ([]kgo.Opt, error) {
	var errs []error
	if len(cfg.Brokers) == 0 {
		errs = append(errs, errors.New("kafka.brokers: at least one host:port is needed"))
	}
	for _, b := range cfg.Brokers {
		if strings.TrimSpace(b) == "" {
			errs = append(errs, errors.New("kafka.brokers: an address is empty"))
		}
	}
	compression, err := codec(cfg.Compression)
	if err != nil {
		errs = append(errs, err)
	}
	mechanism, err := cfg.SASL.mechanism()
	if err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	id := cfg.ClientID
	if id == "" {
		id = "tailer"
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ClientID(id),
		kgo.DisableClientMetrics(),
		kgo.ManualFlushing(),
		kgo.ProducerLinger(0),
		compression,
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // murmur2 as Java's default partitioner
		kgo.MaxBufferedRecords(1 << 30),                      // a batch has its own bounds, see ErrMaxBuffered
		kgo.MaxBufferedBytes(0),
		kgo.BrokerMaxWriteBytes(maxRequest),
		kgo.MetadataMinAge(metadataAge),
		kgo.RecordRetries(recordTries),
		kgo.UnknownTopicRetries(unknownTries),
		kgo.RetryTimeout(requestPatience),
		kgo.RetryBackoffFn(func(tries int) time.Duration { return backoff.Pause(tries, 100*time.Millisecond, 2*time.Second) }),
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	switch {
	case cfg.dial != nil:
		opts = append(opts, kgo.Dialer(cfg.dial))
	case cfg.TLS != nil:
		opts = append(opts, kgo.DialTLSConfig(cfg.TLS), kgo.DialTimeout(5*time.Second))
	default:
		opts = append(opts, kgo.DialTimeout(5*time.Second))
	}
	return opts, nil
}

// client is a kgo client and what its cycles need. It is used by the publisher's goroutine.
type client struct {
	*kgo.Client

	// flushing is the context of every flush of this client. It ends with the client, never with a session: a flush
	// that is given up stops the sending of what is buffered, silently.
	flushing context.Context
	end      context.CancelFunc

	// fence is a record without a topic, which the client refuses at once.
	fence  kgo.Record
	passed chan struct{}
	pass   func(*kgo.Record, error)
}

func newClient(opts []kgo.Opt, own ...kgo.Opt) (*client, error) {
	cl, err := kgo.NewClient(append(opts[:len(opts):len(opts)], own...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	c := &client{Client: cl, passed: make(chan struct{}, 1)}
	c.flushing, c.end = context.WithCancel(context.Background())
	c.pass = func(*kgo.Record, error) { c.passed <- struct{}{} }
	return c, nil
}

// barrier returns when the promise of every record that has failed so far has been called. kgo calls promises one
// after the other in the order of the verdicts, so a record that is refused now is heard of behind all of them.
func (c *client) barrier() {
	c.fence = kgo.Record{}
	c.Produce(context.Background(), &c.fence, c.pass)
	<-c.passed
}

// flush sends what is buffered; the channel is closed when nothing is left.
func (c *client) flush() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Flush(c.flushing) // fails only when the client is gone; the promises tell
	}()
	return done
}

func (c *client) close() {
	c.Close()
	c.end()
}

// connections remembers how connecting went last; kgo tells it from many goroutines.
type connections struct {
	mu     sync.Mutex
	err    error // nil: the last attempt succeeded
	refuse time.Time
	failed int // attempts failed and not yet counted
}

// OnBrokerConnect implements kgo's hook: dialling, TLS and login are behind us, or failed with err.
func (c *connections) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.err, c.refuse = nil, time.Time{}
		return
	}
	c.failed++
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the broker hung up while we said hello, check kafka.tls and kafka.sasl: %w", err)
	}
	c.err = fmt.Errorf("connect to broker %s: %w", net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port))), err)
	if Classify(err) != Auth {
		c.refuse = time.Time{}
	} else if c.refuse.IsZero() {
		c.refuse = time.Now()
	}
}

// last is since when every login was refused, and why the last attempt to connect failed.
func (c *connections) last() (refused time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refuse, c.err
}

// take returns how many attempts failed since it was last called.
func (c *connections) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.failed
	c.failed = 0
	return n
}

// repeatEvery is how often the same message of kgo is logged.
const repeatEvery = 10 * time.Second

// kafkaLog passes kgo's log on: its warnings and errors as warnings (what they mean is ours to say), its information at
// debug. kgo repeats itself at every retry, so a message that was just logged is only counted.
type kafkaLog struct {
	log *slog.Logger

	mu   sync.Mutex
	seen map[string]*said
}

type said struct {
	at      time.Time
	dropped int
}

func (k *kafkaLog) Level() kgo.LogLevel {
	if k.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelWarn
}

func (k *kafkaLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	if level <= kgo.LogLevelWarn {
		to = slog.LevelWarn
	}
	if !k.log.Enabled(context.Background(), to) {
		return
	}
	now := time.Now()
	k.mu.Lock()
	if k.seen == nil || len(k.seen) > 1000 { // kgo's messages are constants but for a few
		k.seen = make(map[string]*said)
	}
	s := k.seen[msg]
	if s != nil && now.Sub(s.at) < repeatEvery {
		s.dropped++
		k.mu.Unlock()
		return
	}
	dropped := 0
	if s != nil {
		dropped = s.dropped
	}
	k.seen[msg] = &said{at: now}
	k.mu.Unlock()
	if dropped > 0 {
		keyvals = append(keyvals, "repeated", dropped)
	}
	k.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}
