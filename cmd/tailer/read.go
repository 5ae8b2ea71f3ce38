package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/decoder"
	"github.com/tailer-relay/tailer/internal/crashpoint"
	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/schema"
	"github.com/tailer-relay/tailer/sink"
)

// reader turns frames into batches. It runs in one goroutine, which owns
// everything here.
//
// Invariants:
//   - commit is the open transaction's final LSN and ordinal counts its outbox
//     inserts so far; together they are an event's position.
//   - batch is nil between an offer and the next thing to append.
//   - a mark is set only outside a transaction, so whatever a batch's last mark
//     covers is in that batch or an earlier one.
type reader struct {
	stream  stream
	tracker *checkpoint.Tracker
	hand    *handoff
	mapping schema.Mapping
	table   replication.Table
	reload  func(context.Context) error // reads the schemas anew
	health  *health
	doubt   *doubt
	metrics *metrics
	log     *slog.Logger

	decoder decoder.Decoder
	plans   map[*decoder.Relation]*schema.Plan // nil plan: not the outbox
	skipped map[uint32]struct{}                // tables whose rows were said to be skipped
	msg     decoder.Message
	row     schema.Row
	event   sink.Event
	batch   *sink.Batch
	full    bool // the batch on offer has reached its bounds
	ordinal uint64
	pending int // events received and not yet counted
}

// run reads until stop ends, then on to the end of a transaction that has begun
// (a batch that ends inside one would come again after the restart), as long as
// ctx allows. It returns nil after such an end, with everything handed over, and
// closes the handoff; any error leaves the handoff open, for nothing more follows.
func (r *reader) run(ctx, stop context.Context) error {
	// Next is always given the same context, because a change of it costs.
	for reading := stop; ; {
		crashpoint.Pass("receive.before")
		frame, err := r.stream.Next(reading)
		switch {
		case err == nil:
			crashpoint.Pass("receive.after")
			r.health.Beat(loopReader)
			if err := r.step(ctx, &frame); err != nil {
				return err
			}
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case stop.Err() == nil || reading == ctx:
			if r.decoder.InTransaction() {
				err = replication.StepOver(err, r.msg.CommitLSN)
			}
			return err
		}
		if stop.Err() != nil {
			if !r.decoder.InTransaction() {
				return r.finish(ctx)
			}
			reading = ctx
		}
	}
}

func (r *reader) finish(ctx context.Context) error {
	r.count()
	if r.batch != nil && !r.batch.Empty() {
		if err := r.hand.offer(ctx, r.batch); err != nil {
			return err
		}
	}
	r.batch = nil
	r.hand.close()
	return nil
}

func (r *reader) step(ctx context.Context, frame *replication.Frame) error {
	if frame.Keepalive {
		if r.decoder.InTransaction() {
			return nil
		}
		if r.batch == nil && r.hand.taken() && r.tracker.Outstanding() == 0 {
			r.doubt.decoded(frame.WALEnd)
		}
		return r.mark(ctx, frame.WALEnd)
	}
	m := &r.msg
	crashpoint.Pass("decode.before")
	if err := r.decoder.Decode(frame.Data, m); err != nil {
		return fmt.Errorf("decode the message at %s: %w", frame.WALStart, err)
	}
	crashpoint.Pass("decode.after")
	switch m.Kind {
	case decoder.KindInsert:
		return r.insert(ctx, m)
	case decoder.KindBegin:
		r.ordinal = 0
	case decoder.KindCommit:
		return r.mark(ctx, m.EndLSN)
	case decoder.KindRelation:
		return r.relation(m.Relation)
	case decoder.KindUpdate:
		r.metrics.Ignored("update")
	case decoder.KindDelete:
		r.metrics.Ignored("delete")
	case decoder.KindTruncate:
		r.metrics.Ignored("truncate")
	case decoder.KindMessage:
		r.metrics.Ignored("message")
	case decoder.KindType, decoder.KindOrigin:
	}
	return nil
}

// relation compiles the column plan anew: DDL sends the relation again with
// other columns, also inside a transaction. Plans of definitions that are no
// longer named stay behind until the session ends, so they are dropped here. A
// definition that only comes again, as it does after each ANALYZE, changes nothing.
func (r *reader) relation(rel *decoder.Relation) error {
	if _, known := r.plans[rel]; known {
		return nil
	}
	for old := range r.plans {
		if old.ID == rel.ID {
			delete(r.plans, old)
		}
	}
	if rel.Namespace != r.table.Schema || rel.Name != r.table.Name {
		r.plans[rel] = nil // said when a row of it comes: a partition's description comes beside its root's, whose rows they are
		return nil
	}
	plan, err := r.mapping.Compile(rel)
	if err != nil {
		return err
	}
	r.plans[rel] = plan
	return nil
}

