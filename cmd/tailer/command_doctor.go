package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// diagnosis is what `doctor --json` prints; its field names are the interface.
type diagnosis struct {
	ExitCode int       `json:"exit_code"` // that of the command, and of `run` as things are
	Checks   []outcome `json:"checks"`
}

func (env *environment) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "check all that a relay needs, and say what to type",
		UsageText: "tailer doctor [--json] [--config FILE] [flags]\n\nExample:\n   tailer doctor --config tailer.yaml",
		Description: "Asks Postgres, Kafka and the schemas what `run` asks, all of it at once, and changes\n" +
			"nothing. Exits as `run` would: 0 it starts, 1 it would wait or retry, 2 usage or\n" +
			"configuration, 3 events may be missing and a person must decide.",
		Flags: append([]cli.Flag{jsonFlag()}, append(configFlags(), hiddenFlags()...)...),
		Action: func(c *cli.Context) error {
			cfg, log, err := env.load(c, forRelay)
			if err != nil {
				return err
			}
			found := examine(c.Context, cfg, log)
			code, failed := verdictOf(found)
			if c.Bool("json") {
				err = env.printJSON(diagnosis{code, found})
			} else {
				err = printOutcomes(env.stdout, found)
			}
			if err != nil || failed == 0 {
				return err
			}
			return &exitError{code: code, err: fmt.Errorf("%d of %d checks failed", failed, len(checks)), hint: "type what stands behind each, and run tailer doctor again"}
		},
	}
}

func printOutcomes(w io.Writer, found []outcome) error {
	for _, f := range found {
		if _, err := fmt.Fprintf(w, "%-4s  %-21s %s\n", f.Status, f.Check, strings.Join(strings.Fields(f.Says), " ")); err != nil {
			return err
		}
		if f.Type != "" {
			if _, err := fmt.Fprintf(w, "      %-21s > %s\n", "", f.Type); err != nil {
				return err
			}
		}
	}
	return nil
}
