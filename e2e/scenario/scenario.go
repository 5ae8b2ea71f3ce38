// Package scenario holds the cases that run in more than one place: on one
// Postgres and kfake with every run of the tests, on all versions of Postgres,
// on a real Kafka. Each is a function that a thin Test function calls.
//
// Rules. A scenario starts all it needs and leaves nothing behind; it ends on
// conditions, never after a time; whatever else it looks at, it ends with what
// was committed against what a plain consumer read.
package scenario

import (
	"testing"

	"github.com/tailer-relay/tailer/e2e/postgres"
)

// Env is where a scenario runs. The zero value is the default Postgres and kfake.
type Env struct {
	Postgres postgres.Options
	// Brokers starts a Kafka and returns its addresses; nil: kfake. Scenarios
	// that make the broker fail by kfake's means use kfake whatever it says.
	Brokers func(t testing.TB) []string
}

// postgres starts the server, with settings over those of the environment.
func (e Env) postgres(t testing.TB, settings map[string]string) *postgres.Server {
	t.Helper()
	opt := e.Postgres
	merged := map[string]string{}
	for name, value := range opt.Settings {
		merged[name] = value
	}
	for name, value := range settings {
		merged[name] = value
	}
	opt.Settings = merged
	return postgres.New(t, opt)
}
