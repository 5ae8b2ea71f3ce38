package harness

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Config is a configuration file as nested maps.
type Config map[string]any

// With returns a copy in which the key of that path, "kafka.topics.create", has
// the value; nil removes it.
func (c Config) With(path string, value any) Config {
	clone := maps.Clone(c)
	if clone == nil {
		clone = Config{}
	}
	head, rest, nested := strings.Cut(path, ".")
	switch {
	case nested:
		var inner Config
		switch m := clone[head].(type) {
		case Config:
			inner = m
		case map[string]any:
			inner = m
		}
		clone[head] = inner.With(rest, value)
	case value == nil:
		delete(clone, head)
	default:
		clone[head] = value
	}
	return clone
}

// has reports whether a key of the first or second level is set.
func (c Config) has(section, key string) bool {
	switch m := c[section].(type) {
	case Config:
		_, ok := m[key]
		return ok
	case map[string]any:
		_, ok := m[key]
		return ok
	}
	return false
}

// YAML is the file's text.
func (c Config) YAML(t testing.TB) string {
	t.Helper()
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write puts the file into dir, for its owner's eyes only, as a file with a
// password should be.
func (c Config) write(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "tailer.yaml")
	if err := os.WriteFile(path, []byte(c.YAML(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