func (r *reader) insert(ctx context.Context, m *decoder.Message) error {
	plan, known := r.plans[m.Relation]
	if !known {
		return fmt.Errorf("insert into relation %d, which was never described", m.Relation.ID)
	}
	if plan == nil {
		r.skip(m.Relation)
		return nil
	}
	if err := plan.Row(m.Columns, &r.row); err != nil {
		return fmt.Errorf("row %d of the transaction at %s: %w", r.ordinal, m.CommitLSN, err)
	}
	row, ev := &r.row, &r.event
	*ev = sink.Event{
		CommitLSN: m.CommitLSN, Ordinal: r.ordinal, CommitTime: m.CommitTime,
		ID: row.ID, Key: row.Key, Type: row.Type, Payload: row.Payload, Headers: row.Headers,
		CorrelationID: row.CorrelationID, CausationID: row.CausationID, Traceparent: row.Traceparent,
		Tenant: row.Tenant, AggregateType: row.AggregateType,
		OccurredAt: row.OccurredAt, OccurredAtText: row.OccurredAtText, HeaderColumns: row.HeaderColumns,
	}
	r.ordinal++
	r.pending++
	return r.add(ctx, ev)
}

// skip counts a row of a table that is not the outbox, and says so once a table.
func (r *reader) skip(rel *decoder.Relation) {
	r.metrics.Ignored("other_table")
	if _, said := r.skipped[rel.ID]; !said {
		if r.skipped == nil {
			r.skipped = make(map[uint32]struct{})
		}
		r.skipped[rel.ID] = struct{}{}
		r.log.Warn("the publication has another table, its rows are skipped", "table", rel.Namespace+"."+rel.Name)
	}
}

// waitsAgain is how often it is logged that an event waits for the same cause.
const waitsAgain = time.Minute

// add appends the event, and hands the batch over when it is full. An event
// that can be neither encoded nor dead-lettered yet is tried again and again:
// what was read before it is handed over meanwhile, its own position is held.
func (r *reader) add(ctx context.Context, ev *sink.Event) error {
	var wait retries
	var said string // the cause logged last, and when
	var at time.Time
	for blocked := false; ; blocked = true {
		if err := r.open(ctx); err != nil {
			return err
		}
		err := r.batch.Add(ev)
		if err == nil {
			if blocked {
				r.health.Active()
				r.log.Info("the event waits no more", "type", string(ev.Type), "id", string(ev.ID))
			}
			break
		}
		pause := wait.next()
		var h *hold
		if errors.As(err, &h) {
			pause = haltRetry
		}
		hint := waitHint(err)
		r.health.NotReady(withHint(err, hint))
		if err.Error() != said || time.Since(at) >= waitsAgain {
			said, at = err.Error(), time.Now()
			r.log.Warn("an event waits", "type", string(ev.Type), "id", string(ev.ID), "lsn", ev.CommitLSN.String(), "retry_in", pause, "err", err, "hint", hint)
		}
		if r.batch.Len() > 0 {
			if err := r.offer(ctx, false); err != nil {
				return err
			}
		}
		if err := r.sleep(ctx, pause); err != nil {
			return err
		}
		if h != nil {
			if err := r.reload(ctx); err != nil {
				r.log.Warn("the schemas cannot be read anew, the old ones stay", "err", err)
			}
		}
	}
	if r.batch.Full() {
		return r.offer(ctx, true)
	}
	return nil
}

// mark notes that lsn may be confirmed once all before it is settled, and lays
// the batch out for the publisher.
func (r *reader) mark(ctx context.Context, lsn pglogrepl.LSN) error {
	if !r.tracker.Accept(lsn) {
		return nil
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	r.batch.Mark(lsn)
	return r.offer(ctx, r.batch.Full())
}

func (r *reader) open(ctx context.Context) (err error) {
	if r.batch == nil {
		r.batch, err = r.hand.open(ctx, r.full)
	}
	return err
}

func (r *reader) offer(ctx context.Context, full bool) error {
	r.count()
	b := r.batch
	r.batch, r.full = nil, full
	return r.hand.offer(ctx, b)
}

// count adds the events of a batch to the metric at once: an atomic per row
// would be a cost without a reader.
func (r *reader) count() {
	r.metrics.Received(r.pending)
	r.pending = 0
}

// sleep waits and keeps the watchdog calm.
func (r *reader) sleep(ctx context.Context, d time.Duration) error {
	return sleep(ctx, d, func() { r.health.Beat(loopReader) })
}
