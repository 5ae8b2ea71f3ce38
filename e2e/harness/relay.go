package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/host"
)

// RelayOptions describe a running relay.
type RelayOptions struct {
	Config Config    // http.listen becomes a free port and log.format json unless set
	Env    []string  // on top of the environment
	Args   []string  // after "run --config FILE"
	Binary string    // instead of Binary's: see Build
	Log    io.Writer // gets the log, too; never called by two goroutines at once
}

// Relay is a process of "tailer run".
type Relay struct {
	t    testing.TB
	cmd  *exec.Cmd
	run  *host.Run
	copy io.Writer     // nil: none
	done chan struct{} // closed when the process has ended

	mu   sync.Mutex
	log  []byte
	addr string // where HTTP listens, once the log said so
}

// StartRelay starts a relay; it is killed with the test, which shows the logs
// of its last relays if it fails.
func StartRelay(t testing.TB, opt RelayOptions) *Relay {
	t.Helper()
	run, err := host.NewRun("relay")
	if err != nil {
		t.Fatal(err)
	}
	config := opt.Config
	if !config.has("http", "listen") {
		config = config.With("http.listen", "127.0.0.1:0")
	}
	if !config.has("log", "format") {
		config = config.With("log.format", "json")
	}
	r := &Relay{t: t, run: run, copy: opt.Log, done: make(chan struct{})}
	if opt.Binary == "" {
		opt.Binary = Binary(t)
	}
	r.cmd = exec.Command(opt.Binary, append([]string{"run", "--config", config.write(t, run.Dir)}, opt.Args...)...)
	// A cache of its own: ports come again, and with them registries' addresses.
	r.cmd.Env = append(append(environment(), "XDG_CACHE_HOME="+run.Dir), opt.Env...)
	r.cmd.Dir = run.Dir
	r.cmd.Stderr = r // os/exec copies in a goroutine that Wait waits for
	if err := run.Start(r.cmd, syscall.SIGKILL); err != nil {
		run.Close()
		t.Fatal(err)
	}
	go func() {
		r.cmd.Wait()
		close(r.done)
	}()
	remember(t, r)
	t.Cleanup(func() {
		r.Kill()
		run.Close()
	})
	return r
}

// Write takes the process's log; it is called by os/exec.
func (r *Relay) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, p...)
	if r.copy != nil {
		return r.copy.Write(p)
	}
	return len(p), nil
}

// Logs is what the relay has logged so far.
func (r *Relay) Logs() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.log)
}

// WaitLog waits until the log holds the text.
func (r *Relay) WaitLog(text string, limit time.Duration) {
	r.t.Helper()
	Eventually(r.t, limit, fmt.Sprintf("%q in the log", text), func() bool { return strings.Contains(r.Logs(), text) })
}

// Addr is where the relay's HTTP listens; empty until it says so.
func (r *Relay) Addr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.addr == "" {
		for line := range strings.Lines(string(r.log)) {
			var entry struct{ Msg, Addr string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "http listening" {
				r.addr = entry.Addr
				break
			}
		}
	}
	return r.addr
}

// Probe asks a path of the relay's HTTP: status and body, or 0 and why not.
func (r *Relay) Probe(path string) (int, string) {
	addr := r.Addr()
	if addr == "" {
		return 0, "no address logged yet"
	}
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, strings.TrimSpace(string(body))
}

// Ready waits until the relay streams.
func (r *Relay) Ready() *Relay {
	r.t.Helper()
	r.WaitReady("active", 30*time.Second)
	return r
}

// WaitReady waits until /readyz is 200 and its body begins so: "active", "standby".
func (r *Relay) WaitReady(body string, limit time.Duration) {
	r.t.Helper()
	r.wait(limit, "ready: "+body, func(code int, got string) bool {
		return code == http.StatusOK && strings.HasPrefix(got, body)
	})
}

// WaitNotReady waits until /readyz is 503 and its body has the text.
func (r *Relay) WaitNotReady(text string, limit time.Duration) {
	r.t.Helper()
	r.wait(limit, "not ready: "+text, func(code int, got string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(got, text)
	})
}

func (r *Relay) wait(limit time.Duration, what string, ok func(code int, body string) bool) {
	r.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		code, body := r.Probe("/readyz")
		switch {
		case ok(code, body):
			return
		case r.exited():
			r.t.Fatalf("the relay exited with %d while the test waited for %s\n%s", r.ExitCode(), what, tail(r.Logs(), 20))
		case time.Now().After(end):
			r.t.Fatalf("waited %v for %s; /readyz says %d %q", limit, what, code, body)
		}
	}
}

func (r *Relay) exited() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Running reports whether the process lives.
func (r *Relay) Running() bool { return !r.exited() }

// Signal sends a signal to the process.
func (r *Relay) Signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatalf("signal the relay: %v (exit code %d)", err, r.ExitCode())
	}
}

// Stop ends the relay by SIGTERM and returns its exit code.
func (r *Relay) Stop() int {
	r.t.Helper()
	r.Signal(syscall.SIGTERM)
	return r.WaitExit(30 * time.Second)
}

// Kill ends it by SIGKILL, also a paused one, and waits until it is gone.
func (r *Relay) Kill() {
	r.cmd.Process.Kill() // an error means that it has ended
	<-r.done
}

// Drop kills the relay and forgets it, with its log and its folder: for runs of
// thousands of them.
func (r *Relay) Drop() {
	r.Kill()
	if err := r.run.Close(); err != nil {
		r.t.Errorf("remove a relay's folder: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = []byte(tail(string(r.log), 60))
}

// Pause freezes the process; Resume lets it go on.
func (r *Relay) Pause() { r.t.Helper(); r.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (r *Relay) Resume() { r.t.Helper(); r.Signal(syscall.SIGCONT) }

// WaitExit waits for the process's end and returns its exit code.
func (r *Relay) WaitExit(limit time.Duration) int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(limit):
		r.t.Fatalf("the relay did not exit within %v", limit)
	}
	return r.ExitCode()
}

// ExitCode is the code of a relay that has ended, else -1; also -1 after a signal.
func (r *Relay) ExitCode() int {
	if !r.exited() {
		return -1
	}
	return r.cmd.ProcessState.ExitCode()
}

// PID is the relay's process id.
func (r *Relay) PID() int { return r.cmd.Process.Pid }

// recent holds the last relays of each running test.
var recent = struct {
	sync.Mutex
	relays map[testing.TB][]*Relay
}{relays: map[testing.TB][]*Relay{}}

// shown is how many relays' logs a failed test shows: one with 200 kills would
// bury its own message.
const shown = 3

func remember(t testing.TB, r *Relay) {
	recent.Lock()
	defer recent.Unlock()
	if _, known := recent.relays[t]; !known {
		t.Cleanup(func() {
			recent.Lock()
			relays := recent.relays[t]
			delete(recent.relays, t)
			recent.Unlock()
			if t.Failed() {
				for _, r := range relays {
					t.Logf("relay %d, exit code %d, the end of its log:\n%s", r.PID(), r.ExitCode(), tail(r.Logs(), 60))
				}
			}
		})
	}
	list := append(recent.relays[t], r)
	recent.relays[t] = list[max(0, len(list)-shown):]
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
