package relay_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// Nothing flows, and within ten seconds the probes say so: the relay has ended
// with 3 where a person must decide, else it is not ready and names the cause.
// It is alive all the time: no restart would help. Put right, it is ready again.
//
// Seen red with a relay whose readiness is that it streams.
func TestCase_S16_ProbesWhileNothingFlows(t *testing.T) {
	t.Parallel()
	waits := func(o *outbox, relay *harness.Relay, cause string) {
		o.t.Helper()
		relay.WaitNotReady(cause, loudness)
		for began := time.Now(); time.Since(began) < time.Second; {
			if code, body := relay.Probe("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, cause) {
				o.t.Fatalf("/readyz: %d %s", code, body)
			}
			if code, body := relay.Probe("/healthz"); code != http.StatusOK {
				o.t.Fatalf("/healthz: %d %s", code, body)
			}
		}
		if ready, ok := relay.Metrics().Sum("tailer_ready"); !ok || ready != 0 {
			o.t.Errorf("tailer_ready is %v", ready)
		}
	}
	ends := func(o *outbox, relay *harness.Relay) {
		o.t.Helper()
		if code := relay.WaitExit(loudness); code != 3 {
			o.t.Errorf("exit code %d\n%s", code, relay.Logs())
		}
	}
	reg := newRegistry(t)
	for name, c := range map[string]struct {
		opt outboxOptions
		run func(o *outbox)
	}{
		"S01 the slot is older than its publication": {outboxOptions{}, func(o *outbox) {
			o.pg.Exec(o.t, "DROP PUBLICATION tailer")
			o.order()
			o.init(o.config)
			ends(o, harness.StartRelay(o.t, harness.RelayOptions{Config: o.config}))
		}},
		"L06 the slot is lost": {outboxOptions{settings: map[string]string{"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "48MB"}}, func(o *outbox) {
			harness.Eventually(o.t, waitLimit, "the slot is lost", func() bool {
				o.wal(4 << 20)
				o.pg.Exec(o.t, "SELECT pg_switch_wal()", "CHECKPOINT")
				return o.text("SELECT wal_status FROM pg_replication_slots") == "lost"
			})
			ends(o, harness.StartRelay(o.t, harness.RelayOptions{Config: o.config}))
		}},
		"S07 the topic is missing": {outboxOptions{config: map[string]any{"kafka.topics": harness.Config{"create": false}, "dlq.topic": "there"}}, func(o *outbox) {
			kafka.CreateTopic(o.t, o.fake.Addrs(), "there", 1, -1, nil)
			relay := o.run(o.config)
			id := o.order()
			waits(o, relay, `topic "order"`)
			kafka.CreateTopic(o.t, o.fake.Addrs(), "order", 1, -1, nil)
			relay.WaitReady("active", time.Minute)
			if o.read(1, "order")[id] == nil {
				o.t.Errorf("another event than %s", id)
			}
		}},
		"L10 the table is not published": {outboxOptions{}, func(o *outbox) {
			relay := o.run(o.config)
			o.pg.Exec(o.t, "ALTER PUBLICATION tailer DROP TABLE outbox")
			waits(o, relay, `publication "tailer"`)
			o.pg.Exec(o.t, `ALTER PUBLICATION "tailer" ADD TABLE "public"."outbox"`)
			relay.WaitReady("active", time.Minute)
		}},
		"the registry is down": {outboxOptions{config: map[string]any{"schema": harness.Config{"registry": harness.Config{"url": reg.url}}}}, func(o *outbox) {
			reg.set(answer(http.StatusServiceUnavailable))
			relay := o.run(o.config)
			o.insert("k", "order.placed.v1", `{"n":1}`)
			waits(o, relay, reg.url)
			reg.seed("order.placed.v1", 1, 77, numberSchema)
			reg.heal()
			relay.WaitReady("active", time.Minute)
			o.read(1, "order")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(newOutbox(t, c.opt))
		})
	}
}
