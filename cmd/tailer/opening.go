package main

import (
	"sync"
	"time"
)

const (
	// openingSlow is how long a session may take to come about before it is said
	// of whom it waits for an answer.
	openingSlow = 5 * time.Second
	// openingAgain is the time between two log lines about it.
	openingAgain = time.Minute
)

// opening watches a session that comes about. A peer that takes connections and
// does not answer fails nothing, so nobody else would say that the relay waits.
type opening struct {
	relay *relay
	timer *time.Timer
	began time.Time

	mu     sync.Mutex
	over   bool // nothing is said any more
	peer   string
	logged time.Time
}

func (r *relay) opening() *opening {
	o := &opening{relay: r, began: time.Now()}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = time.AfterFunc(openingSlow, o.slow)
	return o
}

// asks notes who has to answer now.
func (o *opening) asks(peer string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.peer = peer
}

// end makes sure that nothing is said after it.
func (o *opening) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.timer.Stop()
}

func (o *opening) slow() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return
	}
	o.relay.health.NotReady("waiting for " + o.peer + " to answer")
	if now := time.Now(); now.Sub(o.logged) >= openingAgain {
		o.logged = now
		o.relay.log.Warn("still waiting for an answer", "peer", o.peer, "waited", now.Sub(o.began).Round(time.Second))
	}
	o.timer.Reset(openingSlow)
}
