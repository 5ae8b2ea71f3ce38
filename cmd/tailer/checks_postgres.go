package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/replication"
)

// newestTested is the newest server version that the tests run against.
const newestTested = 18

func (x *examination) connection(ctx context.Context) []outcome {
	conn, err := replication.Connect(ctx, x.stream)
	if err != nil {
		return failures(databaseError(err), exitRetry)
	}
	x.conn = conn
	if x.facts, err = replication.InspectServer(ctx, conn); err != nil {
		return failures(databaseError(err), exitRetry)
	}
	return one(fine(fmt.Sprintf("PostgreSQL %s, database %q", x.facts.VersionText, x.facts.Database)))
}

func (x *examination) server(ctx context.Context) []outcome {
	if err := x.facts.Check(); err != nil {
		return failures(err, exitRetry)
	}
	found := []outcome{fine("wal_level is logical")}
	if x.facts.Version/10000 > newestTested {
		found = append(found, warning(fmt.Sprintf("PostgreSQL %s is newer than %d, the newest that tailer is tested with", x.facts.VersionText, newestTested), "look for a newer tailer"))
	}
	if x.facts.InRecovery {
		found = append(found, warning("it is a standby: no position can be stored there, and a slot that is made anew is not noticed", "point postgres.dsn at the primary"))
	}
	var encoding string
	if err := x.conn.QueryRow(ctx, "SELECT current_setting('server_encoding')").Scan(&encoding); err != nil {
		return append(found, failure(databaseError(err), exitRetry))
	}
	if encoding == "SQL_ASCII" {
		found = append(found, warning("the database's encoding is SQL_ASCII: Postgres passes bytes on that may be no UTF-8", "move the outbox to a database with ENCODING 'UTF8'"))
	}
	return found
}

// replication finds out by trying: no flag of a role tells it on every service.
func (x *examination) replication(ctx context.Context) []outcome {
	system, err := replication.Identify(ctx, x.stream)
	if err != nil {
		return failures(databaseError(err), exitRetry)
	}
	x.system = system
	return one(fine(fmt.Sprintf("a replication connection is let in; system %s, timeline %d", system.ID, system.Timeline)))
}

