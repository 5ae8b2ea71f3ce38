package relay_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// block is a code block of the README.
type block struct{ language, text string }

// readmeSection returns the code blocks under a heading, in their order.
func readmeSection(t *testing.T, heading string) (text string, blocks []block) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## "+heading)
	if !found {
		t.Fatalf("the README has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?s)\n```([a-z]+)\n(.*?)\n```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block{m[1], m[2]})
	}
	return section, blocks
}

// take removes the first block of a language.
func take(t *testing.T, blocks *[]block, language string) string {
	t.Helper()
	for i, b := range *blocks {
		if b.language == language {
			*blocks = append((*blocks)[:i:i], (*blocks)[i+1:]...)
			return b.text
		}
	}
	t.Fatalf("the section has no further block of %s", language)
	return ""
}

// What the README promises for five minutes, typed as it stands: only addresses
// and folders are put in the place of its own. Seen red with another default of
// routing.topic.
func TestReadmeFiveMinutes(t *testing.T) {
	t.Parallel()
	section, blocks := readmeSection(t, "Five minutes")
	pg := postgres.New(t, postgres.Options{})
	pg.Exec(t, "CREATE DATABASE shop")
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	address := strings.NewReplacer("127.0.0.1:5432", pg.Addr(), "127.0.0.1:9092", fake.Addrs()[0])
	var config harness.Config
	if err := yaml.Unmarshal([]byte(address.Replace(take(t, &blocks, "yaml"))), &config); err != nil {
		t.Fatal(err)
	}

	// Step 2: both commands, from a folder that has the configuration.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tailer.yaml"), []byte(config.YAML(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(harness.Binary(t), filepath.Join(dir, "bin", "tailer")); err != nil {
		t.Fatal(err)
	}
	shell := func(script string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s\n%v\n%s%s", script, err, stdout.String(), stderr.String())
		}
		return stdout.String()
	}
	if output := shell(take(t, &blocks, "sh")); !strings.Contains(output, "CREATE TABLE") || !strings.Contains(output, "pg_create_logical_replication_slot") {
		t.Errorf("init printed\n%s", output)
	}

	// Step 3: the harness runs this command, in a folder of its own.
	if command := take(t, &blocks, "sh"); command != "bin/tailer run --config tailer.yaml" {
		t.Fatalf("the README starts the relay by %q", command)
	}
	relay := harness.StartRelay(t, harness.RelayOptions{Config: config}).Ready()
	event := take(t, &blocks, "sql")
	pg.ExecIn(t, "shop", event)
	consumer := harness.NewConsumer(t, fake.Addrs(), "order", "tailer.dlq")
	record := consumer.WaitLen(1, waitLimit)[0]
	for _, claim := range []string{"in topic `order`, with key `order-42`", "`ce_id`, `ce_type`, `ce_sequence`"} {
		if !strings.Contains(section, claim) {
			t.Errorf("the README no longer claims %s", claim)
		}
	}
	if payload := pg.Query1In(t, "shop", "SELECT payload::text FROM outbox"); record.Topic != "order" || string(record.Key) != "order-42" || string(record.Value) != payload {
		t.Errorf("the record is in %s, with key %q and value %s", record.Topic, record.Key, record.Value)
	}
	if id, _ := record.Header("ce_id"); id != pg.Query1In(t, "shop", "SELECT id::text FROM outbox") {
		t.Errorf("ce_id is %q", id)
	}
	if typ, _ := record.Header("ce_type"); typ != "order.placed.v1" || record.Sequence() == "" {
		t.Errorf("ce_type is %q, the sequence %q", typ, record.Sequence())
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	// Step 4: the same event against its schema, and one that does not fit.
	file := regexp.MustCompile("`schemas/(.*)\\.avsc`").FindStringSubmatch(section)
	if file == nil {
		t.Fatal("the README names no schema file")
	}
	schema := take(t, &blocks, "json")
	var step4 harness.Config
	if err := yaml.Unmarshal([]byte(take(t, &blocks, "yaml")), &step4); err != nil {
		t.Fatal(err)
	}
	config = config.With("schema", step4["schema"]).With("schema.dir", schemaFolder(t, map[string]string{file[1]: schema}))
	harness.StartRelay(t, harness.RelayOptions{Config: config}).Ready()
	pg.ExecIn(t, "shop", event, `INSERT INTO outbox (aggregate_id, type, payload) VALUES ('order-43', 'order.placed.v1', '{"order_id": "forty-three"}')`, event)
	// Two topics: their records may arrive in any order.
	byTopic := map[string][]harness.Record{}
	for _, r := range consumer.WaitLen(4, waitLimit) {
		byTopic[r.Topic] = append(byTopic[r.Topic], r)
	}
	if len(byTopic["order"]) != 3 || len(byTopic["tailer.dlq"]) != 1 {
		t.Fatalf("%d events and %d dead letters", len(byTopic["order"]), len(byTopic["tailer.dlq"]))
	}
	for _, r := range byTopic["order"][1:] {
		if d := differs("$", parseJSON(t, `{"order_id": 42, "total": 12.50}`), decodeSingle(t, schema, r.Value)); d != "" {
			t.Error(d)
		}
	}
	reason, _ := byTopic["tailer.dlq"][0].Header("dlq_reason")
	path, _ := byTopic["tailer.dlq"][0].Header("dlq_path")
	if reason != "invalid" || path != "$.order_id" && path != "$.total" {
		t.Errorf("the dead letter's reason is %q, its path %q", reason, path)
	}
	if len(blocks) != 0 {
		t.Errorf("blocks of the section that no step has run: %q", blocks)
	}
}
