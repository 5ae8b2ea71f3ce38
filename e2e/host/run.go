package host

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Run is a folder of one running server or relay, with its processes. It
// exists until Close, or until the next NewRun of any process after this one
// was killed.
type Run struct {
	Dir  string
	lock *os.File // Invariant: locked for as long as Dir may be in use.

	mu     sync.Mutex
	closed bool
}

// held keeps every lock of this process reachable: a file that the garbage
// collector closes is a lock that is gone, and its folder is swept.
var held sync.Map // *os.File -> struct{}

// NewRun makes an empty folder, mode 0755, and removes those of processes that
// are gone.
func NewRun(name string) (*Run, error) {
	for {
		lock, err := lockIn("run", fmt.Sprintf("%s-%08x.lock", name, rand.Uint32()))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return nil, err
		}
		path := strings.TrimSuffix(lock.Name(), ".lock")
		sweep(filepath.Dir(path))
		if err := os.Mkdir(path, 0o755); err != nil {
			lock.Close()
			if errors.Is(err, os.ErrExist) {
				continue
			}
			return nil, err
		}
		held.Store(lock, struct{}{})
		return &Run{Dir: path, lock: lock}, os.Chmod(path, 0o755)
	}
}

// Start starts a command that dies with us: by the signal given where the
// kernel knows such a thing (Linux), else at the next NewRun. It gets a process
// group of its own, so a Ctrl-C on the terminal reaches only ourselves.
func (r *Run) Start(cmd *exec.Cmd, onDeath syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithUs(cmd.SysProcAttr, onDeath)
	if err := cmd.Start(); err != nil {
		return err
	}
	f, err := os.OpenFile(r.pids(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d %s\n", cmd.Process.Pid, birth(cmd.Process.Pid))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return fmt.Errorf("note process of %s: %w", r.Dir, err)
	}
	return nil
}

func (r *Run) pids() string { return r.Dir + ".pids" }

// Close removes the folder. Its processes must have ended. Idempotent.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	held.Delete(r.lock)
	return remove(r.Dir, r.lock)
}

// remove deletes a run's folder and its notes, the lock last and while held.
func remove(dir string, lock *os.File) error {
	err := os.RemoveAll(dir)
	// A server's last children may still write while they end.
	for try := 0; err != nil && try < 50; try++ {
		time.Sleep(20 * time.Millisecond)
		err = os.RemoveAll(dir)
	}
	os.Remove(dir + ".pids")
	os.Remove(dir + ".lock")
	return errors.Join(err, lock.Close())
}

// sweep removes the folders of dead processes, and kills what they left running.
func sweep(dir string) {
	locks, err := filepath.Glob(filepath.Join(dir, "*.lock"))
	if err != nil {
		return
	}
	for _, path := range locks {
		lock, err := tryLock(path)
		if err != nil {
			continue // alive, or gone in this moment
		}
		run := strings.TrimSuffix(path, ".lock")
		if f, err := os.Open(run + ".pids"); err == nil {
			for lines := bufio.NewScanner(f); lines.Scan(); {
				number, born, _ := strings.Cut(lines.Text(), " ")
				if pid, err := strconv.Atoi(number); err == nil && pid > 1 && born != "" && birth(pid) == born {
					unix.Kill(pid, unix.SIGQUIT) // Postgres: stop at once, in order
					waitGone(pid, born, 2*time.Second)
					unix.Kill(-pid, unix.SIGKILL)
				}
			}
			f.Close()
		}
		remove(run, lock)
	}
}

// waitGone waits until the process born then is no more.
func waitGone(pid int, born string, limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end) && birth(pid) == born; {
		time.Sleep(10 * time.Millisecond)
	}
}

// Port is a TCP port on 127.0.0.1 that no other test process will take, also
// while nothing listens on it: a server can be stopped and started again.
type Port struct {
	Number int
	lock   *os.File
}

// Ports below the ranges that Linux (32768) and macOS (49152) give to outgoing
// connections, so none of those can take one away either.
const firstPort, lastPort = 15000, 31999

// NewPort reserves a free port.
func NewPort() (*Port, error) {
	for range 1000 {
		n := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := lockIn("ports", strconv.Itoa(n))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if l, err := net.Listen("tcp4", fmt.Sprintf(":%d", n)); err == nil {
			l.Close()
			held.Store(lock, struct{}{})
			return &Port{Number: n, lock: lock}, nil
		}
		os.Remove(lock.Name())
		lock.Close()
	}
	return nil, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

// Release gives the port back. Idempotent.
func (p *Port) Release() {
	if _, ours := held.LoadAndDelete(p.lock); ours {
		os.Remove(p.lock.Name()) // while it is locked: see tryLock
		p.lock.Close()
	}
}