func (x *examination) capacity(ctx context.Context) []outcome {
	var ours bool
	var slots, maxSlots, senders, maxSenders int
	err := x.conn.QueryRow(ctx, `SELECT coalesce(bool_or(slot_name = $1), false), count(*)::int, current_setting('max_replication_slots')::int,
			(SELECT count(*)::int FROM pg_catalog.pg_stat_replication), current_setting('max_wal_senders')::int
		FROM pg_catalog.pg_replication_slots`, x.stream.Slot).Scan(&ours, &slots, &maxSlots, &senders, &maxSenders)
	if err != nil {
		return failures(databaseError(err), exitRetry)
	}
	says := fmt.Sprintf("%d of %d slots and %d of %d senders are in use", slots, maxSlots, senders, maxSenders)
	switch {
	case !ours && slots >= maxSlots:
		return one(outcome{Status: levelFail, Says: says + ": none is left for this relay", code: exitUsage,
			Type: fmt.Sprintf("drop a slot that nobody uses (SELECT slot_name, active FROM pg_replication_slots;), or: ALTER SYSTEM SET max_replication_slots = %d; and restart Postgres", maxSlots+4)})
	case senders+1 >= maxSenders:
		return one(warning(says+": a second relay cannot stand by",
			fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d; and restart Postgres", maxSenders+4)))
	}
	return one(fine(says))
}

func (x *examination) table(ctx context.Context) []outcome {
	state, err := inspectTable(ctx, x.conn, x.cfg)
	if err != nil {
		return failures(databaseError(err), exitRetry)
	}
	table := x.stream.Table
	state.Missing = nil // what columns are about
	name := quoteIdent(table.Schema, table.Name)
	f := state.found(table)
	switch {
	case !f.exists && x.cfg.Postgres.Create:
		return one(warning(name+" does not exist; the relay makes it at its first start", "tailer init --apply"))
	case !f.exists:
		return one(outcome{Status: levelFail, Says: "there is no table " + name, code: exitUsage,
			Type: "tailer init --apply; or name another one in outbox.table"})
	case f.misfit != "":
		return one(outcome{Status: levelFail, Says: name + ": " + f.misfit, Type: f.remedy, code: exitUsage})
	}
	return one(fine(name + " is a " + state.Kind))
}

func (x *examination) publication(ctx context.Context) []outcome {
	config := &x.stream
	var err error
	if x.published, err = replication.InspectPublication(ctx, x.conn, config.Publication, config.Table); err != nil {
		return failures(databaseError(err), exitRetry)
	}
	if !x.published.Exists && x.cfg.Postgres.Create {
		return one(warning(fmt.Sprintf("publication %q does not exist; the relay makes it at its first start", config.Publication), "tailer init --apply"))
	}
	if err := x.published.Check(config.Publication, config.Table); err != nil {
		f := failure(err, exitRetry)
		if slot, err := replication.InspectSlot(ctx, x.conn, config.Slot); err == nil && !slot.Exists {
			f.code = exitUsage // no WAL was kept that could not be read
		}
		return one(f)
	}
	var found []outcome
	for _, w := range x.published.Warnings(config.Publication, config.Table) {
		found = append(found, warning(w.Text, w.Hint))
	}
	return append(found, fine(fmt.Sprintf("%q publishes the inserts of %s", config.Publication, config.Table)))
}

func (x *examination) columns(context.Context) []outcome {
	config := &x.stream
	if !x.published.Exists {
		return one(fine("made with the table"))
	}
	if err := x.published.Check(config.Publication, config.Table, config.Columns...); err != nil {
		return failures(err, exitRetry)
	}
	return one(fine(fmt.Sprintf("all %d that are mapped are published", len(config.Columns))))
}

func (x *examination) state(ctx context.Context) []outcome {
	stored, err := x.law.tables.read(ctx, x.conn)
	switch {
	case errors.Is(err, errNoState) && x.cfg.Postgres.Create:
		return one(warning(x.law.tables.stateSQL()+" does not exist; the relay makes it at its first start", "tailer init --apply"))
	case err != nil:
		return failures(err, exitRetry)
	case stored == nil:
		return one(fine("this relay never ran"))
	}
	x.stored = stored
	return one(fine(fmt.Sprintf("this relay confirmed up to %s", stored.Confirmed)))
}

// slot asks what the relay asks, and the gap law what it would say.
func (x *examination) slot(ctx context.Context) []outcome {
	slot, err := replication.InspectSlot(ctx, x.conn, x.stream.Slot)
	if err != nil {
		return failures(databaseError(err), exitRetry)
	}
	server := checkpoint.Server{System: x.system.ID, Timeline: x.system.Timeline, Flushed: x.system.Flushed}
	if !slot.Exists {
		if err := x.law.missing(x.stored, server); err != nil {
			return failures(err, exitRetry)
		}
		return one(warning("it does not exist; the relay makes it when it starts", "tailer init --apply, or tailer slot create"))
	}
	if err := slot.Check(x.stream.Slot, x.facts.Database); err != nil {
		return failures(err, exitRetry)
	}
	if s := x.stored; s != nil && s.System == server.System && s.Timeline != server.Timeline {
		if server.History, err = history(ctx, x.stream, server.Timeline); err != nil {
			return failures(databaseError(err), exitRetry)
		}
	}
	v := checkpoint.Decide(checkpoint.Slot{Exists: true, Confirmed: slot.ConfirmedFlush}, x.stored.decisive(), server)
	if v.Action == checkpoint.Stop {
		return failures(x.law.tables.stops(v, x.stored, server), exitGap)
	}
	says := fmt.Sprintf("confirmed up to %s, %s behind", slot.ConfirmedFlush, sizeText(slot.Lag()))
	if !slot.Active && x.published.Exists {
		if err := replication.Peek(ctx, x.stream); replication.Classify(err) == replication.Gap {
			return failures(err, exitGap)
		}
	}
	if slot.Active {
		says += fmt.Sprintf(", in use by server process %d", slot.ActivePID)
	}
	return one(fine(says))
}
