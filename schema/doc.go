// Package schema turns a database row into the value of a Kafka record: it
// finds the columns a relay needs, finds the Avro schema of an event type, and
// transcodes the payload's JSON text into Avro binary.
//
// Rules of the package:
//
//   - Nothing of a row or of a registry is trusted: malformed bytes give an
//     error, never a panic, and every length and depth has a bound.
//   - Two errors must never be mixed up. *Invalid and *NotFound concern the
//     record and are permanent for it; *Unavailable concerns the source, and the
//     record waits. Of a registry's answers only 40401 and 40403 are NotFound.
//   - A source is read and never written to.
//   - Per row nothing is allocated and nothing is waited for, once a type is known.
//
// # The column plan
//
// Mapping.Compile makes a Plan from a relation, by column name and type OID;
// Plan.Row fills a Row with one insert's values by role, borrowed from the frame
// where the text stands as it is (column.go has the renderings). A relation that
// is sent again after DDL needs a new plan. A Row belongs to one goroutine.
//
// # Sources
//
// A Catalog gives the TypeEncoder of an event type: an Encoder and the frame
// around its body (JSON text, Avro single-object, Confluent's prefix or header).
// It takes schemas from a folder, a registry, or a folder whose texts the
// registry names; catalog.go says which is asked when, dir.go what a folder looks
// like, cache.go what is kept on disk for a registry that is away.
//
// # Goroutines
//
// A catalogue with a registry alone has one goroutine, refresh, which looks for
// newer versions; NewCatalog starts it and Close waits for it. Nothing else here
// starts one. Encoder and Newer are the reader's and safe for any number.
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
