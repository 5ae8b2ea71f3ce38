package main

import (
	"strings"
	"testing"
)

// Whatever a file holds, reading it ends, and every complaint has a place in it.
func FuzzConfigFile(f *testing.F) {
	for _, seed := range []string{
		minimal, "", "a", "- a", "a: &x [*x]", "a: &x\n  b: *x", "<<: {a: b}", "outbox: {columns: {id: a, id: b}}", "schema: {types: {t: {file: ${A}}}}",
		"? [a]\n: b", "log: !!binary aGk=", "postgres: {dsn: !!str 5}", "kafka: {brokers: [a, [b], {c: d}, ~]}", "delivery: {batch_bytes: 0x10}", "--- a\n--- b",
		"routing: {topic: '${A', default: '$', rules: {}}", "log:\n  level: *unknown", "%YAML 9.9\n---\n", "\xff\xfe", "a: \"\\0\"", "outbox: {table: '\"'}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := &loader{cfg: &Config{}, file: "f", getenv: variables("A", "v"), origins: map[string]origin{}}
		l.readFile([]byte(text))
		l.resolve()
		l.check(forRelay)
		_, err := l.result()
		if err == nil {
			return
		}
		for _, line := range err.(*ConfigError).Problems {
			if !strings.HasPrefix(line, "f:") {
				t.Errorf("no place in %q", line)
			}
		}
	})
}
