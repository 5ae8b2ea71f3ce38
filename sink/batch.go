package sink

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// smallSlab is what a batch starts with: a lone event must not cost a large allocation.
	smallSlab = 64 << 10
	// rowHeaderCost is what an entry of a row's headers counts beside its bytes. The other headers are few and their
	// number is bounded by that of the records, but a row can hold a million entries of two bytes each.
	rowHeaderCost = 64
	// manyHeaders is the number of headers a record that a batch keeps memory for from one cycle to the next.
	manyHeaders = 32
)

// Batch is a run of events in commit order as records, and the last position that may be confirmed once they are
// settled. It is filled by the reader, handed over, and belongs to the publisher from then on until it is reset.
type Batch struct {
	// Number is what a Late calls the batch; set by whoever hands it over, in rising order.
	Number uint64

	builder *Builder

	slab    []byte // starts with builder.prefix; keys, values, payloads, header values
	headers []header
	records []record
	bytes   int // what Bytes returns
	mark    pglogrepl.LSN

	// Made by seal. Invariant: once sealed, slab and these stand still until Reset, because kgo holds pointers.
	sealed     []*kgo.Record
	kgoRecords []kgo.Record
	kgoHeaders []kgo.RecordHeader

	// pending counts the promises not yet called. The publisher adds before it produces, the promise subtracts.
	pending atomic.Int64
	flight  *flight // the publisher's, from the first cycle on
}

// Add routes and encodes an event and appends its record, or its dead letter where the event cannot be one. The event
// may be reused when Add returns. With an error the batch is as it was, and the event may be tried again.
func (b *Batch) Add(ev *Event) error {
	c := b.builder
	slab, headers := len(b.slab), len(b.headers)
	r := record{
		key:  b.put(ev.Key),
		hdrs: [2]int{headers, headers},
		meta: meta{
			id:        b.put(ev.ID),
			typ:       b.put(ev.Type),
			commitLSN: ev.CommitLSN,
			ordinal:   ev.Ordinal,
			committed: ev.CommitTime,
		},
	}

	var rej *Rejection
	r.topic, rej = c.router.topic(ev)
	switch {
	case rej != nil:
	case ev.Key == nil && c.cfg.NullKeyDLQ:
		rej = &Rejection{Reason: ReasonNullKey, Message: "the key is NULL and outbox.null_key is dlq"}
	case ev.Payload == nil && !c.cfg.NullPayloadTombstone:
		rej = &Rejection{Reason: ReasonNullPayload, Message: "the payload is NULL and outbox.null_payload is dlq"}
	default:
		rej = missingAttribute(c.cfg.Profile, ev)
	}
	// The row's headers are read in any case: a dead letter has them too.
	rowRej := b.readRowHeaders(ev)
	if rej == nil {
		rej = rowRej
	}

	var info EncodeInfo
	r.value, r.payload = null, null
	if rej == nil && ev.Payload != nil {
		start := len(b.slab)
		grown, known, err := c.enc.Encode(b.slab, ev.Type, ev.Payload)
		info = known
		if err == nil {
			b.slab = grown
			r.value = span{start, len(grown)}
		} else if rej = asRejection(err); rej == nil {
			b.slab, b.headers = b.slab[:slab], b.headers[:headers]
			return err
		}
	}
	// A dead letter carries the payload's text, also one that the broker asks for later. Where the encoding leaves the
	// text alone one copy serves both.
	switch {
	case ev.Payload == nil:
	case !r.value.isNull() && string(b.at(r.value)) == string(ev.Payload):
		r.payload = r.value
	default:
		r.payload = b.put(ev.Payload)
	}

	b.appendProfile(ev, &r, info)
	if rej != nil {
		b.bury(&r, rej)
	}
	r.hdrs[1] = len(b.headers)
	b.records = append(b.records, r)
	b.bytes += max(b.cost(&r), len(b.slab)-slab)
	return nil
}

// asRejection is apart from Add so that the pointer errors.As needs is not allocated for each event.
func asRejection(err error) *Rejection {
	var rej *Rejection
	if errors.As(err, &rej) {
		return rej
	}
	return nil
}

// cost is what a record adds to Bytes: all that Kafka gets, each header counted although headers share memory, and
// the copy of the payload. So the sum is never below what the client counts against its buffer limit.
func (b *Batch) cost(r *record) int {
	return b.size(r) + rowHeaderCost*len(b.builder.row.entries)
}

