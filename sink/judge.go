package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/internal/backoff"
)

// What becomes of a group after a failed attempt: again in smaller pieces, a dead letter in its place, or to wait.

// corruptTries is how often a record must be called corrupt, alone, to be refused: a bit can flip on the way.
const corruptTries = 3

// staleTries is after how many failed attempts in a row, for a reason that should pass, the clients are replaced: what
// one of them remembers of the cluster, or a connection to a broker that was replaced at its address, may be the reason.
const staleTries = 4

// failed decides what to do after an attempt of n records in which g.err came up.
func (p *Idempotent) failed(ctx context.Context, g *group, n int) {
	topic := g.items[0].rec.Topic
	switch {
	case errors.Is(g.err, kgo.ErrAborting):
		// Not sent, because another record failed first.
		g.err, g.size, g.due = nil, len(g.items), time.Time{}
	case Classify(g.err) == PermanentRecord:
		p.observer.Retry("kafka", kindOf(g.err))
		if n > 1 && !g.asked && (errors.Is(g.err, kerr.MessageTooLarge) || errors.Is(g.err, kerr.RecordListTooLarge)) {
			g.asked = true
			p.reread(ctx, topic)
		}
		g.size, g.due = max(1, min(n, len(g.items))/2), time.Time{}
	default:
		p.hold(g, topic, g.err)
	}
}

// reread asks for a topic's limit again when a batch was too large for it: it may have been lowered. The client keeps
// the limits it learnt, so it is replaced when that is so.
func (p *Idempotent) reread(ctx context.Context, topic string) {
	before := p.limits.of(topic)
	p.limits.forget(topic)
	if err := p.ensure(ctx, topic); err != nil || p.limits.of(topic) != before {
		p.renew()
	}
}

// judge is called when the group's first record failed alone, with nothing else in flight.
func (p *Idempotent) judge(b *Batch, g *group) {
	it := &g.items[0]
	topic := it.rec.Topic
	reason, ok := refusal(g.err)
	switch {
	case !ok:
		p.hold(g, topic, g.err)
	case errors.Is(g.err, kerr.CorruptMessage) && g.corrupt+1 < corruptTries:
		g.corrupt++
		p.observer.Retry("kafka", kindOf(g.err))
		g.due = time.Now().Add(backoff.Pause(g.corrupt, p.backoffMin, p.backoffMax))
	case !it.dead:
		rej := &Rejection{Reason: reason, Message: p.verdict(it.rec, g.err)}
		p.log.Warn("the broker refused a record, writing its dead letter", "topic", topic, "reason", reason,
			"id", string(b.at(b.records[it.i].meta.id)), "dlq", p.cfg.DLQTopic, "cause", rej.Message)
		it.rec = b.deadLetter(it.i, rej)
		it.dead, it.reason = true, reason
		g.err, g.corrupt, g.tries, g.waitsOn, g.size, g.asked = nil, 0, 0, "", 1, false
		g.due = time.Time{}
	case reason == ReasonTooLarge && p.trim(b, it):
		g.err, g.due = nil, time.Time{}
	default:
		// A dead letter that its topic refuses has nowhere to go.
		p.hold(g, topic, fmt.Errorf("dead letter refused: %w", g.err))
	}
}

// verdict is the dlq_message. It must not depend on when it is written.
func (p *Idempotent) verdict(rec *kgo.Record, err error) string {
	var code *kerr.Error
	if !errors.As(err, &code) {
		return oneLine(err)
	}
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		return fmt.Sprintf("%s: the record has %d bytes uncompressed, topic %q takes %d (max.message.bytes)",
			code.Message, wireSize(rec), rec.Topic, p.limits.of(rec.Topic))
	}
	return code.Message + ": " + code.Description
}

// smallest is the size below which a dead letter is not trimmed further.
const smallest = 1 << 10

// trim makes a dead letter smaller. The first time it is made to fit what its topic is said to take, then half of that
// at each time, since what it takes is not always known.
func (p *Idempotent) trim(b *Batch, it *item) bool {
	if it.whole == nil {
		it.whole = it.rec
		it.limit = min(int(p.limits.of(it.rec.Topic)), wireSize(it.rec)-1)
	} else {
		it.limit /= 2
	}
	if it.limit < smallest {
		return false
	}
	it.rec = b.trimDeadLetter(it.whole, it.limit)
	p.log.Warn("dead letter is too large for its topic, trimming it", "topic", it.rec.Topic, "bytes", wireSize(it.whole), "to", wireSize(it.rec))
	return true
}

// hold makes the group wait and says why.
func (p *Idempotent) hold(g *group, topic string, err error) {
	now := time.Now()
	g.err, g.size, g.waitsOn = err, 1, topic
	g.tries++
	g.due = now.Add(backoff.Pause(g.tries, p.backoffMin, p.backoffMax))
	why := err
	if _, last := p.conns.last(); last != nil && !answered(err) {
		why = last
	}
	if Classify(why) != Auth {
		p.refused = time.Time{}
	} else if p.refused.IsZero() {
		p.refused = now
	}
	p.observer.Retry("kafka", kindOf(err))
	p.blocked.set(topic, p.cfg.cause(topic, why), now)
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		if _, known := p.limits.get(topic); known {
			// It is gone since. Ask for it again, and create it if that is allowed; the client may hold on to its old id.
			p.limits.forget(topic)
			p.renew()
		}
		return
	}
	var code *kerr.Error
	switch {
	case !errors.As(err, &code):
	case !code.Retriable:
		p.checkProducers()
	case g.tries%staleTries == 0:
		p.renew() // nothing is in flight here
	}
}

// checkProducers drops the clients when one of them has no usable producer id. An id that was refused stays refused in
// kgo, also when the right was granted meanwhile. Nothing is in flight here.
func (p *Idempotent) checkProducers() {
	for _, c := range []*client{p.main, p.large} {
		if c == nil {
			continue
		}
		err := p.await(context.Background(), 400*time.Millisecond, func(ctx context.Context) error {
			_, _, err := c.ProducerID(ctx)
			return err
		})
		if err != nil {
			p.renew()
			return
		}
	}
}
