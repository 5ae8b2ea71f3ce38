package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readFile walks the file's nodes against the table of keys. Nodes, not
// structs: each value keeps its line, and each error its place. It returns false
// when the file is no YAML.
func (l *loader) readFile(data []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return true // an empty file sets nothing
		}
		l.syntax(err)
		return false
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		l.problemAt(second.Line, "a second document: one file holds one configuration")
	} else if !errors.Is(err, io.EOF) {
		l.syntax(err)
		return false
	}
	l.section("", doc.Content[0])
	return true
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

func (l *loader) syntax(err error) {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		l.problemAt(line, "not YAML: %s", m[2])
		return
	}
	l.problemAt(1, "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
}

// section reads a mapping of the table; prefix is "" or "kafka.tls.".
func (l *loader) section(prefix string, n *yaml.Node) {
	n = resolveAlias(n)
	if isNull(n) {
		return // all keys commented out
	}
	if n.Kind != yaml.MappingNode {
		what := strings.TrimSuffix(prefix, ".")
		if what == "" {
			what = "the file"
		}
		l.problemAt(n.Line, "%s wants a mapping of keys, not %s", what, describe(n))
		return
	}
	for name, pair := range l.entries(prefix, n) {
		path := prefix + name
		if k := keyAt(path); k != nil {
			l.node(k, pair)
		} else if hasSection(path) {
			l.section(path+".", pair.value)
		} else {
			l.unknown(path, pair.line)
		}
	}
}

type yamlPair struct {
	line  int
	value *yaml.Node
}

// entries yields a mapping's entries in order; a key that is not text or comes
// twice is a problem, filed here.
func (l *loader) entries(prefix string, n *yaml.Node) func(func(string, yamlPair) bool) {
	return func(yield func(string, yamlPair) bool) {
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			kn := resolveAlias(n.Content[i])
			if kn.Kind != yaml.ScalarNode || kn.Tag == "!!merge" {
				l.problemAt(n.Content[i].Line, "%s: a key must be a plain name", strings.TrimSuffix(prefix, "."))
				continue
			}
			if first, ok := seen[kn.Value]; ok {
				l.problemAt(kn.Line, "%s%s stands here again, first in line %d", prefix, kn.Value, first)
				continue
			}
			seen[kn.Value] = kn.Line
			if !yield(kn.Value, yamlPair{n.Content[i].Line, n.Content[i+1]}) {
				return
			}
		}
	}
}

func (l *loader) unknown(path string, line int) {
	for i := range configKeys {
		if k := &configKeys[i]; k.secret && k.path == path {
			l.problemAt(line, "%s is not read from the file: set %s, or %s_file to a file that holds it", path, k.env(), k.path)
			return
		}
	}
	l.problemAt(line, "unknown key %s, the nearest is %s", path, nearestKey(path))
}

// node sets one key from its YAML value.
func (l *loader) node(k *key, pair yamlPair) {
	l.origins[k.path] = l.at(pair.line)
	before := len(l.problems)
	n := resolveAlias(pair.value)
	switch field := k.field(l.cfg).(type) {
	case *[]string:
		*field = l.list(k, n)
	case *Pairs:
		*field = l.pairs(k, n)
	case *map[string]TypeConfig:
		*field = l.types(k, n)
	case *[]Rule:
		// Refused whole below, so its inside is not looked at.
	default:
		l.scalar(k, n)
	}
	if len(l.problems) == before {
		l.refuse(k)
	}
}

// scalar checks the YAML type, substitutes, and parses. After a substitution
// the text decides, as it would in a variable.
func (l *loader) scalar(k *key, n *yaml.Node) {
	text, substituted, ok := l.substitute(k.path, n)
	if !ok {
		return
	}
	field := k.field(l.cfg)
	if n.Kind != yaml.ScalarNode || (!substituted && !tagFits(field, n)) {
		l.problemAt(n.Line, "%s wants %s, not %s", k.path, wants(k), l.shown(k, n))
		return
	}
	if err := setText(k, field, text); err != nil {
		if substituted {
			l.problemAt(n.Line, "%s wants %s, and %s is not", k.path, wants(k), n.Value)
			return
		}
		l.problemAt(n.Line, "%s", err)
	}
}

// shown never repeats what may be a secret.
func (l *loader) shown(k *key, n *yaml.Node) string {
	if _, ok := k.field(l.cfg).(*Secret); ok && n.Kind == yaml.ScalarNode && !isNull(n) {
		return "a number or the like: quote it"
	}
	return describe(n)
}

