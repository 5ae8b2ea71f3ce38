package postgres

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tailer-relay/tailer/e2e/host"
)

// create makes the data folder: by initdb, or as a copy of the cluster that
// initdb made before for the same version, encoding, locale and user. The copy
// takes a fifth of the time.
func (s *Server) create(ctx context.Context) error {
	if s.opt.Encoding == "" {
		s.opt.Encoding = "UTF8"
	}
	if s.opt.Locale == "" {
		s.opt.Locale = "C"
	}
	if s.opt.Fresh {
		return s.initdb(ctx, s.DataDir())
	}
	uid := os.Geteuid()
	if s.user != nil {
		uid = int(s.user.Uid)
	}
	kind := "cluster"
	if s.opt.Debian {
		kind = "debian-cluster"
	}
	name := fmt.Sprintf("%s-%s-%s-%s-%d", kind, s.opt.Version, s.opt.Encoding, s.opt.Locale, uid)
	if !s.opt.Debian { // Debian's minor version changes under us, ours only with the source
		name += "-" + string(releases[s.opt.Version])
	}
	template, err := host.Cached(ctx, strings.ReplaceAll(name, "/", "_"), func(dir string) error {
		if err := s.chown(dir); err != nil {
			return err
		}
		return s.initdb(ctx, filepath.Join(dir, "data"))
	})
	if err != nil {
		return err
	}
	return s.copy(filepath.Join(template, "data"), s.DataDir())
}

func (s *Server) initdb(ctx context.Context, dir string) error {
	cmd := s.Command(ctx, "initdb", "-D", dir, "-U", "postgres", "-A", "trust",
		"-E", s.opt.Encoding, "--locale="+s.opt.Locale, "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// copy copies a stopped cluster, with modes and owner.
func (s *Server) copy(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() {
			err = os.Mkdir(target, info.Mode().Perm())
		} else {
			err = copyFile(path, target, info.Mode().Perm())
		}
		if err != nil {
			return err
		}
		return s.chown(target)
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}
