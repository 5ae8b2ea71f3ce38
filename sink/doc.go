// Package sink turns outbox events into Kafka records and publishes them.
//
// # The record side
//
// A [Builder] is made once from a [BatchConfig] and checks all of it: the routing template, topic names, header
// columns. It hands out batches. A [Batch] collects the records of many events in one slab of memory, together with
// the last position that may be confirmed once all of them are settled.
//
// Rules:
//
//   - [Batch.Add] never fails because of a row. A row that can become no record becomes its dead letter right there,
//     at its place in the order. An error of Add means that the event was not added (a registry is away, say) and
//     that the same event may be given again.
//   - Everything in an [Event] is borrowed until Add returns; the batch keeps copies in its slab.
//   - Offsets, not slices, point into the slab while it grows. Kafka records are made once, by seal, when the slab
//     stands still; they point into it until [Batch.Reset].
//   - A record and a dead letter are functions of the row and the configuration alone: a repeat has the same bytes.
//   - In steady state an event costs no allocation: names of topics and headers are interned, all slices are reused.
//
// # Topics
//
// A topic of its own for the event's type (schema.types.TYPE.topic) wins. Otherwise the template of routing.topic is
// filled in. {domain}, {event} and {version} come from a type of the shape <domain>.<event>.v<n>: exactly three parts,
// n a decimal number without leading zeros; {version} is the last part as it stands, "v1". {type} is the whole type,
// of any shape. A role ({key}, {aggregatetype}, {tenant} …) stands for the text of its column; payload, headers and
// occurred_at are no names and cannot be used.
//
// An event goes to routing.default when the template needs the shape and the type has it not, or needs a role that is
// NULL; without a default it is a dead letter "unroutable". A name that Kafka cannot hold is never mended, because two
// types must not fall together: it is a dead letter "invalid_topic".
//
// # Headers
//
// The profiles, each in this order; what is NULL is left out, what is empty is sent empty:
//
//	cloudevents  ce_specversion ce_id ce_source ce_type ce_subject ce_time [ce_dataschema] content-type
//	             [__value_schema_id] ce_sequence
//	plain        id type occurred_at aggregate_id sequence content-type [__value_schema_id]
//	debezium     id [__value_schema_id], then the header columns, where NULL is a header with a null value
//
// cloudevents and plain go on with correlation_id, causation_id, tenant, the other entries of the row's headers
// column, traceparent, tracestate, baggage, and end with the header columns in their written order.
//
// ce_time must be an RFC 3339 time, so an occurred_at that is none (infinity, BC, a year of five digits) is replaced by
// the commit time there, while plain carries the column's own text. CloudEvents wants an id and a type of at least one
// character: a row without them is a dead letter "invalid" with path $id or $type in that profile; the others send what is there.
//
// The headers column is a JSON object, see rowheaders.go for its rules. The debezium profile does not look at it.
//
// # Dead letters
//
// When several things are wrong with a row the first of this list is its reason: unroutable, invalid_topic, null_key,
// null_payload, then invalid for id and type, for the headers column, and last what the encoder says of the payload.
// deadletter.go has their form, and what is cut from one that is too large.
//
// # The publisher side
//
// [Idempotent] publishes a batch in cycles: produce all, flush, look at every promise, resolve what failed (resolve.go and
// judge.go say how). Its rules:
//
//   - Nothing of a cycle is sent before all of it is buffered, and no cycle begins before the one before is settled. So
//     what is written of a partition is a prefix of what was to be written.
//   - A record is refused only by a broker that saw it alone, with an error that no retry cures. Its dead letter takes
//     its place. Any other failure holds: the same record again, for ever, said aloud through Observer.Blocked.
//   - A record's context never ends and no record times out. A cycle ends early only as a whole: abort, and if that
//     does not settle it in time, close the client.
//   - A batch's memory is free when every promise of it was called ([Batch.Settled]), not when a flush, a close or
//     Publish has returned.
//   - Topics are created on purpose or not at all.
//
// # Lanes
//
// [Lanes] keeps a topic that cannot be written to from holding up the others: it is an Idempotent for all topics, and one
// more for those that are sick. lanes.go has the rules, isolate.go what leaves a cycle that is stuck.
//
// # Goroutines
//
// The record side starts none. Builder and Add belong to the reader goroutine; seal and the dead letter methods belong
// to the publisher, which owns a batch from the hand-over to Reset. All methods of Idempotent belong to one
// goroutine, with Lanes that of its lane; it hands single calls that block to goroutines of their own, to go on beating, and waits for them. Promises
// and hooks run in goroutines of kgo: they touch only flight, connections, limits and kafkaLog, each behind its mutex.
package sink
