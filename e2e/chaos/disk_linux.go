package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mountName is before the process id in the name of a mount of ours.
const mountName = "tailer-chaos-disk-"

// newDisk mounts a tmpfs of so many MiB, for root alone. before runs before it is
// taken away, and must end all that uses it.
func newDisk(t testing.TB, size int, before func()) (*disk, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can mount a file system")
	}
	unmountLeft()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", mountName, os.Getpid()))
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%dm,mode=755", size)); err != nil {
		os.Remove(dir)
		return nil, fmt.Errorf("mount a tmpfs: %w", err)
	}
	t.Cleanup(func() {
		before()
		if err := errors.Join(unix.Unmount(dir, 0), os.Remove(dir)); err != nil {
			t.Errorf("remove the small disk: %v", err)
		}
	})
	return &disk{dir}, nil
}

// unmountLeft takes away what a killed process left mounted.
func unmountLeft() {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(filepath.Base(fields[1]), mountName) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(fields[1])[len(mountName):], "%d-", &pid); err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			unix.Unmount(fields[1], unix.MNT_DETACH)
			os.Remove(fields[1])
		}
	}
}
