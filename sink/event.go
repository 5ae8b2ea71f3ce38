package sink

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// Event is one insert into the outbox table. All of its memory is borrowed until Add returns.
type Event struct {
	CommitLSN  pglogrepl.LSN // Begin's final LSN; with Ordinal the event's position
	Ordinal    uint64        // counts the outbox table's inserts of the transaction, from 0
	CommitTime time.Time

	// nil is NULL or a role without a column; '' is empty and not nil.
	ID, Key, Type, Payload, Headers                                []byte
	CorrelationID, CausationID, Traceparent, Tenant, AggregateType []byte

	OccurredAt     []byte // RFC 3339, UTC, six digits; nil when NULL or when the value is no such time
	OccurredAtText []byte // the column's own text, also where OccurredAt is nil

	HeaderColumns [][]byte // in the order of BatchConfig.HeaderColumns
}

// Encoder makes a record's value from an event's payload.
type Encoder interface {
	// Encode appends the record's value for an event to dst and returns the longer slice. A *Rejection makes the
	// event a dead letter; any other error is returned by Add with the event not added. The info of a rejected
	// payload is used too, as far as it is known. typ is nil for a row whose type is NULL.
	Encode(dst, typ, payload []byte) (value []byte, info EncodeInfo, err error)
}

// EncodeInfo is what an encoder knows about a value beside its bytes. It is borrowed until the next Encode.
type EncodeInfo struct {
	DataSchema   string // URL of the schema, for ce_dataschema; "" when unknown
	SchemaHeader []byte // value of __value_schema_id; nil when the encoding has none
}

// Reason says why an event is a dead letter; it is the value of dlq_reason.
type Reason string

const (
	ReasonInvalid      Reason = "invalid"       // payload, headers, id or type are not what they must be
	ReasonNoSchema     Reason = "no_schema"     // the event's type has no schema
	ReasonTooLarge     Reason = "too_large"     // larger than its topic takes
	ReasonRefused      Reason = "refused"       // the broker refused the record, alone
	ReasonUnroutable   Reason = "unroutable"    // no topic follows from the event
	ReasonInvalidTopic Reason = "invalid_topic" // the topic that follows is no name Kafka can hold
	ReasonNullPayload  Reason = "null_payload"  // by policy
	ReasonNullKey      Reason = "null_key"      // by policy
)

// Rejection is the error for an event that can never become a record.
type Rejection struct {
	Reason  Reason
	Path    string // where in the row: $.address.zip, $headers, $id; "" when it is about the whole
	Message string
}

func (r *Rejection) Error() string {
	if r.Path == "" {
		return fmt.Sprintf("%s: %s", r.Reason, r.Message)
	}
	return fmt.Sprintf("%s: %s: %s", r.Reason, r.Path, r.Message)
}

// Profile is a set of record headers.
type Profile int

const (
	CloudEvents Profile = iota // CloudEvents 1.0, Kafka binding, binary mode
	Debezium                   // as Debezium's outbox event router
	Plain
)

func (p Profile) String() string {
	switch p {
	case CloudEvents:
		return "cloudevents"
	case Debezium:
		return "debezium"
	case Plain:
		return "plain"
	}
	return fmt.Sprintf("Profile(%d)", int(p))
}
