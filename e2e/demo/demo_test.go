package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/host"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// lastLine is what scripts may read.
var lastLine = regexp.MustCompile(`^(\d+) events?, p50 (\d+\.\d) ms, p99 (\d+\.\d) ms, (\d+) dead letters?, (\d+) lost, (\d+) duplicated$`)

// The programs under test.
var demoProgram, tailerProgram string

// TestMain builds them where other users can run them.
func TestMain(m *testing.M) {
	dir, err := host.NewRun("demotest")
	if err != nil {
		panic(err)
	}
	demoProgram, tailerProgram = filepath.Join(dir.Dir, "demo"), filepath.Join(dir.Dir, "tailer")
	for program, source := range map[string]string{demoProgram: ".", tailerProgram: "../../cmd/tailer"} {
		if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
			dir.Close()
			panic(fmt.Sprintf("build %s: %v\n%s", source, err, out))
		}
	}
	code := m.Run()
	dir.Close()
	os.Exit(code)
}

// play is a demo that runs.
type play struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	text   strings.Builder // what was read of out
	stderr bytes.Buffer
	traces []trace
}

// trace is a process or path that must be gone in the end.
type trace struct {
	what string
	file bool
	left func() bool
}

func start(t *testing.T, cmd *exec.Cmd) *play {
	t.Helper()
	p := &play{cmd: cmd}
	cmd.Stderr = &p.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(90*time.Second, func() { cmd.Process.Kill() })
	t.Cleanup(func() { limit.Stop() })
	return p
}

// until reads lines until one has the text.
func (p *play) until(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		p.text.WriteString(line)
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("no line with %q:\n%s%s", text, p.text.String(), p.stderr.String())
		}
	}
}

// note remembers every process and folder that the demo has now.
func (p *play) note(t *testing.T) {
	t.Helper()
	for _, dir := range regexp.MustCompile(`tailer\.yaml {2}in (\S+)`).FindAllStringSubmatch(p.text.String(), -1) {
		p.path(dir[1])
	}
	for _, port := range regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindAllStringSubmatch(p.text.String(), -1) {
		p.traces = append(p.traces, trace{"a listener on port " + port[1], false, func() bool {
			out, err := exec.Command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port[1]).CombinedOutput()
			return err == nil && len(out) == 0
		}})
	}
	names := p.noteProcesses(t)
	if !names["postgres"] || !names["tailer"] {
		t.Fatalf("the demo's processes are %v, want postgres and tailer among them", names)
	}
}

func (p *play) noteProcesses(t *testing.T) (names map[string]bool) {
	t.Helper()
	names = map[string]bool{}
	for _, pid := range descendants(t, p.cmd.Process.Pid) {
		words := command(pid)
		if words == "" {
			continue // it has just ended
		}
		names[filepath.Base(strings.TrimSuffix(strings.Fields(words)[0], ":"))] = true
		for _, dir := range regexp.MustCompile(`/tmp/tailer-e2e-\d+/run/(?:demo|pg\d+)-[^/\s]+`).FindAllString(words, -1) {
			p.path(dir)
		}
		p.traces = append(p.traces, trace{fmt.Sprintf("process %d, %s", pid, words), false, func() bool { return command(pid) == words }})
	}
	return names
}

// command is a process's command line, "" when it is gone.
func command(pid int) string {
	words, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(words))
}

func (p *play) path(path string) {
	for _, name := range []string{path, path + ".lock", path + ".pids"} {
		p.traces = append(p.traces, trace{name, true, func() bool { _, err := os.Lstat(name); return err == nil }})
	}
}

// descendants asks ps, which tells of the children of all threads.
func descendants(t *testing.T, pid int) (all []int) {
	t.Helper()
	table, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		t.Fatal(err)
	}
	children := map[string][]string{}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) == 2 {
			children[f[1]] = append(children[f[1]], f[0])
		}
	}
	for queue := children[strconv.Itoa(pid)]; len(queue) > 0; queue = queue[1:] {
		n, err := strconv.Atoi(queue[0])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
		queue = append(queue, children[queue[0]]...)
	}
	return all
}

