package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tailer-relay/tailer/e2e/host"
)

// build compiles the plain binary, the one that `make build` gives.
//
// An interrupted go leaves its compilers running and its temporary files where
// they are. So it gets a process group, which is killed as a whole, and a place
// for those files that goes away with the folder.
func build(ctx context.Context, run *host.Run) (string, error) {
	target := filepath.Join(run.Dir, "tailer")
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "build", "-o", target, "github.com/tailer-relay/tailer/cmd/tailer")
	cmd.Env = append(os.Environ(), "GOTMPDIR="+run.Dir)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // for the output of a compiler that outlives it
	err := run.Start(cmd, syscall.SIGKILL)
	if err == nil {
		err = cmd.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("build tailer: %w\n%s", err, bytes.TrimSpace(out.Bytes()))
	}
	return target, nil
}

// relay is the tailer binary with its configuration.
type relay struct {
	binary, dir string
	run         *host.Run // whose folder dir is
	listen      string    // of its HTTP server
	log         *relayLog

	cmd  *exec.Cmd
	done chan struct{} // closed when the process of start has ended
	err  error         // how; read after done
}

// command is one that ends by itself. Its output is returned also with an error.
func (r *relay) command(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(r.binary, append(args, "--config", "tailer.yaml")...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, environment(), &out, &out
	if err := r.run.Start(cmd, syscall.SIGKILL); err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })()
	err := cmd.Wait()
	if ctx.Err() != nil {
		return out.String(), context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("tailer %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return out.String(), err
}

// start starts `tailer run` and waits until it says that it streams.
func (r *relay) start(ctx context.Context) error {
	r.cmd = exec.Command(r.binary, "run", "--config", "tailer.yaml")
	r.cmd.Dir, r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = r.dir, environment(), r.log, r.log
	if err := r.run.Start(r.cmd, syscall.SIGKILL); err != nil {
		return err
	}
	r.done = make(chan struct{})
	go func() {
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("not ready after 30 s"))
	defer cancel()
	var last string
	for {
		ready, body := r.ready(ctx)
		if ready {
			return nil
		}
		last = body
		select {
		case <-r.done:
			return r.failed("tailer run ended", r.err)
		case <-ctx.Done():
			return r.failed("tailer run: "+last, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (r *relay) ready(ctx context.Context) (bool, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.listen+"/readyz", nil)
	if err != nil {
		return false, err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return resp.StatusCode == http.StatusOK, strings.TrimSpace(string(body))
}

// stop asks it to drain and waits for its end; hurry cuts that short.
func (r *relay) stop(hurry context.Context) error {
	r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.done:
		if r.err != nil {
			return r.failed("tailer run did not stop cleanly", r.err)
		}
		return nil
	case <-hurry.Done():
		r.kill()
		return errors.New("tailer run was killed, as told by the second signal")
	case <-time.After(15 * time.Second): // its drain takes 8 s at most
		r.kill()
		return r.failed("tailer run", errors.New("still there 15 s after SIGTERM"))
	}
}

// kill ends what stop did not. Nothing happens to a process that has ended.
func (r *relay) kill() {
	if r.done == nil {
		return
	}
	r.cmd.Process.Kill()
	<-r.done
}

// failed adds the end of the log, unless all of it has been shown.
func (r *relay) failed(what string, err error) error {
	return fmt.Errorf("%s: %w%s", what, err, r.log.tail())
}

// environment keeps a TAILER_* variable of the user's from changing what the
// shown file says.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TAILER_") && !strings.HasPrefix(v, "PG") {
			env = append(env, v)
		}
	}
	return env
}

// relayLog shows the relay's log: all of it, or what is a warning or worse.
// The goroutine that copies the relay's output owns rest.
type relayLog struct {
	screen  *screen
	verbose bool
	rest    []byte // a line that has not ended yet

	mu    sync.Mutex
	lines []string // the last ones
}

func (l *relayLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			l.rest = append([]byte(nil), line...)
			return len(p), nil
		}
		l.rest = rest
		l.show(string(line))
	}
}

func (l *relayLog) show(line string) {
	l.mu.Lock()
	l.lines = append(l.lines, line)
	if len(l.lines) > 20 {
		l.lines = l.lines[1:]
	}
	l.mu.Unlock()
	look := faint
	if !strings.Contains(line, " level=INFO ") && !strings.Contains(line, " level=DEBUG ") {
		look = odd
	} else if !l.verbose {
		return
	}
	if _, after, found := strings.Cut(line, " level="); found && strings.HasPrefix(line, "time=") {
		line = after
	}
	l.screen.line(part{faint, "  relay: "}, part{look, line})
}

func (l *relayLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.verbose || len(l.lines) == 0 {
		return ""
	}
	return "\nthe end of its log:\n" + strings.Join(l.lines, "\n")
}
