package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
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
// character, dlq_truncated is "true", and dlq_sha256 is the whole value's hash in hex. Where that is not enough, long
// header values are cut, the longest first, then headers are left out, the last first, but those of the dead letter
// itself, and at the very end the key is cut: a row that fits nowhere must not hold up all that follow. A dead letter
// that fits is returned as it is. The result shares memory with rec.
func (b *Batch) trimDeadLetter(rec *kgo.Record, limit int) *kgo.Record {
	if wireSize(rec) <= limit {
		return rec
	}
	trimmed := *rec
	trimmed.Headers = slices.Clone(rec.Headers)
	if !slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return h.Key == hdrDLQTruncated }) {
		trimmed.Headers = append(trimmed.Headers, kgo.RecordHeader{Key: hdrDLQTruncated, Value: []byte("true")})
		if rec.Value != nil {
			sum := sha256.Sum256(rec.Value)
			trimmed.Headers = append(trimmed.Headers, kgo.RecordHeader{Key: hdrDLQSHA256, Value: hex.AppendEncode(nil, sum[:])})
		}
	}
	excess := wireSize(&trimmed) - limit
	cut := func(p *[]byte) {
		if excess > 0 {
			before := len(*p)
			*p = cutText(*p, before-excess)
			excess -= before - len(*p)
		}
	}
	cut(&trimmed.Value)
	if excess > 0 {
		for _, i := range longHeaders(trimmed.Headers) {
			cut(&trimmed.Headers[i].Value)
		}
	}
	if excess > 0 {
		dropped := make([]bool, len(trimmed.Headers))
		for i, h := range slices.Backward(trimmed.Headers) {
			if excess > 0 && !strings.HasPrefix(h.Key, prefixDeadLetter) {
				dropped[i] = true
				excess -= wireHeader + len(h.Key) + len(h.Value)
			}
		}
		kept := trimmed.Headers[:0]
		for i, h := range trimmed.Headers {
			if !dropped[i] {
				kept = append(kept, h)
			}
		}
		trimmed.Headers = kept
	}
	cut(&trimmed.Key)
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

// longHeaders finds the headers whose values may be cut, the longest first. Hashes, positions and times are short.
func longHeaders(headers []kgo.RecordHeader) []int {
	const short = 64
	var long []int
	for i, h := range headers {
		if len(h.Value) > short {
			long = append(long, i)
		}
	}
	slices.SortStableFunc(long, func(i, j int) int { return len(headers[j].Value) - len(headers[i].Value) })
	return long
}

const (
	wireBatch  = 61 // a record batch's header
	wireRecord = 30 // length, attributes, time and offset deltas, lengths of key and value, number of headers
	wireHeader = 10 // lengths of name and value
)

// wireSize is the most a record takes as a batch of its own, uncompressed, which is what a broker holds against its
// limit: every number is counted with its longest form.
func wireSize(rec *kgo.Record) int {
	n := wireBatch + wireRecord + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += wireHeader + len(h.Key) + len(h.Value)
	}
	return n
}
