package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/replication"
)

// status is what `status --json` prints; its field names are the interface.
type status struct {
	Slot        slotStatus        `json:"slot"`
	Publication publicationStatus `json:"publication"`
	Table       tableStatus       `json:"table"`
	State       stateStatus       `json:"state"`
	Relay       relayStatus       `json:"relay"`
}

// stateStatus is what the relay has stored, and what that says of the slot.
type stateStatus struct {
	Table            string     `json:"table"`
	Stored           bool       `json:"stored"`
	ConfirmedLSN     string     `json:"confirmed_lsn,omitempty"`
	SystemIdentifier string     `json:"system_identifier,omitempty"`
	Timeline         int32      `json:"timeline,omitempty"`
	UpdatedAt        *time.Time `json:"updated_at,omitempty"`
	StoppedInOrder   bool       `json:"stopped_in_order"`
	GapAccepted      bool       `json:"gap_accepted"` // up to the slot's next start
	Problem          string     `json:"problem,omitempty"`
}

type slotStatus struct {
	Name              string `json:"name"`
	Exists            bool   `json:"exists"`
	Active            bool   `json:"active"`
	ActivePID         int32  `json:"active_pid,omitempty"`
	WALStatus         string `json:"wal_status,omitempty"`
	Invalidation      string `json:"invalidation_reason,omitempty"`
	RestartLSN        string `json:"restart_lsn,omitempty"`
	ConfirmedFlushLSN string `json:"confirmed_flush_lsn,omitempty"`
	CurrentLSN        string `json:"current_lsn"`
	LagBytes          int64  `json:"lag_bytes"`
	RetainedWALBytes  int64  `json:"retained_wal_bytes"`
	Problem           string `json:"problem,omitempty"`
}

type publicationStatus struct {
	Name      string   `json:"name"`
	Exists    bool     `json:"exists"`
	HasTable  bool     `json:"has_table"`
	Insert    bool     `json:"insert"`
	ViaRoot   bool     `json:"via_root"`
	RowFilter string   `json:"row_filter,omitempty"`
	Columns   []string `json:"columns,omitempty"` // absent: all
	Problem   string   `json:"problem,omitempty"`
}

type tableStatus struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	tableState
	Problem string `json:"problem,omitempty"`
}

// relayStatus is what the relay on this machine says, if one answers.
type relayStatus struct {
	Asked    string `json:"asked,omitempty"` // the URL
	Answered bool   `json:"answered"`
	Ready    bool   `json:"ready"`
	Says     string `json:"says,omitempty"` // active, standby, or the cause
	Error    string `json:"error,omitempty"`
}

func (env *environment) statusCommand() *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "show slot, publication, table, stored position and relay",
		UsageText: "tailer status [--json] [--config FILE] [flags]\n\nExample:\n   tailer status --json --config tailer.yaml",
		Description: "Asks Postgres, and the relay at http.listen where one answers. Exits with 0 when\n" +
			"Postgres was asked, whatever it said." + quietly,
		Flags: append([]cli.Flag{jsonFlag()}, quietFlags()...),
		Action: func(c *cli.Context) error {
			cfg, _, err := env.load(c, forDatabase)
			if err != nil {
				return err
			}
			s, err := readStatus(c.Context, cfg)
			if err != nil {
				return databaseError(err)
			}
			if c.Bool("json") {
				return env.printJSON(s)
			}
			return printStatus(env.stdout, s)
		},
	}
}

func readStatus(ctx context.Context, cfg *Config) (*status, error) {
	conn, err := replication.Connect(ctx, streamConfig(cfg))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	table := replication.Table{Schema: cfg.Outbox.TableSchema, Name: cfg.Outbox.TableName}
	slot, err := replication.InspectSlot(ctx, conn, cfg.Postgres.Slot)
	if err != nil {
		return nil, err
	}
	publication, err := replication.InspectPublication(ctx, conn, cfg.Postgres.Publication, table)
	if err != nil {
		return nil, err
	}
	state, err := inspectTable(ctx, conn, cfg)
	if err != nil {
		return nil, fmt.Errorf("inspect table %s: %w", quoteIdent(table.Schema, table.Name), err)
	}
	var database string
	if err := conn.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return nil, err
	}

	s := &status{
		Slot: slotStatus{Name: cfg.Postgres.Slot, Exists: slot.Exists, Active: slot.Active, ActivePID: slot.ActivePID,
			WALStatus: slot.WALStatus, Invalidation: slot.InvalidationReason, CurrentLSN: slot.CurrentWAL.String(),
			RestartLSN: lsnText(slot.RestartLSN), ConfirmedFlushLSN: lsnText(slot.ConfirmedFlush),
			LagBytes: slot.Lag(), RetainedWALBytes: slot.Retained(), Problem: judged(slot.Exists, slot.Check(cfg.Postgres.Slot, database)).problem()},
		Publication: publicationStatus{Name: cfg.Postgres.Publication, Exists: publication.Exists, HasTable: publication.HasTable,
			Insert: publication.Insert, ViaRoot: publication.ViaRoot, RowFilter: publication.RowFilter, Columns: publication.Columns,
			Problem: publicationFound(publication, cfg).problem()},
		Table: tableStatus{Schema: table.Schema, Name: table.Name, tableState: state, Problem: state.found(table).problem()},
		State: stateStatus{Table: stateTablesOf(cfg).stateSQL()},
		Relay: askRelay(cfg.HTTP.Listen),
	}
	s.readState(ctx, conn, newGapLaw(cfg, slog.New(slog.DiscardHandler)), slot)
	return s, nil
}

