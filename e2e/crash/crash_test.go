// Package crash_test kills the relay at each boundary of its pipeline, on the
// oldest and the newest PostgreSQL, or on the one that TAILER_PG names. It builds
// a relay of its own for that: see internal/crashpoint.
package crash_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/e2e/scenario"
)

func TestCrashPoints(t *testing.T) {
	binary, err := harness.Build("crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{"14", "18"}
	if version := os.Getenv("TAILER_PG"); version != "" {
		versions = []string{version}
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			scenario.CrashPoints(t, scenario.Env{Postgres: postgres.Options{Version: version}}, binary)
		})
	}
}

// The relay that people run has nothing of it: neither the variable that chooses
// a boundary, nor the names of the boundaries. The one built for the tests has
// both, else the search would say nothing.
func TestTheProductHasNoCrashPoints(t *testing.T) {
	binary, err := harness.Build("crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{harness.Binary(t): false, binary: true} {
		program, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"TAILER_CRASHPOINT", "produce.after"} {
			if bytes.Contains(program, []byte(text)) != want {
				t.Errorf("%s holds %q: %v", path, text, !want)
			}
		}
	}
}
