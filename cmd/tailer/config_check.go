package main

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// resolve fills in the defaults that depend on other keys.
func (l *loader) resolve() {
	c := l.cfg
	debezium := c.Outbox.Preset == "debezium"
	fill := func(path string, field *string, value string) {
		if !l.given(path) {
			*field = value
		}
	}
	pick := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	fill("record.profile", &c.Record.Profile, pick(debezium, "debezium", "cloudevents"))
	fill("record.source", &c.Record.Source, "urn:tailer:"+c.Postgres.Slot)
	fill("routing.topic", &c.Routing.Topic, pick(debezium, debeziumTopic, "{domain}"))
	fill("dlq.topic", &c.DLQ.Topic, c.Postgres.Slot+".dlq")
	fill("schema.encoding", &c.Schema.Encoding, pick(c.Schema.Registry.URL != "" && c.Schema.Mode != "off", "confluent", "json"))

	c.Outbox.Roles = maps.Clone(presets[c.Outbox.Preset])
	if c.Outbox.Roles == nil {
		c.Outbox.Roles = map[string]string{}
	}
	for _, p := range c.Outbox.Columns {
		path := "outbox.columns." + p.Name
		if !slices.Contains(roles, p.Name) {
			l.problem(path, "outbox.columns has no role %s, the nearest is %s", p.Name, nearest(p.Name, roles))
			continue
		}
		if p.Value == "" {
			delete(c.Outbox.Roles, p.Name)
			continue
		}
		if column, ok := l.column(path, p.Value); ok {
			c.Outbox.Roles[p.Name] = column
		}
	}
	for i, p := range c.Outbox.HeaderColumns {
		if column, ok := l.column("outbox.header_columns."+p.Name, p.Value); ok {
			c.Outbox.HeaderColumns[i].Value = column
		}
	}
	c.Outbox.TableSchema, c.Outbox.TableName = l.table("outbox.table", c.Outbox.Table)
	c.Checkpoint.TableSchema, c.Checkpoint.TableName = l.table("checkpoint.table", c.Checkpoint.Table)
	if err := checkName(c.Checkpoint.TableName + gapsSuffix); c.Checkpoint.TableName != "" && err != nil {
		l.problem("checkpoint.table", "checkpoint.table: of the second table's name, %s", err)
	}
}

// table splits a table's name into schema and name.
func (l *loader) table(path, text string) (schema, name string) {
	parts, err := parseName(text)
	switch {
	case err != nil:
		l.problem(path, "%s: %s", path, err)
	case len(parts) > 2:
		l.problem(path, "%s wants schema.table, not %q; double-quote a part that has a dot", path, text)
	case len(parts) == 1:
		return "public", parts[0]
	default:
		return parts[0], parts[1]
	}
	return "", ""
}

func (l *loader) column(path, text string) (string, bool) {
	parts, err := parseName(text)
	if err != nil {
		l.problem(path, "%s: %s", path, err)
		return "", false
	}
	if len(parts) != 1 {
		l.problem(path, "%s wants one column, not %q; double-quote a name that has a dot", path, text)
		return "", false
	}
	return parts[0], true
}

// check is everything that can be wrong between well-formed values.
func (l *loader) check(s scope) {
	l.checkHTTP()
	if s == forHTTP {
		return
	}
	l.checkPostgres(s)
	l.checkRecord()
	l.checkKafka(s)
	l.checkTopics()
	l.checkSchema(s)
	l.checkDelivery()
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (l *loader) checkPostgres(s scope) {
	c := &l.cfg.Postgres
	if !slotName.MatchString(c.Slot) {
		l.problem("postgres.slot", "postgres.slot: a slot's name has 1 to 63 lower-case letters, digits and underscores, %q is none", c.Slot)
	}
	if err := checkName(c.Publication); err != nil {
		l.problem("postgres.publication", "postgres.publication: %s", err)
	}
	l.oneSecret("postgres", c.PasswordFile, c.PasswordValue)
	if c.DSN == "" {
		for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE"} {
			if v, ok := l.getenv(name); ok && v != "" {
				return
			}
		}
		if s != forPrinting {
			l.problem("postgres.dsn", "postgres.dsn is required (or the variable PGHOST)")
		}
		return
	}
	if _, err := pgconn.ParseConfig(c.DSN.Reveal()); err != nil {
		l.problem("postgres.dsn", "postgres.dsn is not a connection string of Postgres%s", dsnReason(c.DSN.Reveal(), err))
	}
}