// size is what a record's bytes would take apart from those of others.
func (b *Batch) size(r *record) int {
	n := r.key.size() + r.value.size()
	if r.payload != r.value {
		n += r.payload.size()
	}
	for _, h := range b.headers[r.hdrs[0]:r.hdrs[1]] {
		n += len(h.key) + h.value.size()
	}
	return n
}

// Mark notes that lsn may be confirmed when all records added so far are settled. Only the last mark counts: a batch
// is settled as a whole.
func (b *Batch) Mark(lsn pglogrepl.LSN) {
	if lsn > b.mark {
		b.mark = lsn
	}
}

// LastMark is the position that may be confirmed when the batch is settled; 0 when it has none, because it ends
// inside its first transaction.
func (b *Batch) LastMark() pglogrepl.LSN { return b.mark }

// Len is the number of records, dead letters included.
func (b *Batch) Len() int { return len(b.records) }

// Bytes is the memory its records hold: keys, values, headers and the copies of payloads.
func (b *Batch) Bytes() int { return b.bytes }

// recordWeight is what a record counts beside its bytes where many batches are held: its own bookkeeping and that of
// about ten headers.
const recordWeight = 512

// Weight is what the batch counts against a bound on memory.
func (b *Batch) Weight() int { return b.bytes + recordWeight*len(b.records) }

// Full reports whether the batch has reached one of its bounds. The record that reaches it is in the batch: a batch
// holds at most MaxBytes and one record.
func (b *Batch) Full() bool {
	return len(b.records) >= b.builder.cfg.MaxRecords || b.bytes >= b.builder.cfg.MaxBytes
}

// Empty reports whether there is nothing to publish and nothing to confirm.
func (b *Batch) Empty() bool { return len(b.records) == 0 && b.mark == 0 }

// Settled reports whether every record that was given to the client has been answered. A batch that is not settled
// must be dropped, never reset: the client may still read its memory.
func (b *Batch) Settled() bool { return b.pending.Load() == 0 }

// Reset empties the batch for the next cycle and keeps its memory, unless a row of unusual size has blown it up.
// The batch must be settled.
func (b *Batch) Reset() {
	cfg := &b.builder.cfg
	if cap(b.slab) > 2*cfg.MaxBytes+smallSlab {
		b.slab = nil
	}
	if b.slab == nil {
		b.slab = make([]byte, 0, max(smallSlab, len(b.builder.prefix)))
	}
	if cap(b.headers) > cfg.MaxRecords*manyHeaders {
		b.headers = nil
	}
	if cap(b.kgoHeaders) > cfg.MaxRecords*manyHeaders {
		b.kgoHeaders = nil
	}
	b.slab = append(b.slab[:0], b.builder.prefix...)
	b.headers = b.headers[:0]
	b.records = b.records[:0]
	b.sealed = b.sealed[:0]
	b.bytes = 0
	b.mark = 0
	b.Number = 0
}

// seal makes the Kafka records, in order, dead letters at their places. It is called once, when no Add will follow;
// the records point into the slab and are valid until Reset.
func (b *Batch) seal() []*kgo.Record {
	n := len(b.records)
	b.kgoHeaders = slices.Grow(b.kgoHeaders[:0], len(b.headers))[:len(b.headers)]
	for i, h := range b.headers {
		b.kgoHeaders[i] = kgo.RecordHeader{Key: h.key, Value: b.at(h.value)}
	}
	b.kgoRecords = slices.Grow(b.kgoRecords[:0], n)[:n]
	b.sealed = slices.Grow(b.sealed[:0], n)[:n]
	for i := range b.records {
		r := &b.records[i]
		b.kgoRecords[i] = kgo.Record{
			Topic:     r.topic,
			Key:       b.at(r.key),
			Value:     b.at(r.value),
			Headers:   b.kgoHeaders[r.hdrs[0]:r.hdrs[1]:r.hdrs[1]],
			Timestamp: timestamp(r.meta.committed),
		}
		b.sealed[i] = &b.kgoRecords[i]
	}
	return b.sealed
}

// timestamp is a record's: the transaction's commit time in ms, the same in a repeat. A decoded commit time is never
// the zero time, in whose place the client would put the present.
func timestamp(committed time.Time) time.Time {
	return time.UnixMilli(committed.UnixMilli())
}
