// Package replication holds the connection to Postgres: it takes the slot,
// streams pgoutput messages and tells the server what may be forgotten.
//
// Its rules:
//
//   - A position is confirmed only by Confirm. Write, flush and apply of every
//     status carry that one watermark, which starts where the slot stands and
//     only grows. A position the server never sent is refused.
//   - Everything that would lose events silently is checked before
//     START_REPLICATION, because the server itself does not: it moves a start
//     position forward without a word and streams nothing for a publication
//     without inserts.
//   - On any error a Stream is over. The caller closes it and opens a new one,
//     which reads the position from the slot again; nothing is carried over.
//
// Goroutines: Next belongs to the reader, one goroutine of the caller's. The
// status writer is started by Open and awaited by Close; between the two it is
// the only one that writes to the connection. Confirm may be called by anyone.
// Close is called after the reader has returned from its last Next.
package replication
