package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tailer-relay/tailer/replication"
)

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"rum", "tailer: unknown command rum, the nearest is run\nhint: tailer --help\n"},
		{"--config x run", "tailer: --config belongs behind a command\nhint: tailer run --config FILE\n"},
		{"--log-level=debug run", "tailer: --log-level belongs behind a command\nhint: tailer run --log-level …\n"},
		{"run now", "tailer: run takes no arguments, not \"now\"\nhint: tailer run --help\n"},
		{"run --postgres-slt x", "tailer: unknown flag --postgres-slt, the nearest is --postgres-slot\nhint: tailer run --help\n"},
		{"run --config", "tailer: flag needs an argument: --config\nhint: tailer run --help\n"},
		{"run --postgres-password=hunter2", "tailer: a secret is not a flag: --postgres-password\nhint: set TAILER_POSTGRES_PASSWORD, or --postgres-password-file to a file that holds it\n"},
		{"run --checkpoint-topic x --postgres-dsn host=db --kafka-brokers k:1 --schema-mode off", "tailer: --checkpoint-topic: checkpoint.topic is not available: this version keeps its position in the slot alone\nhint: there is no tailer.yaml here: name a file with --config; docs/configuration.md has every key, `tailer run --help` every flag\n"},
		{"init --role= --config /dev/null", "tailer: --role: a name is empty\n"},
		{"completion tcsh", "tailer: completion wants one of bash, fish, zsh\nhint: tailer completion bash\n"},
		{"status --config nowhere.yaml", "tailer: open nowhere.yaml: no such file or directory\nhint: docs/configuration.md has every key, `tailer status --help` every flag\n"},
		{"health --http-listen=", "tailer: http.listen is off, so the relay cannot be asked\nhint: set http.listen, or --http-listen HOST:PORT\n"},
		{"health --http-listen :0", "tailer: http.listen :0 takes a free port, so the relay cannot be asked\nhint: set http.listen to a fixed port, or give the one that the relay logged with --http-listen\n"},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Chdir(t.TempDir())
			code, stdout, stderr := tailer(t.Context(), variables(), strings.Fields(c.line)...)
			if code != exitUsage || stdout != "" || stderr != c.want {
				t.Errorf("exit %d, stdout %q, stderr\n%s\nwant\n%s", code, stdout, stderr, c.want)
			}
		})
	}
}

func TestHelpHasAnExampleForEachCommand(t *testing.T) {
	code, stdout, _ := tailer(t.Context(), variables(), "--help")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, command := range newApp(nil, nil, nil).Commands {
		if command.Name == "help" {
			continue
		}
		if !strings.Contains(stdout, "   "+command.Name+" ") {
			t.Errorf("--help does not show %s", command.Name)
		}
		code, stdout, stderr := tailer(t.Context(), variables(), command.Name, "--help")
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Example:") || !strings.Contains(stdout, "tailer "+command.Name) {
			t.Errorf("%s --help: exit %d, %s%s", command.Name, code, stdout, stderr)
		}
	}
	// Small commands take each key, and do not list them all.
	for _, command := range []string{"health", "status", "slot drop"} {
		_, stdout, _ := tailer(t.Context(), variables(), append(strings.Fields(command), "--help")...)
		if strings.Contains(stdout, "--kafka-brokers") || !strings.Contains(stdout, "tailer run --help") {
			t.Errorf("%s --help:\n%s", command, stdout)
		}
	}
	if code, stdout, _ := tailer(t.Context(), variables()); code != 0 || !strings.Contains(stdout, "COMMANDS:") {
		t.Errorf("tailer alone: exit %d, %s", code, stdout)
	}
}

func TestVersion(t *testing.T) {
	code, stdout, _ := tailer(t.Context(), variables(), "version", "--json")
	var v buildInfo
	if err := json.Unmarshal([]byte(stdout), &v); code != 0 || err != nil || v.Version == "" || !strings.HasPrefix(v.Go, "go1.") {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}
	code, stdout, _ = tailer(t.Context(), variables(), "version")
	if code != 0 || !strings.HasPrefix(stdout, "tailer "+v.Version+"\n") {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

func TestCompletion(t *testing.T) {
	for shell := range completions {
		if code, stdout, _ := tailer(t.Context(), variables(), "completion", shell); code != 0 || !strings.Contains(stdout, "--generate-bash-completion") {
			t.Errorf("%s: exit %d: %s", shell, code, stdout)
		}
	}
	// The library looks at the process's own arguments.
	for line, want := range map[string]string{"": "status", "run --log": "--log-level"} {
		out, err := tailerProcess(nil, append(strings.Fields(line), "--generate-bash-completion")...).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v: no %s in %s", line, err, want, out)
		}
	}
}

func TestDatabaseErrors(t *testing.T) {
	for _, c := range []struct {
		err        error
		code       int
		text, hint string
	}{
		{&replication.Error{Op: "check", Object: `slot "s"`, Class: replication.Gap, Hint: "h", Err: errors.New("it is lost")}, exitGap, `check slot "s": it is lost`, "h"},
		{&replication.Error{Op: "parse", Class: replication.Usage, Err: errors.New("x")}, exitUsage, "parse: x", ""},
		{fmt.Errorf("look: %w", &pgconn.PgError{Code: "57P03", Message: "starting up"}), exitRetry, "look: : starting up (SQLSTATE 57P03)", ""},
		{fmt.Errorf("look: %w", context.Canceled), exitRetry, "interrupted: look: context canceled", ""},
		{&exitError{code: exitGap, err: errors.New("known")}, exitGap, "known", ""},
	} {
		var e *exitError
		if err := databaseError(c.err); !errors.As(err, &e) || e.code != c.code || e.Error() != c.text || (c.hint != "" && e.hint != c.hint) {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
	if databaseError(nil) != nil {
		t.Error("an error out of none")
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, ""},
		{errors.New("plain\n  words"), 1, "tailer: plain words\n"},
		{&exitError{code: 3, err: errors.New("slot tailer is missing"), hint: "tailer init --apply"}, 3, "tailer: slot tailer is missing\nhint: tailer init --apply\n"},
		{fmt.Errorf("run: %w", &exitError{code: 2, err: errors.New("x")}), 2, "tailer: run: x\n"},
		{&exitError{code: 2, err: &ConfigError{Problems: []string{"a:1: x", "a:2: y"}}, hint: "h"}, 2, "tailer: a:1: x\ntailer: a:2: y\nhint: h\n"},
	} {
		var b strings.Builder
		if code := report(&b, c.err); code != c.code || b.String() != c.want {
			t.Errorf("%v: exit %d, %q", c.err, code, b.String())
		}
	}
}
