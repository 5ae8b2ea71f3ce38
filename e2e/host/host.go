// Package host is what the end-to-end tests share with the machine they run
// on: a cache of what is downloaded or built once, folders for running
// servers, ports, and child processes that do not outlive their test.
//
// Several test processes run at once, and any of them may be killed at any
// moment. So every shared thing is guarded by a lock on a file (flock), which
// the kernel drops together with its holder, and whoever starts next removes
// what a killed process left behind.
//
// The package starts no goroutines.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CacheDir is where downloads and unpacked servers are kept between runs:
// $TAILER_E2E_CACHE, else tailer-e2e in the user's cache folder. Root's own
// cache folder is usually closed to the user that Postgres must run as; then
// it is /var/cache/tailer-e2e.
func CacheDir() (string, error) {
	dir := os.Getenv("TAILER_E2E_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the cache folder: %w (set TAILER_E2E_CACHE)", err)
		}
		if os.Geteuid() == 0 && !openToAll(base) {
			base = "/var/cache"
		}
		dir = filepath.Join(base, "tailer-e2e")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	if os.Geteuid() != 0 {
		return dir, nil
	}
	os.Chmod(dir, 0o755) // our file mode mask may have closed it; judged below
	if !openToAll(dir) {
		return "", fmt.Errorf("cache folder %s cannot be entered by other users, and Postgres does not run as root: set TAILER_E2E_CACHE to a folder that can", dir)
	}
	return dir, nil
}

// openToAll reports whether any user may pass through dir and all above it.
func openToAll(dir string) bool {
	for {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// Cached returns the folder of that name in the cache. If it is not there yet,
// build fills a temporary folder which then takes its place: other processes
// see all of it or nothing, and one of them builds while the others wait.
func Cached(ctx context.Context, name string, build func(dir string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	final := filepath.Join(cache, name)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	lock, err := acquire(ctx, final+".lock")
	if err != nil {
		return "", fmt.Errorf("wait for %s in the cache: %w", name, err)
	}
	defer lock.Close()
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	if stale, err := filepath.Glob(final + ".tmp-*"); err == nil {
		for _, dir := range stale { // builders that were killed
			os.RemoveAll(dir)
		}
	}
	tmp, err := os.MkdirTemp(cache, name+".tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil { // MkdirTemp makes 0700
		return "", err
	}
	if err := build(tmp); err != nil {
		return "", fmt.Errorf("build %s for the cache: %w", name, err)
	}
	if err := os.Rename(tmp, final); err != nil {
		return "", err
	}
	return final, nil
}

// ServerUser is the user that Postgres has to run as: nil for ourselves,
// another one when we are root, because Postgres refuses root.
func ServerUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("postgres does not run as root, and this machine has neither a user postgres nor a user nobody: add one (useradd -r postgres) or run as a normal user")
}

// rootDir stands in /tmp and not in os.TempDir: a unix socket's path has room
// for about 100 bytes, and macOS' own temporary folder takes half of them.
func rootDir() string { return filepath.Join("/tmp", "tailer-e2e-"+strconv.Itoa(os.Geteuid())) }

// base makes a folder for what of this user is locked or running.
func base(sub string) (string, error) {
	root := rootDir()
	if err := os.Mkdir(root, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is not a folder of ours: remove it", root)
	}
	// The mask may have closed it to the user that Postgres runs as.
	if err := os.Chmod(root, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(root, sub)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// lockIn is tryLock for a file of base(sub), which Tidy of another process may
// remove between our making it and the lock.
func lockIn(sub, name string) (lock *os.File, err error) {
	for range 10 {
		var dir string
		if dir, err = base(sub); err == nil {
			lock, err = tryLock(filepath.Join(dir, name))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return lock, err
}

// Tidy removes what this package keeps outside the cache, unless something of
// it is in use. Only who must leave nothing at all behind needs it.
func Tidy() {
	root := rootDir()
	for _, dir := range []string{filepath.Join(root, "run"), filepath.Join(root, "ports"), root} {
		os.Remove(dir) // which fails unless it is empty
	}
}

// errLocked: another process holds the lock.
var errLocked = errors.New("locked by another process")

// tryLock locks the file at path, creating it, or returns errLocked. The lock
// ends when the file is closed, also by the death of this process.
func tryLock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errLocked
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The holder before us may have removed the file between our open
		// and our lock; then we hold a lock on nothing.
		ours, err1 := f.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(ours, named) {
			return f, nil
		}
		f.Close()
	}
}

// acquire waits for the lock.
func acquire(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := tryLock(path)
		if !errors.Is(err, errLocked) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