// readState adds what is stored. Why it cannot be read is a finding too.
func (s *status) readState(ctx context.Context, conn *pgx.Conn, law *gapLaw, slot replication.SlotState) {
	f, err := law.look(ctx, conn, slot)
	if state := f.state; state != nil {
		s.State.Stored, s.State.ConfirmedLSN, s.State.UpdatedAt = true, state.Confirmed.String(), &state.updated
		s.State.SystemIdentifier, s.State.Timeline = state.System, state.Timeline
		s.State.StoppedInOrder, s.State.GapAccepted = !state.Running, state.Accepted
	}
	switch {
	case errors.Is(err, errNoState):
		s.State.Problem = found{}.problem()
	case err != nil:
		s.State.Problem = err.Error()
	case !slot.Exists && f.Reason == checkpoint.GapAccepted:
		s.Slot.Problem = "missing, and the gap is accepted: tailer slot create"
	case f.Action == checkpoint.Stop && f.Reason != checkpoint.SlotLost: // of a lost slot is told already
		s.Slot.Problem = describeStop(law.tables.stops(f.Verdict, f.state, f.server)) + "; the ways out: tailer slot --help"
	}
}

func (f found) problem() string {
	if !f.exists {
		return "missing: tailer init --apply"
	}
	return f.misfit
}

func lsnText(lsn pglogrepl.LSN) string {
	if lsn == 0 {
		return ""
	}
	return lsn.String()
}

func askRelay(listen string) relayStatus {
	base, err := relayURL(listen)
	if err != nil {
		return relayStatus{Error: err.Error()}
	}
	r := relayStatus{Asked: base + "/readyz"}
	code, body, err := ask(r.Asked, 2*time.Second)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Answered, r.Ready, r.Says = true, code == http.StatusOK, body
	return r
}

func printStatus(w io.Writer, s *status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what, value, problem string) {
		if problem != "" {
			if value != "" {
				value += "  "
			}
			value += "! " + problem
		}
		fmt.Fprintf(t, "%s\t%s\n", what, value)
	}
	held := "not in use"
	switch {
	case !s.Slot.Exists:
		held = ""
	case s.Slot.Active:
		held = fmt.Sprintf("in use by server process %d", s.Slot.ActivePID)
	}
	row("slot "+s.Slot.Name, held, s.Slot.Problem)
	if s.Slot.Exists {
		row("  confirmed", s.Slot.ConfirmedFlushLSN, "")
		row("  lag", sizeText(s.Slot.LagBytes), "")
		row("  retained WAL", sizeText(s.Slot.RetainedWALBytes)+" ("+s.Slot.WALStatus+")", "")
	}
	facts := ""
	if s.Publication.Exists && s.Publication.HasTable && s.Publication.Insert {
		facts = "has the table, publishes inserts"
	}
	row("publication "+quoteIdent(s.Publication.Name), facts, s.Publication.Problem)
	row("table "+quoteIdent(s.Table.Schema, s.Table.Name), s.Table.Kind, s.Table.Problem)
	stored := ""
	if s.State.Stored {
		stored = s.State.ConfirmedLSN + " at " + s.State.UpdatedAt.UTC().Format(time.RFC3339)
		if s.State.StoppedInOrder {
			stored += ", then stopped in order"
		}
	}
	row("state table "+s.State.Table, stored, s.State.Problem)
	switch {
	case s.Relay.Answered && s.Relay.Ready:
		row("relay "+s.Relay.Asked, "ready, "+s.Relay.Says, "")
	case s.Relay.Answered:
		row("relay "+s.Relay.Asked, "not ready", s.Relay.Says)
	default:
		row("relay", "no answer: "+s.Relay.Error, "")
	}
	return t.Flush()
}

// sizeText writes bytes for eyes.
func sizeText(n int64) string {
	value, unit := float64(n), ""
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, u
	}
	if unit == "" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