// end reads the rest and returns the exit code, having looked for what is left.
func (p *play) end(t *testing.T) int {
	t.Helper()
	rest, err := io.ReadAll(p.out)
	if err != nil {
		t.Error(err)
	}
	p.text.Write(rest)
	err = p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	p.clean(t)
	return p.cmd.ProcessState.ExitCode()
}

// clean fails for what is left. Files have to be gone with the demo, for they
// would not stay: any other process that uses package host sweeps them away.
// A process that was killed has a moment to die.
func (p *play) clean(t *testing.T) {
	t.Helper()
	if len(p.traces) == 0 {
		t.Error("nothing was noted that could be left behind")
	}
	var late []trace
	slices.SortStableFunc(p.traces, func(a, b trace) int { // the quick ones first
		switch {
		case a.file && !b.file:
			return -1
		case b.file && !a.file:
			return 1
		}
		return 0
	})
	for _, tr := range p.traces {
		switch {
		case !tr.left():
		case tr.file:
			t.Errorf("left behind: %s", tr.what)
		default:
			late = append(late, tr)
		}
	}
	for _, tr := range late {
		for deadline := time.Now().Add(5 * time.Second); tr.left(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("left behind: %s", tr.what)
				break
			}
		}
	}
}

// account checks the summary and returns the number of events and dead letters.
func (p *play) account(t *testing.T) (events, dead int) {
	t.Helper()
	lines := strings.Split(strings.TrimRight(p.text.String(), "\n"), "\n")
	m := lastLine.FindStringSubmatch(lines[len(lines)-1])
	if m == nil {
		t.Fatalf("the last line has another shape:\n%s%s", p.text.String(), p.stderr.String())
	}
	if m[5] != "0" || m[6] != "0" {
		t.Errorf("lost or duplicated:\n%s", p.text.String())
	}
	events, _ = strconv.Atoi(m[1])
	dead, _ = strconv.Atoi(m[4])
	return events, dead
}

// With -for it ends by itself, whoever runs it: Postgres refuses root, and a
// normal user cannot write where root does.
func TestDemo(t *testing.T) {
	users := map[string]func(*testing.T, *exec.Cmd){"ourselves": func(*testing.T, *exec.Cmd) {}}
	if os.Geteuid() == 0 {
		users["a normal user"] = asNobody
	}
	for name, as := range users {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(demoProgram, "-for", "4s", "-rate", "20", "-tailer", tailerProgram)
			cmd.Dir = "/"
			as(t, cmd)
			p := start(t, cmd)
			p.until(t, "dead letter: invalid")
			p.until(t, `$.lines[0].quantity: expected int, found the text "two"`)
			p.note(t)
			if code := p.end(t); code != 0 {
				t.Errorf("exit %d:\n%s%s", code, p.text.String(), p.stderr.String())
			}
			events, dead := p.account(t)
			if events < 10 || dead < 1 {
				t.Errorf("%d events and %d dead letters in 4 s", events, dead)
			}
			text := p.text.String()
			for _, want := range []string{"start Postgres", "start broker, registry", "register schemas", "tailer init --apply",
				"tailer run", "created table, publication, state, slot", "encoding: confluent", "drained; "} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
			if strings.Contains(text, "\x1b") {
				t.Error("colours on something that is no terminal")
			}
		})
	}
}

// asNobody has the command run as a user that owns nothing, with a cache of
// its own: the downloaded server in it is ours, the cluster it makes itself.
func asNobody(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	const nobody = 65534
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	binaries := filepath.Dir(server.BinDir())
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("/tmp", "demo-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	if err := errors.Join(os.Chown(home, nobody, nobody), os.Symlink(binaries, filepath.Join(home, filepath.Base(binaries)))); err != nil {
		t.Fatal(err)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TAILER_E2E_CACHE=" + home, "TAILER_PG=" + server.Version()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// However it is told to end while orders come in, it ends in order.
func TestStopped(t *testing.T) {
	for name, stop := range map[string]func(*play) error{
		"Ctrl-C":  func(p *play) error { return p.cmd.Process.Signal(os.Interrupt) },
		"SIGTERM": func(p *play) error { return p.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, exec.Command(demoProgram, "-rate", "100", "-tailer", tailerProgram))
			p.until(t, " ms   ") // the first event
			p.note(t)
			if err := stop(p); err != nil {
				t.Fatal(err)
			}
			if code := p.end(t); code != 0 {
				t.Errorf("exit %d:\n%s%s", code, p.text.String(), p.stderr.String())
			}
			if events, _ := p.account(t); events == 0 {
				t.Error("no event")
			}
		})
	}
}

