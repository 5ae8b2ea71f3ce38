package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/urfave/cli/v2"

	"github.com/tailer-relay/tailer/replication"
)

func (env *environment) initCommand() *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "print, or with --apply create, what the relay needs in Postgres",
		UsageText: "tailer init [--apply] [--role NAME] [--config FILE] [flags]\n\nExample:\n   tailer init --role tailer --apply --config tailer.yaml",
		Description: "Without --apply prints the SQL and touches nothing. With it runs what is absent, in this\n" +
			"order: table, publication, role, state tables, slot. Nothing is ever altered or dropped, and a\n" +
			"relay that ran gets no new slot before `tailer slot accept-gap`. Connect as the table's owner;\n" +
			"the relay's own role needs only what --role grants.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "apply", Usage: "run the statements whose object is absent"},
			&cli.StringFlag{Name: "role", Usage: "also a role `NAME` with LOGIN, REPLICATION, CONNECT and the state tables, without a password", DefaultText: "none"},
		}, append(configFlags(), hiddenFlags()...)...),
		Action: func(c *cli.Context) error {
			s := forPrinting
			if c.Bool("apply") {
				s = forDatabase
			}
			cfg, log, err := env.load(c, s)
			if err != nil {
				return err
			}
			role := c.String("role")
			if c.IsSet("role") {
				if err := checkName(role); err != nil {
					return usageError("", "--role: %s", err)
				}
			}
			if !c.Bool("apply") {
				printSteps(env.stdout, initSteps(cfg, role), role)
				return nil
			}
			return applyInit(c.Context, env.stdout, cfg, role, log)
		},
	}
}

func printSteps(w io.Writer, steps []step, role string) {
	fmt.Fprintln(w, "-- What the relay needs, for psql. `tailer init --apply` runs what is absent.")
	for _, s := range steps {
		fmt.Fprintf(w, "\n-- %s\n%s;\n", s.what, s.sql)
	}
	if role != "" {
		fmt.Fprintf(w, "\n-- The role has no password yet: \\password %s\n", quoteIdent(role))
	}
}

// applyInit runs the steps whose object is absent, each as a transaction of its
// own: the slot cannot be made in one that has written, and what is done stays done.
func applyInit(ctx context.Context, w io.Writer, cfg *Config, role string, log *slog.Logger) error {
	conn, err := replication.Connect(ctx, streamConfig(cfg))
	if err != nil {
		return databaseError(err)
	}
	// The close must be heard also after an interrupt.
	defer conn.Close(context.WithoutCancel(ctx))
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	var misfits []string
	code := exitUsage
	created := map[string]bool{}
	for _, s := range initSteps(cfg, role) {
		f, err := s.look(ctx, conn)
		if err != nil {
			return databaseError(fmt.Errorf("look at %s: %w", s.what, err))
		}
		if f.exists {
			fmt.Fprintf(w, "-- %s exists, skipped:\n%s\n", s.what, comment(s.sql))
			if f.misfit != "" {
				if f.gap {
					code = exitGap
				}
				misfits = append(misfits, fmt.Sprintf("%s does not fit: %s", s.what, f.misfit))
				fmt.Fprintf(w, "-- it does not fit: %s\n--   %s\n", f.misfit, f.remedy)
			}
			if s.slot && created["publication"] {
				fmt.Fprintf(w, "-- the slot is older than the publication: rows written in between cannot be read, and the relay will say so\n")
			}
			continue
		}
		if s.slot {
			if err := newGapLaw(cfg, log).mayCreate(ctx, conn); err != nil {
				return databaseError(err)
			}
		}
		fmt.Fprintf(w, "-- %s\n%s;\n", s.what, s.sql)
		if s.slot {
			err = createSlot(ctx, conn, cfg, s.sql, log)
		} else {
			_, err = conn.Exec(ctx, s.sql)
		}
		switch {
		case err != nil && madeMeanwhile(err):
			fmt.Fprintf(w, "-- made by someone else meanwhile\n")
		case err != nil:
			return createError(s, err)
		}
		kind, _, _ := strings.Cut(s.what, " ")
		created[kind] = true
	}
	if created["role"] {
		fmt.Fprintf(w, "-- the role has no password yet: \\password %s\n", quoteIdent(role))
	}
	if len(misfits) > 0 {
		return &exitError{code: code, err: errors.New(strings.Join(misfits, "; ")), hint: "the lines above say what to type; init never alters or drops"}
	}
	return nil
}

