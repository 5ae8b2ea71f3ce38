// Package docs_test types what the documentation says, word by word, against
// real servers: every fenced block of shell, SQL and YAML of a page is run or
// read by a test, in the page's order. Only addresses and folders are put in
// the place of the page's own. What no machine of ours can run, Docker's
// commands, is held against docker-compose.yml, and the file's services are run
// as what they are: our binary, with the file's commands, variables and files.
//
// Programs that a page uses and a machine may lack (psql, kcat) are used where
// they are; what they would show is judged either way by a driver and a
// consumer of our own.
package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/host"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

const waitLimit = 30 * time.Second

// place is a folder that looks like the clone, at servers of its own.
type place struct {
	t    *testing.T
	dir  string
	pg   *postgres.Server
	adds []string // variables
	swap *strings.Replacer
}

// newPlace makes one; addresses are pairs of what the page says and what is meant.
func newPlace(t *testing.T, pg *postgres.Server, addresses ...string) *place {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	port, err := host.NewPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	p := &place{t: t, dir: t.TempDir(), pg: pg, swap: strings.NewReplacer(append(addresses, "127.0.0.1:5432", pg.Addr())...)}
	// Where tailer says how it is: the page leaves it at its default.
	p.adds = []string{fmt.Sprintf("TAILER_HTTP_LISTEN=127.0.0.1:%d", port.Number), "XDG_CACHE_HOME=" + p.dir}
	if err := os.Mkdir(filepath.Join(p.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{"bin/tailer": harness.Binary(t), "examples": filepath.Join(root, "examples")} {
		if err := os.Symlink(target, filepath.Join(p.dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// write makes a file, as a reader of the page would with an editor.
func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(p.swap.Replace(text)+"\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) command(script string) *exec.Cmd {
	cmd := exec.Command("sh", "-e", "-c", p.swap.Replace(script))
	cmd.Dir = p.dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "TAILER_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, p.adds...)
	return cmd
}

// sh runs a block and returns what it printed.
func (p *place) sh(script string) string {
	p.t.Helper()
	code, stdout, stderr := p.try(script)
	if code != 0 {
		p.t.Fatalf("%s\nexit code %d\n%s%s", script, code, stdout, stderr)
	}
	return stdout
}

// try is sh for a block that may fail.
func (p *place) try(script string) (code int, stdout, stderr string) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := p.command(script)
	cmd.Stdout, cmd.Stderr = &out, &errs
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// kcat runs a block of kcat where that is installed; what it shows must have
// all of the texts.
func (p *place) kcat(script string, shows ...string) {
	p.t.Helper()
	if !strings.HasPrefix(script, "kcat ") {
		p.t.Fatalf("not a command of kcat: %s", script)
	}
	if _, err := exec.LookPath("kcat"); err != nil {
		p.t.Log("kcat is not installed: the consumer of the test alone has read the topic")
		return
	}
	out := p.sh(script)
	for _, text := range shows {
		if !strings.Contains(out, text) {
			p.t.Errorf("%s\ndoes not show %q:\n%s", script, text, out)
		}
	}
}

// statements cuts a block where a line ends with a semicolon, outside of $$
// quotes.
func statements(text string) (all []string) {
	var one strings.Builder
	for line := range strings.Lines(text + "\n") {
		one.WriteString(line)
		code, _, _ := strings.Cut(line, "--")
		if strings.HasSuffix(strings.TrimSpace(code), ";") && strings.Count(one.String(), "$$")%2 == 0 {
			all = append(all, one.String())
			one.Reset()
		}
	}
	if strings.TrimSpace(one.String()) != "" {
		all = append(all, one.String())
	}
	return all
}

// sql runs the statements of a block one after the other on one connection, as
// psql does, and returns the last value.
func (p *place) sql(db, text string) string {
	p.t.Helper()
	conn := p.pg.Conn(p.t, db)
	defer conn.Close(p.t.Context())
	return p.sqlOn(conn, text)
}

func (p *place) sqlOn(conn *pgx.Conn, text string) string {
	p.t.Helper()
	var last string
	for _, one := range statements(text) {
		one = p.swap.Replace(one)
		results := conn.PgConn().Exec(p.t.Context(), one)
		for results.NextResult() {
			rows := results.ResultReader().Read()
			if rows.Err == nil && len(rows.Rows) > 0 {
				last = string(rows.Rows[len(rows.Rows)-1][0])
			}
		}
		if err := results.Close(); err != nil {
			p.t.Fatalf("%s\n%v", one, err)
		}
	}
	return last
}

// process is a relay in the page's foreground.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	log  *bytes.Buffer // read only when done is closed
}

// start runs a block's last command, which stays, until stop or the test's end.
func (p *place) start(script string) *process {
	p.t.Helper()
	run, err := host.NewRun("docs")
	if err != nil {
		p.t.Fatal(err)
	}
	at := strings.LastIndex("\n"+script, "\n")
	if at > 0 {
		p.sh(script[:at])
	}
	r := &process{t: p.t, cmd: p.command("exec " + script[at:]), done: make(chan struct{}), log: &bytes.Buffer{}}
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := run.Start(r.cmd, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		r.cmd.Wait()
		close(r.done)
	}()
	p.t.Cleanup(func() {
		r.cmd.Process.Kill()
		<-r.done
		run.Close()
		if p.t.Failed() {
			p.t.Logf("%s\n%s", script, r.log)
		}
	})
	return r
}

// stop is Ctrl-C.
func (r *process) stop() {
	r.t.Helper()
	r.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-r.done:
	case <-time.After(waitLimit):
		r.t.Fatal("the relay does not end")
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		r.t.Fatalf("exit code %d", code)
	}
}

// ready waits until the command that asks the relay says that it streams.
func (p *place) ready(health string, r *process) {
	p.t.Helper()
	harness.Eventually(p.t, waitLimit, health, func() bool {
		select {
		case <-r.done:
			p.t.Fatalf("the relay has ended with exit code %d", r.cmd.ProcessState.ExitCode())
		default:
		}
		code, out, _ := p.try(health)
		return code == 0 && strings.HasPrefix(out, "active")
	})
}

// connectSocket is a connection over the Unix socket, as a command inside of
// the server's container has it: no password is asked for there.
func connectSocket(t *testing.T, pg *postgres.Server, db string) (*pgx.Conn, error) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pg.SocketDSN(db))
	if err == nil {
		t.Cleanup(func() { conn.Close(context.Background()) })
	}
	return conn, err
}
