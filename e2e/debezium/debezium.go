// Package debezium runs Debezium's Postgres connector with its Outbox Event
// Router, in Kafka Connect's standalone worker: the relay that tailer is
// compatible with, and that people come from.
//
// It needs Java, and Maven once. A process is a child of ours and dies with us;
// one goroutine a start waits for it.
package debezium

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/host"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// pom names what it is made of. Connect brings slf4j's API 1.7, and a binding
// of any other line would be ignored without a word.
const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tailer</groupId>
  <artifactId>e2e-debezium</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-postgres</artifactId><version>3.6.1.Final</version></dependency>
    <dependency><groupId>io.debezium</groupId><artifactId>debezium-embedded</artifactId><version>3.6.1.Final</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

func libraries(ctx context.Context) (string, error) {
	if err := host.Need("java", "default-jre-headless", "Debezium needs Java 17 or newer"); err != nil {
		return "", err
	}
	name := fmt.Sprintf("debezium-%x", sha256.Sum256([]byte(pom)))[:21]
	dir, err := host.Cached(ctx, name, func(dir string) error {
		if err := host.Need("mvn", "maven", "Debezium comes through Maven"); err != nil {
			return err
		}
		file := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(file, []byte(pom), 0o644); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies",
			"-DoutputDirectory="+filepath.Join(dir, "libs"), "-DincludeScope=runtime")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("fetch Debezium with Maven: %w\n%s", err, out)
		}
		return nil
	})
	return filepath.Join(dir, "libs"), err
}

// Connector is a worker with one connector, which keeps its offsets over restarts.
type Connector struct {
	t    testing.TB
	libs string
	run  *host.Run
	cmd  *exec.Cmd
	done chan struct{}
}

// New prepares a connector for a database and its table public.outbox.
// Settings are the connector's, over those of this package.
func New(t testing.TB, pg *postgres.Server, db string, brokers []string, settings map[string]string) *Connector {
	t.Helper()
	libs, err := libraries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run, err := host.NewRun("debezium")
	if err != nil {
		t.Fatal(err)
	}
	rest, err := host.NewPort()
	if err != nil {
		t.Fatal(err)
	}
	c := &Connector{t: t, libs: libs, run: run}
	t.Cleanup(func() {
		c.Kill()
		if t.Failed() {
			text, _ := os.ReadFile(c.logFile())
			lines := strings.Split(string(text), "\n")
			t.Logf("the end of Debezium's log:\n%s", strings.Join(lines[max(0, len(lines)-25):], "\n"))
		}
		run.Close()
		rest.Release()
	})
	worker := map[string]string{
		"bootstrap.servers": strings.Join(brokers, ","),
		"key.converter":     "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"offset.storage.file.filename": filepath.Join(run.Dir, "offsets"),
		"plugin.discovery":             "service_load",
		"listeners":                    fmt.Sprintf("HTTP://127.0.0.1:%d", rest.Number),
	}
	connector := map[string]string{
		"name": "outbox", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"database.hostname": "127.0.0.1", "database.port": fmt.Sprint(pg.Port()), "database.user": "postgres", "database.password": "none", "database.dbname": db,
		"topic.prefix": "shop", "plugin.name": "pgoutput", "table.include.list": "public.outbox", "snapshot.mode": "no_data",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
	}
	maps.Copy(connector, settings)
	c.write("worker.properties", worker)
	c.write("connector.properties", connector)
	return c
}

func (c *Connector) logFile() string { return filepath.Join(c.run.Dir, "log") }

func (c *Connector) write(name string, settings map[string]string) {
	c.t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s=%s\n", key, settings[key])
	}
	if err := os.WriteFile(filepath.Join(c.run.Dir, name), []byte(text.String()), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// Start starts the worker and does not wait until it streams.
func (c *Connector) Start() {
	c.t.Helper()
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("java", "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(c.libs, "*"), // Java itself expands the star
		"org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties", "connector.properties")
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.run.Dir, log, log
	if err := c.run.Start(cmd, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait() // Java's exit code after SIGTERM is 143 at best
		close(done)
	}()
	c.cmd, c.done = cmd, done
}

// Stop ends the worker in order.
func (c *Connector) Stop() {
	c.t.Helper()
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		c.t.Fatal("Debezium does not end")
	}
}

// Forget removes the offsets that a stopped connector has stored. Those from
// before another relay had the slot name WAL that the server need not keep.
func (c *Connector) Forget() {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.run.Dir, "offsets")); err != nil {
		c.t.Fatal(err)
	}
}

// Kill ends it, if it runs.
func (c *Connector) Kill() {
	if c.cmd == nil {
		return
	}
	c.cmd.Process.Kill()
	<-c.done
}