func (l *loader) oneSecret(section, file string, value Secret) {
	if file != "" && value != "" {
		l.problem(section+".password", "%s.password and %s.password_file are both set: keep one", section, section)
	}
}

func (l *loader) checkRecord() {
	c := l.cfg
	for _, role := range []string{"id", "type", "payload"} {
		if c.Outbox.Roles[role] == "" && presets[c.Outbox.Preset] != nil {
			l.problem("outbox.columns."+role, "outbox.columns.%s: every event needs this column", role)
		}
	}
	for _, p := range c.Outbox.HeaderColumns {
		if p.Name == "" {
			l.problem("outbox.header_columns", "outbox.header_columns has a header without a name")
		}
	}
	if c.Record.Source == "" {
		l.problem("record.source", "record.source is empty")
	}
}

func (l *loader) checkKafka(s scope) {
	c := &l.cfg.Kafka
	if len(c.Brokers) == 0 && s == forRelay {
		l.problem("kafka.brokers", "kafka.brokers is required")
	}
	for _, b := range c.Brokers {
		if err := checkBroker(b); err != nil {
			l.problem("kafka.brokers", "kafka.brokers: %s", err)
		}
	}
	if c.ClientID == "" {
		l.problem("kafka.client_id", "kafka.client_id is empty")
	}
	for _, f := range []struct{ name, value string }{
		{"ca_file", c.TLS.CAFile}, {"cert_file", c.TLS.CertFile}, {"key_file", c.TLS.KeyFile}, {"server_name", c.TLS.ServerName}} {
		if f.value != "" && !c.TLS.Enabled {
			l.problem("kafka.tls."+f.name, "kafka.tls.%s is set, but kafka.tls.enabled is not true", f.name)
		}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		path := "kafka.tls.cert_file"
		if c.TLS.CertFile == "" {
			path = "kafka.tls.key_file"
		}
		l.problem(path, "kafka.tls.cert_file and kafka.tls.key_file belong together")
	}
	l.oneSecret("kafka.sasl", c.SASL.PasswordFile, c.SASL.PasswordValue)
	switch {
	case c.SASL.Mechanism == "":
		for _, f := range []struct{ name, value string }{
			{"username", c.SASL.Username}, {"password", c.SASL.PasswordValue.Reveal()}, {"password_file", c.SASL.PasswordFile}} {
			if f.value != "" {
				l.problem("kafka.sasl."+f.name, "kafka.sasl.%s is set, but kafka.sasl.mechanism is not", f.name)
			}
		}
	case c.SASL.Mechanism != "OAUTHBEARER" && s == forRelay:
		if c.SASL.Username == "" {
			l.problem("kafka.sasl.mechanism", "kafka.sasl.username is required with %s", c.SASL.Mechanism)
		}
		if c.SASL.PasswordValue == "" && c.SASL.PasswordFile == "" {
			l.problem("kafka.sasl.mechanism", "kafka.sasl.password_file (or TAILER_KAFKA_SASL_PASSWORD) is required with %s", c.SASL.Mechanism)
		}
	}
	if n := c.Topics.Partitions; n != -1 && (n < 1 || n > 100000) {
		l.problem("kafka.topics.partitions", "kafka.topics.partitions wants -1 or 1 to 100000, not %d", n)
	}
	if n := c.Topics.ReplicationFactor; n != -1 && (n < 1 || n > 32767) {
		l.problem("kafka.topics.replication_factor", "kafka.topics.replication_factor wants -1 or 1 to 32767, not %d", n)
	}
}

