package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	embedded "github.com/fergusstrange/embedded-postgres"

	"github.com/tailer-relay/tailer/e2e/host"
)

// DefaultVersion is used where neither Options nor $TAILER_PG name one.
const DefaultVersion = "15"

// Versions are the majors that can be had, oldest first.
var Versions = []string{"14", "15", "16", "17", "18"}

// releases are the builds behind the majors.
var releases = map[string]embedded.PostgresVersion{
	"14": "14.18.0", "15": "15.13.0", "16": "16.9.0", "17": "17.5.0", "18": "18.4.0",
}

// binaries returns the folder of initdb, pg_ctl and postgres, fetching them the
// first time.
func binaries(ctx context.Context, opt Options) (string, error) {
	if opt.Debian {
		return filepath.Join(debianRoot, opt.Version, "bin"), nil
	}
	release, ok := releases[opt.Version]
	if !ok {
		return "", fmt.Errorf("version %q is none of %v", opt.Version, Versions)
	}
	name := fmt.Sprintf("postgres-%s-%s-%s", release, runtime.GOOS, runtime.GOARCH)
	dir, err := host.Cached(ctx, name, func(dir string) error { return fetch(dir, release) })
	return filepath.Join(dir, "bin"), err
}

const debianRoot = "/usr/lib/postgresql"

// debianVersion is the newest PostgreSQL of Debian on this machine; one is
// installed if need be.
func debianVersion() (string, error) {
	for try := 0; ; try++ {
		best := 0
		found, _ := filepath.Glob(filepath.Join(debianRoot, "*", "bin", "postgres")) // errors only for a bad pattern
		for _, path := range found {
			if n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))); err == nil {
				best = max(best, n)
			}
		}
		if best > 0 {
			return strconv.Itoa(best), nil
		}
		if try > 0 {
			return "", fmt.Errorf("the package postgresql left nothing in %s", debianRoot)
		}
		if err := host.Install("postgresql", "this server has to be Debian's"); err != nil {
			return "", err
		}
	}
}

// fetch downloads and unpacks a build into dir.
//
// The module does both only as the first steps of a start, and its start
// cannot change user. So we give it a locale that no initdb accepts: it
// unpacks, then fails, whoever we are, and starts nothing.
func fetch(dir string, release embedded.PostgresVersion) error {
	port, err := host.NewPort()
	if err != nil {
		return err
	}
	defer port.Release()
	work := filepath.Join(dir, "unpack")
	defer os.RemoveAll(work)
	err = embedded.NewDatabase(embedded.DefaultConfig().
		Version(release).
		Port(uint32(port.Number)).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "run")).
		DataPath(filepath.Join(work, "run", "data")).
		BinariesPath(dir).
		Locale("none-at-all").
		Logger(io.Discard)).Start()
	if err == nil {
		return errors.New("a server started, under a locale that does not exist")
	}
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, statErr := os.Stat(filepath.Join(dir, "bin", program)); statErr != nil {
			return fmt.Errorf("download PostgreSQL %s: %w", release, err)
		}
	}
	// Our file mode mask may have closed them to the server's user.
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if d.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
