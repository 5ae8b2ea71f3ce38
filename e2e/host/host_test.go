package host

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestMain turns this binary into the process that a test kills.
func TestMain(m *testing.M) {
	if os.Getenv("HOST_TEST_VICTIM") != "" {
		victim()
	}
	os.Exit(m.Run())
}

// victim starts a server and waits to be killed.
func victim() {
	run, err := NewRun("victim")
	if err != nil {
		panic(err)
	}
	port, err := NewPort()
	if err != nil {
		panic(err)
	}
	sig, err := strconv.Atoi(os.Getenv("HOST_TEST_VICTIM"))
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := run.Start(cmd, syscall.Signal(sig)); err != nil {
		panic(err)
	}
	os.Stdout.WriteString(run.Dir + " " + strconv.Itoa(port.Number) + " " + strconv.Itoa(cmd.Process.Pid) + "\n")
	select {}
}

// startVictim starts a process with a run, a port and a child, and returns what
// kills it.
func startVictim(t *testing.T, onDeath syscall.Signal) (dir, port string, pid int, kill func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOST_TEST_VICTIM="+strconv.Itoa(int(onDeath)))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(line)
	if pid, err = strconv.Atoi(fields[2]); err != nil {
		t.Fatal(err)
	}
	return fields[0], fields[1], pid, func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// A process killed with a server running leaves folder, child and port to the
// next one, which clears them away.
func TestSweepAfterKill(t *testing.T) {
	dir, port, pid, kill := startVictim(t, 0) // no signal: the sweep has to end the child
	born := birth(pid)
	if born == "" {
		t.Fatal("the victim's child does not run")
	}

	// While its owner lives nobody touches it.
	other, err := NewRun("other")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("the folder of a living process was removed")
	}
	ports, err := base("ports")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(filepath.Join(ports, port)); !errors.Is(err, errLocked) {
		t.Fatalf("lock of a living process's port: %v, want %v", err, errLocked)
	}

	kill()
	after, err := NewRun("after")
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	if left, _ := filepath.Glob(dir + "*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for end := time.Now().Add(5 * time.Second); birth(pid) == born; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the killed process's child still runs")
		}
	}
	lock, err := tryLock(filepath.Join(ports, port))
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	lock.Close()
}

// Where the kernel offers it, a child dies with its parent at once.
func TestChildDiesWithUs(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // there the sweep does it, tested above
	}
	_, _, pid, kill := startVictim(t, syscall.SIGKILL)
	born := birth(pid)
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the child is in group %d (%v), want its own, %d", group, err, pid)
	}
	kill()
	for end := time.Now().Add(5 * time.Second); birth(pid) == born; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the killed process's child still runs")
		}
	}
}

// Many ask at once for what is not there yet: it is built once, and nobody
// sees it half done.
func TestCachedBuildsOnce(t *testing.T) {
	t.Setenv("TAILER_E2E_CACHE", openDir(t))
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := Cached(t.Context(), "thing", func(dir string) error {
				builds.Add(1)
				time.Sleep(20 * time.Millisecond)
				return os.WriteFile(filepath.Join(dir, "file"), []byte("whole"), 0o644)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if text, err := os.ReadFile(filepath.Join(dir, "file")); string(text) != "whole" {
				t.Errorf("read %q, %v", text, err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

// A failed build leaves nothing, so the next one tries again.
func TestCachedFailure(t *testing.T) {
	cache := openDir(t)
	t.Setenv("TAILER_E2E_CACHE", cache)
	boom := errors.New("boom")
	if _, err := Cached(t.Context(), "thing", func(string) error { return boom }); !errors.Is(err, boom) {
		t.Fatalf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "thing*")); len(left) != 1 || !strings.HasSuffix(left[0], ".lock") {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Cached(t.Context(), "thing", func(string) error { return nil }); err != nil {
		t.Error(err)
	}
}

// A run lasts as long as the process, also when nobody holds on to it.
func TestForgottenRunStays(t *testing.T) {
	dir := func() string {
		run, err := NewRun("forgotten")
		if err != nil {
			t.Fatal(err)
		}
		dir := run.Dir // and not run, which the closure would keep
		t.Cleanup(func() {
			held.Range(func(lock, _ any) bool {
				if f := lock.(*os.File); f.Name() == dir+".lock" {
					held.Delete(f)
					remove(dir, f)
				}
				return true
			})
		})
		return dir
	}()
	for range 3 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond) // finalizers have a goroutine of their own
	}
	other, err := NewRun("other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

func TestPortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		p, err := NewPort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if seen[p.Number] {
			t.Fatalf("port %d was given twice", p.Number)
		}
		seen[p.Number] = true
	}
}

// openDir is a temporary folder that other users may enter, as a cache must be.
func openDir(t *testing.T) string {
	run, err := NewRun("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	return run.Dir
}
