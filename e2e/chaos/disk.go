package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// disk is a small file system that can be filled.
type disk struct{ dir string }

// ballast takes all the room that is left.
func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

func (d *disk) fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		_, err := f.Write(make([]byte, size))
		switch {
		case err == nil:
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		default:
			return fmt.Errorf("fill the disk: %w", err)
		}
	}
	return nil
}

func (d *disk) clear() error { return os.Remove(d.ballast()) }

// moveWAL puts a stopped server's WAL on the disk.
func moveWAL(t testing.TB, dataDir string, d *disk) error {
	t.Helper()
	wal := filepath.Join(dataDir, "pg_wal")
	to := filepath.Join(d.dir, "pg_wal")
	if out, err := exec.Command("cp", "-a", wal, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the WAL: %w\n%s", err, out)
	}
	if err := os.RemoveAll(wal); err != nil {
		return err
	}
	return os.Symlink(to, wal)
}