func checkBroker(b string) error {
	host, port, err := net.SplitHostPort(b)
	if err != nil || host == "" || strings.ContainsAny(b, "/ ") {
		return fmt.Errorf("%q is not host:port", b)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q has no port from 1 to 65535", b)
	}
	return nil
}

func (l *loader) checkSchema(s scope) {
	c := &l.cfg.Schema
	reg := &c.Registry
	if reg.URL != "" {
		u, err := url.Parse(reg.URL)
		switch {
		case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
			l.problem("schema.registry.url", "schema.registry.url wants an http or https address")
		case u.User != nil:
			l.problem("schema.registry.url", "schema.registry.url has a user in it: use schema.registry.username and password_file")
		}
	}
	if !strings.Contains(reg.Subject, "{type}") && !strings.Contains(reg.Subject, "{record}") {
		l.problem("schema.registry.subject", "schema.registry.subject: %q has neither {type} nor {record}, so all types would share a subject", reg.Subject)
	}
	l.oneSecret("schema.registry", reg.PasswordFile, reg.PasswordValue)
	if (reg.PasswordValue != "" || reg.PasswordFile != "") && reg.Username == "" {
		path := "schema.registry.password_file"
		if reg.PasswordFile == "" {
			path = "schema.registry.password"
		}
		l.problem(path, "schema.registry.username is required with a password")
	}
	if c.Mode == "validate" && c.Dir == "" && reg.URL == "" && s == forRelay {
		l.problem("schema.mode", "schema.mode: validate needs schema.dir or schema.registry.url; `mode: off` sends payloads unchecked")
	}
	switch {
	case c.Mode == "off" && c.Encoding != "json":
		l.problem("schema.encoding", "schema.mode: off sends the payload's text and needs schema.encoding: json, not %s", c.Encoding)
	case c.OnMissing == "pass" && c.Encoding != "json":
		l.problem("schema.on_missing", "schema.on_missing: pass sends the payload's text and needs schema.encoding: json, not %s", c.Encoding)
	case strings.HasPrefix(c.Encoding, "confluent") && reg.URL == "":
		l.problem("schema.encoding", "schema.encoding: %s needs schema.registry.url", c.Encoding)
	}
	for _, typ := range slices.Sorted(maps.Keys(c.Types)) {
		if c.Types[typ].File != "" && c.Dir == "" {
			l.problem("schema.types."+typ+".file", "schema.types.%s.file needs schema.dir", typ)
		}
	}
}

func (l *loader) checkDelivery() {
	c := &l.cfg.Delivery
	if c.BatchRecords < 1 || c.BatchRecords > 1000000 {
		l.problem("delivery.batch_records", "delivery.batch_records wants 1 to 1000000, not %d", c.BatchRecords)
	}
	if c.BatchBytes < 4<<10 || c.BatchBytes > 1<<30 {
		l.problem("delivery.batch_bytes", "delivery.batch_bytes wants 4KiB to 1GiB, not %d", c.BatchBytes)
	}
	if c.IsolationBytes != 0 && (c.IsolationBytes < 64<<10 || c.IsolationBytes > 64<<30) {
		l.problem("delivery.isolation_bytes", "delivery.isolation_bytes wants 0 or 64KiB to 64GiB, not %d", c.IsolationBytes)
	}
	if c.DrainTimeout < 100*time.Millisecond || c.DrainTimeout > time.Hour {
		l.problem("delivery.drain_timeout", "delivery.drain_timeout wants 100ms to 1h, not %s", c.DrainTimeout)
	}
}

func (l *loader) checkHTTP() {
	listen := l.cfg.HTTP.Listen
	if listen == "" {
		return
	}
	_, port, err := net.SplitHostPort(listen)
	if err == nil {
		var n int
		if n, err = strconv.Atoi(port); err == nil && n >= 0 && n <= 65535 {
			return
		}
	}
	l.problem("http.listen", "http.listen: %q is not host:port", listen)
}
