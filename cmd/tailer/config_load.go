package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"
)

// defaultConfigFile may be absent: then variables and flags are all there is.
const defaultConfigFile = "tailer.yaml"

// LoadConfig reads the file, variables and flags, in rising precedence over the
// defaults, and reports everything that is wrong at once. path "" is
// tailer.yaml where that exists. flags has the text of each flag that was
// given, by flag name.
func LoadConfig(path string, getenv func(string) (string, bool), flags map[string]string) (*Config, error) {
	return loadConfig(path, getenv, flags, forRelay)
}

// scope says which keys must be there.
type scope int

const (
	forRelay    scope = iota // everything that run needs
	forDatabase              // init and status: nothing of Kafka or schemas need be given
	forPrinting              // init without --apply: no database is asked
	forHTTP                  // health: only asks the relay beside it
)

// loader collects values, where each came from, and what is wrong with them.
type loader struct {
	cfg      *Config
	file     string
	noFile   bool
	getenv   func(string) (string, bool)
	origins  map[string]origin // by key path, and by path.name inside mappings
	problems []problem
}

// origin is where a value was written.
type origin struct {
	line int    // in the file; 0 elsewhere
	text string // "tailer.yaml:12", "--outbox-preset", "TAILER_OUTBOX_PRESET"
}

type problem struct {
	origin
	what string
}

// ConfigError is everything wrong with a configuration, one line each.
type ConfigError struct {
	Problems []string
	NoFile   bool // no file was named, and the default one is not there
}

func (e *ConfigError) Error() string { return strings.Join(e.Problems, "\n") }

func loadConfig(path string, getenv func(string) (string, bool), flags map[string]string, s scope) (*Config, error) {
	l := &loader{cfg: &Config{}, file: path, getenv: getenv, origins: map[string]origin{}}
	if path == "" {
		l.file = defaultConfigFile
	}
	for i := range configKeys {
		k := &configKeys[i]
		if k.def != "" {
			if err := setText(k, k.field(l.cfg), k.def); err != nil {
				return nil, fmt.Errorf("default of %s: %w", k.path, err)
			}
		}
	}
	data, err := os.ReadFile(l.file)
	switch {
	case err == nil:
		if !l.readFile(data) {
			return l.result() // nothing behind a syntax error means anything
		}
	case path == "" && errors.Is(err, fs.ErrNotExist):
		l.file, l.noFile = "configuration", true
	default:
		return nil, &ConfigError{Problems: []string{err.Error()}}
	}
	for i := range configKeys {
		k := &configKeys[i]
		if text, ok := getenv(k.env()); ok {
			l.text(k, text, k.env())
		}
		if text, ok := flags[k.flag()]; ok && !k.secret {
			l.text(k, text, "--"+k.flag())
		}
	}
	l.resolve()
	l.check(s)
	return l.result()
}

// text sets a key from a variable or flag, over what the file said.
func (l *loader) text(k *key, text, from string) {
	for p := range l.origins { // entries of a mapping that is replaced whole
		if strings.HasPrefix(p, k.path+".") {
			delete(l.origins, p)
		}
	}
	l.origins[k.path] = origin{text: from}
	if err := setText(k, k.field(l.cfg), text); err != nil {
		l.problem(k.path, "%s", err)
		return
	}
	l.refuse(k)
}

func (l *loader) refuse(k *key) {
	if k.refuse == nil {
		return
	}
	if why := k.refuse(l.cfg); why != "" {
		what := k.path
		if v, ok := k.field(l.cfg).(*string); ok && len(k.allowed) > 0 {
			what += ": " + *v
		}
		l.problem(k.path, "%s is not available: %s", what, why)
	}
}

func (l *loader) given(path string) bool {
	_, ok := l.origins[path]
	return ok
}

// problem files what is wrong under the place where the value of path, or the
// mapping around it, was written.
func (l *loader) problem(path, format string, args ...any) {
	at := origin{text: l.file}
	for p := path; p != ""; {
		if o, ok := l.origins[p]; ok {
			at = o
			break
		}
		i := strings.LastIndexByte(p, '.')
		p = p[:max(i, 0)]
	}
	l.problems = append(l.problems, problem{at, fmt.Sprintf(format, args...)})
}

func (l *loader) problemAt(line int, format string, args ...any) {
	l.problems = append(l.problems, problem{l.at(line), fmt.Sprintf(format, args...)})
}

func (l *loader) at(line int) origin {
	return origin{line: line, text: fmt.Sprintf("%s:%d", l.file, line)}
}

// result puts the file's problems in the file's order, the others behind.
func (l *loader) result() (*Config, error) {
	if len(l.problems) == 0 {
		return l.cfg, nil
	}
	sort.SliceStable(l.problems, func(i, j int) bool {
		a, b := l.problems[i].line, l.problems[j].line
		return a != 0 && (b == 0 || a < b)
	})
	e := &ConfigError{NoFile: l.noFile}
	for _, p := range l.problems {
		e.Problems = append(e.Problems, p.text+": "+p.what)
	}
	return nil, e
}
