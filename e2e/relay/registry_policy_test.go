package relay_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// Three policies for a type that the registry does not have. The two relays that
// have to wait for it look again every 30 s, so they wait side by side: one
// holds the position, for one it is a dead letter at once and every later event
// of the type an ordinary record; the third sends what it gets.
//
// Seen red with a relay that makes dead letters whatever the policy.
func TestCase_S23_MissingTypes(t *testing.T) {
	t.Parallel()
	const typ = "order.placed.v1"
	reg := newRegistry(t)
	reg.seed("order.known.v1", 1, 3, numberSchema)
	config := map[string]any{"schema": harness.Config{"registry": harness.Config{"url": reg.url}}}
	halting := newOutbox(t, outboxOptions{config: map[string]any{"schema": harness.Config{"registry": harness.Config{"url": reg.url}, "on_missing": "halt"}}})
	letting := newOutbox(t, outboxOptions{config: config})
	passing := newOutbox(t, outboxOptions{config: map[string]any{"schema": harness.Config{"registry": harness.Config{"url": reg.url}, "on_missing": "pass", "encoding": "json"}}})

	halt := halting.run(halting.config)
	first := halting.insert("k", "order.known.v1", `{"n":1}`)
	waits := halting.insert("k", typ, `{"n":2}`)
	after := halting.insert("k", "order.known.v1", `{"n":3}`)
	halt.WaitNotReady(typ, loudness)
	if _, body := halt.Probe("/readyz"); !strings.Contains(body, "holding") || !strings.Contains(body, reg.url) {
		t.Errorf("not ready: %s", body)
	}
	if code, body := halt.Probe("/healthz"); code != http.StatusOK || !halt.Running() {
		t.Errorf("/healthz: %d %s", code, body)
	}
	if before := halting.read(1, "order", "tailer.dlq"); before[first] == nil {
		t.Error("the event before the one that waits is missing")
	}

	let := letting.run(letting.config)
	dead := letting.insert("k", typ, `{"n":1}`)
	letting.insert("k", "order.known.v1", `{"n":2}`)
	records := letting.read(2, "order", "tailer.dlq")
	letting.checkDeadLetter(dead, records[dead], deadLetter{topic: "tailer.dlq", reason: "no_schema", wanted: "order"})
	asked, began := reg.asked.Load(), time.Now()
	letting.pg.Exec(t, "INSERT INTO outbox (aggregate_id, type, payload) SELECT 'k', '"+typ+"', '{\"n\":1}' FROM generate_series(1, 10000)")
	letting.read(10002, "order", "tailer.dlq")
	// The refreshing of known types asks too, at most once a second.
	if n, most := reg.asked.Load()-asked, int64(2*time.Since(began).Seconds())+4; n > most {
		t.Errorf("%d requests for 10,000 events of a missing type", n)
	}

	pass := passing.run(passing.config)
	id := passing.insert("k", typ, `{"anything":true}`)
	if r := passing.read(1, "order", "tailer.dlq")[id]; r.Topic != "order" || string(r.Value) != `{"anything": true}` {
		t.Errorf("passed on to %s as %s", r.Topic, r.Value)
	}
	pass.Stop()

	reg.seed(typ, 1, 9, numberSchema)
	halt.WaitReady("active", waitLimit)
	held := halting.read(3, "order", "tailer.dlq")
	framed(t, held[waits], 9, numberSchema)
	if held[first].Offset != 0 || held[waits].Offset != 1 || held[after].Offset != 2 {
		t.Error("out of order after the hold")
	}
	harness.Eventually(t, waitLimit, "a late registration to be noticed", func() bool {
		letting.insert("k", typ, `{"n":3}`)
		n, _ := let.Metrics().Sum("tailer_events_published_total", `topic="order"`)
		return n > 1
	})
}

