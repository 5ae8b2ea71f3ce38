package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/schema"
	"github.com/tailer-relay/tailer/sink"
)

// This file translates the configuration into the plain values of the
// packages, and nothing else: none of them knows the configuration file.

func streamConfig(cfg *Config) replication.Config {
	return replication.Config{
		DSN: cfg.Postgres.DSN.Reveal(), Password: cfg.Postgres.Password(),
		Slot: cfg.Postgres.Slot, Publication: cfg.Postgres.Publication,
		Table: replication.Table{Schema: cfg.Outbox.TableSchema, Name: cfg.Outbox.TableName}, Columns: neededColumns(cfg),
	}
}

// neededColumns are the columns that the configuration names.
func neededColumns(cfg *Config) (columns []replication.Column) {
	for _, role := range roles {
		if c := cfg.Outbox.Roles[role]; c != "" {
			columns = append(columns, replication.Column{Name: c, For: "role " + role})
		}
	}
	for _, h := range cfg.Outbox.HeaderColumns {
		columns = append(columns, replication.Column{Name: h.Value, For: "header " + h.Name})
	}
	return columns
}

func mapping(cfg *Config) schema.Mapping {
	roles := cfg.Outbox.Roles
	m := schema.Mapping{
		ID: roles["id"], Key: roles["key"], Type: roles["type"], Payload: roles["payload"], Headers: roles["headers"],
		OccurredAt: roles["occurred_at"], CorrelationID: roles["correlation_id"], CausationID: roles["causation_id"],
		Traceparent: roles["traceparent"], Tenant: roles["tenant"], AggregateType: roles["aggregatetype"],
		Debezium: cfg.Record.Profile == "debezium",
	}
	for _, h := range cfg.Outbox.HeaderColumns {
		m.HeaderColumns = append(m.HeaderColumns, schema.HeaderColumn{Header: h.Name, Column: h.Value})
	}
	return m
}

var profiles = map[string]sink.Profile{"cloudevents": sink.CloudEvents, "debezium": sink.Debezium, "plain": sink.Plain}

var encodings = map[string]schema.Encoding{
	"json": schema.JSON, "single-object": schema.SingleObject,
	"confluent": schema.Confluent, "confluent-header": schema.ConfluentHeader,
}

func batchConfig(cfg *Config) sink.BatchConfig {
	b := sink.BatchConfig{
		Slot: cfg.Postgres.Slot, Source: cfg.Record.Source, Profile: profiles[cfg.Record.Profile],
		Topic: cfg.Routing.Topic, DefaultTopic: cfg.Routing.Default, TypeTopics: make(map[string]string),
		DLQTopic: cfg.DLQ.Topic, NullKeyDLQ: cfg.Outbox.NullKey == "dlq",
		NullPayloadTombstone: cfg.Outbox.NullPayload == "tombstone",
		ContentType:          "application/json",
		MaxRecords:           cfg.Delivery.BatchRecords, MaxBytes: int(cfg.Delivery.BatchBytes),
	}
	if cfg.Schema.Encoding != "json" {
		b.ContentType = "application/avro"
	}
	for role := range cfg.Outbox.Roles {
		b.Roles = append(b.Roles, role)
	}
	for typ, t := range cfg.Schema.Types {
		if t.Topic != "" {
			b.TypeTopics[typ] = t.Topic
		}
	}
	for _, h := range cfg.Outbox.HeaderColumns {
		b.HeaderColumns = append(b.HeaderColumns, h.Name)
	}
	return b
}

func kafkaConfig(cfg *Config, tlsConfig *tls.Config) sink.KafkaConfig {
	k := &cfg.Kafka
	return sink.KafkaConfig{
		Brokers: k.Brokers, ClientID: k.ClientID, Compression: k.Compression, TLS: tlsConfig,
		SASL: sink.SASLConfig{Mechanism: k.SASL.Mechanism, Username: k.SASL.Username, Password: k.SASL.Password()},
		Topics: sink.TopicsConfig{Create: k.Topics.Create, Partitions: int32(k.Topics.Partitions),
			Replication: int16(k.Topics.ReplicationFactor), Config: k.Topics.Config.Map()},
		DLQTopic: cfg.DLQ.Topic,
	}
}

func newEncoder(ctx context.Context, cfg *Config, m *metrics, log *slog.Logger) (*encoder, error) {
	e := &encoder{
		ctx: ctx, retries: m,
		passUnknown: cfg.Schema.OnMissing == "pass",
		haltMissing: cfg.Schema.OnMissing == "halt",
		haltInvalid: cfg.Schema.OnInvalid == "halt",
	}
	if cfg.Schema.Mode == "off" {
		return e, nil
	}
	s := &cfg.Schema
	c := schema.Config{Dir: s.Dir, Encoding: encodings[s.Encoding],
		DropUnknown: s.UnknownFields == "drop", Dropped: &m.dropped,
		Subject: s.Registry.Subject, Types: make(map[string]schema.TypeConfig)}
	for typ, t := range s.Types {
		c.Types[typ] = schema.TypeConfig(t)
	}
	if s.Registry.URL != "" {
		// What a registry said once stays true, so it is kept on disk: a relay that
		// restarts while the registry is away goes on. Without a home it does not.
		if dir, err := os.UserCacheDir(); err == nil {
			c.CacheDir = filepath.Join(dir, "tailer", "schemas")
		}
		c.Registry = &schema.RegistryConfig{URL: s.Registry.URL, Username: s.Registry.Username, Password: s.Registry.Password()}
	}
	load := func(ctx context.Context) (*schema.Catalog, error) { return schema.NewCatalog(ctx, c, log) }
	if s.Dir != "" {
		e.load = load
	}
	var err error
	e.catalog, err = load(ctx)
	return e, err
}
