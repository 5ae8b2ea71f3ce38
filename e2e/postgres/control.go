package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailer-relay/tailer/e2e/host"
)

// start runs the postmaster and waits until it takes connections.
func (s *Server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("postgres is closed")
	}
	if s.proc != nil {
		return errors.New("postgres already runs")
	}
	cmd := s.Command(context.Background(), "postgres", "-D", s.DataDir())
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := s.run.Start(cmd, syscall.SIGQUIT); err != nil {
		return err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		cmd.Wait() // the exit code says nothing that the log does not
		close(p.done)
	}()
	s.proc = p
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		// The lock file's eighth line becomes "ready"; a file left by a
		// crash names another pid.
		if line := s.lockFile(); len(line) >= 8 && line[0] == strconv.Itoa(cmd.Process.Pid) && strings.TrimSpace(line[7]) == "ready" {
			return nil
		}
		select {
		case <-p.done:
			s.proc = nil
			return fmt.Errorf("postgres ended at start:\n%s", s.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres to get ready: %w\n%s", ctx.Err(), s.LogTail(20))
		case <-tick.C:
		}
	}
}

// lockFile reads postmaster.pid.
func (s *Server) lockFile() []string {
	text, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
	if err != nil {
		return nil
	}
	return strings.Split(string(text), "\n")
}

// StartAgain starts a stopped server, on the same port.
func (s *Server) StartAgain() error {
	return s.start(context.Background())
}

// Stop ends the server as pg_ctl stop -m does: "smart" waits for clients to
// leave, "fast" ends them (a walsender stays until its client confirmed what
// it got), "immediate" is a crash in the database's eyes. A server that is
// still there after a minute is an error.
func (s *Server) Stop(mode string) error {
	sig, ok := map[string]syscall.Signal{"smart": syscall.SIGTERM, "fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}[mode]
	if !ok {
		return fmt.Errorf("stop postgres: unknown mode %q", mode)
	}
	return s.end(sig)
}

// Restart is Stop and StartAgain.
func (s *Server) Restart(mode string) error {
	if err := s.Stop(mode); err != nil {
		return err
	}
	return s.StartAgain()
}

// Crash stops the server by SIGQUIT: no checkpoint, recovery at the next start.
func (s *Server) Crash() error { return s.end(syscall.SIGQUIT) }

// Kill ends the postmaster and all its children by SIGKILL, as the kernel's
// out-of-memory killer would.
func (s *Server) Kill() error {
	s.mu.Lock()
	p := s.proc
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	pid := p.cmd.Process.Pid
	// Stopped, it can neither start children nor react to their deaths.
	unix.Kill(pid, unix.SIGSTOP)
	children := host.Children(pid)
	for _, child := range children {
		unix.Kill(child, unix.SIGKILL)
	}
	err := s.end(syscall.SIGKILL)
	for _, child := range children { // they hold the shared memory until they are gone
		for range 500 {
			if unix.Kill(child, 0) != nil || isZombie(child) {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return err
}

// isZombie: a killed child whose new parent, a careless init of a container,
// never waits for it.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") Z "))
}

// Signal sends a signal to the postmaster.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("postgres does not run")
	}
	return s.proc.cmd.Process.Signal(sig)
}

// Running reports whether the postmaster lives.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return false
	}
	select {
	case <-s.proc.done:
		return false
	default:
		return true
	}
}

// end signals the postmaster and waits for its end. A stopped server is fine.
func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proc
	if p == nil {
		return nil
	}
	p.cmd.Process.Signal(sig) // an error means that it has ended
	select {
	case <-p.done:
		s.proc = nil
		return nil
	case <-time.After(waitLimit):
		return fmt.Errorf("postgres is still there %v after signal %d:\n%s", waitLimit, sig, s.LogTail(20))
	}
}

// Close stops the server at once and removes what it had, except a folder that
// the caller named. Idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	var errs []error
	if s.run != nil {
		s.Signal(syscall.SIGCONT) // a test may have frozen it
		errs = append(errs, s.end(syscall.SIGQUIT))
		// Left by a postmaster that was killed and not started again.
		if line := s.lockFile(); len(line) >= 7 {
			if key := strings.Fields(line[6]); len(key) == 2 {
				if id, err := strconv.Atoi(key[1]); err == nil {
					unix.SysvShmCtl(id, unix.IPC_RMID, nil)
				}
			}
		}
	}
	if s.log != nil {
		s.log.Close()
	}
	if s.run != nil {
		errs = append(errs, s.run.Close())
	}
	if s.port != nil {
		s.port.Release()
	}
	return errors.Join(errs...)
}
