package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// wants says what a key's value must be.
func wants(k *key) string {
	if len(k.allowed) > 0 {
		return "one of " + strings.Join(k.allowed, ", ")
	}
	switch k.field(&Config{}).(type) {
	case *bool:
		return "true or false"
	case *int:
		return "a whole number"
	case *ByteSize:
		return "a size such as 8MiB"
	case *time.Duration:
		return "a duration such as 8s"
	case *[]string, *[]Rule:
		return "a list"
	case *Pairs, *map[string]TypeConfig:
		return "a mapping"
	}
	return "a text"
}

// tagFits holds a value that was written in YAML to its type: "no" is not
// false, and a number where a text belongs is quoted.
func tagFits(field any, n *yaml.Node) bool {
	switch field.(type) {
	case *bool:
		return n.Tag == "!!bool"
	case *int:
		return n.Tag == "!!int"
	case *ByteSize:
		return n.Tag == "!!int" || n.Tag == "!!str"
	}
	return n.Tag == "!!str"
}

// setText parses the text of a variable, a flag, a default or a substituted
// value into a field. Its errors name the key and never repeat a secret.
func setText(k *key, field any, text string) error {
	wrong := func() error { return fmt.Errorf("%s wants %s, not %q", k.path, wants(k), text) }
	switch f := field.(type) {
	case *string:
		if len(k.allowed) > 0 && !slices.Contains(k.allowed, text) {
			return wrong()
		}
		*f = text
	case *Secret:
		*f = Secret(text)
	case *bool:
		switch text {
		case "true":
			*f = true
		case "false":
			*f = false
		default:
			return wrong()
		}
	case *int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return wrong()
		}
		*f = int(n)
	case *ByteSize:
		n, ok := parseSize(text)
		if !ok {
			return wrong()
		}
		*f = n
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return wrong()
		}
		*f = d
	case *[]string:
		*f = splitList(text)
	case *Pairs:
		if strings.HasPrefix(strings.TrimSpace(text), "{") {
			return setFlow(k, field, text)
		}
		var out Pairs
		for _, e := range splitList(text) {
			name, value, ok := strings.Cut(e, "=")
			name = strings.TrimSpace(name)
			if !ok || name == "" {
				return fmt.Errorf("%s wants name=value,name=value, not %q", k.path, text)
			}
			if slices.ContainsFunc(out, func(p Pair) bool { return p.Name == name }) {
				return fmt.Errorf("%s has %s twice", k.path, name)
			}
			out = append(out, Pair{name, strings.TrimSpace(value)})
		}
		*f = out
	case *map[string]TypeConfig:
		return setFlow(k, field, text)
	case *[]Rule:
		*f = []Rule{{When: text}} // refused whole
	default:
		panic(fmt.Sprintf("key %s has a field of type %T", k.path, field))
	}
	return nil
}

// setFlow reads a mapping that a variable or flag gives as YAML in braces.
func setFlow(k *key, field any, text string) error {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil || len(n.Content) != 1 || n.Content[0].Kind != yaml.MappingNode {
		return fmt.Errorf("%s wants a mapping in braces, as YAML, not %q", k.path, text)
	}
	// A loader of its own: no substitution outside the file, and no line numbers.
	l := &loader{cfg: &Config{}, origins: map[string]origin{}, getenv: func(string) (string, bool) { return "", false }}
	switch f := field.(type) {
	case *Pairs:
		*f = l.pairs(k, n.Content[0])
	case *map[string]TypeConfig:
		*f = l.types(k, n.Content[0])
	}
	if len(l.problems) > 0 {
		return fmt.Errorf("%s", l.problems[0].what)
	}
	return nil
}

func splitList(text string) []string {
	out := []string{}
	for _, e := range strings.Split(text, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

var sizeUnits = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}}

func parseSize(text string) (ByteSize, bool) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.factor {
			return 0, false
		}
		return ByteSize(n * u.factor), true
	}
	return 0, false
}
