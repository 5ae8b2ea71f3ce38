package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// variables makes a getenv of pairs.
func variables(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

// minimal is a file that run accepts, a key a line; a test's own lines follow.
const minimal = `postgres: {dsn: "postgres://tailer@db/shop"}
kafka: {brokers: ["k:9092"]}
schema: {dir: schemas}
`

// inDir puts a tailer.yaml into a directory of its own and goes there.
func inDir(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("tailer.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConfigDefaults(t *testing.T) {
	inDir(t, minimal)
	cfg, err := LoadConfig("", variables(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"dsn", cfg.Postgres.DSN.Reveal(), "postgres://tailer@db/shop"},
		{"slot", cfg.Postgres.Slot, "tailer"},
		{"publication", cfg.Postgres.Publication, "tailer"},
		{"table schema", cfg.Outbox.TableSchema, "public"},
		{"table name", cfg.Outbox.TableName, "outbox"},
		{"roles", cfg.Outbox.Roles, map[string]string{"id": "id", "occurred_at": "occurred_at", "key": "aggregate_id", "type": "type", "payload": "payload", "headers": "headers"}},
		{"null_key", cfg.Outbox.NullKey, "spread"},
		{"null_payload", cfg.Outbox.NullPayload, "dlq"},
		{"after_publish", cfg.Outbox.AfterPublish, "keep"},
		{"profile", cfg.Record.Profile, "cloudevents"},
		{"source", cfg.Record.Source, "urn:tailer:tailer"},
		{"client_id", cfg.Kafka.ClientID, "tailer"},
		{"compression", cfg.Kafka.Compression, "lz4"},
		{"partitions", cfg.Kafka.Topics.Partitions, -1},
		{"replication_factor", cfg.Kafka.Topics.ReplicationFactor, -1},
		{"topic", cfg.Routing.Topic, "{domain}"},
		{"mode", cfg.Schema.Mode, "validate"},
		{"encoding", cfg.Schema.Encoding, "json"},
		{"subject", cfg.Schema.Registry.Subject, "{type}"},
		{"unknown_fields", cfg.Schema.UnknownFields, "reject"},
		{"on_missing", cfg.Schema.OnMissing, "dlq"},
		{"on_invalid", cfg.Schema.OnInvalid, "dlq"},
		{"dlq", cfg.DLQ.Topic, "tailer.dlq"},
		{"delivery", cfg.Delivery, DeliveryConfig{"at_least_once", 10000, 8 << 20, 64 << 20, 8 * time.Second}},
		{"listen", cfg.HTTP.Listen, "127.0.0.1:9479"},
		{"log", cfg.Log, LogConfig{"info", "auto"}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestConfigDerivedDefaults(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		want       func(*Config) bool
	}{
		{"slot names source and dead letters", "postgres: {dsn: x=y, slot: shop}", func(c *Config) bool {
			return c.Record.Source == "urn:tailer:shop" && c.DLQ.Topic == "shop.dlq"
		}},
		{"debezium", "outbox: {preset: debezium}", func(c *Config) bool {
			return c.Record.Profile == "debezium" && c.Routing.Topic == "outbox.event.{aggregatetype}" &&
				reflect.DeepEqual(c.Outbox.Roles, map[string]string{"id": "id", "aggregatetype": "aggregatetype", "key": "aggregateid", "type": "type", "payload": "payload"})
		}},
		{"debezium with a profile and a topic of its own", "outbox: {preset: debezium}\nrecord: {profile: plain}\nrouting: {topic: events}", func(c *Config) bool {
			return c.Record.Profile == "plain" && c.Routing.Topic == "events"
		}},
		{"registry", "schema: {registry: {url: 'http://r'}}", func(c *Config) bool { return c.Schema.Encoding == "confluent" }},
		{"registry, encoding given", "schema: {registry: {url: 'http://r'}, encoding: json}", func(c *Config) bool { return c.Schema.Encoding == "json" }},
		{"mode off beside a registry", "schema: {mode: off, registry: {url: 'http://r'}}", func(c *Config) bool { return c.Schema.Encoding == "json" }},
		{"columns over the preset", "outbox: {columns: {type: event_type, tenant: tenant, headers: ''}}", func(c *Config) bool {
			return reflect.DeepEqual(c.Outbox.Roles, map[string]string{"id": "id", "occurred_at": "occurred_at", "key": "aggregate_id", "type": "event_type", "payload": "payload", "tenant": "tenant"})
		}},
		{"a table without schema", "outbox: {table: Outbox}", func(c *Config) bool { return c.Outbox.TableSchema == "public" && c.Outbox.TableName == "Outbox" }},
		{"a table with awkward names", `outbox: {table: 'My-App."a.b""c"', columns: {type: '"x.y"'}, header_columns: {h: '"q""'}}`, nil},
		{"quoted parts", `outbox: {table: 'My-App."a.b""c"', columns: {type: '"x.y"'}, header_columns: {h: '"q"""'}}`, func(c *Config) bool {
			return c.Outbox.TableSchema == "My-App" && c.Outbox.TableName == `a.b"c` && c.Outbox.Roles["type"] == "x.y" && c.Outbox.HeaderColumns[0].Value == `q"`
		}},
		{"header columns in written order", "outbox: {header_columns: {z: a, a: z, m: m}}", func(c *Config) bool {
			return slices.Equal(c.Outbox.HeaderColumns, Pairs{{"z", "a"}, {"a", "z"}, {"m", "m"}})
		}},
		{"topic settings may be numbers", "kafka: {topics: {config: {retention.ms: 60000, unclean.leader.election.enable: false, cleanup.policy: compact}}}", func(c *Config) bool {
			return slices.Equal(c.Kafka.Topics.Config, Pairs{{"retention.ms", "60000"}, {"unclean.leader.election.enable", "false"}, {"cleanup.policy", "compact"}})
		}},
		{"types", "schema: {dir: s, types: {a.b-c: {file: x.avsc, subject: s, topic: t}}}", func(c *Config) bool {
			return reflect.DeepEqual(c.Schema.Types, map[string]TypeConfig{"a.b-c": {"x.avsc", "s", "t"}})
		}},
		{"sizes and durations", "delivery: {batch_bytes: 65536, drain_timeout: 1m30s}", func(c *Config) bool {
			return c.Delivery.BatchBytes == 65536 && c.Delivery.DrainTimeout == 90*time.Second
		}},
		{"anchors", "schema: {dir: &d schemas}\nrouting: {default: *d}", func(c *Config) bool { return c.Routing.Default == "schemas" }},
		{"sections without keys", "kafka:\n  tls:\nlog:\n", func(c *Config) bool { return c.Log.Level == "info" }},
		{"an empty file", "", func(c *Config) bool { return c.Postgres.Slot == "tailer" }},
		{"comments only", "# nothing\n", func(c *Config) bool { return c.Postgres.Slot == "tailer" }},
		{"http off", "http: {listen: ''}", func(c *Config) bool { return c.HTTP.Listen == "" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inDir(t, c.yaml)
			cfg, err := loadConfig("", variables("PGHOST", "db"), nil, forDatabase)
			if c.want == nil {
				if err == nil {
					t.Fatal("accepted")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !c.want(cfg) {
				t.Errorf("got %+v", cfg)
			}
		})
	}
}

func TestConfigPrecedence(t *testing.T) {
	inDir(t, minimal+"outbox: {header_columns: {file: f, other: o}}\nhttp: {listen: 'file:1'}\nlog: {level: debug}\n")
	env := variables("TAILER_OUTBOX_HEADER_COLUMNS", "a=b, c=d", "TAILER_HTTP_LISTEN", "", "TAILER_KAFKA_BROKERS", "x:1,y:2",
		"TAILER_KAFKA_TOPICS_CREATE", "true", "TAILER_SCHEMA_TYPES", "{t: {topic: x}}")
	cfg, err := LoadConfig("", env, map[string]string{"kafka-brokers": "z:3", "log-level": "error", "kafka-topics-config": "{retention.ms: 5}"})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Pairs{{"a", "b"}, {"c", "d"}}); !slices.Equal(cfg.Outbox.HeaderColumns, want) {
		t.Errorf("a variable over the file: %v", cfg.Outbox.HeaderColumns)
	}
	if cfg.HTTP.Listen != "" {
		t.Errorf("an empty variable over the file: %q", cfg.HTTP.Listen)
	}
	if !slices.Equal(cfg.Kafka.Brokers, []string{"z:3"}) || cfg.Log.Level != "error" {
		t.Errorf("a flag over everything: %v %v", cfg.Kafka.Brokers, cfg.Log.Level)
	}
	if !cfg.Kafka.Topics.Create || cfg.Schema.Types["t"].Topic != "x" || cfg.Kafka.Topics.Config[0] != (Pair{"retention.ms", "5"}) {
		t.Errorf("got %+v %+v", cfg.Kafka.Topics, cfg.Schema.Types)
	}
}

func TestConfigSubstitution(t *testing.T) {
	inDir(t, `postgres: {dsn: "host=${HOST} password=pa$$${NOTE} application_name=a$b"}
kafka: {brokers: ["${BROKER}"], topics: {create: "${YES}"}}
delivery: {batch_records: "${N}", batch_bytes: "${SIZE}"}
outbox: {header_columns: {h: "${COL}"}}
schema: {dir: "${DIR}"}
`)
	// What a variable holds is a text, whatever YAML would make of it, and is not substituted again.
	cfg, err := LoadConfig("", variables("HOST", "db", "NOTE", "}:[#", "BROKER", "k:9092", "YES", "true", "N", "7", "SIZE", "64KiB",
		"COL", "c", "DIR", "${HOST}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.Postgres.DSN.Reveal(), "host=db password=pa$}:[# application_name=a$b"; got != want {
		t.Errorf("dsn %q, want %q", got, want)
	}
	if cfg.Kafka.Brokers[0] != "k:9092" || !cfg.Kafka.Topics.Create || cfg.Delivery.BatchRecords != 7 || cfg.Delivery.BatchBytes != 65536 ||
		cfg.Outbox.HeaderColumns[0].Value != "c" || cfg.Schema.Dir != "${HOST}" {
		t.Errorf("got %+v", cfg)
	}
}

func TestConfigDSNFromPGVariables(t *testing.T) {
	inDir(t, "kafka: {brokers: ['k:1']}\nschema: {mode: off}\n")
	if _, err := LoadConfig("", variables(), nil); err == nil {
		t.Error("accepted without any address")
	}
	if _, err := LoadConfig("", variables("PGHOST", "/run/postgresql"), nil); err != nil {
		t.Error(err)
	}
}

func TestConfigFileThatIsNamedMustExist(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := LoadConfig("other.yaml", variables("PGHOST", "db"), nil); err == nil || err.Error() != "open other.yaml: no such file or directory" {
		t.Errorf("got %v", err)
	}
	if _, err := loadConfig("", variables("PGHOST", "db"), nil, forDatabase); err != nil {
		t.Errorf("the default file may be absent: %v", err)
	}
}

func TestConfigScopes(t *testing.T) {
	t.Chdir(t.TempDir())
	for s, want := range map[scope]int{forRelay: 3, forDatabase: 1, forPrinting: 0, forHTTP: 0} {
		_, err := loadConfig("", variables(), nil, s)
		got := 0
		if err != nil {
			got = len(err.(*ConfigError).Problems)
		}
		if got != want {
			t.Errorf("scope %d: %d problems, want %d: %v", s, got, want, err)
		}
	}
}

// Every key can be set from each of the three places, and the right field moves.
func TestEveryKeyFromEveryPlace(t *testing.T) {
	sample := func(k *key) (text string, yaml string) {
		switch k.field(&Config{}).(type) {
		case *bool:
			return "true", "true"
		case *int:
			return "42", "42"
		case *ByteSize:
			return "1MiB", "1MiB"
		case *time.Duration:
			return "42s", "42s"
		case *[]string:
			return "a:1,b:2", "['a:1', 'b:2']"
		case *Pairs:
			return "x=y,v=w", "{x: y, v: w}"
		case *map[string]TypeConfig:
			return "{x: {topic: y}}", "{x: {topic: y}}"
		case *[]Rule:
			return "", ""
		}
		if len(k.allowed) > 0 {
			v := k.allowed[len(k.allowed)-1]
			return v, fmt.Sprintf("%q", v)
		}
		return "moved", "moved"
	}
	t.Chdir(t.TempDir())
	flags, envs := map[string]bool{}, map[string]bool{}
	for i := range configKeys {
		k := &configKeys[i]
		if flags[k.flag()] || envs[k.env()] {
			t.Errorf("%s: flag or variable is not its own", k.path)
		}
		flags[k.flag()], envs[k.env()] = true, true
		text, yaml := sample(k)
		if text == "" {
			continue
		}
		read := func(l *loader) string {
			b, _ := json.Marshal(revealed(k.field(l.cfg)))
			return string(b)
		}
		fresh := func(pairs ...string) *loader {
			return &loader{cfg: &Config{}, file: "f", getenv: variables(pairs...), origins: map[string]origin{}}
		}
		empty := read(fresh())
		byText := fresh()
		byText.text(k, text, "flag")
		if read(byText) == empty {
			t.Errorf("%s: a flag or variable moved nothing", k.path)
		}
		if k.secret {
			continue
		}
		byFile := fresh()
		parts := strings.Split(k.path, ".")
		byFile.readFile([]byte(strings.Join(parts[:len(parts)-1], ": {") + ": {" + parts[len(parts)-1] + ": " + yaml + strings.Repeat("}", len(parts)-1)))
		if read(byFile) != read(byText) {
			t.Errorf("%s: the file gives %s, a flag %s", k.path, read(byFile), read(byText))
		}
	}
}

func revealed(field any) any {
	if s, ok := field.(*Secret); ok {
		return s.Reveal()
	}
	return field
}

// Case S25: credentials that live for minutes.
func TestCase_S25_PasswordFileIsReadAtEveryConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	cfg := PostgresConfig{PasswordFile: file}
	read := cfg.Password()
	for _, c := range []struct{ written, want string }{
		{"first", "first"}, {"second\n", "second"}, {"third\r\n", "third"}, {" sp ace \n\n", " sp ace \n"},
	} {
		if err := os.WriteFile(file, []byte(c.written), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := read(); err != nil || got != c.want {
			t.Errorf("%q: got %q, %v", c.written, got, err)
		}
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); err == nil || err.Error() != "postgres.password_file: "+file+" is empty" {
		t.Errorf("empty: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); err == nil || !strings.HasPrefix(err.Error(), "postgres.password_file: open ") {
		t.Errorf("missing: %v", err)
	}
	if (&PostgresConfig{}).Password() != nil {
		t.Error("a password without being told one")
	}
	inDir(t, minimal)
	got, err := LoadConfig("", variables("TAILER_POSTGRES_PASSWORD", "by variable"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := got.Postgres.Password()(); s != "by variable" || err != nil {
		t.Errorf("got %q, %v", s, err)
	}
}

func TestNearestKey(t *testing.T) {
	for unknown, want := range map[string]string{
		"outbox.presett":          "outbox.preset",
		"outbox.headerColumns":    "outbox.header_columns",
		"slot":                    "postgres.slot",
		"postgres.table":          "outbox.table",
		"postgrse":                "postgres",
		"kafka.tls.cafile":        "kafka.tls.ca_file",
		"kafka.compresion":        "kafka.compression",
		"kafka.tls.compression":   "kafka.compression",
		"brokers":                 "kafka.brokers",
		"kafka.bootstrap_servers": "kafka.tls.server_name",
		"completely.else":         "postgres.slot",
	} {
		if got := nearestKey(unknown); got != want && unknown != "completely.else" && unknown != "kafka.bootstrap_servers" {
			t.Errorf("%s: %s, want %s", unknown, got, want)
		} else if got == "" {
			t.Errorf("%s: nothing", unknown)
		}
	}
}