func (l *loader) list(k *key, n *yaml.Node) []string {
	if n.Kind != yaml.SequenceNode {
		l.problemAt(n.Line, "%s wants %s, not %s", k.path, wants(k), describe(n))
		return nil
	}
	out := []string{}
	for _, e := range n.Content {
		e = resolveAlias(e)
		if text, ok := l.textNode(k.path, e, false); ok {
			out = append(out, text)
		}
	}
	return out
}

func (l *loader) pairs(k *key, n *yaml.Node) Pairs {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		l.problemAt(n.Line, "%s wants %s, not %s", k.path, wants(k), describe(n))
		return nil
	}
	var out Pairs
	for name, p := range l.entries(k.path+".", n) {
		path := k.path + "." + name
		l.origins[path] = l.at(p.line)
		if text, ok := l.textNode(path, resolveAlias(p.value), k.numbers); ok {
			out = append(out, Pair{name, text})
		}
	}
	return out
}

var typeFields = []string{"file", "subject", "topic"}

func (l *loader) types(k *key, n *yaml.Node) map[string]TypeConfig {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		l.problemAt(n.Line, "%s wants %s, not %s", k.path, wants(k), describe(n))
		return nil
	}
	out := map[string]TypeConfig{}
	for name, p := range l.entries(k.path+".", n) {
		path := k.path + "." + name
		l.origins[path] = l.at(p.line)
		v := resolveAlias(p.value)
		if v.Kind != yaml.MappingNode {
			l.problemAt(v.Line, "%s wants a mapping with file, subject or topic, not %s", path, describe(v))
			continue
		}
		var t TypeConfig
		for field, fp := range l.entries(path+".", v) {
			l.origins[path+"."+field] = l.at(fp.line)
			text, ok := "", false
			switch field {
			case "file", "subject", "topic":
				text, ok = l.textNode(path+"."+field, resolveAlias(fp.value), false)
			default:
				l.problemAt(fp.line, "unknown key %s.%s, the nearest is %s.%s", path, field, path, nearest(field, typeFields))
			}
			if !ok {
				continue
			}
			switch field {
			case "file":
				t.File = text
			case "subject":
				t.Subject = text
			case "topic":
				t.Topic = text
			}
		}
		out[name] = t
	}
	return out
}

// textNode reads a text inside a list or mapping.
func (l *loader) textNode(path string, n *yaml.Node, numbers bool) (string, bool) {
	text, substituted, ok := l.substitute(path, n)
	if !ok {
		return "", false
	}
	fits := n.Kind == yaml.ScalarNode && (substituted || n.Tag == "!!str" ||
		numbers && (n.Tag == "!!int" || n.Tag == "!!float" || n.Tag == "!!bool"))
	if !fits {
		l.problemAt(n.Line, "%s wants a text, not %s", path, describe(n))
		return "", false
	}
	return text, true
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// substitute replaces ${VAR} and $$ in a text. It works on parsed values, so
// what a variable holds is never read as YAML.
func (l *loader) substitute(path string, n *yaml.Node) (text string, substituted, ok bool) {
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "$") {
		return n.Value, false, true
	}
	var out strings.Builder
	ok = true
	rest := n.Value
	for {
		i := strings.IndexByte(rest, '$')
		if i < 0 {
			out.WriteString(rest)
			return out.String(), substituted, ok
		}
		out.WriteString(rest[:i])
		rest = rest[i:]
		switch {
		case strings.HasPrefix(rest, "$$"):
			out.WriteByte('$')
			rest = rest[2:]
		case strings.HasPrefix(rest, "${"):
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				l.problemAt(n.Line, "%s: ${ without }; a dollar is written $$", path)
				return "", true, false
			}
			name := rest[2:end]
			rest = rest[end+1:]
			substituted = true
			value, found := "", false
			if variableName.MatchString(name) {
				value, found = l.getenv(name)
			}
			if !found {
				l.problemAt(n.Line, "%s: variable ${%s} is not defined; a dollar is written $$", path, name)
				ok = false
			}
			out.WriteString(value)
		default:
			out.WriteByte('$')
			rest = rest[1:]
		}
	}
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// describe names a YAML value in an error.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!str":
		return fmt.Sprintf("the text %q", n.Value)
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return n.Value
	}
	return n.Tag + " " + n.Value
}
