package relay_test

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/host"
	"github.com/tailer-relay/tailer/e2e/kafka"
)

// After a little of everything each metric of the interface has a sample, and
// the right one; probes and commands tell the same story.
func TestMetricsProbesAndCommands(t *testing.T) {
	t.Parallel()
	port, err := host.NewPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	listen := net.JoinHostPort("127.0.0.1", formatInt(int64(port.Number)))
	o := newOutbox(t, outboxOptions{config: map[string]any{"kafka.topics.create": false, "http.listen": listen}})
	o.pg.Exec(t, "ALTER PUBLICATION tailer SET (publish = 'insert, update, delete')")
	for _, topic := range []string{"order", "tailer.dlq"} {
		kafka.CreateTopic(t, o.fake.Addrs(), topic, 1, -1, nil)
	}
	if got := harness.Run(t, o.config, "health"); got.Code != 1 || !strings.Contains(got.Stderr, listen) {
		t.Errorf("health without a relay: %+v", got)
	}
	relay := o.run(o.config)
	if code, body := relay.Probe("/readyz"); code != http.StatusOK || body != "active" {
		t.Errorf("/readyz: %d %q", code, body)
	}

	// An event, one that cannot be routed, one changed and one deleted, and one
	// whose topic is missing for a while.
	id := o.order()
	o.insert("k", "Shapeless", `{}`)
	o.pg.Exec(t, "UPDATE outbox SET sent_at = now() WHERE id::text = '"+id+"'", "DELETE FROM outbox WHERE type = 'Shapeless'")
	o.insert("k", "late.come.v1", `{}`)
	relay.WaitNotReady("late", loudness)
	if got := harness.Run(t, o.config, "health"); got.Code != 1 || !strings.Contains(got.Stdout, "late") {
		t.Errorf("health while a topic is missing: %+v", got)
	}
	if code, _ := relay.Probe("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz is %d while a topic is missing: a restart would not help", code)
	}
	if n, _ := relay.Metrics().Sum("tailer_topic_blocked", `topic="late"`); n != 1 {
		t.Errorf("tailer_topic_blocked is %v while the topic is missing", n)
	}
	if n, _ := relay.Metrics().Sum("tailer_inflight_bytes"); n <= 0 {
		t.Errorf("tailer_inflight_bytes is %v while an event waits", n)
	}
	if n, _ := relay.Metrics().Sum("tailer_ready"); n != 0 {
		t.Errorf("tailer_ready is %v while a topic is missing", n)
	}
	kafka.CreateTopic(t, o.fake.Addrs(), "late", 1, -1, nil)
	o.read(3, "order", "late", "tailer.dlq")
	relay.WaitReady("active", waitLimit)

	waitMetric(t, relay, 2, "tailer_events_published_total")
	waitMetric(t, relay, 0, "tailer_inflight_bytes")
	metrics := relay.Metrics()
	for name, want := range map[string]float64{
		`tailer_active`:                                   1,
		`tailer_ready`:                                    1,
		`tailer_events_received_total`:                    3,
		`tailer_events_published_total|topic="order"`:     1,
		`tailer_events_published_total|topic="late"`:      1,
		`tailer_dead_letters_total|reason="unroutable"`:   1,
		`tailer_commit_to_ack_seconds_count`:              2,
		`tailer_inflight_bytes`:                           0,
		`tailer_ignored_changes_total|op="update"`:        1,
		`tailer_ignored_changes_total|op="delete"`:        1,
		`tailer_topic_blocked|topic="late"`:               0,
		`tailer_build_info`:                               1,
		`tailer_slot_lag_bytes`:                           -1, // any value
		`tailer_retained_wal_bytes`:                       -1,
		`tailer_retries_total|peer="kafka",slot="tailer"`: -1,
	} {
		bare, label, _ := strings.Cut(name, "|")
		labels := []string{`slot="tailer"`}
		for l := range strings.SplitSeq(label, ",") {
			labels = append(labels, l)
		}
		got, ok := metrics.Sum(bare, labels...)
		if !ok || got < 0 || want >= 0 && got != want {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
		}
	}
	for name := range metrics {
		if bare, labels, _ := strings.Cut(name, "{"); strings.HasPrefix(bare, "tailer_") && !strings.Contains(labels, `slot="tailer"`) {
			t.Errorf("%s has no slot", name)
		}
	}

	var status struct {
		Slot struct {
			Name           string
			Exists, Active bool
			LagBytes       *int64 `json:"lag_bytes"`
			Retained       *int64 `json:"retained_wal_bytes"`
		}
		Relay struct {
			Answered, Ready bool
			Says            string
		}
	}
	told := harness.Run(t, o.config, "status", "--json")
	if err := json.Unmarshal([]byte(told.Stdout), &status); err != nil || told.Code != 0 {
		t.Fatalf("status --json: exit code %d, %v\n%s%s", told.Code, err, told.Stdout, told.Stderr)
	}
	if s := status.Slot; s.Name != "tailer" || !s.Exists || !s.Active || s.LagBytes == nil || *s.LagBytes < 0 || s.Retained == nil || *s.Retained < 0 {
		t.Errorf("status: %s", told.Stdout)
	}
	if r := status.Relay; !r.Answered || !r.Ready || r.Says != "active" {
		t.Errorf("status of the relay: %s", told.Stdout)
	}
	if got := harness.Run(t, o.config, "status"); got.Code != 0 || !strings.Contains(got.Stdout, "ready, active") {
		t.Errorf("status: %+v", got)
	}
	for _, args := range [][]string{{"health"}, {"health", "--live"}} {
		if got := harness.Run(t, o.config, args...); got.Code != 0 || got.Stdout == "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
	// A second relay stands by, ready, and takes over; its metrics say which is which.
	second := harness.StartRelay(t, harness.RelayOptions{Config: o.config.With("http.listen", nil)})
	second.WaitReady("standby", loudness)
	active, _ := second.Metrics().Sum("tailer_active")
	ready, _ := second.Metrics().Sum("tailer_ready")
	if active != 0 || ready != 1 {
		t.Errorf("the standby's tailer_active is %v, its tailer_ready %v", active, ready)
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	second.WaitReady("active", loudness)
}
