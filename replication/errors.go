package replication

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Class tells what to do about an error.
type Class int

const (
	// Transient: build the session again, with backoff.
	Transient Class = iota
	// Auth: refused, or not known to pass by itself. Tried again for 60 s, with
	// the secret read anew each time, then exit 1. Server errors that no list
	// here knows are of this class: retrying for ever would hide them, and
	// stopping at once would make an outage of a hiccup.
	Auth
	// Usage: the configuration is wrong; exit 2.
	Usage
	// Gap: events may be missing and a person must decide; exit 3.
	Gap
)

func (c Class) String() string {
	switch c {
	case Transient:
		return "transient"
	case Auth:
		return "auth"
	case Usage:
		return "usage"
	case Gap:
		return "gap"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Error is what this package's operations return.
type Error struct {
	Op     string // what was tried: "connect", "check slot", "read"
	Object string // on what, as an operator would name it
	Class  Class
	Hint   string // what to type next; may be empty
	Err    error

	unpublished bool   // see Unpublished
	unsendable  string // the slot that stands before a change the server fails to send; see StepOver
}

// Error is one line and never contains a secret.
func (e *Error) Error() string {
	s := e.Op
	if e.Object != "" {
		s += " " + e.Object
	}
	if e.Err != nil {
		s += ": " + describe(e.Err)
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Unpublished tells whether err is a publication that does not send every row
// of its table as it is needed, and that a statement puts right.
func Unpublished(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.unpublished && e.Class == Usage
}

// ActiveError tells that another client holds the slot. This is what a standby
// waits on.
type ActiveError struct {
	Slot string
	PID  uint32 // the server process that serves the holder; 0 when unknown
}

func (e *ActiveError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("slot %q is in use by another client", e.Slot)
	}
	return fmt.Sprintf("slot %q is in use by another client, server process %d", e.Slot, e.PID)
}

// protocolError is a server message that breaks the protocol.
type protocolError struct{ reason string }

func (e *protocolError) Error() string { return "protocol violation: " + e.reason }

// Classify finds the class of any error of this package.
func Classify(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	var active *ActiveError
	if errors.As(err, &active) {
		return Transient
	}
	return classifyCause(err)
}

// classifyCause looks at what the server, the network or the driver said.
func classifyCause(err error) Class {
	if joined := attempts(err); len(joined) > 0 {
		return classifyAttempts(joined)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return classifyState(pg.Code)
	}
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return Usage
	}
	var dns *net.DNSError
	var op *net.OpError
	var notPreferred *pgconn.NotPreferredError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.Is(err, pgconn.ErrConnClosed),
		errors.As(err, &dns), errors.As(err, &notPreferred), pgconn.Timeout(err):
		return Transient
	case errors.As(err, &op):
		// crypto/tls reports alerts of the peer as an OpError too, and a
		// refused certificate does not pass by waiting.
		if op.Op == "remote error" || op.Op == "local error" {
			return Auth
		}
		return Transient
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.Is(err, pgconn.ErrReadWriteConnection),
		errors.Is(err, pgconn.ErrPrimaryConnection), errors.Is(err, pgconn.ErrStandbyConnection):
		// No host of the kind that target_session_attrs asks for: a failover.
		return Transient
	}
	return Auth
}

// classifyState judges a SQLSTATE. Only what is known to pass is Transient.
func classifyState(code string) Class {
	switch code {
	case "57P01", "57P02", "57P03", "57P05", // shut down, crashed, starting up, idle
		"55006", "55P03", // object in use, lock not available
		"57014",                   // cancelled, or a timeout of ours
		"25006",                   // read-only: a failover
		"58000", "58030", "58P02", // the server's own I/O
		"40001", "40P01":
		return Transient
	case "28P01", "28000":
		return Auth
	case "58P01": // WAL segment already removed
		return Gap
	case "3D000", "57P04", // no such database, or dropped meanwhile
		"42501",                   // no REPLICATION, no CONNECT
		"42704", "22023", "42601", // a parameter or value of the DSN that the server does not know
		"0A000", "55000", "42P01", "3F000":
		return Usage
	}
	if len(code) == 5 {
		switch code[:2] {
		case "08", "53": // connection, resources
			return Transient
		}
	}
	return Auth
}

// attempts are the errors of the hosts and addresses that a connect tried, in
// order; nil if err is of another kind.
func attempts(err error) []error {
	for err != nil {
		if j, ok := err.(interface{ Unwrap() []error }); ok {
			return j.Unwrap()
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// classifyAttempts judges a connect that tried several addresses. A server
// that answered last has the word: ::1 refused and a wrong password on
// 127.0.0.1 is a wrong password. Else one address worth another try is enough.
func classifyAttempts(tried []error) Class {
	var pg *pgconn.PgError
	if last := tried[len(tried)-1]; errors.As(last, &pg) {
		return classifyCause(last)
	}
	class := Auth
	for _, err := range tried {
		switch c := classifyCause(err); c {
		case Transient:
			return Transient
		default:
			class = max(class, c)
		}
	}
	return class
}

// HintOf returns what an operator can do about err, or "".
func HintOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Hint != "" {
		return e.Hint
	}
	var active *ActiveError
	if errors.As(err, &active) {
		return "this relay stands by and takes over when the slot is free; SELECT pid, client_addr, application_name FROM pg_stat_replication shows who holds it"
	}
	var (
		pg         *pgconn.PgError
		unverified *tls.CertificateVerificationError
		op         *net.OpError
	)
	switch {
	case errors.As(err, &pg):
	case errors.As(err, &unverified):
		return "the server's certificate is not what postgres.dsn asks for: sslrootcert is the authority that signed it, sslmode how much is checked, host the name in it"
	case errors.As(err, &op) && op.Op == "remote error": // an alert, see classifyCause
		return "the server refuses TLS as postgres.dsn offers it: check sslcert and sslkey, whose authority the server must know"
	default:
		return ""
	}
	switch pg.Code {
	case "28P01":
		return "check the user in postgres.dsn and the secret in postgres.password_file; the secret is read again at every try"
	case "28000":
		return "pg_hba.conf must let this user connect from this host to the database itself (the keyword \"replication\" does not cover logical replication), and the role needs LOGIN; where it wants a certificate, set sslcert and sslkey in postgres.dsn"
	case "3D000":
		return "name the database that has the outbox table in postgres.dsn"
	case "42501":
		return "the role needs REPLICATION and CONNECT: ALTER ROLE name WITH REPLICATION; on managed services grant their replication role (rds_replication, or azure_pg_admin with REPLICATION)"
	case "53300":
		return "raise max_connections or max_wal_senders, or end clients that are no longer needed"
	case "42704", "22023":
		return "look for a mistyped run-time parameter in postgres.dsn or PGOPTIONS"
	case "58P01":
		return "WAL that the slot still needed is gone: events are missing; see pg_replication_slots for how far it had come"
	}
	return ""
}

// describe puts an error on one line. For errors of the server it adds the
// detail, which is where the cause of a lost slot stands.
func describe(err error) string {
	if pg, ok := err.(*pgconn.PgError); ok {
		s := fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
		if pg.Detail != "" {
			s += "; " + pg.Detail
		}
		return oneLine(s)
	}
	return oneLine(err.Error())
}

func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
