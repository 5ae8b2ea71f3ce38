package replication

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func pgError(code, message string) *pgconn.PgError {
	return &pgconn.PgError{Severity: "ERROR", Code: code, Message: message}
}

func TestClassify(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}
	for _, c := range []struct {
		name string
		err  error
		want Class
	}{
		// Passes by itself.
		{"terminated backend", pgError("57P01", ""), Transient},
		{"crash of another backend", pgError("57P02", ""), Transient},
		{"starting up", pgError("57P03", ""), Transient},
		{"idle session timeout", pgError("57P05", ""), Transient},
		{"connection failure", pgError("08006", ""), Transient},
		{"protocol violation by a proxy", pgError("08P01", ""), Transient},
		{"too many connections", pgError("53300", ""), Transient},
		{"disk full", pgError("53100", ""), Transient},
		{"slot in use", pgError("55006", ""), Transient},
		{"lock not available", pgError("55P03", ""), Transient},
		{"statement timeout", pgError("57014", ""), Transient},
		{"read-only", pgError("25006", ""), Transient},
		{"I/O error of the server", pgError("58030", ""), Transient},
		{"serialization", pgError("40001", ""), Transient},
		{"end of stream", io.EOF, Transient},
		{"cut stream", io.ErrUnexpectedEOF, Transient},
		{"refused", refused, Transient},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, Transient},
		{"closed", net.ErrClosed, Transient},
		{"no such host", &net.DNSError{IsNotFound: true}, Transient},
		{"cancelled", context.Canceled, Transient},
		{"timeout", context.DeadlineExceeded, Transient},
		{"no writable host", fmt.Errorf("validate: %w", pgconn.ErrReadOnlyConnection), Transient},
		{"slot held by another", &ActiveError{Slot: "s", PID: 3}, Transient},
		// Refused, or unknown.
		{"wrong password", pgError("28P01", ""), Auth},
		{"no line in pg_hba.conf", pgError("28000", ""), Auth},
		{"internal error", pgError("XX000", ""), Auth},
		{"a state of the future", pgError("7Z123", ""), Auth},
		{"no state", pgError("", ""), Auth},
		{"untrusted certificate", &tls.CertificateVerificationError{Err: errors.New("x509")}, Auth},
		{"our certificate is refused", alert, Auth},
		{"protocol violation", &protocolError{"x"}, Auth},
		{"something else", errors.New("x"), Auth},
		// Configuration.
		{"no such database", pgError("3D000", ""), Usage},
		{"no right", pgError("42501", ""), Usage},
		{"unknown parameter", pgError("42704", ""), Usage},
		{"bad value", pgError("22023", ""), Usage},
		{"not supported", pgError("0A000", ""), Usage},
		// Events may be missing.
		{"WAL removed", pgError("58P01", ""), Gap},
		// Wrapped, and decided by who wrapped it.
		{"wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", pgError("57P01", ""))), Transient},
		{"ours", fmt.Errorf("a: %w", &Error{Class: Gap, Err: pgError("57P01", "")}), Gap},
		// Several addresses: the server that answered last has the word.
		{"::1 refused, then a wrong password", errors.Join(refused, pgError("28P01", "")), Auth},
		{"::1 refused, then no database", errors.Join(refused, pgError("3D000", "")), Usage},
		{"TLS refused, then no database", errors.Join(errors.New("server refused TLS connection"), pgError("3D000", "")), Usage},
		{"no line for TLS, then none without", errors.Join(pgError("28000", ""), pgError("28000", "")), Auth},
		{"one host refuses us, the other is down", errors.Join(pgError("28000", ""), refused), Transient},
		{"all down", errors.Join(refused, refused), Transient},
		{"both without trust", errors.Join(errors.New("x"), errors.New("y")), Auth},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// An error of TLS has no code of Postgres, and says by itself where to look.
