package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// configFlags are --config and a flag for each key but the secrets: those would
// stand in the list of processes and in the shell's history.
func configFlags() []cli.Flag {
	flags := []cli.Flag{&cli.StringFlag{Name: "config", Aliases: []string{"c"},
		Usage: "configuration `FILE`, also TAILER_CONFIG", DefaultText: defaultConfigFile, TakesFile: true}}
	for i := range configKeys {
		k := &configKeys[i]
		if k.secret || k.refusedWhole() {
			continue
		}
		if _, ok := k.field(&Config{}).(*bool); ok {
			flags = append(flags, &cli.BoolFlag{Name: k.flag(), Usage: k.usage(), Category: category(k), DefaultText: k.defaultText()})
			continue
		}
		flags = append(flags, &cli.StringFlag{Name: k.flag(), Usage: k.usage(), Category: category(k), DefaultText: k.defaultText()})
	}
	return flags
}

// quietFlags are the same for a command that needs few of them: help shows
// --config alone, and where the others are told.
func quietFlags() []cli.Flag {
	flags := append(configFlags(), hiddenFlags()...)
	for _, f := range flags[1:] {
		switch f := f.(type) {
		case *cli.BoolFlag:
			f.Hidden = true
		case *cli.StringFlag:
			f.Hidden = true
		}
	}
	return flags
}

// quietly ends the description of a command with quietFlags.
const quietly = "\n\nEach key of the configuration is a flag here too: `tailer run --help` lists them."

// refusedWhole: no value of the key is of use yet. Its flag exists, for the
// reason why not, but help does not show it.
func (k *key) refusedWhole() bool { return k.refuse != nil && k.refuse(&Config{}) != "" }

// hiddenFlags are the flags of keys that are refused whole.
func hiddenFlags() []cli.Flag {
	var flags []cli.Flag
	for i := range configKeys {
		if k := &configKeys[i]; k.refusedWhole() {
			flags = append(flags, &cli.StringFlag{Name: k.flag(), Hidden: true})
		}
	}
	return flags
}

// category heads a section's flags in help.
func category(k *key) string {
	top, _, _ := strings.Cut(k.path, ".")
	return top + " (keys of the file, variables TAILER_" + strings.ToUpper(top) + "_…)"
}

// usage is the documentation's first sentence, without Markdown.
func (k *key) usage() string {
	text, _, _ := strings.Cut(k.doc, ". ")
	text = strings.TrimSuffix(strings.ReplaceAll(text, "`", ""), ".")
	if len(k.allowed) > 0 {
		text += " [" + strings.Join(k.allowed, "|") + "]"
	}
	return text
}

func (k *key) defaultText() string {
	switch {
	case k.def != "":
		return k.def
	case k.derived != "":
		return k.derived
	}
	return "none"
}

// givenFlags returns the text of each key's flag that was given.
func givenFlags(c *cli.Context) map[string]string {
	given := map[string]string{}
	for i := range configKeys {
		name := configKeys[i].flag()
		if configKeys[i].secret || !c.IsSet(name) {
			continue
		}
		if _, ok := configKeys[i].field(&Config{}).(*bool); ok {
			given[name] = strconv.FormatBool(c.Bool(name))
			continue
		}
		given[name] = c.String(name)
	}
	return given
}

var undefinedFlag = regexp.MustCompile(`flag provided but not defined: -+(.*)`)

// flagError says what is wrong with a command line. command is "" before any
// command.
func flagError(err error, command string, flags []cli.Flag) error {
	m := undefinedFlag.FindStringSubmatch(err.Error())
	if m == nil {
		return usageError(helpFor(command), "%s", strings.ReplaceAll(err.Error(), ": -", ": --"))
	}
	name, _, _ := strings.Cut(m[1], "=")
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	for i := range configKeys {
		switch k := &configKeys[i]; {
		case k.flag() != name:
		case k.secret:
			return usageError(fmt.Sprintf("set %s, or --%s-file to a file that holds it", k.env(), k.flag()), "a secret is not a flag: --%s", name)
		case command == "":
			return usageError(fmt.Sprintf("tailer run --%s …", name), "--%s belongs behind a command", name)
		}
	}
	if command == "" && (name == "config" || name == "c") {
		return usageError("tailer run --config FILE", "--config belongs behind a command")
	}
	if command != "" && name != "" && slices.ContainsFunc(names, func(n string) bool { return len(n) > 1 }) {
		return usageError(helpFor(command), "unknown flag --%s, the nearest is --%s", name, nearest(name, names))
	}
	return usageError(helpFor(command), "unknown flag --%s", name)
}

func helpFor(command string) string {
	if command == "" {
		return "tailer --help"
	}
	return "tailer " + command + " --help"
}
