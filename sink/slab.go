package sink

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// span is a piece of a batch's slab. Offsets survive a slab that grows, slices would not.
type span struct {
	// Invariant: 0 <= off <= end <= len(slab), or both are -1, which is NULL.
	off, end int
}

var null = span{-1, -1}

func (s span) isNull() bool { return s.off < 0 }

// size is the number of bytes; NULL has none.
func (s span) size() int { return s.end - s.off }

// header is a record header before the slab stands still.
type header struct {
	key   string // interned or constant, never slab memory
	value span
}

// record is one event's future Kafka record, or its dead letter.
type record struct {
	topic string

	key   span
	value span
	// payload is the payload column's text, which a dead letter carries. It is the same span as value where the
	// encoding leaves the text unchanged.
	payload span

	hdrs [2]int // range in Batch.headers
	meta meta

	dead   bool   // already a dead letter: topic, value and headers are those of the dead letter
	reason Reason // set when dead
}

// meta is what a dead letter says about its event, whatever the header profile.
type meta struct {
	id, typ   span
	commitLSN pglogrepl.LSN
	ordinal   uint64
	committed time.Time
}

// put copies p to the end of the slab. nil stays NULL, and what is empty stays empty.
func (b *Batch) put(p []byte) span {
	if p == nil {
		return null
	}
	off := len(b.slab)
	b.slab = append(b.slab, p...)
	return span{off, len(b.slab)}
}

func (b *Batch) putString(s string) span {
	off := len(b.slab)
	b.slab = append(b.slab, s...)
	return span{off, len(b.slab)}
}

// at is the slab's memory of s: nil for NULL, never nil otherwise. It is valid until the slab grows or is reset.
func (b *Batch) at(s span) []byte {
	if s.isNull() {
		return nil
	}
	return b.slab[s.off:s.end:s.end]
}
