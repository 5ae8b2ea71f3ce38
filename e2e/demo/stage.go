package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/tailer-relay/tailer/e2e/host"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

//go:embed schemas/*.avsc
var schemas embed.FS

// topics are made by whoever runs the broker, as in most places.
var topics = map[string]int32{"order": 3, "stock": 3, deadLetters: 1}

const deadLetters = "shop.dlq"

var configuration = template.Must(template.New("").Parse(`postgres:
  dsn: {{.DSN}}
outbox:
  table: public.outbox
kafka:
  brokers: [{{.Broker}}]
schema:
  dir: schemas
  encoding: confluent
  registry: {url: "{{.Registry}}"}
record:
  profile: cloudevents
dlq:
  topic: {{.DLQ}}
http:
  listen: {{.Listen}}
log:
  format: text
`))

// stage is what the demo plays on. Its parts are built in the order of the
// fields; close ends what there is, the last first.
type stage struct {
	screen *screen
	run    *host.Run
	relay  *relay
	server *postgres.Server
	broker *kafka.Fake
	schema *srfake.Registry

	closers []func() error
}

func (st *stage) onClose(f func() error) { st.closers = append(st.closers, f) }

func (st *stage) close() error {
	var errs []error
	for i := len(st.closers) - 1; i >= 0; i-- {
		errs = append(errs, st.closers[i]())
	}
	st.closers = nil
	return errors.Join(errs...)
}

// run is the whole play.
func run(ctx, hurry context.Context, opt options, s *screen, began time.Time) (err error) {
	st := &stage{screen: s}
	defer func() {
		if closeErr := st.close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", closeErr))
		}
	}()
	s.line(part{strong, "tailer"}, part{plain, ": an order service's outbox in Postgres, relayed to Kafka. Ctrl-C ends it."})
	s.line()
	if err := st.setUp(ctx, opt); err != nil {
		return err
	}
	return st.play(ctx, hurry, opt, began)
}

// setUp starts and makes everything, each step with its name and time.
func (st *stage) setUp(ctx context.Context, opt options) (err error) {
	s := st.screen
	if st.run, err = host.NewRun("demo"); err != nil {
		return err
	}
	st.onClose(func() error { err := st.run.Close(); host.Tidy(); return err })
	port, err := host.NewPort()
	if err != nil {
		return err
	}
	st.onClose(func() error { port.Release(); return nil })
	st.relay = &relay{binary: opt.tailer, dir: st.run.Dir, run: st.run, listen: fmt.Sprintf("127.0.0.1:%d", port.Number),
		log: &relayLog{screen: s, verbose: opt.verbose}}

	if opt.tailer == "" {
		step := s.start("build tailer", "the first time it compiles everything")
		st.relay.binary, err = build(ctx, st.run)
		if step.end(err, "go build ./cmd/tailer") != nil {
			return err
		}
	} else if st.relay.binary, err = filepath.Abs(opt.tailer); err != nil {
		return err
	}

	step := s.start("start Postgres", "the first time it is downloaded")
	// Durable, as it would be in earnest: the order service waits for the disk.
	if st.server, err = startPostgres(ctx, postgres.Options{Fsync: true}); err == nil {
		st.onClose(st.server.Close)
		err = st.createShop(ctx)
	}
	if err != nil {
		return step.end(st.stopped(ctx, err), "")
	}
	step.done("%s, %s, wal_level logical", st.server.Version(), st.server.Addr())

	step = s.start("start broker, registry", "")
	if st.broker, err = kafka.StartFake(kafka.FakeOptions{Topics: topics}); err != nil {
		return step.end(err, "")
	}
	st.onClose(func() error { st.broker.Close(); return nil })
	st.schema = srfake.New()
	st.onClose(func() error { st.schema.Close(); return nil })
	step.done("kfake %s, srfake %s", st.broker.Addrs()[0], strings.TrimPrefix(st.schema.URL(), "http://127.0.0.1"))

	step = s.start("register schemas", "")
	n, err := st.writeSchemas()
	if step.end(err, "%d, in the folder and the registry", n) != nil {
		return err
	}
	if err := st.writeConfiguration(); err != nil {
		return err
	}

	step = s.start("tailer init --apply", "waits for older transactions")
	out, err := st.relay.command(ctx, "init", "--apply")
	if step.end(err, "created %s", strings.Join(madeBy(out), ", ")) != nil {
		return err
	}
	if opt.verbose {
		for line := range strings.Lines(strings.TrimSpace(out)) {
			s.line(part{faint, "    " + strings.TrimRight(line, "\n")})
		}
	}
	return nil
}

