package main

import (
	"errors"
	"io"
	"log/slog"
	"strings"

	"github.com/urfave/cli/v2"
)

// environment is what commands take from the process.
type environment struct {
	stdout, stderr io.Writer
	getenv         func(string) (string, bool)
}

// newApp joins commands, flags and their errors.
func newApp(stdout, stderr io.Writer, getenv func(string) (string, bool)) *cli.App {
	env := &environment{stdout, stderr, getenv}
	app := &cli.App{
		Name:      "tailer",
		Usage:     "relay a Postgres outbox table to Kafka, from the WAL",
		UsageText: "tailer COMMAND [--config FILE] [flags]",
		Description: "Each key of the configuration file is a flag and a variable too; a flag wins over a\n" +
			"variable, that over the file. `tailer run --help` lists them.\n\n" +
			"Exit codes: 0 done or drained, 1 a retry may help, 2 usage or configuration,\n" +
			"3 events may be missing and a person must decide.",
		Version:              buildVersion().Version,
		Writer:               stdout,
		ErrWriter:            stderr,
		EnableBashCompletion: true,
		HideHelpCommand:      true,
		ExitErrHandler:       func(*cli.Context, error) {}, // only main exits
		OnUsageError:         func(c *cli.Context, err error, _ bool) error { return flagError(err, "", c.App.Flags) },
		Commands: []*cli.Command{
			env.runCommand(), env.initCommand(), env.doctorCommand(), env.statusCommand(), env.slotCommand(), env.healthCommand(),
			env.completionCommand(), env.versionCommand(),
		},
	}
	app.Action = func(c *cli.Context) error {
		name := c.Args().First()
		if name == "" || name == "help" {
			return cli.ShowAppHelp(c)
		}
		var names []string
		for _, command := range app.Commands {
			names = append(names, command.Name)
		}
		return usageError("tailer --help", "unknown command %s, the nearest is %s", name, nearest(name, names))
	}
	for _, command := range app.Commands {
		finish(command)
	}
	return app
}

// finish gives a command what all have in common.
func finish(command *cli.Command) {
	command.HideHelpCommand = true
	shown := command.Flags
	command.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return flagError(err, command.Name, shown) }
	action := command.Action
	command.Action = func(c *cli.Context) error {
		if c.Args().Present() && command.ArgsUsage == "" {
			return usageError(helpFor(command.Name), "%s takes no arguments, not %q", command.Name, strings.Join(c.Args().Slice(), " "))
		}
		return action(c)
	}
}

// load reads the configuration of a command that has configFlags.
func (env *environment) load(c *cli.Context, s scope) (*Config, *slog.Logger, error) {
	path := c.String("config")
	if path == "" {
		path, _ = env.getenv("TAILER_CONFIG")
	}
	cfg, err := loadConfig(path, env.getenv, givenFlags(c), s)
	if err != nil {
		hint := "docs/configuration.md has every key, `" + helpFor(c.Command.Name) + "` every flag"
		if e := (*ConfigError)(nil); errors.As(err, &e) && e.NoFile {
			hint = "there is no " + defaultConfigFile + " here: name a file with --config; " + hint
		}
		return nil, nil, &exitError{code: exitUsage, err: err, hint: hint}
	}
	return cfg, newLogger(env.stderr, cfg.Log), nil
}

func (env *environment) runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "relay until stopped",
		UsageText: "tailer run [--config FILE] [flags]\n\nExample:\n   tailer run --config tailer.yaml --log-level debug",
		Description: "Streams the outbox from the slot to Kafka until SIGTERM or Ctrl-C, then drains within\n" +
			"delivery.drain_timeout. A second signal stops at once.",
		Flags: append(configFlags(), hiddenFlags()...),
		Action: func(c *cli.Context) error {
			cfg, log, err := env.load(c, forRelay)
			if err != nil {
				return err
			}
			return runRelay(c.Context, cfg, log)
		},
	}
}
