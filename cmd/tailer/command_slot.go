package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/replication"
)

func (env *environment) slotCommand() *cli.Command {
	flags := func(own ...cli.Flag) []cli.Flag {
		own = append(own, jsonFlag())
		return append(own, quietFlags()...)
	}
	slot := &cli.Command{
		Name:      "slot",
		Usage:     "create or drop the slot, or accept that events are missing",
		UsageText: "tailer slot create|drop|accept-gap [--config FILE] [flags]\n\nExample:\n   tailer slot accept-gap --reason \"restored from backup\" && tailer slot create",
		Description: "A relay that finds that events may be missing exits with 3, names their positions, and\n" +
			"waits for a person. The way out is always accept-gap, which records who decided, when,\n" +
			"and from where to where; where the slot itself is gone, create makes a new one then.",
		Subcommands: []*cli.Command{
			{
				Name:      "create",
				Usage:     "create the slot, unless that would hide a gap",
				UsageText: "tailer slot create [--json] [--config FILE] [flags]\n\nExample:\n   tailer slot create --config tailer.yaml",
				Description: "A new slot begins at the end of the WAL. For a relay that ran, all that was written since\n" +
					"is not in it: create refuses until the gap is accepted. It waits for open transactions." + quietly,
				Flags: flags(),
				Action: func(c *cli.Context) error {
					return env.slotAction(c, createTheSlot)
				},
			},
			{
				Name:      "drop",
				Usage:     "drop the slot, so that Postgres no longer keeps WAL for it",
				UsageText: "tailer slot drop [--json] [--config FILE] [flags]\n\nExample:\n   tailer slot drop --config tailer.yaml",
				Description: "Refuses a slot that is in use, or that is not a relay's. What was not relayed is then only\n" +
					"in the table." + quietly,
				Flags: flags(),
				Action: func(c *cli.Context) error {
					return env.slotAction(c, dropSlot)
				},
			},
			{
				Name:      "accept-gap",
				Usage:     "record that events may be missing, and let the relay go on",
				UsageText: "tailer slot accept-gap [--by NAME] [--reason TEXT] [--json] [--config FILE] [flags]\n\nExample:\n   tailer slot accept-gap --by alice --reason \"slot was dropped in an incident\" --config tailer.yaml",
				Description: "Records in checkpoint.table's second table, the one with _gaps behind its name, who accepted\n" +
					"it, when, why, and the positions from and to. Where the slot is gone the end is that of the\n" +
					"slot made next. Without a gap nothing is recorded." + quietly,
				Flags: flags(
					&cli.StringFlag{Name: "by", Usage: "who decides, a `NAME`", DefaultText: "the operating system's user and host"},
					&cli.StringFlag{Name: "reason", Usage: "a `TEXT` to record", DefaultText: "what was found"},
				),
				Action: func(c *cli.Context) error {
					return env.slotAction(c, acceptGap)
				},
			},
		},
	}
	slot.Action = func(c *cli.Context) error {
		name := c.Args().First()
		if name == "" {
			return cli.ShowSubcommandHelp(c)
		}
		var names []string
		for _, command := range slot.Subcommands {
			names = append(names, command.Name)
		}
		return usageError(helpFor("slot"), "unknown command slot %s, the nearest is slot %s", name, nearest(name, names))
	}
	slot.ArgsUsage = " "
	for _, command := range slot.Subcommands {
		finish(command)
	}
	return slot
}

// slotResult is what the slot commands print with --json; its field names are
// the interface.
type slotResult struct {
	Slot         string `json:"slot"`
	Done         bool   `json:"done"` // false: nothing was to be done
	Says         string `json:"says"`
	ConfirmedLSN string `json:"confirmed_flush_lsn,omitempty"`
	From         string `json:"from_lsn,omitempty"`
	To           string `json:"to_lsn,omitempty"` // absent: known at the relay's next start
	Reason       string `json:"reason,omitempty"`
	By           string `json:"accepted_by,omitempty"`
}

// slotJob is one run of a slot command.
type slotJob struct {
	env    *environment
	c      *cli.Context
	cfg    *Config
	law    *gapLaw
	conn   *pgx.Conn
	slot   replication.SlotState
	fit    error // what is wrong with the slot
	result slotResult
}

