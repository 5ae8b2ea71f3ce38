package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tailer-relay/tailer/sink"
)

// The names and labels that the contract promises.
func TestMetricsContract(t *testing.T) {
	m := newMetrics("shop")
	newHealth(m).Active()
	m.Received(3)
	m.Published("orders", 2, time.Now())
	m.Published("orders", 3, time.Now())
	m.DeadLetter(sink.ReasonInvalid)
	m.Acked(time.Now().Add(-20 * time.Millisecond))
	m.Acked(time.Now().Add(time.Hour)) // a server whose clock is ahead
	m.SetSlot(100, 200)
	m.SetInflight(5)
	m.Retry("kafka", "not_leader")
	m.Ignored("update")
	m.Blocked("orders", "no leader")
	want := `
# HELP tailer_active 1 while this process holds the slot and streams.
# TYPE tailer_active gauge
tailer_active{slot="shop"} 1
# HELP tailer_dead_letters_total Events written to the dead letter topic.
# TYPE tailer_dead_letters_total counter
tailer_dead_letters_total{reason="invalid",slot="shop"} 1
# HELP tailer_events_published_total Records acknowledged by the broker.
# TYPE tailer_events_published_total counter
tailer_events_published_total{slot="shop",topic="orders"} 5
# HELP tailer_events_received_total Outbox rows read from the stream, repeats after a reconnect included.
# TYPE tailer_events_received_total counter
tailer_events_received_total{slot="shop"} 3
# HELP tailer_ignored_changes_total Changes of the outbox table that are no events.
# TYPE tailer_ignored_changes_total counter
tailer_ignored_changes_total{op="update",slot="shop"} 1
# HELP tailer_inflight_bytes Bytes of batches that are not acknowledged.
# TYPE tailer_inflight_bytes gauge
tailer_inflight_bytes{slot="shop"} 5
# HELP tailer_ready 1 while /readyz answers 200.
# TYPE tailer_ready gauge
tailer_ready{slot="shop"} 0
# HELP tailer_retained_wal_bytes WAL that the server keeps because of the slot.
# TYPE tailer_retained_wal_bytes gauge
tailer_retained_wal_bytes{slot="shop"} 200
# HELP tailer_retries_total Attempts repeated after a transient error.
# TYPE tailer_retries_total counter
tailer_retries_total{kind="not_leader",peer="kafka",slot="shop"} 1
# HELP tailer_slot_lag_bytes WAL between the confirmed position and the server's current one.
# TYPE tailer_slot_lag_bytes gauge
tailer_slot_lag_bytes{slot="shop"} 100
# HELP tailer_topic_blocked 1 while records of a topic wait for a condition to end.
# TYPE tailer_topic_blocked gauge
tailer_topic_blocked{slot="shop",topic="orders"} 1
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "tailer_active", "tailer_dead_letters_total",
		"tailer_events_published_total", "tailer_events_received_total", "tailer_ignored_changes_total", "tailer_inflight_bytes",
		"tailer_ready", "tailer_retained_wal_bytes", "tailer_retries_total", "tailer_slot_lag_bytes", "tailer_topic_blocked"); err != nil {
		t.Error(err)
	}
	_, page := get(newHandler(m.health.Load(), m), "/metrics")
	for _, line := range []string{
		`tailer_commit_to_ack_seconds_bucket{slot="shop",le="0.0005"} 1`, // the clock that is ahead counts as zero
		`tailer_commit_to_ack_seconds_bucket{slot="shop",le="0.015"} 1`,
		`tailer_commit_to_ack_seconds_bucket{slot="shop",le="600"} 2`,
		`tailer_commit_to_ack_seconds_count{slot="shop"} 2`,
		`tailer_commit_to_ack_seconds_sum{slot="shop"} 0.02`,
		`tailer_build_info{goversion="go1.`, `go_goroutines `, `process_open_fds `,
	} {
		if !strings.Contains(page, line) {
			t.Errorf("no %s in\n%s", line, page)
		}
	}
	m.SetSlot(-5, -5)
	m.Blocked("orders", "")
	_, page = get(newHandler(m.health.Load(), m), "/metrics")
	for _, line := range []string{`tailer_slot_lag_bytes{slot="shop"} 0`, `tailer_retained_wal_bytes{slot="shop"} 0`, `tailer_topic_blocked{slot="shop",topic="orders"} 0`} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	if problems, err := testutil.GatherAndLint(m.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// What is called for each record, or each cycle, costs no garbage.
func TestMetricsDoNotAllocate(t *testing.T) {
	m := newMetrics("shop")
	commit := time.Now()
	m.Published("orders", 1, commit)
	for what, call := range map[string]func(){
		"Acked": func() { m.Acked(commit) }, "Received": func() { m.Received(1) },
	} {
		if n := testing.AllocsPerRun(1000, call); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

func BenchmarkAcked(b *testing.B) {
	m := newMetrics("shop")
	commit := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		m.Acked(commit)
	}
}