func TestHintsForTLS(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"authority unknown", &tls.CertificateVerificationError{Err: errors.New("x509")}, "sslrootcert"},
		{"our certificate is refused", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, "sslcert"},
		{"ours is missing", pgError("28000", "connection requires a valid client certificate"), "sslcert"},
		{"no answer", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, ""},
	} {
		got := HintOf(&Error{Op: "connect", Class: Classify(c.err), Err: fmt.Errorf("several: %w", errors.Join(errors.New("x"), c.err))})
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestStreamErrors(t *testing.T) {
	cfg := Config{Slot: "s1", Publication: "pub"}
	where := `slot "s1", output plugin "pgoutput", in the change callback, associated LSN 0/1A2B3C8`
	missing := pgError("42704", `publication "pub" does not exist`)
	missing.Where = where
	translated := pgError("42704", `Publikation »pub« existiert nicht`)
	translated.Where = `Slot »s1«, Ausgabe-Plugin »pgoutput«, im Callback change, zugehörige LSN 0/1A2B3C8`
	skipped := pgError("55000", `skipped loading publication "pub"`)
	for _, c := range []struct {
		name string
		err  error
		want Class
		text string // in error or hint
	}{
		{"slot older than its publication", streamError("stream from", cfg, missing), Gap, "at 0/1A2B3C8"},
		{"the same in German", streamError("stream from", cfg, translated), Gap, "at 0/1A2B3C8"},
		{"the remedy", streamError("stream from", cfg, missing), Gap, "pg_replication_slot_advance('s1', "},
		{"PostgreSQL 18 skips", gapByPublication("stream from", cfg, skipped), Gap, "older than publication"},
		{"slot dropped", streamError("start", cfg, pgError("42704", `replication slot "s1" does not exist`)), Gap, "slot was dropped"},
		{"slot lost", streamError("start", cfg, pgError("55000", "can no longer get changes")), Gap, "pg_replication_slots"},
		{"in use", streamError("start", cfg, pgError("55006", `replication slot "s1" is active for PID 4711`)), Transient, "4711"},
		{"terminated", streamError("stream from", cfg, pgError("57P01", "terminating connection")), Transient, "57P01"},
		{"WAL removed", streamError("stream from", cfg, pgError("58P01", "requested WAL segment has been removed")), Gap, "events are missing"},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if all := c.err.Error() + HintOf(c.err); !strings.Contains(all, c.text) || strings.Contains(c.err.Error(), "\n") {
			t.Errorf("%s: %q is not in %q", c.name, c.text, all)
		}
	}
	var active *ActiveError
	if err := streamError("start", cfg, pgError("55006", `replication slot "s1" is active for PID 4711`)); !errors.As(err, &active) ||
		active.PID != 4711 || active.Slot != "s1" {
		t.Errorf("%#v", err)
	}
	if pid := pidIn(`replication slot "s1" is active`); pid != 0 {
		t.Errorf("process %d of nowhere", pid)
	}
	for _, n := range []*pgconn.PgError{skipped, {Code: "55000", Routine: "LoadPublications", Message: "übersprungen"}} {
		if !skipsPublication(n) {
			t.Errorf("not recognised: %v", n)
		}
	}
	for _, n := range []*pgconn.PgError{pgError("00000", `skipped loading publication "pub"`), pgError("55000", "other")} {
		if skipsPublication(n) {
			t.Errorf("taken for a gap: %v", n)
		}
	}
}

func TestErrorsAreOneLineWithoutSecrets(t *testing.T) {
	const secret = "pa55w0rd"
	lost := pgError("55000", "can no longer get changes")
	lost.Detail = "This slot has been invalidated\nbecause it exceeded the maximum reserved size."
	e := &Error{Op: "start", Object: `slot "s"`, Err: lost}
	if want := `start slot "s": can no longer get changes (SQLSTATE 55000); This slot has been invalidated; because it exceeded the maximum reserved size.`; e.Error() != want {
		t.Errorf("got  %s\nwant %s", e, want)
	}
	for _, dsn := range []string{
		"postgres://u:" + secret + "@h:notaport/db",
		"postgres://u:" + secret + "/x@h:5432/db",
		"postgres://u:" + secret + "@h:5432/db?sslmode=" + secret,
		"postgres://u:" + secret + "@%zz/db",
		"host=h password=" + secret + " port=1,2,3",
		"host=h password='" + secret,
		"password=" + secret + " connect_timeout=soon",
		"password=" + secret + " target_session_attrs=any-" + secret,
		secret,
		"host=127.0.0.1 port=1 connect_timeout=2 user=u dbname=d sslmode=disable password=" + secret, // parses, does not connect
		"host=" + secret + ".invalid port=1 connect_timeout=2 user=u dbname=d password=" + secret,
	} {
		_, err := Connect(t.Context(), Config{DSN: dsn})
		if err == nil {
			t.Fatalf("%s: connected", dsn)
		}
		if text := err.Error() + HintOf(err); strings.Contains(text, secret) || strings.Contains(text, "\n") {
			t.Errorf("%s\nbecomes %s", dsn, text)
		}
		var config *pgconn.ConnectError
		if errors.As(err, &config) {
			t.Errorf("%s: the configuration hangs on the error", dsn)
		}
	}
}
