package sink

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// Header names.
const (
	hdrSpecVersion   = "ce_specversion"
	hdrCEID          = "ce_id"
	hdrCESource      = "ce_source"
	hdrCEType        = "ce_type"
	hdrCESubject     = "ce_subject"
	hdrCETime        = "ce_time"
	hdrCEDataSchema  = "ce_dataschema"
	hdrCESequence    = "ce_sequence"
	hdrID            = "id"
	hdrType          = "type"
	hdrOccurredAt    = "occurred_at"
	hdrAggregateID   = "aggregate_id"
	hdrSequence      = "sequence"
	hdrContentType   = "content-type"
	hdrValueSchemaID = "__value_schema_id"

	prefixCloudEvents = "ce_"
	prefixDeadLetter  = "dlq_"
)

// contextHeader is a header that has a role of its own or an entry in the row's headers: correlation and trace context.
type contextHeader uint8

const (
	ctxCorrelationID contextHeader = iota
	ctxCausationID
	ctxTenant
	ctxTraceparent
	ctxTracestate
	ctxBaggage
	numContext
)

var contextNames = [numContext]string{"correlation_id", "causation_id", "tenant", "traceparent", "tracestate", "baggage"}

// ourNames are the names a row can never set, beside ce_*, dlq_* and the header columns, whatever the profile: rows
// must mean the same after a change of profile.
var ourNames = []string{hdrID, hdrType, hdrOccurredAt, hdrAggregateID, hdrSequence, hdrContentType, hdrValueSchemaID}

// appendProfile appends all headers of a record, in the order of the profile.
func (b *Batch) appendProfile(ev *Event, r *record, info EncodeInfo) {
	switch b.builder.cfg.Profile {
	case CloudEvents:
		b.appendCloudEvents(ev, r, info)
	case Plain:
		b.appendPlain(ev, r, info)
	case Debezium:
		b.appendDebezium(ev, r, info)
	}
}

func (b *Batch) appendCloudEvents(ev *Event, r *record, info EncodeInfo) {
	c := b.builder
	b.add(hdrSpecVersion, c.specversion)
	b.addPresent(hdrCEID, r.meta.id)
	b.add(hdrCESource, c.source)
	b.addPresent(hdrCEType, r.meta.typ)
	b.addPresent(hdrCESubject, r.key)
	if ev.OccurredAt != nil {
		b.add(hdrCETime, b.put(ev.OccurredAt))
	} else {
		b.add(hdrCETime, b.putTime(ev.CommitTime))
	}
	if info.DataSchema != "" {
		b.add(hdrCEDataSchema, b.putString(info.DataSchema))
	}
	b.addContentType(info)
	b.add(hdrCESequence, b.putPosition(ev.CommitLSN, ev.Ordinal))
	b.addRow(ev)
}

func (b *Batch) appendPlain(ev *Event, r *record, info EncodeInfo) {
	b.addPresent(hdrID, r.meta.id)
	b.addPresent(hdrType, r.meta.typ)
	if ev.OccurredAt != nil {
		b.add(hdrOccurredAt, b.put(ev.OccurredAt))
	} else {
		b.addPresent(hdrOccurredAt, b.put(ev.OccurredAtText))
	}
	b.addPresent(hdrAggregateID, r.key)
	b.add(hdrSequence, b.putPosition(ev.CommitLSN, ev.Ordinal))
	b.addContentType(info)
	b.addRow(ev)
}

// appendDebezium has NULL as a header with a null value, as the outbox event router sends it.
func (b *Batch) appendDebezium(ev *Event, r *record, info EncodeInfo) {
	b.add(hdrID, r.meta.id)
	b.addPresent(hdrValueSchemaID, b.put(info.SchemaHeader))
	for i, name := range b.builder.cfg.HeaderColumns {
		b.add(name, b.put(ev.column(i)))
	}
}

// addContentType adds content-type and, right after it, the header that says which schema the value has.
func (b *Batch) addContentType(info EncodeInfo) {
	if c := b.builder; c.cfg.ContentType != "" {
		b.add(hdrContentType, c.ctyp)
	}
	b.addPresent(hdrValueSchemaID, b.put(info.SchemaHeader))
}

