package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Every error by its exact text: that is what an operator reads, and what the
// line number is for.
func TestConfigErrors(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		name, yaml string
		env        []string
		flags      map[string]string
		want       []string // file's lines count from 4: minimal comes first
	}{
		// Keys.
		{name: "unknown key", yaml: "outbox:\n  presett: default\n", want: []string{"tailer.yaml:5: unknown key outbox.presett, the nearest is outbox.preset"}},
		{name: "unknown section", yaml: "outbux: {table: a}\n", want: []string{"tailer.yaml:4: unknown key outbux, the nearest is outbox"}},
		{name: "key of another section", yaml: "log: {listen: ':1'}\n", want: []string{"tailer.yaml:4: unknown key log.listen, the nearest is http.listen"}},
		{name: "key twice", yaml: "log: {level: info}\nlog: {level: info}\n", want: []string{"tailer.yaml:5: log stands here again, first in line 4"}},
		{name: "key twice inside", yaml: "log:\n  level: info\n  level: debug\n", want: []string{"tailer.yaml:6: log.level stands here again, first in line 5"}},
		{name: "role twice", yaml: "outbox:\n  columns:\n    key: a\n    key: b\n", want: []string{"tailer.yaml:7: outbox.columns.key stands here again, first in line 6"}},
		{name: "merge key", yaml: "log:\n  <<: {level: info}\n", want: []string{"tailer.yaml:5: log: a key must be a plain name"}},
		{name: "unknown key of a type", yaml: "routing: {topic: a}\n", flags: map[string]string{"schema-types": "{t: {fil: x}}"},
			want: []string{"--schema-types: unknown key schema.types.t.fil, the nearest is schema.types.t.file"}},

		// Types.
		{name: "text for a section", yaml: "log: debug\n", want: []string{`tailer.yaml:4: log wants a mapping of keys, not the text "debug"`}},
		{name: "list for a section", yaml: "log: [a]\n", want: []string{"tailer.yaml:4: log wants a mapping of keys, not a list"}},
		{name: "number for a text", yaml: "routing:\n  default: 12\n", want: []string{"tailer.yaml:5: routing.default wants a text, not the number 12"}},
		{name: "nothing for a text", yaml: "routing:\n  default:\n", want: []string{"tailer.yaml:5: routing.default wants a text, not nothing"}},
		{name: "list for a text", yaml: "routing:\n  default: [a]\n", want: []string{"tailer.yaml:5: routing.default wants a text, not a list"}},
		{name: "boolean for a choice", yaml: "log:\n  level: true\n", want: []string{"tailer.yaml:5: log.level wants one of debug, info, warn, error, not true"}},
		{name: "wrong choice", yaml: "log:\n  level: trace\n", want: []string{`tailer.yaml:5: log.level wants one of debug, info, warn, error, not "trace"`}},
		{name: "yes for a boolean", yaml: "dlq:\n  block_key: yes\n", want: []string{`tailer.yaml:5: dlq.block_key wants true or false, not the text "yes"`}},
		{name: "text for a number", yaml: "delivery:\n  batch_records: many\n", want: []string{`tailer.yaml:5: delivery.batch_records wants a whole number, not the text "many"`}},
		{name: "quoted number", yaml: "delivery:\n  batch_records: \"5\"\n", want: []string{`tailer.yaml:5: delivery.batch_records wants a whole number, not the text "5"`}},
		{name: "fraction for a number", yaml: "delivery:\n  batch_records: 1.5\n", want: []string{"tailer.yaml:5: delivery.batch_records wants a whole number, not the number 1.5"}},
		{name: "number too large", yaml: "delivery:\n  batch_records: 99999999999\n", want: []string{`tailer.yaml:5: delivery.batch_records wants a whole number, not "99999999999"`}},
		{name: "size", yaml: "delivery:\n  batch_bytes: 8 apples\n", want: []string{`tailer.yaml:5: delivery.batch_bytes wants a size such as 8MiB, not "8 apples"`}},
		{name: "negative size", yaml: "delivery:\n  batch_bytes: -1\n", want: []string{`tailer.yaml:5: delivery.batch_bytes wants a size such as 8MiB, not "-1"`}},
		{name: "size past 64 bits", yaml: "delivery:\n  batch_bytes: 99999999999GiB\n", want: []string{`tailer.yaml:5: delivery.batch_bytes wants a size such as 8MiB, not "99999999999GiB"`}},
		{name: "duration without unit", yaml: "delivery:\n  drain_timeout: 8\n", want: []string{"tailer.yaml:5: delivery.drain_timeout wants a duration such as 8s, not the number 8"}},
		{name: "duration", yaml: "delivery:\n  drain_timeout: soon\n", want: []string{`tailer.yaml:5: delivery.drain_timeout wants a duration such as 8s, not "soon"`}},
		{name: "text for a mapping", yaml: "outbox:\n  columns: id\n", want: []string{`tailer.yaml:5: outbox.columns wants a mapping, not the text "id"`}},
		{name: "number in a mapping", yaml: "outbox:\n  header_columns:\n    a: 5\n", want: []string{"tailer.yaml:6: outbox.header_columns.a wants a text, not the number 5"}},

		// Variables, in the file and in place of it.
		{name: "undefined variable", yaml: "routing:\n  default: ${NOPE}\n", want: []string{"tailer.yaml:5: routing.default: variable ${NOPE} is not defined; a dollar is written $$"}},
		{name: "two undefined variables in one value", yaml: "routing:\n  default: ${A}${B}\n", want: []string{
			"tailer.yaml:5: routing.default: variable ${A} is not defined; a dollar is written $$",
			"tailer.yaml:5: routing.default: variable ${B} is not defined; a dollar is written $$"}},
		{name: "default syntax of the shell", yaml: "routing:\n  default: ${A:-b}\n", env: []string{"A:-b", "x"}, want: []string{"tailer.yaml:5: routing.default: variable ${A:-b} is not defined; a dollar is written $$"}},
		{name: "open brace", yaml: "routing:\n  default: ${A\n", want: []string{"tailer.yaml:5: routing.default: ${ without }; a dollar is written $$"}},
		{name: "undefined variable in a list", yaml: "outbox: {header_columns: {a: '${NOPE}'}}\n", want: []string{"tailer.yaml:4: outbox.header_columns.a: variable ${NOPE} is not defined; a dollar is written $$"}},
		{name: "substituted value of the wrong type", yaml: "delivery:\n  batch_records: ${SECRET_N}\n", env: []string{"SECRET_N", "hunter2"}, want: []string{"tailer.yaml:5: delivery.batch_records wants a whole number, and ${SECRET_N} is not"}},
		{name: "wrong variable", env: []string{"TAILER_DELIVERY_BATCH_RECORDS", "x"}, want: []string{`TAILER_DELIVERY_BATCH_RECORDS: delivery.batch_records wants a whole number, not "x"`}},
		{name: "wrong pairs", env: []string{"TAILER_OUTBOX_COLUMNS", "key"}, want: []string{`TAILER_OUTBOX_COLUMNS: outbox.columns wants name=value,name=value, not "key"`}},
		{name: "pair twice", env: []string{"TAILER_OUTBOX_COLUMNS", "key=a,key=b"}, want: []string{"TAILER_OUTBOX_COLUMNS: outbox.columns has key twice"}},
		{name: "boolean variable", env: []string{"TAILER_KAFKA_TOPICS_CREATE", "1"}, want: []string{`TAILER_KAFKA_TOPICS_CREATE: kafka.topics.create wants true or false, not "1"`}},
		{name: "wrong flag", flags: map[string]string{"log-level": "loud"}, want: []string{`--log-level: log.level wants one of debug, info, warn, error, not "loud"`}},
		{name: "types by flag", flags: map[string]string{"schema-types": "a"}, want: []string{`--schema-types: schema.types wants a mapping in braces, as YAML, not "a"`}},

		// Not available yet.
		{name: "checkpoint too long", yaml: "checkpoint:\n  table: " + strings.Repeat("x", 59) + "\n", want: []string{
			`tailer.yaml:5: checkpoint.table: of the second table's name, "` + strings.Repeat("x", 59) + `_gaps" has 64 bytes, Postgres keeps 63`}},
		{name: "exactly_once", yaml: "delivery:\n  mode: exactly_once\n", want: []string{"tailer.yaml:5: delivery.mode: exactly_once is not available: the transactional publisher does not exist yet: use at_least_once, whose repeats carry the same id and sequence"}},
		{name: "after_publish mark", yaml: "outbox:\n  after_publish: mark\n", want: []string{"tailer.yaml:5: outbox.after_publish: mark is not available: this version never writes to the outbox: rows are kept, remove them with a job of your own"}},
		{name: "after_publish delete", yaml: "outbox:\n  after_publish: delete\n", want: []string{"tailer.yaml:5: outbox.after_publish: delete is not available: this version never writes to the outbox: rows are kept, remove them with a job of your own"}},
		{name: "block_key", yaml: "dlq:\n  block_key: true\n", want: []string{"tailer.yaml:5: dlq.block_key is not available: blocking a key needs the replay of dead letters, which this version does not have"}},
		{name: "rules", yaml: "routing:\n  rules: []\n", want: []string{"tailer.yaml:5: routing.rules is not available: this version routes by routing.topic and schema.types.TYPE.topic only"}},
		{name: "checkpoint", yaml: "checkpoint:\n  table: a.b.c\n  topic: t\n", want: []string{
			`tailer.yaml:5: checkpoint.table wants schema.table, not "a.b.c"; double-quote a part that has a dot`,
			"tailer.yaml:6: checkpoint.topic is not available: this version keeps its position in the slot alone"}},
		{name: "OAUTHBEARER", env: []string{"TAILER_KAFKA_SASL_MECHANISM", "OAUTHBEARER"}, want: []string{"TAILER_KAFKA_SASL_MECHANISM: kafka.sasl.mechanism: OAUTHBEARER is not available: tokens are not supported yet: use SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN"}},
		{name: "token_file", flags: map[string]string{"kafka-sasl-token-file": "x"}, want: []string{"--kafka-sasl-token-file: kafka.sasl.token_file is not available: tokens are not supported yet: use a user and password_file"}},

		// Postgres.
		{name: "slot", env: []string{"TAILER_POSTGRES_SLOT", "My-Slot"}, want: []string{`TAILER_POSTGRES_SLOT: postgres.slot: a slot's name has 1 to 63 lower-case letters, digits and underscores, "My-Slot" is none`}},
		{name: "publication", env: []string{"TAILER_POSTGRES_PUBLICATION", ""}, want: []string{"TAILER_POSTGRES_PUBLICATION: postgres.publication: a name is empty"}},
		{name: "publication too long", env: []string{"TAILER_POSTGRES_PUBLICATION", long}, want: []string{fmt.Sprintf("TAILER_POSTGRES_PUBLICATION: postgres.publication: %q has 64 bytes, Postgres keeps 63", long)}},
		{name: "two passwords", env: []string{"TAILER_POSTGRES_PASSWORD", "a", "TAILER_POSTGRES_PASSWORD_FILE", "b"}, want: []string{"TAILER_POSTGRES_PASSWORD: postgres.password and postgres.password_file are both set: keep one"}},
		{name: "dsn", env: []string{"TAILER_POSTGRES_DSN", "postgres://u:hunter2@db:port/x"}, want: []string{"TAILER_POSTGRES_DSN: postgres.dsn is not a connection string of Postgres"}},

		// Outbox.
		{name: "table of three parts", yaml: "outbox:\n  table: a.b.c\n", want: []string{`tailer.yaml:5: outbox.table wants schema.table, not "a.b.c"; double-quote a part that has a dot`}},
		{name: "table with an empty part", yaml: "outbox:\n  table: a.\n", want: []string{"tailer.yaml:5: outbox.table: a name is empty"}},
		{name: "table with an open quote", yaml: "outbox:\n  table: '\"a.b'\n", want: []string{`tailer.yaml:5: outbox.table: "\"a.b" has an unpaired double quote`}},
		{name: "table with a quote inside", yaml: "outbox:\n  table: 'a\"b'\n", want: []string{`tailer.yaml:5: outbox.table: "a\"b": a part that has a quote must be in double quotes, the quote doubled`}},
		{name: "table with text behind a quote", yaml: "outbox:\n  table: '\"a\"b'\n", want: []string{`tailer.yaml:5: outbox.table: "\"a\"b" has text behind a closing quote`}},
		{name: "role", yaml: "outbox:\n  columns:\n    tenent: a\n", want: []string{"tailer.yaml:6: outbox.columns has no role tenent, the nearest is tenant"}},
		{name: "column with a dot", yaml: "outbox:\n  columns:\n    tenant: a.b\n", want: []string{`tailer.yaml:6: outbox.columns.tenant wants one column, not "a.b"; double-quote a name that has a dot`}},
		{name: "no payload", yaml: "outbox:\n  columns:\n    payload: ''\n", want: []string{"tailer.yaml:6: outbox.columns.payload: every event needs this column"}},
		{name: "empty header column", yaml: "outbox:\n  header_columns:\n    a: ''\n", want: []string{"tailer.yaml:6: outbox.header_columns.a: a name is empty"}},
		{name: "nameless header", yaml: "outbox:\n  header_columns:\n    '': a\n", want: []string{"tailer.yaml:5: outbox.header_columns has a header without a name"}},
		{name: "source", yaml: "record:\n  source: ''\n", want: []string{"tailer.yaml:5: record.source is empty"}},

		// Kafka.
		{name: "broker without port", env: []string{"TAILER_KAFKA_BROKERS", "k"}, want: []string{`TAILER_KAFKA_BROKERS: kafka.brokers: "k" is not host:port`}},
		{name: "broker as URL", env: []string{"TAILER_KAFKA_BROKERS", "kafka://k:1"}, want: []string{`TAILER_KAFKA_BROKERS: kafka.brokers: "kafka://k:1" is not host:port`}},
		{name: "broker port", env: []string{"TAILER_KAFKA_BROKERS", "k:0,l:kafka"}, want: []string{
			`TAILER_KAFKA_BROKERS: kafka.brokers: "k:0" has no port from 1 to 65535`, `TAILER_KAFKA_BROKERS: kafka.brokers: "l:kafka" has no port from 1 to 65535`}},
		{name: "no brokers", env: []string{"TAILER_KAFKA_BROKERS", ""}, want: []string{"TAILER_KAFKA_BROKERS: kafka.brokers is required"}},
		{name: "client id", env: []string{"TAILER_KAFKA_CLIENT_ID", ""}, want: []string{"TAILER_KAFKA_CLIENT_ID: kafka.client_id is empty"}},
		{name: "tls off", env: []string{"TAILER_KAFKA_TLS_CA_FILE", "a"}, want: []string{"TAILER_KAFKA_TLS_CA_FILE: kafka.tls.ca_file is set, but kafka.tls.enabled is not true"}},
		{name: "certificate alone", env: []string{"TAILER_KAFKA_TLS_CERT_FILE", "a", "TAILER_KAFKA_TLS_ENABLED", "true"}, want: []string{"TAILER_KAFKA_TLS_CERT_FILE: kafka.tls.cert_file and kafka.tls.key_file belong together"}},
		{name: "key alone", env: []string{"TAILER_KAFKA_TLS_KEY_FILE", "a", "TAILER_KAFKA_TLS_ENABLED", "true"}, want: []string{"TAILER_KAFKA_TLS_KEY_FILE: kafka.tls.cert_file and kafka.tls.key_file belong together"}},
		{name: "mechanism", env: []string{"TAILER_KAFKA_SASL_MECHANISM", "GSSAPI"}, want: []string{`TAILER_KAFKA_SASL_MECHANISM: kafka.sasl.mechanism wants one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, not "GSSAPI"`}},
		{name: "user without mechanism", env: []string{"TAILER_KAFKA_SASL_USERNAME", "a", "TAILER_KAFKA_SASL_PASSWORD", "p"}, want: []string{
			"TAILER_KAFKA_SASL_USERNAME: kafka.sasl.username is set, but kafka.sasl.mechanism is not", "TAILER_KAFKA_SASL_PASSWORD: kafka.sasl.password is set, but kafka.sasl.mechanism is not"}},
		{name: "mechanism without user", env: []string{"TAILER_KAFKA_SASL_MECHANISM", "PLAIN"}, want: []string{
			"TAILER_KAFKA_SASL_MECHANISM: kafka.sasl.username is required with PLAIN",
			"TAILER_KAFKA_SASL_MECHANISM: kafka.sasl.password_file (or TAILER_KAFKA_SASL_PASSWORD) is required with PLAIN"}},
		{name: "partitions", env: []string{"TAILER_KAFKA_TOPICS_PARTITIONS", "0"}, want: []string{"TAILER_KAFKA_TOPICS_PARTITIONS: kafka.topics.partitions wants -1 or 1 to 100000, not 0"}},
		{name: "replication factor", env: []string{"TAILER_KAFKA_TOPICS_REPLICATION_FACTOR", "-2"}, want: []string{"TAILER_KAFKA_TOPICS_REPLICATION_FACTOR: kafka.topics.replication_factor wants -1 or 1 to 32767, not -2"}},

		// Topics.
		{name: "empty template", yaml: "routing:\n  topic: ''\n", want: []string{"tailer.yaml:5: routing.topic: empty"}},
		{name: "placeholder", yaml: "routing:\n  topic: '{domian}'\n", want: []string{"tailer.yaml:5: routing.topic: no placeholder {domian}, the nearest is {domain}"}},
		{name: "placeholder of a role without column", yaml: "routing:\n  topic: 'a.{tenant}'\n", want: []string{"tailer.yaml:5: routing.topic: {tenant} needs outbox.columns.tenant"}},
		{name: "brace", yaml: "routing:\n  topic: 'a.{domain'\n", want: []string{`tailer.yaml:5: routing.topic: "a.{domain" has an unpaired brace`}},
		{name: "closing brace", yaml: "routing:\n  topic: 'a}'\n", want: []string{`tailer.yaml:5: routing.topic: "a}" has an unpaired brace`}},
		{name: "letter", yaml: "routing:\n  topic: 'a/{domain}'\n", want: []string{`tailer.yaml:5: routing.topic: "a/" in "a/{domain}" cannot be part of a topic's name`}},
		{name: "default topic", yaml: "routing:\n  default: 'a b'\n", want: []string{`tailer.yaml:5: routing.default: "a b" is no topic's name: 1 to 249 letters, digits, dots, dashes and underscores`}},
		{name: "dead letter topic", yaml: "dlq:\n  topic: ..\n", want: []string{`tailer.yaml:5: dlq.topic: ".." is no topic's name: 1 to 249 letters, digits, dots, dashes and underscores`}},
		{name: "no dead letter topic", yaml: "dlq:\n  topic: ''\n", want: []string{"tailer.yaml:5: dlq.topic is empty: dead letters need a topic"}},
		{name: "topic of a type", env: []string{"TAILER_SCHEMA_TYPES", "{t: {topic: 'a b'}}"}, want: []string{`TAILER_SCHEMA_TYPES: schema.types.t.topic: "a b" is no topic's name: 1 to 249 letters, digits, dots, dashes and underscores`}},

		// Schemas.
		{name: "registry url", env: []string{"TAILER_SCHEMA_REGISTRY_URL", "registry:8081"}, want: []string{"TAILER_SCHEMA_REGISTRY_URL: schema.registry.url wants an http or https address"}},
		{name: "registry url with a user", env: []string{"TAILER_SCHEMA_REGISTRY_URL", "http://u:hunter2@r"}, want: []string{"TAILER_SCHEMA_REGISTRY_URL: schema.registry.url has a user in it: use schema.registry.username and password_file"}},
		{name: "registry password alone", env: []string{"TAILER_SCHEMA_REGISTRY_PASSWORD", "hunter2"}, want: []string{"TAILER_SCHEMA_REGISTRY_PASSWORD: schema.registry.username is required with a password"}},
		{name: "registry password file alone", env: []string{"TAILER_SCHEMA_REGISTRY_PASSWORD_FILE", "f"}, want: []string{"TAILER_SCHEMA_REGISTRY_PASSWORD_FILE: schema.registry.username is required with a password"}},
		{name: "subject", env: []string{"TAILER_SCHEMA_REGISTRY_SUBJECT", "all"}, want: []string{`TAILER_SCHEMA_REGISTRY_SUBJECT: schema.registry.subject: "all" has neither {type} nor {record}, so all types would share a subject`}},
		{name: "no schemas", env: []string{"TAILER_SCHEMA_DIR", ""}, want: []string{"tailer.yaml: schema.mode: validate needs schema.dir or schema.registry.url; `mode: off` sends payloads unchecked"}},
		{name: "off with Avro", env: []string{"TAILER_SCHEMA_MODE", "off", "TAILER_SCHEMA_ENCODING", "single-object"}, want: []string{"TAILER_SCHEMA_ENCODING: schema.mode: off sends the payload's text and needs schema.encoding: json, not single-object"}},
		{name: "pass with a registry", env: []string{"TAILER_SCHEMA_ON_MISSING", "pass", "TAILER_SCHEMA_REGISTRY_URL", "http://r"}, want: []string{"TAILER_SCHEMA_ON_MISSING: schema.on_missing: pass sends the payload's text and needs schema.encoding: json, not confluent"}},
		{name: "confluent without registry", env: []string{"TAILER_SCHEMA_ENCODING", "confluent-header"}, want: []string{"TAILER_SCHEMA_ENCODING: schema.encoding: confluent-header needs schema.registry.url"}},
		{name: "file without dir", env: []string{"TAILER_SCHEMA_DIR", "", "TAILER_SCHEMA_REGISTRY_URL", "http://r", "TAILER_SCHEMA_TYPES", "{t: {file: f}}"}, want: []string{"TAILER_SCHEMA_TYPES: schema.types.t.file needs schema.dir"}},

		// Delivery and HTTP.
		{name: "batch_records", yaml: "delivery:\n  batch_records: 0\n", want: []string{"tailer.yaml:5: delivery.batch_records wants 1 to 1000000, not 0"}},
		{name: "batch_bytes", yaml: "delivery:\n  batch_bytes: 1KiB\n", want: []string{"tailer.yaml:5: delivery.batch_bytes wants 4KiB to 1GiB, not 1024"}},
		{name: "isolation_bytes", yaml: "delivery:\n  isolation_bytes: 1KiB\n", want: []string{"tailer.yaml:5: delivery.isolation_bytes wants 0 or 64KiB to 64GiB, not 1024"}},
		{name: "drain_timeout", yaml: "delivery:\n  drain_timeout: 0s\n", want: []string{"tailer.yaml:5: delivery.drain_timeout wants 100ms to 1h, not 0s"}},
		{name: "listen", yaml: "http:\n  listen: '9479'\n", want: []string{`tailer.yaml:5: http.listen: "9479" is not host:port`}},
		{name: "listen port", yaml: "http:\n  listen: ':70000'\n", want: []string{`tailer.yaml:5: http.listen: ":70000" is not host:port`}},

		// All at once: the file in its order, then variables and flags.
		{name: "all at once", yaml: "log: {level: loud}\noutbox: {tabel: x}\nhttp: {listen: x}\n",
			env: []string{"TAILER_KAFKA_COMPRESSION", "rar"}, flags: map[string]string{"delivery-drain-timeout": "x"}, want: []string{
				`tailer.yaml:4: log.level wants one of debug, info, warn, error, not "loud"`,
				"tailer.yaml:5: unknown key outbox.tabel, the nearest is outbox.table",
				`tailer.yaml:6: http.listen: "x" is not host:port`,
				`TAILER_KAFKA_COMPRESSION: kafka.compression wants one of lz4, none, snappy, zstd, gzip, not "rar"`,
				`--delivery-drain-timeout: delivery.drain_timeout wants a duration such as 8s, not "x"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inDir(t, minimal+c.yaml)
			_, err := LoadConfig("", variables(c.env...), c.flags)
			if err == nil {
				t.Fatal("accepted")
			}
			if got, want := err.Error(), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestConfigFilesThatAreNotOne(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"tab", "log:\n\tlevel: info\n", "tailer.yaml:2: not YAML: found character that cannot start any token"},
		{"list", "- a\n", "tailer.yaml:1: the file wants a mapping of keys, not a list"},
		{"two documents", "log: {level: info}\n---\nlog: {level: info}\n", "tailer.yaml:2: a second document: one file holds one configuration"},
		{"unknown anchor", "log: *x\n", "tailer.yaml:1: not YAML: unknown anchor 'x' referenced"},
		{"secret", "postgres: {password: hunter2}\n", "tailer.yaml:1: postgres.password is not read from the file: set TAILER_POSTGRES_PASSWORD, or postgres.password_file to a file that holds it"},
		{"dsn that is a number", "postgres: {dsn: 12345}\n", "tailer.yaml:1: postgres.dsn wants a text, not a number or the like: quote it"},
		{"brokers as text", "kafka: {brokers: 'k:1'}\n", `tailer.yaml:1: kafka.brokers wants a list, not the text "k:1"`},
		{"broker that is a number", "kafka:\n  brokers:\n    - 9092\n", "tailer.yaml:3: kafka.brokers wants a text, not the number 9092"},
		{"types as text", "schema: {types: a}\n", `tailer.yaml:1: schema.types wants a mapping, not the text "a"`},
		{"type as text", "schema:\n  types:\n    a: b\n", `tailer.yaml:3: schema.types.a wants a mapping with file, subject or topic, not the text "b"`},
		{"unknown key of a type", "schema:\n  types:\n    a.b:\n      topik: b\n", "tailer.yaml:4: unknown key schema.types.a.b.topik, the nearest is schema.types.a.b.topic"},
		{"topic of a type", "schema:\n  types:\n    a.b:\n      topic: 'b c'\n", `tailer.yaml:4: schema.types.a.b.topic: "b c" is no topic's name: 1 to 249 letters, digits, dots, dashes and underscores`},
	} {
		t.Run(c.name, func(t *testing.T) {
			inDir(t, c.yaml)
			_, err := loadConfig("", variables("PGHOST", "db"), nil, forDatabase)
			if err == nil {
				t.Fatal("accepted")
			}
			if got := err.Error(); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// No malformed connection string gives its password away, wherever the parser quotes.
func TestDSNErrorsHideThePassword(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:hunter2@db:port/x", "postgres://u:hun/ter2@db/x", "postgres://u:hun%zzter2@db/x", "postgres://u:hunter2@[db/x",
		"host=db password=hunter2 port=x", "host=db password='hunter2", "password=hunter2 oops", "host=db password = hunter2 sslmode=maybe",
		"postgres://u:hunter2@db/x?sslmode=maybe", "postgres://u:hunter2@db/x?connect_timeout=x", "postgres://db/x?password=hunter2&sslmode=maybe",
	} {
		inDir(t, "")
		_, err := loadConfig("", variables("TAILER_POSTGRES_DSN", dsn), nil, forDatabase)
		if err == nil {
			t.Errorf("%q is accepted", dsn)
			continue
		}
		for i := 0; i+3 <= len("hunter2"); i++ {
			if strings.Contains(err.Error(), "hunter2"[i:i+3]) {
				t.Errorf("%q: %v", dsn, err)
			}
		}
	}
	inDir(t, "")
	for dsn, want := range map[string]string{
		"postgres://u:hunter2@db/x?sslmode=maybe":                            "sslmode is invalid",
		"host=db password=hunter2 sslmode=verify-ca sslrootcert=nowhere.pem": "open nowhere.pem: no such file or directory",
	} {
		_, err := loadConfig("", variables("TAILER_POSTGRES_DSN", dsn), nil, forDatabase)
		if want := "TAILER_POSTGRES_DSN: postgres.dsn is not a connection string of Postgres: " + want; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	inDir(t, minimal)
	cfg, err := LoadConfig("", variables("TAILER_POSTGRES_PASSWORD", "hunter2", "TAILER_POSTGRES_DSN", "postgres://u:hunter2@db/x",
		"TAILER_KAFKA_SASL_PASSWORD", "hunter2", "TAILER_KAFKA_SASL_USERNAME", "u", "TAILER_KAFKA_SASL_MECHANISM", "PLAIN",
		"TAILER_SCHEMA_REGISTRY_PASSWORD", "hunter2", "TAILER_SCHEMA_REGISTRY_USERNAME", "u"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, format := range []string{"text", "json"} {
		log := newLogger(&out, LogConfig{Level: "debug", Format: format})
		log.Info("configuration", "cfg", cfg, "postgres", cfg.Postgres, "dsn", cfg.Postgres.DSN, slog.Group("g", "dsn", cfg.Postgres.DSN))
	}
	fmt.Fprintf(&out, "%v %+v %#v %s %q", cfg, *cfg, *cfg, cfg.Postgres.DSN, cfg.Postgres.DSN)
	if err := json.NewEncoder(&out).Encode(cfg); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("a secret in %s", out.String())
	}
	if cfg.Postgres.DSN.Reveal() != "postgres://u:hunter2@db/x" {
		t.Error("the secret is lost")
	}
}
