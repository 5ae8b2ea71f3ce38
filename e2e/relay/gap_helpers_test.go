package relay_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/host"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// newBare is an outbox whose database has nothing yet.
func newBare(t *testing.T, settings map[string]string) *outbox {
	t.Helper()
	o := &outbox{t: t, pg: postgres.New(t, postgres.Options{Settings: settings}), fake: kafka.NewFake(t, kafka.FakeOptions{})}
	o.config = harness.Config{
		"postgres": harness.Config{"dsn": o.pg.DSN("postgres")},
		"kafka":    harness.Config{"brokers": o.fake.Addrs(), "topics": harness.Config{"create": true}},
		"schema":   harness.Config{"mode": "off"},
	}
	o.conn = o.pg.Conn(t, "postgres")
	return o
}

// again opens the test's own connection anew, after a restart of the server.
func (o *outbox) again() { o.t.Helper(); o.conn = o.pg.Conn(o.t, "postgres") }

// What differs from run to run in a message.
var (
	aPosition = regexp.MustCompile(`\b[0-9A-F]{1,8}/[0-9A-F]{1,8}\b`)
	aTime     = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	aSystem   = regexp.MustCompile(`\b\d{17,20}\b`)
)

func masked(text string) string {
	text = strings.TrimSpace(text)
	for mask, pattern := range map[string]*regexp.Regexp{"LSN": aPosition, "TIME": aTime, "SYSTEM": aSystem} {
		text = pattern.ReplaceAllString(text, mask)
	}
	return text
}

// says compares an error and its hint, whole, and returns the hint and the
// positions that the error names, in its order.
func (o *outbox) says(logs, what, hint string) (string, []string) {
	o.t.Helper()
	i := strings.LastIndex("\n"+logs, "\ntailer: ")
	if i < 0 {
		o.t.Fatalf("no error at the end of\n%s", logs)
	}
	gotWhat, gotHint, _ := strings.Cut(strings.TrimPrefix(logs[i:], "tailer: "), "\nhint: ")
	if masked(gotWhat) != what {
		o.t.Errorf("the error is\n%s\nwant\n%s", masked(gotWhat), what)
	}
	if masked(gotHint) != hint {
		o.t.Errorf("the hint is\n%s\nwant\n%s", masked(gotHint), hint)
	}
	return gotHint, aPosition.FindAllString(gotWhat, -1)
}

// stops starts a relay that must exit by itself, with exactly these words.
func (o *outbox) stops(config harness.Config, code int, what, hint string) (gotHint string, positions []string) {
	o.t.Helper()
	relay := harness.StartRelay(o.t, harness.RelayOptions{Config: config})
	if got := relay.WaitExit(loudness); got != code {
		o.t.Fatalf("exit code %d, want %d\n%s", got, code, relay.Logs())
	}
	return o.says(relay.Logs(), what, hint)
}

var aCommand = regexp.MustCompile(`tailer (slot [a-z-]+|init --apply)`)

// typed runs the commands of a hint, in its order.
func (o *outbox) typed(config harness.Config, hint string) {
	o.t.Helper()
	commands := aCommand.FindAllStringSubmatch(hint, -1)
	if len(commands) == 0 {
		o.t.Fatalf("the hint has no command: %s", hint)
	}
	for _, c := range commands {
		got := harness.Run(o.t, config, strings.Fields(c[1])...)
		if got.Code != 0 {
			o.t.Fatalf("%s: exit code %d\n%s%s", c[0], got.Code, got.Stdout, got.Stderr)
		}
	}
}

// slotResult is what `tailer slot … --json` prints.
type slotResult struct {
	Slot, Says, Reason string
	Done               bool
	Confirmed          string `json:"confirmed_flush_lsn"`
	From               string `json:"from_lsn"`
	To                 string `json:"to_lsn"`
	By                 string `json:"accepted_by"`
}

