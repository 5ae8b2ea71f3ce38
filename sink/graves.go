package sink

import "time"

// gravesEvery is how often dead letters of one reason are logged: one bad
// deployment makes them by the thousand.
const gravesEvery = time.Minute

// graves counts, by reason, the dead letters that no log line has told of yet.
type graves map[Reason]grave

type grave struct {
	untold int
	told   time.Time // when the last line was written; zero: never
}

// due adds a dead letter and returns how many a line should tell of now; 0 for
// no line.
func (g graves) due(reason Reason, now time.Time) int {
	at := g[reason]
	at.untold++
	n := 0
	if now.Sub(at.told) >= gravesEvery {
		n, at = at.untold, grave{told: now}
	}
	g[reason] = at
	return n
}

// buried tells of a dead letter that its topic has acknowledged. The line names
// one event; the headers in the topic have the rest.
func (p *Idempotent) buried(b *Batch, r *record, reason Reason) {
	p.observer.DeadLetter(reason)
	if p.graves == nil {
		p.graves = graves{}
	}
	if n := p.graves.due(reason, time.Now()); n > 0 {
		p.log.Warn("events became dead letters", "reason", string(reason), "count", n, "dlq", p.cfg.DLQTopic,
			"type", clip(b.at(r.meta.typ)), "id", clip(b.at(r.meta.id)))
	}
}

// clip bounds what a row can put into a log line.
func clip(text []byte) string { return string(text[:min(len(text), 100)]) }