func comment(sql string) string { return "-- " + strings.ReplaceAll(sql, "\n", "\n-- ") }

// checkServer finds out before the first statement what would stop the last one.
func checkServer(ctx context.Context, conn *pgx.Conn) error {
	server, err := replication.InspectServer(ctx, conn)
	if err != nil {
		return databaseError(err)
	}
	if server.InRecovery {
		return usageError("name the primary in postgres.dsn, or several hosts with target_session_attrs=primary", "the server is a standby: nothing can be created there")
	}
	return databaseError(server.Check())
}

func createError(s step, err error) error {
	if e := (*exitError)(nil); errors.As(err, &e) {
		return err
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return &exitError{code: exitUsage, err: fmt.Errorf("create %s: %w", s.what, err),
			hint: "connect as the table's owner (for a role or slot: as one who may create it), or hand the output of `tailer init` to one"}
	}
	return databaseError(fmt.Errorf("create %s: %w", s.what, err))
}

// madeMeanwhile: another init was faster. 23505 is how the catalogue itself
// reports two at the same instant.
func madeMeanwhile(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "42P06", "42P07", "42710":
		return true
	case "23505":
		return strings.HasPrefix(pg.ConstraintName, "pg_")
	}
	return false
}

const (
	firstWaitReport = time.Second
	nextWaitReport  = 10 * time.Second
	cancelTimeout   = 5 * time.Second
)

// createSlot creates the slot, which waits for every transaction that has
// written and is older, in any database. It says so while it waits. An
// interrupt cancels the statement and waits for the server's answer: a backend
// that is merely left behind goes on waiting, and leaves a slot that nobody reads.
func createSlot(ctx context.Context, conn *pgx.Conn, cfg *Config, sql string, log *slog.Logger) error {
	// Should this process be killed, the backend notices within a second.
	if _, err := conn.Exec(ctx, "SET client_connection_check_interval = '1s'"); err != nil {
		log.Debug("client_connection_check_interval not set", "err", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(ctx), sql)
		done <- err
	}()
	timer := time.NewTimer(firstWaitReport)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-timer.C:
			reportWaiting(ctx, cfg, conn.PgConn().PID(), log)
			timer.Reset(nextWaitReport)
		case <-ctx.Done():
			return cancelSlot(ctx, conn, cfg.Postgres.Slot, done)
		}
	}
}

// cancelSlot returns nil when the slot was complete before the cancel arrived.
func cancelSlot(ctx context.Context, conn *pgx.Conn, slot string, done <-chan error) error {
	cancelCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer stop()
	cancelErr := conn.PgConn().CancelRequest(cancelCtx)
	select {
	case err := <-done:
		if err == nil {
			return nil
		}
		return &exitError{code: exitRetry, err: fmt.Errorf("interrupted before slot %s was created; none is left behind", slot)}
	case <-cancelCtx.Done():
		// The socket is cut under the waiting goroutine, which then ends.
		conn.PgConn().Conn().Close()
		<-done
		return &exitError{code: exitRetry, err: fmt.Errorf("interrupted while slot %s was being created, and the server did not answer (%v)", slot, cancelErr),
			hint: "check with: tailer status"}
	}
}

// reportWaiting names the transactions that are in the way. pg_locks shows them
// to every role; pg_stat_activity would hide their ids from most.
func reportWaiting(ctx context.Context, cfg *Config, own uint32, log *slog.Logger) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	conn, err := replication.Connect(ctx, streamConfig(cfg))
	if err != nil {
		log.Info("waiting for older transactions", "slot", cfg.Postgres.Slot, "err", err)
		return
	}
	defer conn.Close(ctx)
	var n int
	var pids []int32
	err = conn.QueryRow(ctx, `SELECT count(DISTINCT virtualtransaction), coalesce(array_agg(DISTINCT pid) FILTER (WHERE pid IS NOT NULL), '{}')
		FROM pg_catalog.pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted AND pid IS DISTINCT FROM $1`,
		int32(own)).Scan(&n, &pids)
	if err != nil {
		log.Info("waiting for older transactions", "slot", cfg.Postgres.Slot, "err", err)
		return
	}
	log.Info(fmt.Sprintf("waiting for %d older transactions", n), "slot", cfg.Postgres.Slot, "pids", pids)
}