func (o *outbox) slotCommand(args ...string) (r slotResult) {
	o.t.Helper()
	got := harness.Run(o.t, o.config, append(append([]string{"slot"}, args...), "--json")...)
	if err := json.Unmarshal([]byte(got.Stdout), &r); got.Code != 0 || err != nil {
		o.t.Fatalf("slot %v: exit code %d, %v\n%s%s", args, got.Code, err, got.Stdout, got.Stderr)
	}
	return r
}

// shownStatus is what `tailer status --json` prints of slot and state.
type shownStatus struct {
	Slot  struct{ Problem string }
	State struct {
		Stored    bool
		Confirmed string `json:"confirmed_lsn"`
		InOrder   bool   `json:"stopped_in_order"`
		Accepted  bool   `json:"gap_accepted"`
		Problem   string
	}
}

func (o *outbox) shown() (s shownStatus) {
	o.t.Helper()
	got := harness.Run(o.t, o.config, "status", "--json")
	if err := json.Unmarshal([]byte(got.Stdout), &s); got.Code != 0 || err != nil {
		o.t.Fatalf("status: exit code %d, %v\n%s%s", got.Code, err, got.Stdout, got.Stderr)
	}
	return s
}

// ran has the relay run once, deliver an event and stop in order.
func (o *outbox) ran() {
	o.t.Helper()
	o.recovers(o.config, o.order())
}

// state is what is stored: the position, and whether the relay stopped in order.
func (o *outbox) state() (lsn string, inOrder bool) {
	o.t.Helper()
	return o.text("SELECT confirmed_lsn::text FROM tailer_state WHERE slot = 'tailer'"),
		o.text("SELECT (session IS NULL)::text FROM tailer_state WHERE slot = 'tailer'") == "true"
}

func (o *outbox) slotAt() string {
	o.t.Helper()
	return o.text("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'tailer'")
}

// wal writes so many bytes of WAL that are no events.
func (o *outbox) wal(bytes int) {
	o.t.Helper()
	begin := o.lsn("SELECT pg_current_wal_lsn()::text")
	for o.lsn("SELECT pg_current_wal_lsn()::text") < begin+pglogrepl.LSN(bytes) {
		o.text("SELECT pg_logical_emit_message(true, 'filler', repeat('x', 1 << 20))::text")
	}
}

func (o *outbox) lsn(sql string) pglogrepl.LSN {
	o.t.Helper()
	lsn, err := pglogrepl.ParseLSN(o.text(sql))
	if err != nil {
		o.t.Fatal(err)
	}
	return lsn
}

// timeline makes the server go on as a promoted standby does: on a new timeline
// that begins where its WAL ended. It needs restore_command.
func (o *outbox) timeline() {
	o.t.Helper()
	if err := o.pg.Stop("fast"); err != nil {
		o.t.Fatal(err)
	}
	o.signal("recovery.signal")
	if err := o.pg.StartAgain(); err != nil {
		o.t.Fatal(err)
	}
	o.again()
	harness.Eventually(o.t, soon, "the server is a primary again", func() bool { return o.text("SELECT pg_is_in_recovery()::text") == "false" })
}

// signal lays a file into the data folder by which the server starts otherwise.
func (o *outbox) signal(name string) {
	o.t.Helper()
	signal := filepath.Join(o.pg.DataDir(), name)
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		o.t.Fatal(err)
	}
	user, err := host.ServerUser()
	if err != nil {
		o.t.Fatal(err)
	}
	if user != nil {
		if err := os.Chown(signal, int(user.Uid), int(user.Gid)); err != nil {
			o.t.Fatal(err)
		}
	}
}

// promotable lets timeline find no WAL but the server's own.
var promotable = map[string]string{"restore_command": "false"}

const (
	mayBeMissing = "a person must decide: look for rows of that time in the outbox table and publish them again, or leave them; then "
	goOn         = mayBeMissing + "go on from where the slot stands: tailer slot accept-gap"
)

// soon bounds what takes a relay a moment.
const soon = 30 * time.Second
