package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Config is the whole configuration, validated: LoadConfig returns none that a
// command could still refuse for what is written in it. The keys, their
// defaults and what they mean stand in one table, configKeys.
type Config struct {
	Postgres   PostgresConfig
	Outbox     OutboxConfig
	Record     RecordConfig
	Kafka      KafkaConfig
	Routing    RoutingConfig
	Schema     SchemaConfig
	DLQ        DLQConfig
	Checkpoint CheckpointConfig
	Delivery   DeliveryConfig
	HTTP       HTTPConfig
	Log        LogConfig
}

// PostgresConfig says where the slot is.
type PostgresConfig struct {
	DSN          Secret // may hold a password; "" leaves it to the PG* variables
	PasswordFile string
	Slot         string
	Publication  string
	Create       bool

	PasswordValue Secret // by variable only; exported, or fmt would print it past its String
}

// OutboxConfig says which table is read and what its columns mean.
type OutboxConfig struct {
	Table         string // as written
	Preset        string // default, debezium
	Columns       Pairs  // as written: role, column
	HeaderColumns Pairs  // header, column: in their written order; names as in the catalogue
	NullKey       string // spread, dlq
	NullPayload   string // dlq, tombstone
	AfterPublish  string // keep

	// TableSchema and TableName are Table's parts, as in the catalogue.
	TableSchema, TableName string
	// Roles is the preset's columns with Columns on top: role to column, as in
	// the catalogue. A role that no column has is absent.
	Roles map[string]string
}

// RecordConfig says how a record looks.
type RecordConfig struct {
	Profile string // cloudevents, debezium, plain
	Source  string
}

// KafkaConfig says where records go.
type KafkaConfig struct {
	Brokers     []string
	ClientID    string
	Compression string // lz4, none, snappy, zstd, gzip
	TLS         TLSConfig
	SASL        SASLConfig
	Topics      TopicsConfig
}

// TLSConfig holds file names; they are read where the connection is built.
type TLSConfig struct {
	Enabled                               bool
	CAFile, CertFile, KeyFile, ServerName string
}

// SASLConfig is off when Mechanism is empty.
type SASLConfig struct {
	Mechanism    string // "", PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
	Username     string
	PasswordFile string
	TokenFile    string

	PasswordValue Secret // by variable only
}

// TopicsConfig says how a missing topic is made.
type TopicsConfig struct {
	Create            bool
	Partitions        int // -1: the broker's default
	ReplicationFactor int // -1: the broker's default
	Config            Pairs
}

// RoutingConfig says which topic a record goes to.
type RoutingConfig struct {
	Topic   string
	Rules   []Rule
	Default string
}

// Rule is one entry of routing.rules.
type Rule struct{ When, Topic string }

// SchemaConfig says where schemas are and what happens without a fitting one.
type SchemaConfig struct {
	Mode          string // validate, off
	Dir           string
	Registry      RegistryConfig
	Types         map[string]TypeConfig
	Encoding      string // confluent, confluent-header, single-object, json
	UnknownFields string // reject, drop
	OnMissing     string // dlq, pass, halt
	OnInvalid     string // dlq, halt
}

// RegistryConfig is off when URL is empty.
type RegistryConfig struct {
	URL, Username, PasswordFile string
	Subject                     string // template with {type}

	PasswordValue Secret // by variable only
}

// TypeConfig is what one event type has of its own.
type TypeConfig struct{ File, Subject, Topic string }

// DLQConfig says where dead letters go.
type DLQConfig struct {
	Topic    string
	BlockKey bool
}

// CheckpointConfig names where positions are stored.
type CheckpointConfig struct {
	Table string // as written
	Topic string

	// TableSchema and TableName are Table's parts, as in the catalogue.
	TableSchema, TableName string
}

// DeliveryConfig bounds a cycle and the drain at the end.
type DeliveryConfig struct {
	Mode         string
	BatchRecords int
	BatchBytes   ByteSize
	// IsolationBytes bounds what is handed over and not confirmed while a topic is sick; 0: no topic is isolated.
	IsolationBytes ByteSize
	DrainTimeout   time.Duration
}

// HTTPConfig is off when Listen is empty.
type HTTPConfig struct{ Listen string }

// LogConfig says what is logged and how.
type LogConfig struct{ Level, Format string }

// Pairs is a mapping that keeps its written order.
type Pairs []Pair

// Pair is one entry of Pairs.
type Pair struct{ Name, Value string }

// Map returns the pairs as a map.
func (p Pairs) Map() map[string]string {
	m := make(map[string]string, len(p))
	for _, e := range p {
		m[e.Name] = e.Value
	}
	return m
}

// ByteSize is a number of bytes, written 8MiB or 8388608.
type ByteSize int64

// Secret is a text that no formatting, log or encoding prints.
type Secret string

const redacted = "(hidden)"

func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Reveal is the one way to the text.
func (s Secret) Reveal() string { return string(s) }

// Password returns what is called at every new connection to Postgres, nil
// when the connection string's own password (or none) counts.
func (c *PostgresConfig) Password() func() (string, error) {
	return secretSource("postgres", c.PasswordFile, c.PasswordValue)
}

// Password returns what is called at every new connection to a broker, nil without one.
func (c *SASLConfig) Password() func() (string, error) {
	return secretSource("kafka.sasl", c.PasswordFile, c.PasswordValue)
}

// Password returns what is called at every request to the registry, nil without one.
func (c *RegistryConfig) Password() func() (string, error) {
	return secretSource("schema.registry", c.PasswordFile, c.PasswordValue)
}

// secretSource reads the file anew at each call: short-lived credentials are
// replaced under a running relay.
func secretSource(section, file string, value Secret) func() (string, error) {
	switch {
	case file != "":
		return func() (string, error) { return readSecret(section, file) }
	case value != "":
		return func() (string, error) { return value.Reveal(), nil }
	}
	return nil
}

// readSecret takes one line end off, the one that editors add: everything else
// may belong to the secret.
func readSecret(section, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s.password_file: %w", section, err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("%s.password_file: %s is empty", section, file)
	}
	return text, nil
}