// Trouble of the registry is never "missing": no dead letter, and nothing is
// lost, whatever it answers.
func TestCase_L17_RegistryTrouble(t *testing.T) {
	t.Parallel()
	const typ = "order.placed.v1"
	type trouble struct {
		status int
		reg    *registry
		o      *outbox
		relay  *harness.Relay
	}
	var troubles []trouble
	// 404 without the registry's own code is that of a proxy.
	for _, status := range []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusUnauthorized, http.StatusNotFound} {
		reg := newRegistry(t)
		reg.seed(typ, 1, 9, numberSchema)
		reg.set(answer(status))
		o := newOutbox(t, outboxOptions{config: map[string]any{"schema": harness.Config{"registry": harness.Config{"url": reg.url}}}})
		o.pg.Exec(t, "INSERT INTO outbox (aggregate_id, type, payload) SELECT 'k', '"+typ+"', '{\"n\":1}' FROM generate_series(1, 100)")
		troubles = append(troubles, trouble{status, reg, o, harness.StartRelay(t, harness.RelayOptions{Config: o.config})})
	}
	for _, c := range troubles {
		c.relay.WaitNotReady(typ, loudness)
		c.relay.WaitLog("an event waits", loudness)
		if _, body := c.relay.Probe("/readyz"); !strings.Contains(body, strconv.Itoa(c.status)) {
			t.Errorf("status %d: not ready: %s", c.status, body)
		}
	}
	for _, c := range troubles {
		c.reg.heal()
	}
	for _, c := range troubles {
		c.relay.WaitReady("active", waitLimit)
		for _, r := range c.o.read(100, "order", "tailer.dlq") {
			framed(t, r, 9, numberSchema)
		}
	}
}

// A service registers a wider schema and writes by it, before the relay has
// looked for it: the payload that does not fit makes it look.
//
// Seen red with a relay that only looks now and then.
func TestNewerSchemaIsFoundByItsPayload(t *testing.T) {
	t.Parallel()
	const typ = "order.placed.v1"
	reg := newRegistry(t)
	reg.seed(typ, 1, 1, numberSchema)
	o := newOutbox(t, outboxOptions{config: map[string]any{"schema": harness.Config{"registry": harness.Config{"url": reg.url}}}})
	o.run(o.config)
	old := o.insert("k", typ, `{"n":1}`)
	o.read(1, "order", "tailer.dlq")
	looked := time.Now()
	harness.Eventually(t, waitLimit, "the pause after a look at the registry", func() bool { return time.Since(looked) > 2200*time.Millisecond })
	reg.seed(typ, 2, 2, widerSchema)
	wide := o.insert("k", typ, `{"n":2,"note":"wider"}`)
	wrong := o.insert("k", typ, `{"n":3,"nott":"wrong"}`)
	records := o.read(3, "order", "tailer.dlq")
	framed(t, records[old], 1, numberSchema)
	if d := differs("$", map[string]any{"n": int64(2), "note": "wider"}, framed(t, records[wide], 2, widerSchema)); d != "" {
		t.Error(d)
	}
	o.checkDeadLetter(wrong, records[wrong], deadLetter{topic: "tailer.dlq", reason: "invalid", path: "$.nott", wanted: "order"})
}

// on_invalid: halt holds the position and says where the payload is wrong, and
// nothing of what is in it. A folder is read at the start, so a mended schema
// comes with a restart.
func TestInvalidPayloadHalts(t *testing.T) {
	t.Parallel()
	const typ = "order.placed.v1"
	o := newOutbox(t, outboxOptions{schemas: map[string]string{typ: numberSchema}, config: map[string]any{"schema.on_invalid": "halt", "delivery.drain_timeout": "1s"}})
	relay := o.run(o.config)
	first := o.insert("k", typ, `{"n":1}`)
	o.insert("k", typ, `{"n":"four-and-twenty"}`)
	relay.WaitNotReady("$.n", loudness)
	if _, body := relay.Probe("/readyz"); !strings.Contains(body, typ) || !strings.Contains(body, "holding") {
		t.Errorf("not ready: %s", body)
	}
	if o.read(1, "order", "tailer.dlq")[first] == nil {
		t.Error("the event before is missing")
	}
	if strings.Contains(relay.Logs(), "four-and-twenty") {
		t.Error("payload data is in the log")
	}
	relay.Stop()
	mended := schemaFolder(t, map[string]string{typ: strings.Replace(numberSchema, `"long"`, `["long","string"]`, 1)})
	o.run(o.config.With("schema.dir", mended))
	o.read(2, "order", "tailer.dlq")
}
