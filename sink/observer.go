package sink

import (
	"log/slog"
	"sync"
	"time"
)

// Observer learns what became of records. Its methods are called from the publisher's goroutine, with Lanes
// from each lane's, and must not block.
type Observer interface {
	// Published says that n records of one cycle are acknowledged in topic; oldest is the earliest commit time of them.
	Published(topic string, n int, oldest time.Time)
	// Acked is called once for each acknowledged record, dead letters excepted.
	Acked(commit time.Time)
	// DeadLetter says that a dead letter is acknowledged in the dead letter topic.
	DeadLetter(reason Reason)
	// Retry counts what was tried again at peer, by kind of failure.
	Retry(peer, kind string)
	// Blocked says why topic's records wait; an empty cause says that they wait no more.
	Blocked(topic, cause string)
}

// nobody observes nothing, so that the publisher need not ask.
type nobody struct{}

func (nobody) Published(string, int, time.Time) {}
func (nobody) Acked(time.Time)                  {}
func (nobody) DeadLetter(Reason)                {}
func (nobody) Retry(string, string)             {}
func (nobody) Blocked(string, string)           {}

// blockedEvery is how often a topic that stays blocked for the same cause is logged again.
const blockedEvery = time.Minute

// blocked remembers which topics wait and why, so that the observer and the log hear of changes, not of every try.
type blocked struct {
	observer Observer
	log      *slog.Logger
	topics   map[string]standing
}

type standing struct {
	cause         string
	since, logged time.Time
}

func (b *blocked) set(topic, cause string, now time.Time) {
	s, ok := b.topics[topic]
	if !ok {
		s.since = now
	}
	if s.cause != cause {
		s.cause = cause
		b.observer.Blocked(topic, cause)
		s.logged = time.Time{}
	}
	if now.Sub(s.logged) >= blockedEvery {
		s.logged = now
		b.log.Warn("topic is blocked, its records wait", "topic", topic, "cause", cause, "since", s.since)
	}
	if b.topics == nil {
		b.topics = make(map[string]standing)
	}
	b.topics[topic] = s
}

// forget clears every topic without a word: whether one still waits is seen when
// its records are sent again.
func (b *blocked) forget() {
	for topic := range b.topics {
		delete(b.topics, topic)
		b.observer.Blocked(topic, "")
	}
}

// keep clears every topic for which still is false.
func (b *blocked) keep(still func(topic string) bool) {
	for topic, s := range b.topics {
		if still != nil && still(topic) {
			continue
		}
		delete(b.topics, topic)
		b.observer.Blocked(topic, "")
		b.log.Info("topic is no longer blocked", "topic", topic, "waited", time.Since(s.since).Round(time.Millisecond))
	}
}

// voices joins what several lanes say about topics: one that is blocked in any of them is blocked. The rest of an
// Observer passes through.
type voices struct {
	out Observer

	mu     sync.Mutex
	causes map[string]map[*voice]string // by topic
}

// voice is the Observer of one lane.
type voice struct {
	Observer
	all *voices
}

func (vs *voices) one() *voice { return &voice{Observer: vs.out, all: vs} }

// Blocked implements Observer.
func (v *voice) Blocked(topic, cause string) {
	vs := v.all
	vs.mu.Lock()
	defer vs.mu.Unlock()
	said := vs.causes[topic]
	if cause == "" {
		delete(said, v)
		for _, other := range said {
			cause = other
			break
		}
		if cause == "" {
			delete(vs.causes, topic)
		}
		vs.out.Blocked(topic, cause)
		return
	}
	if said == nil {
		said = make(map[*voice]string)
		if vs.causes == nil {
			vs.causes = make(map[string]map[*voice]string)
		}
		vs.causes[topic] = said
	}
	said[v] = cause
	vs.out.Blocked(topic, cause)
}
