package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tailer-relay/tailer/e2e/host"
)

// process is a running contender.
type process struct {
	cmd  *exec.Cmd
	name string
	done chan struct{} // closed when it has ended

	mu  sync.Mutex
	log []byte // of stderr, the end

	peak int64 // bytes; the highest that was seen, see look
}

// start runs a command in the environment given, its stdout thrown away.
func start(run *host.Run, name string, cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, name: name, done: make(chan struct{})}
	cmd.Stderr = p
	if err := run.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		cmd.Wait() // ended and failed look at the state
		close(p.done)
	}()
	return p, nil
}

// Write takes the log; called by os/exec.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, text...)
	if len(p.log) > 64<<10 {
		p.log = append(p.log[:0], p.log[len(p.log)-32<<10:]...)
	}
	return len(text), nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failed is an error with the end of the process's log.
func (p *process) failed(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s: %s; the end of its log:\n%s", p.name, what, bytes.TrimSpace(p.log[max(0, len(p.log)-4<<10):]))
}

// look notes the memory that the process had at most. The kernel's account
// after its end would not do: that counts also what its parent had.
func (p *process) look() {
	if n := statusKiB(p.cmd.Process.Pid, "VmHWM"); n > 0 {
		p.peak = n << 10
	}
}

// stop asks the process to end and waits.
func (p *process) stop(ctx context.Context) error {
	p.look()
	p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	return p.wait(ctx)
}

// wait lets it end.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
	}
	p.kill()
	return p.failed("did not end")
}

// kill ends it at once; nothing happens to one that has ended.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// cpu is what it used in all. Call it after its end.
func (p *process) cpu() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// statusKiB reads a line of /proc/PID/status; 0 where there is none.
func statusKiB(pid int, name string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n
		}
	}
	return 0
}

// cpuOf is what a process that is not our child has used so far; 0 where that
// cannot be known.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 wherever Go runs
}

// environment is ours without what would configure a contender behind our back.
func environment(more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TAILER_") && !strings.HasPrefix(v, "PG") {
			env = append(env, v)
		}
	}
	return append(env, more...)
}
