package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A dead letter is the record that an event would have been, with its key and headers, sent to the dead letter topic
// with the payload column's text as value, and headers that say why. What is not known gives no header: a NULL id, the
// topic of an event that has none. Nothing in it depends on the moment, so that a repeat has the same bytes.

const (
	hdrDLQReason    = "dlq_reason"
	hdrDLQMessage   = "dlq_message"
	hdrDLQPath      = "dlq_path"
	hdrDLQType      = "dlq_type"
	hdrDLQTopic     = "dlq_topic"
	hdrDLQID        = "dlq_id"
	hdrDLQSequence  = "dlq_sequence"
	hdrDLQCommitted = "dlq_committed_at"
	hdrDLQTruncated = "dlq_truncated"
	hdrDLQSHA256    = "dlq_sha256"
)

// bury makes a record that is being added its dead letter. Its other headers are appended already, last of all.
func (b *Batch) bury(r *record, rej *Rejection) {
	b.add(hdrDLQReason, b.putString(string(rej.Reason)))
	b.add(hdrDLQMessage, b.putString(rej.Message))
	if rej.Path != "" {
		b.add(hdrDLQPath, b.putString(rej.Path))
	}
	b.addPresent(hdrDLQType, r.meta.typ)
	if r.topic != "" {
		b.add(hdrDLQTopic, b.putString(r.topic))
	}
	b.addPresent(hdrDLQID, r.meta.id)
	b.add(hdrDLQSequence, b.putPosition(r.meta.commitLSN, r.meta.ordinal))
	b.add(hdrDLQCommitted, b.putTime(r.meta.committed))
	r.topic = b.builder.cfg.DLQTopic
	r.value = r.payload
	r.dead, r.reason = true, rej.Reason
}

// deadLetter makes the dead letter of record i, which the broker refused. The batch is sealed and the client may be
// reading its memory, so the new headers have memory of their own; key, value and the record's headers are shared. A
// record that is a dead letter already stays the one it is: what was wrong first is what a person must know.
func (b *Batch) deadLetter(i int, rej *Rejection) *kgo.Record {
	r := &b.records[i]
	shared := b.kgoHeaders[r.hdrs[0]:r.hdrs[1]:r.hdrs[1]]
	rec := &kgo.Record{
		Topic:     b.builder.cfg.DLQTopic,
		Key:       b.at(r.key),
		Value:     b.at(r.payload),
		Headers:   shared,
		Timestamp: timestamp(r.meta.committed),
	}
	if r.dead {
		return rec
	}
	own := make([]kgo.RecordHeader, len(shared), len(shared)+8)
	copy(own, shared)
	add := func(key string, value []byte) {
		if value != nil {
			own = append(own, kgo.RecordHeader{Key: key, Value: value})
		}
	}
	add(hdrDLQReason, []byte(rej.Reason))
	add(hdrDLQMessage, []byte(rej.Message))
	if rej.Path != "" {
		add(hdrDLQPath, []byte(rej.Path))
	}
	add(hdrDLQType, b.at(r.meta.typ))
	add(hdrDLQTopic, []byte(r.topic))
	add(hdrDLQID, b.at(r.meta.id))
	add(hdrDLQSequence, appendPosition(nil, r.meta.commitLSN, r.meta.ordinal))
	add(hdrDLQCommitted, appendTime(nil, r.meta.committed))
	rec.Headers = own
	return rec
}

// trimDeadLetter makes a dead letter fit into limit bytes, by the measure of wireSize: the value is cut at a
// character, dlq_truncated is "true", and dlq_sha256 is the whole value's hash in hex. Where that is not enough, the
// longest header values are cut, and last the key: a row that fits nowhere must not hold up all that follow. A dead
// letter that fits is returned as it is. The result shares memory with rec.
func (b *Batch) trimDeadLetter(rec *kgo.Record, limit int) *kgo.Record {
	if wireSize(rec) <= limit {
		return rec
	}
	trimmed := *rec
	trimmed.Headers = slices.Clone(rec.Headers)
	if !hasHeader(rec, hdrDLQTruncated) {
		trimmed.Headers = append(trimmed.Headers, kgo.RecordHeader{Key: hdrDLQTruncated, Value: []byte("true")})
		if rec.Value != nil {
			sum := sha256.Sum256(rec.Value)
			trimmed.Headers = append(trimmed.Headers, kgo.RecordHeader{Key: hdrDLQSHA256, Value: hex.AppendEncode(nil, sum[:])})
		}
	}
	cut := func(p []byte) []byte { return cutText(p, len(p)-(wireSize(&trimmed)-limit)) }
	trimmed.Value = cut(trimmed.Value)
	for wireSize(&trimmed) > limit {
		i := longestHeader(trimmed.Headers)
		if i < 0 {
			break
		}
		trimmed.Headers[i].Value = cut(trimmed.Headers[i].Value)
	}
	if wireSize(&trimmed) > limit {
		trimmed.Key = cut(trimmed.Key)
	}
	return &trimmed
}

// cutText is the first n bytes of p, less where a character would be cut. nil stays nil.
func cutText(p []byte, n int) []byte {
	if n >= len(p) {
		return p
	}
	n = max(n, 0)
	for back := 0; n > 0 && back < utf8.UTFMax && !utf8.RuneStart(p[n]); back++ {
		n--
	}
	return p[:n:n]
}

// longestHeader finds the header whose value may lose most; -1 when all are short.
func longestHeader(headers []kgo.RecordHeader) int {
	const short = 64 // the hash, positions and times stay whole
	longest, most := -1, short
	for i, h := range headers {
		if len(h.Value) > most {
			longest, most = i, len(h.Value)
		}
	}
	return longest
}

func hasHeader(rec *kgo.Record, key string) bool {
	return slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return h.Key == key })
}

// wireSize is the most a record takes as a batch of its own, uncompressed, which is what a broker holds against its
// limit. Numbers are counted with their longest form.
func wireSize(rec *kgo.Record) int {
	const (
		batchHeader = 61
		number      = 5  // a length as varint
		record      = 30 // length, attributes, time and offset deltas, lengths of key and value, number of headers
	)
	n := batchHeader + record + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += 2*number + len(h.Key) + len(h.Value)
	}
	return n
}
