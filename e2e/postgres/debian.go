package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
)

var installing sync.Mutex

// Debian returns the newest major of PostgreSQL that Debian's packages put on
// this machine, for Options{Debian: true, Version: ...}. On Debian and as root
// it installs one if there is none; elsewhere the test fails and says what to type.
func Debian(t testing.TB) string {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	version, err := newestDebian()
	if err != nil {
		err = errors.Join(err, install("postgresql"))
		if version, _ = newestDebian(); version == "" {
			t.Fatal(err)
		}
	}
	return version
}

func newestDebian() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_resetwal")
	if err != nil {
		return "", err
	}
	newest := 0
	for _, path := range found {
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err == nil && n > newest && slices.Contains(Versions, strconv.Itoa(n)) {
			newest = n
		}
	}
	if newest == 0 {
		return "", errors.New("this needs PostgreSQL's own tools, which Debian's package has: apt-get install postgresql")
	}
	return strconv.Itoa(newest), nil
}

// install has apt-get install a package, after an update if need be.
func install(pkg string) error {
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return errors.New("it is installed by itself only as root on Debian")
	}
	apt := func(args ...string) error {
		cmd := exec.Command("apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %v: %w\n%s", args, err, out)
		}
		return nil
	}
	args := []string{"install", "-y", "-q", "--no-install-recommends", pkg}
	first := apt(args...)
	if first == nil {
		return nil
	}
	if err := apt("update", "-q"); err != nil { // the lists may be missing or old
		return errors.Join(first, err)
	}
	return apt(args...)
}
