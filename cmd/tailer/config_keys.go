package main

import "strings"

// key is one line of the configuration's table. Everything that knows keys is
// driven by it: the file's strictness, variables, flags, defaults, docs and the
// example file.
type key struct {
	path string
	// field points into a Config; its type decides how values are written.
	field func(*Config) any
	def   string // parsed as a variable's text would be; "" leaves the zero value
	// derived tells of a default that depends on other keys (see resolve).
	derived string
	allowed []string
	doc     string
	example string // for the example file, where def is no good sample
	// secret: a variable only, neither file nor flag.
	secret bool
	// numbers: values of the mapping may be YAML numbers and booleans.
	numbers bool
	// refuse returns why the value cannot be had yet, "" when it can.
	refuse func(*Config) string
}

func (k *key) flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(k.path) }
func (k *key) env() string {
	return "TAILER_" + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// section is the part before the last dot.
func (k *key) section() string { return k.path[:strings.LastIndexByte(k.path, '.')] }

// name is the part after the last dot.
func (k *key) name() string { return k.path[strings.LastIndexByte(k.path, '.')+1:] }

func notYet(why string) func(*Config) string { return func(*Config) string { return why } }

func when(is func(*Config) bool, why string) func(*Config) string {
	return func(c *Config) string {
		if is(c) {
			return why
		}
		return ""
	}
}

// roles are what an outbox column can be, in the order in which a table is created.
var roles = []string{"id", "occurred_at", "aggregatetype", "key", "type", "payload", "headers",
	"correlation_id", "causation_id", "traceparent", "tenant"}

// presets are the columns of a table that follows one.
var presets = map[string]map[string]string{
	"default":  {"id": "id", "occurred_at": "occurred_at", "key": "aggregate_id", "type": "type", "payload": "payload", "headers": "headers"},
	"debezium": {"id": "id", "aggregatetype": "aggregatetype", "key": "aggregateid", "type": "type", "payload": "payload"},
	"simple":   {"id": "id", "type": "message_type", "payload": "payload", "occurred_at": "created_at"},
}

// debeziumTopic is where the Outbox Event Router sends by default.
const debeziumTopic = "outbox.event.{aggregatetype}"

var configKeys = []key{
	{path: "postgres.dsn", field: func(c *Config) any { return &c.Postgres.DSN },
		doc:     "Connection string, URL or keyword form, with everything libpq knows: several hosts, `target_session_attrs`, `sslmode`, Unix sockets. Without it the `PG*` variables count. As a flag it is visible to whoever lists processes: keep passwords out of it there.",
		example: "postgres://tailer@db.example.com:5432/shop?sslmode=verify-full"},
	{path: "postgres.password", secret: true, field: func(c *Config) any { return &c.Postgres.PasswordValue },
		doc: "Password of the role. Wins over one in the DSN."},
	{path: "postgres.password_file", field: func(c *Config) any { return &c.Postgres.PasswordFile },
		doc: "File with the password, read again at every new connection. Wins over one in the DSN.", example: "/run/secrets/postgres"},
	{path: "postgres.slot", def: "tailer", field: func(c *Config) any { return &c.Postgres.Slot },
		doc: "Logical replication slot. It names the relay: metrics, the default source and the default dead letter topic carry it."},
	{path: "postgres.publication", def: "tailer", field: func(c *Config) any { return &c.Postgres.Publication },
		doc: "Publication that has the outbox table, name as in the catalogue, without quoting."},
	{path: "postgres.create", def: "false", field: func(c *Config) any { return &c.Postgres.Create },
		doc: "At the first start, where there is neither slot nor stored position, do what `tailer init --apply` does. A relay that ran never makes itself a new slot."},

	{path: "outbox.table", def: "public.outbox", field: func(c *Config) any { return &c.Outbox.Table },
		doc: "Outbox table as `schema.table`, as in the catalogue, without case folding. A part that has a dot or a quote is double-quoted. For a partitioned table name the root."},
	{path: "outbox.preset", def: "default", allowed: []string{"default", "debezium", "simple"}, field: func(c *Config) any { return &c.Outbox.Preset },
		doc: "Shape of the table. `default`: id, occurred_at, aggregate_id, type, payload, headers, sent_at. `debezium`: id, aggregatetype, aggregateid, type, payload; it also makes `record.profile: debezium` and `routing.topic: outbox.event.{aggregatetype}` the defaults. `simple`: id, message_type, payload, created_at, and published and published_at, which are the application's: the relay does not write to the table. It has no key, so events go to any partition and have no order, unless `outbox.columns.key` names a column."},
	{path: "outbox.columns", field: func(c *Config) any { return &c.Outbox.Columns },
		doc:     "Columns that differ from the preset's, as `role: column`. Roles: id, key, type, payload, headers, occurred_at, correlation_id, causation_id, traceparent, tenant, aggregatetype. An empty column takes the role away.",
		example: "{type: event_type, tenant: tenant}"},
	{path: "outbox.header_columns", field: func(c *Config) any { return &c.Outbox.HeaderColumns },
		doc: "Further columns sent as headers, in this order, as `header: column`.", example: "{region: region_code}"},
	{path: "outbox.null_key", def: "spread", allowed: []string{"spread", "dlq"}, field: func(c *Config) any { return &c.Outbox.NullKey },
		doc: "A row whose key is NULL: `spread` over the partitions, or a dead letter."},
	{path: "outbox.null_payload", def: "dlq", allowed: []string{"dlq", "tombstone"}, field: func(c *Config) any { return &c.Outbox.NullPayload },
		doc: "A row whose payload is NULL: a dead letter, or a record without value (`tombstone`)."},
	{path: "outbox.after_publish", def: "keep", allowed: []string{"keep", "mark", "delete"}, field: func(c *Config) any { return &c.Outbox.AfterPublish },
		doc:    "What happens to a row after its record is acknowledged.",
		refuse: when(func(c *Config) bool { return c.Outbox.AfterPublish == "mark" || c.Outbox.AfterPublish == "delete" }, "this version never writes to the outbox: rows are kept, remove them with a job of your own")},

	{path: "record.profile", derived: "cloudevents", allowed: []string{"cloudevents", "debezium", "plain"}, field: func(c *Config) any { return &c.Record.Profile },
		doc: "Headers of a record: CloudEvents in binary mode, what Debezium's Outbox Event Router emits, or plain names."},
	{path: "record.source", derived: "urn:tailer:<slot>", field: func(c *Config) any { return &c.Record.Source },
		doc: "`ce_source` of every record.", example: "urn:tailer:shop"},

	{path: "kafka.brokers", field: func(c *Config) any { return &c.Kafka.Brokers },
		doc: "Brokers to start from, `host:port`. Required.", example: `["kafka-1.example.com:9092", "kafka-2.example.com:9092"]`},
	{path: "kafka.client_id", def: "tailer", field: func(c *Config) any { return &c.Kafka.ClientID },
		doc: "Client id in the brokers' logs and quotas."},
	{path: "kafka.compression", def: "lz4", allowed: []string{"lz4", "none", "snappy", "zstd", "gzip"}, field: func(c *Config) any { return &c.Kafka.Compression },
		doc: "Compression of record batches."},
	{path: "kafka.tls.enabled", def: "false", field: func(c *Config) any { return &c.Kafka.TLS.Enabled },
		doc: "TLS to the brokers.", example: "true"},
	{path: "kafka.tls.ca_file", field: func(c *Config) any { return &c.Kafka.TLS.CAFile },
		doc: "Certificates (PEM) that brokers are verified against. Without it the system's count.", example: "/etc/tailer/ca.pem"},
	{path: "kafka.tls.cert_file", field: func(c *Config) any { return &c.Kafka.TLS.CertFile },
		doc: "Own certificate (PEM) for mutual TLS.", example: "/etc/tailer/tailer.pem"},
	{path: "kafka.tls.key_file", field: func(c *Config) any { return &c.Kafka.TLS.KeyFile },
		doc: "Key of `cert_file` (PEM).", example: "/etc/tailer/tailer.key"},
	{path: "kafka.tls.server_name", field: func(c *Config) any { return &c.Kafka.TLS.ServerName },
		doc: "Name that the brokers' certificates must have, where it is not the host that is dialled.", example: "kafka.example.com"},
	{path: "kafka.sasl.mechanism", allowed: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}, field: func(c *Config) any { return &c.Kafka.SASL.Mechanism },
		doc: "How to log in to the brokers. Without it: not at all.", example: "SCRAM-SHA-512",
		refuse: when(func(c *Config) bool { return c.Kafka.SASL.Mechanism == "OAUTHBEARER" }, "tokens are not supported yet: use SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN")},
	{path: "kafka.sasl.username", field: func(c *Config) any { return &c.Kafka.SASL.Username },
		doc: "User of the mechanism.", example: "tailer"},
	{path: "kafka.sasl.password", secret: true, field: func(c *Config) any { return &c.Kafka.SASL.PasswordValue },
		doc: "Password of the user."},
	{path: "kafka.sasl.password_file", field: func(c *Config) any { return &c.Kafka.SASL.PasswordFile },
		doc: "File with the password, read again at every new connection.", example: "/run/secrets/kafka"},
	{path: "kafka.sasl.token_file", field: func(c *Config) any { return &c.Kafka.SASL.TokenFile },
		doc: "File with an OAUTHBEARER token.", example: "/run/secrets/kafka-token",
		refuse: notYet("tokens are not supported yet: use a user and password_file")},
	{path: "kafka.topics.create", def: "false", field: func(c *Config) any { return &c.Kafka.Topics.Create },
		doc: "Create a missing topic before its first record. Without it tailer waits for the topic, not ready."},
	{path: "kafka.topics.partitions", def: "-1", field: func(c *Config) any { return &c.Kafka.Topics.Partitions },
		doc: "Partitions of a created topic; -1 is the broker's default."},
	{path: "kafka.topics.replication_factor", def: "-1", field: func(c *Config) any { return &c.Kafka.Topics.ReplicationFactor },
		doc: "Replicas of a created topic; -1 is the broker's default."},
	{path: "kafka.topics.config", numbers: true, field: func(c *Config) any { return &c.Kafka.Topics.Config },
		doc: "Settings of a created topic.", example: "{retention.ms: 604800000}"},

	{path: "routing.topic", derived: "{domain}", field: func(c *Config) any { return &c.Routing.Topic },
		doc: "Template of a record's topic: `{domain}` `{event}` `{version}` from a type `<domain>.<event>.v<n>`, `{type}`, or the value of a role such as `{tenant}`. Events of one aggregate must share a topic to keep their order."},
	{path: "routing.rules", field: func(c *Config) any { return &c.Routing.Rules },
		doc: "Conditions that choose a topic.", example: `[{when: "type == 'a.b.v1'", topic: a}]`,
		refuse: notYet("this version routes by routing.topic and schema.types.TYPE.topic only")},
	{path: "routing.default", field: func(c *Config) any { return &c.Routing.Default },
		doc: "Topic of an event for which the template has none: its type lacks the shape, or a role that it needs is NULL. Without it such a row is a dead letter, `unroutable`.", example: "events"},

	{path: "schema.mode", def: "validate", allowed: []string{"validate", "off"}, field: func(c *Config) any { return &c.Schema.Mode },
		doc: "`validate` needs a directory or a registry; `off` sends the payload column's text unchanged."},
	{path: "schema.dir", field: func(c *Config) any { return &c.Schema.Dir },
		doc: "Directory of `<type>.avsc` files, also in folders below it; read at the start.", example: "./schemas"},
	{path: "schema.registry.url", field: func(c *Config) any { return &c.Schema.Registry.URL },
		doc: "Schema registry with Confluent's API; may have a path. It is only read; its answers are kept in the user's cache folder, below `tailer/schemas`.", example: "https://registry.example.com"},
	{path: "schema.registry.username", field: func(c *Config) any { return &c.Schema.Registry.Username },
		doc: "User for basic authentication.", example: "tailer"},
	{path: "schema.registry.password", secret: true, field: func(c *Config) any { return &c.Schema.Registry.PasswordValue },
		doc: "Password for basic authentication."},
	{path: "schema.registry.password_file", field: func(c *Config) any { return &c.Schema.Registry.PasswordFile },
		doc: "File with the password, read again at every request.", example: "/run/secrets/registry"},
	{path: "schema.registry.subject", def: "{type}", field: func(c *Config) any { return &c.Schema.Registry.Subject },
		doc: "Subject of a type: `{type}`, and with `schema.dir` also `{record}`, the full name of its file's schema."},
	{path: "schema.types", field: func(c *Config) any { return &c.Schema.Types },
		doc: "What a type has of its own, as `TYPE: {file, subject, topic}`.", example: "{order.placed-v1: {file: order_placed.avsc, topic: orders}}"},
	{path: "schema.encoding", derived: "confluent with a registry, else json", allowed: []string{"confluent", "confluent-header", "single-object", "json"}, field: func(c *Config) any { return &c.Schema.Encoding },
		doc: "Form of the value: Avro behind Confluent's five bytes, Avro with the schema id in a header, Avro single-object, or the JSON text after validation.", example: "confluent"},
	{path: "schema.unknown_fields", def: "reject", allowed: []string{"reject", "drop"}, field: func(c *Config) any { return &c.Schema.UnknownFields },
		doc: "A field that the schema does not have: the row is invalid, or the field is left out."},
	{path: "schema.on_missing", def: "dlq", allowed: []string{"dlq", "pass", "halt"}, field: func(c *Config) any { return &c.Schema.OnMissing },
		doc: "A type without schema: a dead letter, the text unchanged (`pass`, with encoding json only), or hold the position until there is one (`halt`)."},
	{path: "schema.on_invalid", def: "dlq", allowed: []string{"dlq", "halt"}, field: func(c *Config) any { return &c.Schema.OnInvalid },
		doc: "A payload that does not fit its schema: a dead letter, or hold the position."},

	{path: "dlq.topic", derived: "<slot>.dlq", field: func(c *Config) any { return &c.DLQ.Topic },
		doc: "Dead letter topic; checked at start.", example: "shop.dlq"},
	{path: "dlq.block_key", def: "false", field: func(c *Config) any { return &c.DLQ.BlockKey },
		doc:    "After a dead letter send every later row of its key there too.",
		refuse: when(func(c *Config) bool { return c.DLQ.BlockKey }, "blocking a key needs the replay of dead letters, which this version does not have")},

	{path: "checkpoint.table", def: "tailer_state", field: func(c *Config) any { return &c.Checkpoint.Table },
		doc: "Table that remembers how far the relay ran, as `schema.table`, by default in `public`; beside it a table of the same name with `_gaps` behind it has the gaps that were accepted. `tailer init` makes both."},
	{path: "checkpoint.topic", field: func(c *Config) any { return &c.Checkpoint.Topic },
		doc: "Topic that holds the position in exactly_once.", example: "tailer.checkpoint",
		refuse: notYet("this version keeps its position in the slot alone")},

	{path: "delivery.mode", def: "at_least_once", allowed: []string{"at_least_once", "exactly_once"}, field: func(c *Config) any { return &c.Delivery.Mode },
		doc:    "What consumers may rely on.",
		refuse: when(func(c *Config) bool { return c.Delivery.Mode == "exactly_once" }, "the transactional publisher does not exist yet: use at_least_once, whose repeats carry the same id and sequence")},
	{path: "delivery.batch_records", def: "10000", field: func(c *Config) any { return &c.Delivery.BatchRecords },
		doc: "Most records in one cycle, 1 to 1000000."},
	{path: "delivery.batch_bytes", def: "8MiB", field: func(c *Config) any { return &c.Delivery.BatchBytes },
		doc: "Most bytes in one cycle, 4KiB to 1GiB; two are in memory."},
	{path: "delivery.isolation_bytes", def: "64MiB", field: func(c *Config) any { return &c.Delivery.IsolationBytes },
		doc: "How far the other topics go on while one cannot be written to: most bytes, 512 more for each record, from the oldest event that waits to the newest that was read. It bounds the memory that waits and what a crash then repeats. 0: all topics wait for it; else 64KiB to 64GiB."},
	{path: "delivery.drain_timeout", def: "8s", field: func(c *Config) any { return &c.Delivery.DrainTimeout },
		doc: "How long a stop waits for what is in flight, 100ms to 1h."},

	{path: "http.listen", def: "127.0.0.1:9479", field: func(c *Config) any { return &c.HTTP.Listen },
		doc: "Address of `/healthz`, `/readyz` and `/metrics`. Port 0 takes a free one and logs it, an empty text turns it off; in a container set `0.0.0.0:9479`."},

	{path: "log.level", def: "info", allowed: []string{"debug", "info", "warn", "error"}, field: func(c *Config) any { return &c.Log.Level },
		doc: "Least level that is logged."},
	{path: "log.format", def: "auto", allowed: []string{"auto", "text", "json"}, field: func(c *Config) any { return &c.Log.Format },
		doc: "`auto` is coloured on a terminal and JSON otherwise."},
}