// startPostgres does not wait for a download that hangs once it is told to
// stop: what is left of that lies in the cache, where the next one removes it.
func startPostgres(ctx context.Context, opt postgres.Options) (*postgres.Server, error) {
	type result struct {
		server *postgres.Server
		err    error
	}
	started := make(chan result, 1)
	go func() {
		server, err := postgres.Start(ctx, opt)
		started <- result{server, err}
	}()
	var overdue <-chan time.Time
	stop := ctx.Done()
	for {
		select {
		case r := <-started:
			return r.server, r.err
		case <-stop:
			stop, overdue = nil, time.After(3*time.Second)
		case <-overdue:
			return nil, context.Cause(ctx)
		}
	}
}

// stopped tells a wish to stop from the errors that it causes.
func (st *stage) stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// createShop makes the order service's database.
func (st *stage) createShop(ctx context.Context) error {
	for _, do := range []struct{ database, sql string }{{"postgres", "CREATE DATABASE shop"}, {"shop", tables}} {
		conn, err := pgx.Connect(ctx, st.server.DSN(do.database))
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, do.sql)
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return fmt.Errorf("create the shop: %w", err)
		}
	}
	return nil
}

// writeSchemas writes the relay's schema folder and registers what is in it,
// which in earnest is the work of a build pipeline.
func (st *stage) writeSchemas() (n int, err error) {
	dir := filepath.Join(st.run.Dir, "schemas")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return n, err
	}
	files, err := fs.Glob(schemas, "schemas/*.avsc")
	if err != nil {
		return n, err
	}
	for _, file := range files {
		text, err := schemas.ReadFile(file)
		if err != nil {
			return n, err
		}
		name := filepath.Base(file)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return n, err
		}
		subject := strings.TrimSuffix(name, ".avsc")
		if _, _, err := st.schema.RegisterSchema(subject, sr.Schema{Schema: string(text)}); err != nil {
			return n, fmt.Errorf("register %s: %w", subject, err)
		}
		n++
	}
	return n, nil
}

// writeConfiguration writes tailer.yaml and shows it.
func (st *stage) writeConfiguration() error {
	var text strings.Builder
	err := configuration.Execute(&text, map[string]string{
		"DSN": st.server.DSN("shop"), "Broker": st.broker.Addrs()[0], "Registry": st.schema.URL(),
		"DLQ": deadLetters, "Listen": st.relay.listen,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(st.run.Dir, "tailer.yaml"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	st.screen.line()
	st.screen.line(part{strong, "  tailer.yaml"}, part{faint, "  in " + st.run.Dir})
	for line := range strings.Lines(text.String()) {
		st.screen.line(part{faint, "  │ "}, part{plain, strings.TrimRight(line, "\n")})
	}
	st.screen.line()
	return nil
}

// madeBy lists the kinds of objects that init says it made, each once: the state
// has two tables.
func madeBy(out string) []string {
	var made []string
	for line := range strings.Lines(out) {
		what, found := strings.CutPrefix(line, "-- ")
		if kind, _, _ := strings.Cut(what, " "); found && !strings.Contains(what, "skipped") {
			made = append(made, kind)
		}
	}
	return slices.Compact(made)
}
