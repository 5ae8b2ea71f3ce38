package relay_test

import (
	"bytes"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// A hot standby under load. The holder of the slot is killed, frozen, and cut
// off by a network that swallows everything: each time the other one takes over
// when the server has freed the slot, and the former holder, if it lives, stands
// by in its turn. Nobody gives up, nobody is terminated, and the two never
// publish at once: only the frozen one may end the cycle that it was frozen in.
//
// Seen red with a publisher that begins a cycle without having heard of the
// server, and with a relay that takes a slot in use for a failure.
func TestCase_S14_StandbyTakesOver(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{})
	const batch = 200
	var log publishLog
	p.wire.On(func(r *kafka.Request) kafka.Fate {
		for topic, batches := range r.Batches(p.fake.Cluster) {
			for _, b := range batches {
				if topic == "order" {
					log.add(r.Client, int(b.NumRecords))
				}
			}
		}
		return kafka.Pass
	})
	proxy := harness.NewProxy(t, p.pg.Addr())
	relays := map[string]*harness.Relay{}
	start := func(name string, change func(harness.Config) harness.Config) *harness.Relay {
		config := p.config().With("delivery.batch_records", batch).With("kafka.client_id", name)
		relays[name] = p.startWith(change(config))
		return relays[name]
	}
	direct := func(c harness.Config) harness.Config { return c }
	proxied := func(c harness.Config) harness.Config {
		return c.With("postgres.dsn", "postgres://postgres@"+proxy.Addr()+"/postgres?sslmode=disable")
	}
	// The server needs wal_sender_timeout to see that the holder is gone; the
	// standby asks twice a second.
	const patience = senderTimeout + 5*time.Second

	writers := p.ledger.Write(t, harness.WriteOptions{Pause: 5 * time.Millisecond, MaxRows: 50})
	a := start("a", direct).Ready()
	b := start("b", direct)
	b.WaitReady("standby", 15*time.Second)
	p.flows(a)

	// Killed: its socket is closed, and the slot free at once.
	mark := log.len()
	a.Kill()
	b.WaitReady("active", patience)
	p.flows(b)
	log.assertHandover(t, mark, "a", "b", 0)

	// Frozen.
	c := start("c", proxied)
	c.WaitReady("standby", 15*time.Second)
	mark = log.len()
	b.Pause()
	c.WaitReady("active", patience)
	p.flows(c)
	b.Resume()
	b.WaitReady("standby", 15*time.Second)
	p.flows(c)
	log.assertHandover(t, mark, "b", "c", batch)

	// Cut off, without a FIN on either side.
	mark = log.len()
	proxy.Freeze()
	b.WaitReady("active", patience)
	c.WaitNotReady("", 10*time.Second)
	p.flows(b)
	proxy.Thaw()
	c.WaitReady("standby", 30*time.Second)
	p.flows(b)
	log.assertHandover(t, mark, "c", "b", 0)

	writers.Stop()
	p.ledger.WaitDelivered(t, p.consumer, time.Minute)
	for name, relay := range map[string]*harness.Relay{"b": b, "c": c} {
		if !relay.Running() {
			t.Errorf("relay %s has exited with %d", name, relay.ExitCode())
		}
	}
	if code := c.Stop(); code != 0 {
		t.Errorf("exit code %d of the standby", code)
	}
	p.end(b, p.consumer.Len())
	server, err := os.ReadFile(p.pg.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(server, []byte("due to administrator command")) {
		t.Error("a relay had a process of the server terminated")
	}
}

// flows waits until the relay has published some more.
func (p *plant) flows(relay *harness.Relay) {
	p.t.Helper()
	published := func() float64 {
		n, _ := relay.Metrics().Sum("tailer_events_published_total")
		return n
	}
	before := published()
	harness.Eventually(p.t, 30*time.Second, "more events published", func() bool { return published() >= before+300 })
}

// publishLog is who sent how many records, in the order of the requests.
type publishLog struct {
	mu      sync.Mutex
	entries []publishEntry
}

type publishEntry struct {
	client  string
	records int
}

func (l *publishLog) add(client string, records int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, publishEntry{client, records})
}

func (l *publishLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// assertHandover wants that from the mark on, after the successor's first
// request, the predecessor sent so many records at most.
func (l *publishLog) assertHandover(t testing.TB, mark int, predecessor, successor string, most int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	late, began := 0, false
	for _, e := range l.entries[mark:] {
		switch {
		case e.client == successor:
			began = true
		case e.client == predecessor && began:
			late += e.records
		case e.client != predecessor:
			t.Errorf("%s published %d records while %s had the slot, or %s", e.client, e.records, predecessor, successor)
		}
	}
	if !began {
		t.Errorf("%s has published nothing", successor)
	}
	t.Logf("%s to %s: %d records late", predecessor, successor, late)
	if late > most {
		t.Errorf("%s sent %d records after %s had taken over, at most %d may be on their way", predecessor, late, successor, most)
	}
}