// A build that is interrupted leaves neither compilers nor their files.
func TestStoppedWhileBuilding(t *testing.T) {
	cmd := exec.Command(demoProgram)
	cache, tmp := t.TempDir(), t.TempDir()
	cmd.Env = append(os.Environ(), "GOCACHE="+cache, "TMPDIR="+tmp)
	p := start(t, cmd)
	compiling := func() bool {
		for _, pid := range descendants(t, cmd.Process.Pid) {
			if strings.Contains(command(pid), "/compile ") {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(60 * time.Second); !compiling(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no compiler runs")
		}
	}
	p.noteProcesses(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 130 {
		t.Errorf("exit %d: %s", code, p.stderr.String())
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// Nobody reads any more (make demo | head), or whoever started it is gone
// (go run passes no SIGTERM on): it ends and cleans up all the same.
func TestAbandoned(t *testing.T) {
	t.Run("broken pipe", func(t *testing.T) {
		t.Parallel()
		cmd := exec.Command(demoProgram, "-rate", "100", "-tailer", tailerProgram)
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = write
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		write.Close()
		p := &play{cmd: cmd, out: bufio.NewReader(read)}
		p.until(t, " ms   ") // the first event
		p.note(t)
		read.Close()
		waitFor(t, cmd)
		p.clean(t)
	})
	t.Run("parent killed", func(t *testing.T) {
		t.Parallel()
		// The shell stays: it has a second command to run.
		cmd := exec.Command("sh", "-c", `"$0" -rate 100 -tailer "$1"; exit 1`, demoProgram, tailerProgram)
		p := start(t, cmd)
		p.until(t, " ms   ") // the first event
		p.note(t)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if p.end(t); len(p.traces) < 10 {
			t.Errorf("only %d traces were looked for", len(p.traces))
		}
		p.account(t)
	})
}

func waitFor(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	limit := time.AfterFunc(60*time.Second, func() { cmd.Process.Kill() })
	defer limit.Stop()
	cmd.Wait()
	if !limit.Stop() {
		t.Fatal("it did not end")
	}
}

// A relay that fails half way ends the demo with what it said.
func TestRelayFails(t *testing.T) {
	t.Run("at the start", func(t *testing.T) {
		t.Parallel()
		broken := filepath.Join(filepath.Dir(tailerProgram), "broken")
		script := "#!/bin/sh\necho 'tailer: this one is broken' >&2\nexit 2\n"
		if err := os.WriteFile(broken, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		p := start(t, exec.Command(demoProgram, "-tailer", broken))
		p.until(t, "tailer.yaml  in ")
		p.path(regexp.MustCompile(`in (\S+)`).FindStringSubmatch(p.text.String()[strings.Index(p.text.String(), "tailer.yaml"):])[1])
		if code := p.end(t); code != 1 || !strings.Contains(p.stderr.String(), "this one is broken") {
			t.Errorf("exit %d, %s", code, p.stderr.String())
		}
	})
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		p := start(t, exec.Command(demoProgram, "-rate", "100", "-tailer", tailerProgram))
		p.until(t, " ms   ") // the first event
		p.note(t)
		for _, pid := range descendants(t, p.cmd.Process.Pid) {
			name, _ := exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
			if strings.TrimSpace(string(name)) == "tailer" {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if code := p.end(t); code != 1 || !strings.Contains(p.stderr.String(), "ended by itself") {
			t.Errorf("exit %d, %s", code, p.stderr.String())
		}
	})
}

// The account tells apart all that can be wrong.
func TestLedger(t *testing.T) {
	valid, wrong := event{typ: "a", key: "k", essence: "x"}, event{typ: "b", key: "k", reason: "invalid"}
	record := func(id string, n int, dead bool) *received {
		return &received{id: id, key: "k", topic: "t", sequence: fmt.Sprint(n), dead: dead, fetched: time.Now().Add(time.Millisecond)}
	}
	for name, c := range map[string]struct {
		rollback bool
		records  []*received
		want     string // of the last line
		problems int
	}{
		"all right":      {records: []*received{record("1", 1, false), record("2", 2, true)}, want: "1 event,.* 1 dead letter, 0 lost, 0 duplicated"},
		"lost":           {records: []*received{record("1", 1, false)}, want: "0 dead letters, 1 lost, 0 duplicated"},
		"duplicated":     {records: []*received{record("1", 1, false), record("1", 1, false), record("2", 2, true), record("2", 2, true)}, want: "0 lost, 2 duplicated"},
		"wrong way":      {records: []*received{record("1", 1, true), record("2", 2, false)}, want: "0 lost, 0 duplicated", problems: 2},
		"phantom":        {rollback: true, records: []*received{record("1", 1, false)}, want: "0 lost, 0 duplicated", problems: 1},
		"nothing so far": {rollback: true, want: "^0 events, p50 0.0 ms, p99 0.0 ms, 0 dead letters, 0 lost, 0 duplicated$"},
		"unknown":        {rollback: true, records: []*received{record("3", 1, false)}, want: "^0 events", problems: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			l.end(l.begin([]string{"1", "2"}, []event{valid, wrong}), !c.rollback, time.Now())
			for _, r := range c.records {
				l.seen(r)
			}
			sum := l.total()
			if !regexp.MustCompile(c.want).MatchString(sum.String()) || !lastLine.MatchString(sum.String()) {
				t.Errorf("%s, want %s", sum, c.want)
			}
			if len(sum.problems) != c.problems {
				t.Errorf("problems %q, want %d", sum.problems, c.problems)
			}
			fine := name == "all right" || name == "nothing so far"
			if (sum.err() == nil) != fine {
				t.Errorf("error %v", sum.err())
			}
		})
	}
}

// An order that is not the commits' is a problem, by topic and key.
func TestLedgerOrder(t *testing.T) {
	l := newLedger()
	l.end(l.begin([]string{"1", "2", "3"}, []event{{}, {}, {}}), true, time.Now())
	l.seen(&received{id: "2", key: "k", topic: "t", sequence: "2"})
	l.seen(&received{id: "3", key: "other", topic: "t", sequence: "1"})
	if p := l.total().problems; len(p) != 0 {
		t.Errorf("problems %q", p)
	}
	l.seen(&received{id: "1", key: "k", topic: "t", sequence: "1"})
	if p := l.total().problems; len(p) != 1 {
		t.Errorf("problems %q, want one", p)
	}
}

// The percentiles are by nearest rank.
func TestRank(t *testing.T) {
	var d []time.Duration
	for i := range 100 {
		d = append(d, time.Duration(i+1))
	}
	for _, c := range []struct{ n, percent, want int }{{1, 50, 1}, {1, 99, 1}, {2, 50, 1}, {2, 99, 2}, {100, 50, 50}, {100, 99, 99}} {
		if got := rank(d[:c.n], c.percent); got != time.Duration(c.want) {
			t.Errorf("p%d of %d is %d, want %d", c.percent, c.n, got, c.want)
		}
	}
}

// A signal before the first order ends it with a code of its own.
func TestStoppedEarly(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStopped)
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	err = run(ctx, t.Context(), options{rate: 1}, newScreen(out), time.Now())
	if !errors.Is(err, errStopped) {
		t.Errorf("%v", err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil || !strings.Contains(string(text), "build tailer") || !strings.Contains(string(text), "stopped") {
		t.Errorf("%v, %s", err, text)
	}
}
