package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/tailer-relay/tailer/e2e/host"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

const (
	partitions  = 12
	publication = "bench"
	deadLetters = "bench.dlq"
)

// bed is what everything runs on: servers, topics, the relay's binary.
type bed struct {
	progress io.Writer
	versions []string // of the servers
	notes    []string // what is not as it should be

	run      *host.Run
	tailer   string // path of the binary
	against  string // of another one, if any
	server   *postgres.Server
	db       *pgx.Conn
	brokers  []string
	client   *kgo.Client
	admin    *kadm.Client
	registry *srfake.Registry

	closers []func() error
}

func (b *bed) onClose(f func() error) { b.closers = append(b.closers, f) }

// close ends everything, the last first.
func (b *bed) close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	b.closers = nil
	return errors.Join(errs...)
}

func (b *bed) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

func newBed(ctx context.Context, opt options, progress io.Writer) (b *bed, err error) {
	b = &bed{progress: progress}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
			b = nil
		}
	}()
	if b.run, err = host.NewRun("bench"); err != nil {
		return
	}
	b.onClose(func() error { err := b.run.Close(); host.Tidy(); return err })
	if err = b.build(ctx, opt.tailer); err != nil {
		return
	}
	if opt.against != "" {
		if b.against, err = filepath.Abs(opt.against); err != nil {
			return
		}
	}
	if err = b.startPostgres(ctx, opt.postgres); err != nil {
		return
	}
	if err = b.startKafka(ctx, opt.kafka); err != nil {
		return
	}
	b.registry = srfake.New()
	b.onClose(func() error { b.registry.Close(); return nil })
	if err = b.prepare(ctx); err != nil {
		return
	}
	for _, note := range b.notes {
		b.say("note: %s", note)
	}
	b.say("%s", strings.Join(b.versions, ", "))
	return
}

// build makes the binary as `make build` does.
func (b *bed) build(ctx context.Context, path string) (err error) {
	if path != "" {
		b.tailer, err = filepath.Abs(path)
		return err
	}
	b.tailer = filepath.Join(b.run.Dir, "tailer")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.tailer, "github.com/tailer-relay/tailer/cmd/tailer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build tailer: %w\n%s", err, out)
	}
	return nil
}

// settings are those of a server that has memory to spare; nothing of the
// table's upkeep shall fall into a measurement.
var settings = map[string]string{
	"shared_buffers": "512MB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "autovacuum": "off",
	"synchronous_commit": "on",
}

func (b *bed) startPostgres(ctx context.Context, which string) (err error) {
	opt := postgres.Options{Settings: settings, Fsync: true}
	switch which {
	case "debian":
		opt.Debian = true
		b.server, err = postgres.Start(ctx, opt)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
		b.notes = append(b.notes, fmt.Sprintf("PostgreSQL is embedded-postgres's, a build for size that costs up to a third more than Debian's (%v)", firstLine(err)))
		fallthrough
	case "embedded":
		opt.Debian = false
		if b.server, err = postgres.Start(ctx, opt); err != nil {
			return err
		}
	default:
		return fmt.Errorf("-postgres %q is neither debian nor embedded", which)
	}
	b.onClose(b.server.Close)
	if err := b.server.Run("postgres", "CREATE DATABASE bench"); err != nil {
		return err
	}
	if b.db, err = pgx.Connect(ctx, b.dsn()); err != nil {
		return err
	}
	b.onClose(func() error { return b.db.Close(context.Background()) })
	var version string
	if err := b.db.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	b.versions = append(b.versions, "PostgreSQL "+version)
	return nil
}

func (b *bed) dsn() string { return b.server.DSN("bench") }

// recvlogical says whether the server came with the program.
func (b *bed) recvlogical() bool {
	_, err := os.Stat(filepath.Join(b.server.BinDir(), "pg_recvlogical"))
	return err == nil
}

func (b *bed) startKafka(ctx context.Context, which string) error {
	switch which {
	case "real":
		real, err := kafka.StartReal(ctx, kafka.RealOptions{Fast: true})
		if err == nil {
			b.onClose(real.Close)
			b.brokers = real.Addrs()
			b.versions = append(b.versions, "Apache Kafka "+kafka.Version())
			break
		}
		if ctx.Err() != nil {
			return err
		}
		b.notes = append(b.notes, fmt.Sprintf("the broker is kfake, in the memory of the program that measures (%v)", firstLine(err)))
		fallthrough
	case "fake":
		fake, err := kafka.StartFake(kafka.FakeOptions{})
		if err != nil {
			return err
		}
		b.onClose(func() error { fake.Close(); return nil })
		b.brokers = fake.Addrs()
		b.versions = append(b.versions, "kfake")
	default:
		return fmt.Errorf("-kafka %q is neither real nor fake", which)
	}
	var err error
	if b.client, err = kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.MetadataMinAge(20*time.Millisecond)); err != nil {
		return err
	}
	b.onClose(func() error { b.client.Close(); return nil })
	b.admin = kadm.NewClient(b.client)
	return b.createTopic(ctx, deadLetters, 1)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// createTopic returns when every partition has its leader.
