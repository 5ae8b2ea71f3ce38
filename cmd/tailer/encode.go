package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tailer-relay/tailer/schema"
	"github.com/tailer-relay/tailer/sink"
)

// haltRetry is how often a relay that holds for a schema looks for it again.
const haltRetry = 30 * time.Second

// hold is an event that can neither be published nor dead-lettered by policy:
// the position stays where it is until somebody puts the cause right.
type hold struct{ err error }

func (h *hold) Error() string { return "holding: " + h.err.Error() }
func (h *hold) Unwrap() error { return h.err }

// waitHint says what ends the wait of an event that could not be encoded, or is "".
func waitHint(err error) string {
	var (
		held        *hold
		unavailable *schema.Unavailable
		missing     *schema.NotFound
		secs        = haltRetry.Seconds()
	)
	switch {
	case errors.As(err, &unavailable):
		return unavailable.Hint
	case errors.As(err, &missing):
		return fmt.Sprintf("put the schema where it is looked for; the next look is in %.0f s", secs)
	case errors.As(err, &held):
		return fmt.Sprintf("put a schema in place that takes the payload; the next look is in %.0f s", secs)
	}
	return ""
}

// withHint is an error and its hint as one line.
func withHint(err error, hint string) string {
	if hint == "" {
		return err.Error()
	}
	return err.Error() + "; " + hint
}

// encoder joins the catalogue to the batch: it applies the policies for events
// without a schema and for payloads that do not fit theirs. The reader owns it.
type encoder struct {
	catalog     *schema.Catalog // nil: schema.mode off
	passUnknown bool            // on_missing: pass
	haltMissing bool
	haltInvalid bool
	ctx         context.Context // the session's; bounds a look-up in the registry
	retries     interface{ Retry(peer, kind string) }
	// load reads the schemas anew; nil where the catalogue does so itself.
	load func(context.Context) (*schema.Catalog, error)
}

// Encode implements sink.Encoder. An error that is no *sink.Rejection leaves
// the event where it is: a registry that does not answer, or a policy to hold.
func (e *encoder) Encode(dst, typ, payload []byte) ([]byte, sink.EncodeInfo, error) {
	if e.catalog == nil {
		return append(dst, payload...), sink.EncodeInfo{}, nil
	}
	enc, err := e.catalog.Encoder(e.ctx, typ)
	if err != nil {
		return e.missing(dst, typ, payload, err)
	}
	value, err := enc.Append(dst, payload)
	if err != nil {
		// The writer may have registered the version that it follows a moment ago.
		if newer := e.catalog.Newer(e.ctx, typ, enc); newer != nil {
			enc = newer
			value, err = enc.Append(dst, payload)
		}
	}
	if err != nil {
		var invalid *schema.Invalid
		if !errors.As(err, &invalid) {
			return dst, sink.EncodeInfo{}, fmt.Errorf("encode an event of type %s: %w", typ, err)
		}
		if e.haltInvalid {
			// What was found may be payload data, which belongs into no log and no readiness answer.
			return dst, sink.EncodeInfo{}, &hold{fmt.Errorf("an event of type %s does not fit its schema at %s, which wants %s (schema.on_invalid: halt)", typ, invalid.Path, invalid.Expected)}
		}
		return dst, sink.EncodeInfo{}, &sink.Rejection{Reason: sink.ReasonInvalid, Path: invalid.Path, Message: invalid.Error()}
	}
	return value, sink.EncodeInfo{DataSchema: enc.DataSchema(), SchemaHeader: enc.SchemaHeader()}, nil
}

func (e *encoder) missing(dst, typ, payload []byte, err error) ([]byte, sink.EncodeInfo, error) {
	var none *schema.NotFound
	switch {
	case !errors.As(err, &none):
		e.retries.Retry("registry", "lookup")
		return dst, sink.EncodeInfo{}, err
	case e.passUnknown:
		return append(dst, payload...), sink.EncodeInfo{}, nil
	case e.haltMissing:
		return dst, sink.EncodeInfo{}, &hold{none}
	}
	return dst, sink.EncodeInfo{}, &sink.Rejection{Reason: sink.ReasonNoSchema, Message: none.Error()}
}

// reload is called while an event is held: the schema that it waits for may
// have been put into the folder. One that cannot be read changes nothing.
func (e *encoder) reload(ctx context.Context) error {
	if e.load == nil {
		return nil
	}
	fresh, err := e.load(ctx)
	if err != nil {
		return err
	}
	e.close()
	e.catalog = fresh
	return nil
}

func (e *encoder) close() {
	if e.catalog != nil {
		e.catalog.Close()
	}
}
