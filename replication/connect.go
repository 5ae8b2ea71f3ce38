package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// minVersion is the oldest server that is tested, as server_version_num.
const minVersion = 140000

// connectTimeout is for one address, unless the DSN has connect_timeout: without
// any, a host that is gone without a word would be waited for until the kernel
// gives up, two minutes later, while a new one is there already.
const connectTimeout = 30 * time.Second

// sessionParams are set at every connect, over whatever the DSN, the role or
// the database say: they change the text of a row, or end a session that is
// quiet by design.
//
// Parameters that not every supported server knows are set by tuneSession.
var sessionParams = map[string]string{
	"client_encoding":                     "UTF8",
	"DateStyle":                           "ISO",
	"IntervalStyle":                       "postgres",
	"TimeZone":                            "UTC",
	"bytea_output":                        "hex",
	"extra_float_digits":                  "3",
	"lc_monetary":                         "C",
	"standard_conforming_strings":         "on", // or a literal could be read in two ways
	"statement_timeout":                   "0",
	"lock_timeout":                        "0",
	"idle_in_transaction_session_timeout": "0",
	// PostgreSQL 18 tells by a warning that it skips the rows of a missing publication.
	"client_min_messages": "notice",
}

// Connect opens an ordinary connection with the same DSN, secret and session
// parameters as the stream.
func Connect(ctx context.Context, cfg Config) (*pgx.Conn, error) {
	conn, _, err := dial(ctx, cfg, false)
	return conn, err
}

// dial opens a connection for queries, or one for replication commands only.
// The socket is nil where reads cannot be batched.
func dial(ctx context.Context, cfg Config, replication bool) (*pgx.Conn, *backlogConn, error) {
	pc, err := pgx.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, nil, dsnError(err)
	}
	if cfg.Password != nil {
		secret, err := cfg.Password()
		if err != nil {
			return nil, nil, &Error{Op: "read", Object: "the Postgres password", Class: Auth,
				Hint: "check postgres.password_file; it is read again at every try", Err: err}
		}
		pc.Password = secret
	}
	for name, value := range sessionParams {
		setParam(pc.RuntimeParams, name, value)
	}
	if pc.RuntimeParams["application_name"] == "" {
		pc.RuntimeParams["application_name"] = "tailer"
	}
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = connectTimeout
	}
	delete(pc.RuntimeParams, "replication")
	pc.AfterConnect = tuneSession
	if cfg.notice != nil {
		pc.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { cfg.notice((*pgconn.PgError)(n)) }
	}

	var socket *backlogConn
	if replication {
		pc.RuntimeParams["replication"] = "database"
		pc.RuntimeParams["search_path"] = "pg_catalog" // names that a value prints are always qualified
		inner := pc.DialFunc
		pc.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			// Of several addresses the one dialled last is the one that is used.
			socket = nil
			c, err := inner(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			if socket = newBacklogConn(c); socket != nil {
				return socket, nil
			}
			return c, nil
		}
	}
	object := fmt.Sprintf("to database %q as user %q", pc.Database, pc.User)
	conn, err := pgx.ConnectConfig(ctx, pc)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, connectError(object, pc.Password, err)
	}
	return conn, socket, nil
}

// setParam sets a run-time parameter, whatever case the DSN wrote its name in.
func setParam(params map[string]string, name, value string) {
	for k := range params {
		if strings.EqualFold(k, name) {
			delete(params, k)
		}
	}
	params[name] = value
}

// tuneSession refuses servers that are too old and sets the timeouts that not
// every supported server knows.
func tuneSession(ctx context.Context, c *pgconn.PgConn) error {
	text := c.ParameterStatus("server_version")
	major, err := strconv.Atoi(text[:len(text)-len(strings.TrimLeft(text, "0123456789"))])
	if err != nil {
		return &Error{Op: "connect", Class: Usage, Err: fmt.Errorf("the server calls its version %q", text)}
	}
	if major < minVersion/10000 {
		return &Error{Op: "connect", Class: Usage,
			Err:  fmt.Errorf("the server is PostgreSQL %s, older than %d", text, minVersion/10000),
			Hint: "tailer needs PostgreSQL 14 or newer"}
	}
	sql := "SET idle_session_timeout = 0"
	if major >= 17 {
		sql += "; SET transaction_timeout = 0"
	}
	_, err = c.Exec(ctx, sql).ReadAll()
	return err
}

// connectError drops pgconn's own wrapping, which carries the configuration
// and with it the password.
func connectError(object, secret string, err error) error {
	var ours *Error
	if errors.As(err, &ours) {
		return ours
	}
	cause := err
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) && ce.Unwrap() != nil {
		cause = ce.Unwrap()
	}
	if secret != "" && strings.Contains(cause.Error(), secret) {
		cause = &redacted{text: strings.ReplaceAll(cause.Error(), secret, "xxxxx"), class: cause}
	}
	hint := HintOf(cause)
	if op := (*net.OpError)(nil); hint == "" && errors.As(cause, &op) && op.Op == "dial" {
		hint = "check host and port in postgres.dsn, and that Postgres runs and listens there"
	}
	return &Error{Op: "connect", Object: object, Class: classifyCause(cause), Hint: hint, Err: cause}
}

// redacted keeps an error's chain and replaces its text.
type redacted struct {
	text  string
	class error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.class }

// dsnError says why a DSN cannot be parsed without quoting any of it: where it
// is malformed nobody can tell what in it is the password.
func dsnError(err error) error {
	reason := "it is neither a URL nor a list of key=value pairs"
	text := err.Error()
	// The driver's message is: cannot parse `dsn`: reason (cause).
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		text = text[i+len("`: "):]
	}
	for _, known := range []string{
		"failed to parse as URL", "failed to parse as keyword/value", "could not match", "invalid port",
		"failed to configure TLS", "failed to read service", "invalid connect_timeout", "invalid sslcertmode",
		"unknown target_session_attrs", "unknown channel_binding", "invalid require_auth",
		"invalid min_protocol_version", "invalid max_protocol_version", "min_protocol_version",
	} {
		if strings.HasPrefix(text, known) {
			reason = known
		}
	}
	switch reason {
	case "failed to configure TLS", "failed to read service":
		reason = text // names files, which is what one needs to know
	}
	return &Error{Op: "parse", Object: "postgres.dsn", Class: Usage, Err: errors.New(oneLine(reason)),
		Hint: "write it as postgres://user@host:5432/database?sslmode=verify-full or as host=… user=… dbname=…; percent-encode special characters in a URL"}
}
