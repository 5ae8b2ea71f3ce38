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
		bin := filepath.Join("/usr/lib/postgresql", opt.Version, "bin")
		if _, err := os.Stat(filepath.Join(bin, "postgres")); err != nil {
			return "", fmt.Errorf("no PostgreSQL of Debian in %s: apt-get install postgresql-%s", bin, opt.Version)
		}
		return bin, nil
	}
	release, ok := releases[opt.Version]
	if !ok {
		return "", fmt.Errorf("version %q is none of %v", opt.Version, Versions)
	}
	name := fmt.Sprintf("postgres-%s-%s-%s", release, runtime.GOOS, runtime.GOARCH)
	dir, err := host.Cached(ctx, name, func(dir string) error { return fetch(dir, release) })
	return filepath.Join(dir, "bin"), err
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
