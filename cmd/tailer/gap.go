package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/replication"
)

// gapLaw asks checkpoint.Decide before anything is relayed, and turns its
// verdicts into what a relay does or says.
type gapLaw struct {
	cfg    *Config
	stream replication.Config
	tables stateTables
	log    *slog.Logger
}

func newGapLaw(cfg *Config, log *slog.Logger) *gapLaw {
	return &gapLaw{cfg: cfg, stream: streamConfig(cfg), tables: stateTablesOf(cfg), log: log}
}

// open opens the stream, and makes its slot first where that is allowed.
func (l *gapLaw) open(ctx context.Context, config replication.Config, log *slog.Logger) (*replication.Stream, error) {
	stream, err := replication.Open(ctx, config, log)
	if !errors.Is(err, replication.ErrNoSlot) {
		return stream, err
	}
	if err := l.noSlot(ctx); err != nil {
		return nil, err
	}
	return replication.Open(ctx, config, log)
}

// noSlot creates a slot that is missing, or says why not.
func (l *gapLaw) noSlot(ctx context.Context) error {
	conn, err := replication.Connect(ctx, l.stream)
	if err != nil {
		return err
	}
	state, err := l.tables.read(ctx, conn)
	closeConn(conn)
	if err != nil && !errors.Is(err, errNoState) { // without the table nothing ever ran
		return err
	}
	system, err := replication.Identify(ctx, l.stream)
	if err != nil {
		return err
	}
	server := checkpoint.Server{System: system.ID, Timeline: system.Timeline, Flushed: system.Flushed}
	if err := l.missing(state, server); err != nil {
		return err
	}
	return l.create(ctx)
}

// missing says why a slot that is not there may not be made, nil if it may.
func (l *gapLaw) missing(state *storedState, server checkpoint.Server) error {
	v := checkpoint.Decide(checkpoint.Slot{}, state.decisive(), server)
	switch {
	case v.Action != checkpoint.Create:
		return l.tables.stops(v, state, server)
	case !l.cfg.Postgres.Create && v.Reason == checkpoint.GapAccepted:
		return l.refuses("tailer slot create makes it; so does postgres.create: true", "it does not exist, and the gap to a new one is accepted")
	case !l.cfg.Postgres.Create:
		return l.refuses("tailer init --apply creates it; with postgres.create: true the relay does so itself at its first start",
			"it does not exist, and this relay never ran")
	}
	return nil
}

func (l *gapLaw) refuses(hint, why string) error {
	return &replication.Error{Op: "check", Object: fmt.Sprintf("slot %q", l.tables.slot), Class: replication.Usage, Hint: hint, Err: errors.New(why)}
}

// create does what `tailer init --apply` does.
func (l *gapLaw) create(ctx context.Context) error {
	var ran bytes.Buffer
	if err := applyInit(ctx, &ran, l.cfg, "", l.log); err != nil {
		return err
	}
	for statement := range bytes.SplitSeq(ran.Bytes(), []byte(";\n")) {
		var sql []byte
		for line := range bytes.Lines(statement) {
			if !bytes.HasPrefix(line, []byte("--")) {
				sql = append(sql, line...)
			}
		}
		if sql = bytes.TrimSpace(sql); len(sql) > 0 {
			l.log.Info("created, as postgres.create allows", "sql", string(sql))
		}
	}
	return nil
}

// admit decides whether a stream that holds its slot may relay, and stores where
// it begins. The keeper is nil on a standby, which cannot write.
func (l *gapLaw) admit(ctx context.Context, stream *replication.Stream) (*keeper, error) {
	k := &keeper{tables: l.tables, config: l.stream, log: l.log}
	if err := k.connect(ctx); err != nil {
		return nil, err
	}
	admitted, err := l.judge(ctx, k, stream)
	if err != nil || !admitted {
		k.close()
		return nil, err
	}
	return k, nil
}

func (l *gapLaw) judge(ctx context.Context, k *keeper, stream *replication.Stream) (stored bool, err error) {
	slot, err := replication.InspectSlot(ctx, k.conn, l.tables.slot)
	if err != nil {
		return false, err
	}
	if !slot.Active {
		return false, &replication.Error{Op: "check", Object: fmt.Sprintf("slot %q", l.tables.slot), Class: replication.Transient,
			Err:  errors.New("it streams, but where the state table is it is not in use: the two connections reached different servers"),
			Hint: "let postgres.dsn lead to one server: add target_session_attrs=read-write where it lists several hosts"}
	}
	var standby bool
	if err := k.conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return false, l.tables.failed("read", err)
	}
	if standby {
		l.log.Warn("the server is a standby, where no position can be stored: a slot that is made anew would not be noticed", "table", l.tables.stateSQL())
		return false, nil
	}
	state, err := l.tables.read(ctx, k.conn)
	if errors.Is(err, errNoState) && l.cfg.Postgres.Create {
		if err := l.create(ctx); err != nil {
			return false, err
		}
		state, err = l.tables.read(ctx, k.conn)
	}
	if err != nil {
		return false, err
	}
	// The state came first: its position cannot be beyond the end of WAL seen now.
	if slot, err = replication.InspectSlot(ctx, k.conn, l.tables.slot); err != nil {
		return false, err
	}
	identity := stream.Server()
	server := checkpoint.Server{System: identity.SystemID, Timeline: identity.Timeline, Flushed: slot.CurrentWAL}
	if state != nil && state.System == server.System && state.Timeline != server.Timeline {
		if server.History, err = history(ctx, l.stream, server.Timeline); err != nil {
			return false, err
		}
	}
	start := stream.Start()
	v := checkpoint.Decide(checkpoint.Slot{Exists: true, Confirmed: start}, state.decisive(), server)
	from := start
	switch {
	case v.Action == checkpoint.Stop:
		return false, l.tables.stops(v, state, server)
	case v.Reason == checkpoint.NoState:
		l.log.Info("adopted the slot: this relay never ran, and goes on where the slot stands", "lsn", start.String())
	case v.Reason == checkpoint.GapAccepted:
		l.log.Warn("going on behind an accepted gap: events in it are not in Kafka", "from", v.From.String(), "to", v.To.String())
	case v.Reason == checkpoint.Repeats:
		l.log.Info("the slot is behind what was acknowledged: events come again, with the same ids", "from", v.From.String(), "to", v.To.String())
		from = v.To
	default:
		from = max(start, state.Confirmed)
	}
	return true, k.begin(ctx, identity, from, start)
}