// addRow adds what comes from the row: correlation, the headers column, trace context, header columns.
func (b *Batch) addRow(ev *Event) {
	row := &b.builder.row
	b.addContext(ctxCorrelationID, ev.CorrelationID)
	b.addContext(ctxCausationID, ev.CausationID)
	b.addContext(ctxTenant, ev.Tenant)
	for _, e := range row.entries {
		b.addPresent(e.name, e.value)
	}
	b.addContext(ctxTraceparent, ev.Traceparent)
	b.addContext(ctxTracestate, nil)
	b.addContext(ctxBaggage, nil)
	for i, name := range b.builder.cfg.HeaderColumns {
		b.addPresent(name, b.put(ev.column(i)))
	}
}

// addContext takes the column where it is not NULL, else the entry of the row's headers. A header column of the same
// name stands for both: the operator has said where the header comes from.
func (b *Batch) addContext(ctx contextHeader, column []byte) {
	c := b.builder
	switch {
	case c.contextColumn[ctx]:
	case column != nil:
		b.add(contextNames[ctx], b.put(column))
	default:
		b.addPresent(contextNames[ctx], c.row.context[ctx])
	}
}

func (b *Batch) add(key string, value span) {
	b.headers = append(b.headers, header{key, value})
}

func (b *Batch) addPresent(key string, value span) {
	if !value.isNull() {
		b.add(key, value)
	}
}

// column is the value of a header column; nil is NULL.
func (ev *Event) column(i int) []byte {
	if i < len(ev.HeaderColumns) {
		return ev.HeaderColumns[i]
	}
	return nil
}

func (b *Batch) putPosition(lsn pglogrepl.LSN, ordinal uint64) span {
	off := len(b.slab)
	b.slab = appendPosition(b.slab, lsn, ordinal)
	return span{off, len(b.slab)}
}

func (b *Batch) putTime(t time.Time) span {
	off := len(b.slab)
	b.slab = appendTime(b.slab, t)
	return span{off, len(b.slab)}
}

// appendPosition appends 16 upper-case hex digits, '-' and 10 decimal digits: as text in the order of commits.
func appendPosition(dst []byte, lsn pglogrepl.LSN, ordinal uint64) []byte {
	const digits = "0123456789ABCDEF"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[uint64(lsn)>>shift&15])
	}
	dst = append(dst, '-')
	for below := uint64(1e9); below > ordinal && below > 1; below /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendUint(dst, ordinal, 10)
}

// appendTime appends RFC 3339 in UTC with six digits of the second.
func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000Z")
}

// missingAttribute finds what a CloudEvent must have.
func missingAttribute(p Profile, ev *Event) *Rejection {
	if p != CloudEvents {
		return nil
	}
	for _, a := range [...]struct {
		path, name string
		value      []byte
	}{{"$id", "id", ev.ID}, {"$type", "type", ev.Type}} {
		if len(a.value) > 0 {
			continue
		}
		found := "empty"
		if a.value == nil {
			found = "NULL"
		}
		return &Rejection{
			Reason:  ReasonInvalid,
			Path:    a.path,
			Message: fmt.Sprintf("the %s is %s, and a CloudEvent needs one", a.name, found),
		}
	}
	return nil
}

// checkHeaderColumns refuses names the profile sets itself, and names that come twice.
func checkHeaderColumns(p Profile, columns []string) error {
	var errs []error
	seen := make(map[string]bool)
	for _, name := range columns {
		lower := lowerASCII(name)
		switch {
		case name == "":
			errs = append(errs, errors.New("outbox.header_columns: a header needs a name"))
		case setBy(p, lower):
			errs = append(errs, fmt.Errorf("outbox.header_columns: the profile %s sets the header %q itself; choose another name", p, name))
		case seen[lower]:
			errs = append(errs, fmt.Errorf("outbox.header_columns: the header %q is there twice", name))
		}
		seen[lower] = true
	}
	return errors.Join(errs...)
}

// setBy reports whether a record of the profile has a header of that lower-case name, beside correlation and trace
// context, or its dead letter has.
func setBy(p Profile, lower string) bool {
	if strings.HasPrefix(lower, prefixDeadLetter) || lower == hdrValueSchemaID {
		return true
	}
	switch p {
	case Debezium:
		return lower == hdrID
	case Plain:
		return slices.Contains(ourNames, lower)
	}
	switch lower {
	case hdrSpecVersion, hdrCEID, hdrCESource, hdrCEType, hdrCESubject, hdrCETime, hdrCEDataSchema, hdrCESequence, hdrContentType:
		return true
	}
	return false
}

// lowerASCII leaves all but A to Z alone: a long s is not ours.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
