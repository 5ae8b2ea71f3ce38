package postgres_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/e2e/postgres"
)

// Every major starts, decodes logically and leaves nothing behind.
func TestVersions(t *testing.T) {
	for _, version := range postgres.Versions {
		t.Run(version, func(t *testing.T) {
			start := time.Now()
			s, err := postgres.Start(t.Context(), postgres.Options{Version: version})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("ready after %v", time.Since(start).Round(time.Millisecond))
			defer s.Close()
			if got := s.Query1(t, "SHOW server_version"); !strings.HasPrefix(got, version+".") {
				t.Errorf("server_version %s, want %s", got, version)
			}
			if got := s.Query1(t, "SELECT wal_level FROM (SELECT current_setting('wal_level') wal_level) x"); got != "logical" {
				t.Errorf("wal_level %s", got)
			}
			s.Exec(t, "SELECT pg_create_logical_replication_slot('a', 'pgoutput')")
			dir := filepath.Dir(s.DataDir())
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(dir + "*"); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Each kind of stop keeps port and committed rows.
func TestRestart(t *testing.T) {
	s := postgres.New(t, postgres.Options{})
	s.Exec(t, "CREATE TABLE t (n int)")
	port := s.Port()
	for i, stop := range []func() error{
		func() error { return s.Stop("smart") },
		func() error { return s.Stop("fast") },
		func() error { return s.Stop("immediate") },
		s.Crash, s.Kill, s.Kill,
	} {
		s.Exec(t, "INSERT INTO t VALUES (1)")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if s.Running() {
			t.Fatal("it still runs")
		}
		if err := s.StartAgain(); err != nil {
			t.Fatal(err)
		}
		want := string(rune('1' + i))
		if got := s.Query1(t, "SELECT count(*) FROM t"); got != want || s.Port() != port {
			t.Fatalf("after stop %d: %s rows on port %d, want %s on %d", i, got, s.Port(), want, port)
		}
	}
}

// Debian's server brings the programs that the others lack, and they run as
// the server's user.
func TestDebian(t *testing.T) {
	s := postgres.New(t, postgres.Options{Debian: true})
	if err := s.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Command(t.Context(), "pg_resetwal", "-l", "000000010000000100000000", s.DataDir()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := s.StartAgain(); err != nil {
		t.Fatal(err)
	}
	if got := s.Query1(t, "SELECT pg_current_wal_lsn() > '1/0'"); got != "t" {
		t.Errorf("beyond 4 GiB of WAL: %s", got)
	}
}

func TestTLS(t *testing.T) {
	s := postgres.New(t, postgres.Options{TLS: true, HBA: []string{"local all all trust", "hostssl all all 127.0.0.1/32 cert"}})
	files := s.TLS()
	connect := func(parameters string) error {
		dsn := strings.Replace(s.DSN("postgres"), "sslmode=disable", parameters, 1)
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			conn.Close(t.Context())
		}
		return err
	}
	client := "&sslcert=" + files.ClientCert + "&sslkey=" + files.ClientKey
	if err := connect("sslmode=verify-full&sslrootcert=" + files.CA + client); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if connect("sslmode=verify-full&sslrootcert="+files.CA) == nil {
		t.Error("connected without a client certificate")
	}
	if connect("sslmode=verify-full&sslrootcert="+files.OtherCA+client) == nil {
		t.Error("trusted a server of another authority")
	}
	if connect("sslmode=disable") == nil {
		t.Error("connected without TLS")
	}
	for range 20 {
		if err := s.SetHBA("host all all 127.0.0.1/32 trust"); err != nil {
			t.Fatal(err)
		}
		if err := connect("sslmode=disable"); err != nil {
			t.Fatalf("the new rules let it in: %v", err)
		}
		if err := s.SetHBA("host all all 127.0.0.1/32 reject"); err != nil {
			t.Fatal(err)
		}
		if connect("sslmode=disable") == nil {
			t.Fatal("connected against the new rules")
		}
	}
}

// Copies of one cluster share the identifier, a fresh one has its own; a named
// folder survives its server.
func TestIdentityAndDir(t *testing.T) {
	const query = "SELECT system_identifier FROM pg_control_system()"
	a := postgres.New(t, postgres.Options{})
	b := postgres.New(t, postgres.Options{})
	c := postgres.New(t, postgres.Options{Fresh: true})
	if a.Query1(t, query) != b.Query1(t, query) {
		t.Error("copies differ in their identifier")
	}
	if a.Query1(t, query) == c.Query1(t, query) {
		t.Error("a fresh cluster has the copies' identifier")
	}

	// Not t.TempDir, which the server's user could not enter.
	dir := filepath.Join("/tmp", filepath.Base(filepath.Dir(a.DataDir()))+"-kept")
	defer os.RemoveAll(dir)
	for i := range 2 {
		s, err := postgres.Start(context.Background(), postgres.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			s.Exec(t, "CREATE TABLE kept ()")
		} else {
			s.Exec(t, "DROP TABLE kept")
		}
		if err := s.Stop("fast"); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What goes wrong at a start is said, with the server's own words.
func TestStartFails(t *testing.T) {
	_, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want the name of the setting", err)
	}
	if _, err := postgres.Start(t.Context(), postgres.Options{Version: "9"}); err == nil {
		t.Error("version 9 started")
	}
}
