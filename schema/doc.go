// Package schema turns a database row into the value of a Kafka record: it
// finds the columns a relay needs, finds the Avro schema of an event type, and
// transcodes the payload's JSON text into Avro binary.
//
// # The transcoder
//
// Compile makes an Encoder from a schema text. An Encoder is immutable and safe
// for concurrent use; Append reads a JSON document once and appends Avro binary
// to the caller's slice, without an intermediate map and, on valid input,
// without allocation. It does no I/O, starts no goroutine and never panics,
// whatever the bytes.
//
// The rules, the same at every depth of a document:
//
//   - A document is either encoded exactly or refused with an *Invalid that
//     names the path. Nothing is coerced, clipped or guessed.
//   - int and long take integral JSON numbers in range. 1.0 and 1e3 are
//     integral; 1.5, "12" and true are refused.
//   - float and double take numbers and round to nearest. One that would become
//     infinite is refused; one too small to be represented becomes zero.
//   - decimal takes a number, or text that holds one, and keeps it exactly: finer
//     than the scale or longer than the precision is refused. Text is never
//     read as code points.
//   - bytes and fixed take text, one byte for each code point up to U+00FF; a
//     fixed must have exactly its size. duration is such a fixed of 12 bytes.
//   - date, time-*, timestamp-* and local-timestamp-* take an integral number in
//     the stored unit or ISO 8601 / RFC 3339 text. Text finer than the unit, a
//     day that is not in the calendar, a timestamp without zone and a local
//     timestamp with one are refused. Years are 0000 to 9999.
//   - uuid takes the 36 character form. Upper case is accepted and written in
//     lower case on string, as 16 bytes on fixed.
//   - enum takes one of its symbols. Its default is a rule for readers and is
//     never written.
//   - A record's fields may come in any order. A missing field takes its default,
//     else it is refused. A field the record does not have is refused, or dropped
//     with Options.DropUnknown. A key that occurs twice is refused.
//   - Invalid UTF-8, lone surrogates, bytes after the value and nesting deeper
//     than 256 are refused.
//
// A union is decided by the JSON token. Where several branches take the token:
//
//   - A number written as an integer goes to the first int or long branch (with
//     any logical type), then the first decimal or double one, then float; the
//     first that takes it. Any other number tries int and long last.
//   - Text goes to the first branch in schema order that takes it, but to bytes
//     and fixed only after all others.
//   - An object goes to the record whose fields fit it best: no value of another
//     kind, no required field missing, fewest unknown fields; of equals to the
//     first, and to a record before a map.
//   - An object whose only key is the name of a branch, as Avro's own JSON
//     encoding writes it, is that branch. If a record or map of the union fits it
//     as well, it is refused as ambiguous rather than guessed.
//
// Defaults are encoded when the schema is compiled, by Avro's rules for defaults
// (the base type without its logical type, a union's first branch), from the
// schema text with exact numbers. A schema whose defaults, names, symbols or
// decimals are wrong does not compile, and the error names the field.
package schema
