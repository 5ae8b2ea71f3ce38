package scenario

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// RecordTooLarge is S05: a record that its topic cannot hold becomes a dead
// letter, cut to what that topic holds, with the hash of the whole; its
// neighbours of the same key are not disturbed. One that is too large only
// before it is compressed is delivered.
//
// Seen red with: a relay that tries the record again and again (the neighbours
// do not come); one that decides by the size before compression (a dead letter
// too many).
func RecordTooLarge(t testing.TB, env Env) {
	const topicLimit, dlqLimit = 1_000_000, 300_000
	b := env.lay(t, bedOptions{topics: map[string]map[string]string{
		theTopic: {"max.message.bytes": strconv.Itoa(topicLimit)},
		theDLQ:   {"max.message.bytes": strconv.Itoa(dlqLimit)},
	}})
	b.config = b.config.With("kafka.compression", "zstd")
	relay := b.start()
	conn := b.conn()
	b.insert(conn, "before")
	large := b.insert(conn, noise(2_000_000))
	b.insert(conn, "between")
	compressible := b.insert(conn, strings.Repeat("x", 5_000_000))
	fits := b.insert(conn, noise(topicLimit*9/10))
	b.insert(conn, "after")
	whole := b.pg.Query1(t, "SELECT encode(sha256(convert_to(payload::text, 'UTF8')), 'hex') FROM outbox WHERE id::text = '"+large.ID+"'")

	b.ledger.WaitDelivered(t, b.consumer, patience)
	b.sampler.WaitConfirmed(b.current(), patience)
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	records := b.consumer.CatchUp(patience)
	harness.AssertAcks(t, b.sampler.Stop(), records)
	rep := b.ledger.Check(t, records)
	if len(rep.Problems) > 0 || rep.Delivered != 5 || rep.Dead != 1 || rep.Duplicates > 0 {
		t.Errorf("want five events delivered in order and one dead letter: %v", rep)
	}
	for i := range records {
		rec := &records[i]
		reason, dead := rec.Header("dlq_reason")
		switch {
		case !dead:
			if least := map[string]int{compressible.ID: 5_000_000, fits.ID: topicLimit * 9 / 10}[rec.ID()]; len(rec.Value) < least {
				t.Errorf("event %s has %d bytes, not its %d", rec.ID(), len(rec.Value), least)
			}
		case rec.ID() != large.ID || reason != "too_large":
			t.Errorf("dead letter of %s, reason %s", rec.ID(), reason)
		default:
			message, _ := rec.Header("dlq_message")
			if !strings.Contains(message, strconv.Itoa(topicLimit)) || !strings.Contains(message, " 2000") {
				t.Errorf("the message names neither size nor limit: %s", message)
			}
			truncated, _ := rec.Header("dlq_truncated")
			if hash, _ := rec.Header("dlq_sha256"); truncated == "" || hash != whole {
				t.Errorf("cut %q, hash %s of a payload with %s", truncated, hash, whole)
			}
			if len(rec.Value) == 0 || len(rec.Value) > dlqLimit*2 {
				t.Errorf("the dead letter has %d bytes", len(rec.Value))
			}
		}
	}
}

// noise is text of n bytes that hardly compresses.
func noise(n int) string {
	raw := make([]byte, n*3/4)
	rand.Read(raw)
	return base64.StdEncoding.EncodeToString(raw)
}