func (env *environment) slotAction(c *cli.Context, do func(context.Context, *slotJob) error) error {
	cfg, log, err := env.load(c, forDatabase)
	if err != nil {
		return err
	}
	ctx := c.Context
	conn, err := replication.Connect(ctx, streamConfig(cfg))
	if err != nil {
		return databaseError(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	job := &slotJob{env: env, c: c, cfg: cfg, law: newGapLaw(cfg, log), conn: conn, result: slotResult{Slot: cfg.Postgres.Slot}}
	if err := job.look(ctx); err != nil {
		return databaseError(err)
	}
	if err := do(ctx, job); err != nil {
		return databaseError(err)
	}
	if c.Bool("json") {
		return env.printJSON(job.result)
	}
	_, err = fmt.Fprintf(env.stdout, "slot %s: %s\n", job.result.Slot, job.result.Says)
	return err
}

// look reads the slot.
func (j *slotJob) look(ctx context.Context) (err error) {
	if j.slot, err = replication.InspectSlot(ctx, j.conn, j.cfg.Postgres.Slot); err != nil {
		return err
	}
	var database string
	if err := j.conn.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return err
	}
	j.fit = j.slot.Check(j.cfg.Postgres.Slot, database)
	return nil
}

// ours refuses a slot that is not a relay's; one that is missing or lost may be.
func (j *slotJob) ours() error {
	if j.fit != nil && replication.Classify(j.fit) == replication.Usage {
		return j.fit
	}
	return nil
}

func createTheSlot(ctx context.Context, j *slotJob) error {
	if j.slot.Exists {
		if j.fit != nil {
			return j.fit
		}
		j.result.Says, j.result.ConfirmedLSN = "exists, nothing to do", j.slot.ConfirmedFlush.String()
		return nil
	}
	if err := j.law.mayCreate(ctx, j.conn); err != nil {
		return err
	}
	publication, err := replication.InspectPublication(ctx, j.conn, j.cfg.Postgres.Publication, j.law.stream.Table)
	if err != nil {
		return err
	}
	if !publication.Exists {
		return usageError("tailer init --apply creates both, in the right order", "publication %q does not exist, and a slot that is older cannot be read through it", j.cfg.Postgres.Publication)
	}
	steps := initSteps(j.cfg, "")
	step := steps[slices.IndexFunc(steps, func(s step) bool { return s.slot })]
	if err := createSlot(ctx, j.conn, j.cfg, step.sql, j.law.log); err != nil && !madeMeanwhile(err) {
		return createError(step, err)
	}
	if err := j.look(ctx); err != nil {
		return err
	}
	j.result.Done, j.result.ConfirmedLSN = true, j.slot.ConfirmedFlush.String()
	j.result.Says = "created at " + j.result.ConfirmedLSN
	return nil
}

func dropSlot(ctx context.Context, j *slotJob) error {
	switch {
	case !j.slot.Exists:
		j.result.Says = "does not exist, nothing to do"
		return nil
	case j.ours() != nil:
		return j.ours()
	case j.slot.Active:
		return usageError("stop the relay that streams from it; SELECT client_addr, application_name FROM pg_stat_replication says which",
			"slot %q is in use by server process %d, and is not dropped", j.result.Slot, j.slot.ActivePID)
	}
	if _, err := j.conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", j.result.Slot); err != nil {
		return fmt.Errorf("drop slot %q: %w", j.result.Slot, err)
	}
	j.result.Done, j.result.ConfirmedLSN = true, lsnText(j.slot.ConfirmedFlush)
	j.result.Says = "dropped; it had confirmed up to " + j.slot.ConfirmedFlush.String()
	return nil
}

func acceptGap(ctx context.Context, j *slotJob) error {
	if err := j.ours(); err != nil {
		return err
	}
	f, err := j.law.look(ctx, j.conn, j.slot)
	if err != nil {
		return err
	}
	accepted := f.state != nil && f.state.Accepted
	if f.Action != checkpoint.Stop || accepted {
		j.result.Says = map[checkpoint.Action]string{
			checkpoint.Start:  "no gap, nothing to accept",
			checkpoint.Adopt:  "no gap, nothing to accept: no position is stored, and the relay goes on where the slot stands",
			checkpoint.Wait:   "a relay streams from it: no gap, nothing to accept",
			checkpoint.Create: "does not exist, and this relay never ran: nothing to accept; tailer init --apply creates it",
		}[f.Action]
		if accepted {
			j.result.Says = "the gap is accepted already; " + nextStep(f.slot)
		}
		return nil
	}
	g := gap{from: f.From, reason: j.c.String("reason"), by: j.c.String("by")}
	if g.by == "" {
		g.by = operator()
	}
	if g.reason == "" {
		g.reason = describeStop(j.law.tables.stops(f.Verdict, f.state, f.server))
	}
	if f.slot.Exists && !f.slot.Lost {
		g.to = f.slot.Confirmed
	}
	if f.Reason == checkpoint.ServerBehind {
		g.from, g.to = f.slot.Confirmed, f.slot.Confirmed // what is beyond is of another past
	}
	if err := j.law.tables.accept(ctx, j.conn, g, f.system); err != nil {
		return err
	}
	j.result.Done, j.result.From, j.result.To, j.result.Reason, j.result.By = true, g.from.String(), lsnText(g.to), g.reason, g.by
	to := "the start of the slot made next"
	if g.to != 0 {
		to = g.to.String()
	}
	j.result.Says = fmt.Sprintf("gap accepted from %s to %s by %s; %s", g.from, to, g.by, nextStep(f.slot))
	return nil
}

// nextStep is what is left to type after a gap is accepted.
func nextStep(slot checkpoint.Slot) string {
	switch {
	case slot.Lost:
		return "now: tailer slot drop, and then tailer slot create"
	case !slot.Exists:
		return "now: tailer slot create"
	}
	return "the relay may start"
}

// describeStop is what a stop says of its object, without the object.
func describeStop(err error) string {
	var e *replication.Error
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

// operator is who sits at the keyboard, as far as the system knows.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