func (b *bed) createTopic(ctx context.Context, name string, partitions int32) error {
	if _, err := b.admin.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	for {
		topics, err := b.admin.ListTopics(ctx, name)
		led := err == nil && topics[name].Err == nil && len(topics[name].Partitions) == int(partitions)
		for _, p := range topics[name].Partitions {
			led = led && p.Err == nil && p.Leader >= 0
		}
		if led {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s has no leaders: %w", name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *bed) deleteTopic(ctx context.Context, name string) error {
	_, err := b.admin.DeleteTopic(ctx, name)
	return err
}

// prepare registers the schema and lets tailer make its table and publication.
func (b *bed) prepare(ctx context.Context) error {
	dir := filepath.Join(b.run.Dir, "schemas")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, eventType+".avsc"), []byte(eventSchema), 0o644); err != nil {
		return err
	}
	if _, _, err := b.registry.RegisterSchema(eventType, sr.Schema{Schema: eventSchema}); err != nil {
		return fmt.Errorf("register the schema: %w", err)
	}
	config, err := b.writeConfig("init", "init", "none")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, b.tailer, "init", "--apply", "--config", config)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tailer init: %w\n%s", err, out)
	}
	return b.dropSlot(ctx, "init")
}

// writeConfig writes the configuration of one relay: the defaults, but for names.
func (b *bed) writeConfig(name, slot, topic string) (string, error) {
	path := filepath.Join(b.run.Dir, name+".yaml")
	text := fmt.Sprintf(`postgres: {dsn: %q, slot: %s, publication: %s}
kafka: {brokers: [%q], compression: lz4}
routing: {topic: %q}
schema: {dir: %q, encoding: confluent, registry: {url: %q}}
dlq: {topic: %s}
http: {listen: "127.0.0.1:0"}
`, b.dsn(), slot, publication, b.brokers[0], topic, filepath.Join(b.run.Dir, "schemas"), b.registry.URL(), deadLetters)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// relay is a contender: `tailer run` of a binary.
func (b *bed) relay(name, binary string) contender {
	return contender{name: name, idHeader: "ce_id", farewell: (*process).stop, launch: func(slot, topic string) (*process, error) {
		config, err := b.writeConfig(slot, slot, topic)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(binary, "run", "--config", config)
		cmd.Dir, cmd.Env = b.run.Dir, environment("XDG_CACHE_HOME="+filepath.Join(b.run.Dir, "cache"))
		return start(b.run, name, cmd)
	}}
}

// relays are the contenders that are relays.
func (b *bed) relays() []contender {
	all := []contender{b.relay(tailer, b.tailer)}
	if b.against != "" {
		all = append(all, b.relay(tailer+" before", b.against))
	}
	return all
}

func (b *bed) createSlot(ctx context.Context, name string) error {
	if _, err := b.db.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", name); err != nil {
		return fmt.Errorf("create slot %s: %w", name, err)
	}
	return nil
}

// dropSlot waits for the slot's walsender, which may have to notice first that
// its client is gone.
func (b *bed) dropSlot(ctx context.Context, name string) error {
	for try := 0; ; try++ {
		_, err := b.db.Exec(ctx, "SELECT pg_drop_replication_slot($1)", name)
		if err == nil {
			return nil
		}
		if try == 200 || ctx.Err() != nil {
			return fmt.Errorf("drop slot %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// slot is what the server says about one.
type slot struct {
	confirmed pglogrepl.LSN
	pid       int // of its walsender, 0 for none
}

func (b *bed) slot(ctx context.Context, name string) (s slot, err error) {
	var confirmed string
	err = b.db.QueryRow(ctx, "SELECT confirmed_flush_lsn::text, coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = $1", name).Scan(&confirmed, &s.pid)
	if err != nil {
		return s, fmt.Errorf("look at slot %s: %w", name, err)
	}
	s.confirmed, err = pglogrepl.ParseLSN(confirmed)
	return s, err
}

// ends is the number of records in a topic that was never trimmed.
func (b *bed) ends(ctx context.Context, topic string) (n int, err error) {
	listed, err := b.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("list end offsets of %s: %w", topic, err)
	}
	listed.Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
	return n, nil
}

// machine describes where this runs, and how busy it was before we began.
func machine() []string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	system := runtime.GOOS
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		system = "Linux " + strings.TrimSpace(string(text))
	}
	m := []string{fmt.Sprintf("%d × %s", runtime.NumCPU(), model), system, runtime.Version()}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m = append(m, "load before "+strings.Fields(string(text))[0])
	}
	return m
}