// finding is what a look at slot, state and server came to.
type finding struct {
	slot   checkpoint.Slot
	state  *storedState
	system replication.System
	server checkpoint.Server
	checkpoint.Verdict
}

// look decides for a slot that nobody has to hold. It changes nothing.
func (l *gapLaw) look(ctx context.Context, conn *pgx.Conn, slot replication.SlotState) (f finding, err error) {
	f.slot = checkpoint.Slot{Exists: slot.Exists, Held: slot.Active, Lost: slot.Lost(), Confirmed: slot.ConfirmedFlush}
	if f.state, err = l.tables.read(ctx, conn); err != nil {
		return f, err
	}
	if f.system, err = replication.Identify(ctx, l.stream); err != nil {
		return f, err
	}
	f.server = checkpoint.Server{System: f.system.ID, Timeline: f.system.Timeline, Flushed: f.system.Flushed}
	if f.state != nil && f.state.System == f.server.System && f.state.Timeline != f.server.Timeline {
		if f.server.History, err = history(ctx, l.stream, f.server.Timeline); err != nil {
			return f, err
		}
	}
	f.Verdict = checkpoint.Decide(f.slot, f.state.decisive(), f.server)
	return f, nil
}

func history(ctx context.Context, config replication.Config, timeline int32) ([]checkpoint.Branch, error) {
	text, err := replication.TimelineHistory(ctx, config, timeline)
	if err != nil {
		return nil, err
	}
	return checkpoint.ParseHistory(text)
}

// stops words a verdict that stops the relay.
func (t stateTables) stops(v checkpoint.Verdict, state *storedState, server checkpoint.Server) error {
	const decide = "a person must decide: look for rows of that time in the outbox table and publish them again, or leave them; then "
	ran := ""
	if state != nil {
		ran = fmt.Sprintf("this relay confirmed up to %s at %s", state.Confirmed, state.updated.UTC().Format(time.RFC3339))
	}
	missing := fmt.Sprintf("events from %s to %s may be missing", v.From, v.To)
	var why, hint string
	switch v.Reason {
	case checkpoint.SlotMissing:
		why = fmt.Sprintf("it does not exist, and %s: events from %s up to now, %s, may be missing", ran, v.From, v.To)
		hint = decide + "go on from now: tailer slot accept-gap, and then tailer slot create"
	case checkpoint.SlotLost:
		why = fmt.Sprintf("it is lost: events from %s up to now, %s, are missing", v.From, v.To)
		hint = decide + "go on from now: tailer slot accept-gap, tailer slot drop, and then tailer slot create"
	case checkpoint.OtherSystem:
		why = fmt.Sprintf("the server is another one: its system identifier is %s, and %s on %s, whose positions mean nothing here; events may be missing",
			server.System, ran, state.System)
		hint = "if postgres.dsn is wrong, correct it. If the data was moved here: " + decide + "go on from where this server's slot stands: tailer slot accept-gap, and where there is no slot, tailer slot create"
	case checkpoint.OtherHistory:
		why = fmt.Sprintf("the server went another way: %s on timeline %d, and the server's timeline %d left that one before; %s", ran, state.Timeline, server.Timeline, missing)
		hint = "what was published beyond that point is not in this database. " + decide + "go on from where the slot stands: tailer slot accept-gap"
	case checkpoint.SlotNewer:
		why = fmt.Sprintf("it was made after a failover: it begins at %s on timeline %d, and %s on timeline %d; %s", v.To, server.Timeline, ran, state.Timeline, missing)
		hint = decide + "go on from where the slot stands: tailer slot accept-gap"
	case checkpoint.ServerBehind:
		why = fmt.Sprintf("the server's WAL ends at %s, and %s: it was restored or reset; events may be missing", v.From, ran)
		hint = decide + "go on from where the slot stands: tailer slot accept-gap"
	case checkpoint.SlotAhead:
		why = fmt.Sprintf("it stands at %s, and %s: it was made anew or moved; %s", v.To, ran, missing)
		hint = decide + "go on from where the slot stands: tailer slot accept-gap"
	}
	return &replication.Error{Op: "check", Object: fmt.Sprintf("slot %q", t.slot), Class: replication.Gap, Hint: hint, Err: errors.New(why)}
}

// mayCreate refuses a new slot for a relay that ran, until the gap is accepted.
func (l *gapLaw) mayCreate(ctx context.Context, conn *pgx.Conn) error {
	state, err := l.tables.read(ctx, conn)
	if err != nil || state == nil {
		return err // one that never ran may, also where nobody may ask who the server is
	}
	f, err := l.look(ctx, conn, replication.SlotState{})
	if err != nil || f.Action == checkpoint.Create {
		return err
	}
	return l.tables.stops(f.Verdict, f.state, f.server)
}
