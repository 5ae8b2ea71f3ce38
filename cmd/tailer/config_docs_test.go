package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The two files that tell people about the keys are written from the table:
//
//	go test ./cmd/tailer -run TestConfigurationDocs -update
var update = flag.Bool("update", false, "write docs/configuration.md and tailer.example.yaml anew")

func TestConfigurationDocs(t *testing.T) {
	for file, text := range map[string]string{
		"../../docs/configuration.md": configurationDocs(),
		"../../tailer.example.yaml":   exampleFile(t),
	} {
		if *update {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != text {
			t.Errorf("%s does not follow the table of keys: go test ./cmd/tailer -run TestConfigurationDocs -update", file)
		}
	}
}

const docsHead = `# Configuration

<!-- Written by go test ./cmd/tailer -run TestConfigurationDocs -update from the table in cmd/tailer/config_keys.go. -->

One YAML file, ` + "`tailer.yaml`" + ` or the one that ` + "`--config`" + ` (or ` + "`TAILER_CONFIG`" + `) names. ` + "`tailer.example.yaml`" + ` has every key.

- A flag wins over a variable, that over the file, that over the default. Each replaces the whole value, also of a list or mapping.
- In variables and flags a list is ` + "`a,b`" + `, a mapping ` + "`a=b,c=d`" + ` or YAML in braces: ` + "`{a: b}`" + `.
- An unknown key, a wrong type and an undefined variable are errors. All of them are reported at once, each with its line.
- ` + "`${VAR}`" + ` in a value of the file is replaced after the file is parsed; ` + "`$$`" + ` is a dollar.
- Secrets are neither keys nor flags: they have a variable, or a file whose name is a key. The file is read again at every new connection; one line end at its end does not count.
- Durations are written ` + "`8s`" + `, ` + "`1m30s`" + `; sizes ` + "`8MiB`" + ` (KiB, MiB, GiB) or in bytes.
- Names of tables and columns stand as in the catalogue, without case folding. A part that has a dot or a quote is double-quoted: ` + "`'\"my.schema\".Outbox'`" + `.

A key marked *not yet* is refused, with the reason: its feature does not exist in this version.
`

func configurationDocs() string {
	var b strings.Builder
	b.WriteString(docsHead)
	top := ""
	for i := range configKeys {
		k := &configKeys[i]
		if first, _, _ := strings.Cut(k.path, "."); first != top {
			top = first
			fmt.Fprintf(&b, "\n## %s\n\n| key | flag, variable | default | |\n|---|---|---|---|\n", top)
		}
		name := "`" + k.path + "`"
		flag := "`--" + k.flag() + "`<br>`" + k.env() + "`"
		if k.secret {
			name, flag = "(secret)", "`"+k.env()+"`"
		}
		doc := k.doc
		if len(k.allowed) > 0 {
			doc += " One of `" + strings.Join(k.allowed, "`, `") + "`."
		}
		if k.refusedWhole() {
			doc += " *Not yet.*"
		} else if k.refuse != nil {
			doc += " *Not yet: " + notYetValues(k) + ".*"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, flag, defaultCell(k), doc)
	}
	return b.String()
}

func defaultCell(k *key) string {
	switch {
	case k.def != "":
		return "`" + k.def + "`"
	case k.derived != "" && strings.Contains(k.derived, " "):
		return k.derived
	case k.derived != "":
		return "`" + k.derived + "`"
	}
	return ""
}

// notYetValues finds the values that the table refuses.
func notYetValues(k *key) string {
	values := k.allowed
	if len(values) == 0 {
		values = []string{"false", "true"}
	}
	var refused []string
	for _, v := range values {
		var c Config
		if err := setText(k, k.field(&c), v); err == nil && k.refuse(&c) != "" {
			refused = append(refused, "`"+v+"`")
		}
	}
	return strings.Join(refused, ", ")
}

const exampleHead = `# tailer.example.yaml: every key of tailer.
#
# A key that is commented out shows its default or, where it has none, a sample.
# docs/configuration.md says more. Secrets are not in here: set a variable such
# as TAILER_POSTGRES_PASSWORD, or name a file with password_file.
#
# Written by go test ./cmd/tailer -run TestConfigurationDocs -update.
`

// needed are the keys that are not commented out in the example.
var needed = map[string]bool{"postgres.dsn": true, "kafka.brokers": true, "schema.dir": true}

func exampleFile(t *testing.T) string {
	var b strings.Builder
	b.WriteString(exampleHead)
	var open []string // sections that are open
	for i := range configKeys {
		k := &configKeys[i]
		if k.secret {
			continue
		}
		sections := strings.Split(k.section(), ".")
		for depth, s := range sections {
			if depth < len(open) && open[depth] == s {
				continue
			}
			open = append(open[:depth], s)
			if depth == 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), s)
		}
		open = open[:len(sections)]
		indent := strings.Repeat("  ", len(sections))
		doc := k.doc
		if len(k.allowed) > 0 {
			doc += " One of " + strings.Join(k.allowed, ", ") + "."
		}
		if k.refusedWhole() {
			doc += " Not yet."
		} else if k.refuse != nil {
			doc += " Not yet: " + notYetValues(k) + "."
		}
		for _, line := range wrapped(strings.ReplaceAll(doc, "`", ""), 96-len(indent)) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		mark := "#"
		if needed[k.path] {
			mark = ""
		}
		fmt.Fprintf(&b, "%s%s%s: %s\n", indent, mark, k.name(), sampleYAML(t, k))
	}
	return b.String()
}

// sampleYAML is a value of the key as the file has it.
func sampleYAML(t *testing.T, k *key) string {
	text := k.example
	if text == "" {
		text = k.def
	}
	if text == "" {
		text = k.derived
	}
	if _, ok := k.field(&Config{}).(*string); !ok {
		if _, ok := k.field(&Config{}).(*Secret); !ok {
			return text
		}
	}
	out, err := yaml.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// The example is a configuration: as it is, and with every key that exists.
func TestExampleIsAConfiguration(t *testing.T) {
	text := exampleFile(t)
	inDir(t, text)
	if _, err := LoadConfig("", variables(), nil); err != nil {
		t.Errorf("as it is: %v", err)
	}
	all := regexp.MustCompile(`(?m)^( +)#([a-z_]+: )`).ReplaceAllString(text, "$1$2")
	if strings.Count(all, "\n") != strings.Count(text, "\n") || all == text {
		t.Fatal("nothing was uncommented")
	}
	inDir(t, all)
	_, err := LoadConfig("", variables(), nil)
	if err == nil {
		t.Fatal("the keys that are not available are accepted")
	}
	refused := 0
	for i := range configKeys {
		if configKeys[i].refusedWhole() {
			refused++
		}
	}
	if problems := err.(*ConfigError).Problems; len(problems) != refused {
		t.Errorf("with every key: %d problems, want %d for what is not available:\n%v", len(problems), refused, err)
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	for i := range configKeys {
		k := &configKeys[i]
		if !strings.HasSuffix(k.doc, ".") {
			t.Errorf("%s: %q", k.path, k.doc)
		}
		if k.def == "" && k.derived == "" && k.example == "" && !k.secret {
			t.Errorf("%s has neither a default nor a sample", k.path)
		}
		if k.def != "" && k.refuse != nil {
			var c Config
			if err := setText(k, k.field(&c), k.def); err != nil || k.refuse(&c) != "" {
				t.Errorf("%s refuses its default", k.path)
			}
		}
	}
}
