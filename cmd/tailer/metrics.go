package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tailer-relay/tailer/sink"
)

// metrics is everything that /metrics shows. It is the publisher's observer and
// safe for every goroutine; what is called for each record does not allocate.
type metrics struct {
	registry *prometheus.Registry

	received prometheus.Counter
	dead     *prometheus.CounterVec
	ack      prometheus.Histogram
	lag      prometheus.Gauge
	retained prometheus.Gauge
	inflight prometheus.Gauge
	retries  *prometheus.CounterVec
	ignored  *prometheus.CounterVec
	blocked  *prometheus.GaugeVec

	published *prometheus.CounterVec
	byTopic   sync.Map // topic -> prometheus.Counter: spares a lookup by labels each cycle

	active  atomic.Bool
	dropped atomic.Uint64          // fields that schema.unknown_fields: drop let go
	health  atomic.Pointer[health] // asked for tailer_ready; nil until newHealth

	mu     sync.Mutex
	causes map[string]string // topic -> why it is blocked, guarded by mu
}

var _ sink.Observer = (*metrics)(nil)

// ackBuckets run from half a millisecond, where a relay that is caught up
// lives, to ten minutes, where a backlog does.
var ackBuckets = []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

func newMetrics(slot string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), causes: map[string]string{}}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	m.received = prometheus.NewCounter(counter("tailer_events_received_total", "Outbox rows read from the stream, repeats after a reconnect included."))
	m.published = prometheus.NewCounterVec(counter("tailer_events_published_total", "Records acknowledged by the broker."), []string{"topic"})
	m.dead = prometheus.NewCounterVec(counter("tailer_dead_letters_total", "Events written to the dead letter topic."), []string{"reason"})
	m.ack = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tailer_commit_to_ack_seconds", Buckets: ackBuckets,
		Help: "Time from an event's commit in Postgres to the broker's acknowledgement."})
	m.lag = prometheus.NewGauge(gauge("tailer_slot_lag_bytes", "WAL between the confirmed position and the server's current one."))
	m.retained = prometheus.NewGauge(gauge("tailer_retained_wal_bytes", "WAL that the server keeps because of the slot."))
	m.inflight = prometheus.NewGauge(gauge("tailer_inflight_bytes", "Bytes of batches that are not acknowledged."))
	m.retries = prometheus.NewCounterVec(counter("tailer_retries_total", "Attempts repeated after a transient error."), []string{"peer", "kind"})
	m.ignored = prometheus.NewCounterVec(counter("tailer_ignored_changes_total", "Changes of the outbox table that are no events."), []string{"op"})
	m.blocked = prometheus.NewGaugeVec(gauge("tailer_topic_blocked", "1 while records of a topic wait for a condition to end."), []string{"topic"})
	version := buildVersion()

	prometheus.WrapRegistererWith(prometheus.Labels{"slot": slot}, m.registry).MustRegister(
		m.received, m.published, m.dead, m.ack, m.lag, m.retained, m.inflight, m.retries, m.ignored, m.blocked,
		prometheus.NewCounterFunc(counter("tailer_dropped_fields_total", "Fields that no schema knows, left out because of schema.unknown_fields: drop."),
			func() float64 { return float64(m.dropped.Load()) }),
		prometheus.NewGaugeFunc(gauge("tailer_active", "1 while this process holds the slot and streams."), func() float64 { return number(m.active.Load()) }),
		prometheus.NewGaugeFunc(gauge("tailer_ready", "1 while /readyz answers 200."), func() float64 {
			h := m.health.Load()
			if h == nil {
				return 0
			}
			ready, _ := h.ready()
			return number(ready)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tailer_build_info", Help: "1, labelled with what was built.",
			ConstLabels: prometheus.Labels{"version": version.Version, "goversion": runtime.Version()}}, func() float64 { return 1 }),
	)
	return m
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Received counts outbox rows.
func (m *metrics) Received(n int) { m.received.Add(float64(n)) }

// Ignored counts a change that is no event: update, delete, truncate, message …
func (m *metrics) Ignored(op string) { m.ignored.WithLabelValues(op).Inc() }

// SetActive tells whether this process holds the slot.
func (m *metrics) SetActive(active bool) { m.active.Store(active) }

// SetSlot takes the slot's figures; a negative one would be an artefact of two reads.
func (m *metrics) SetSlot(lag, retained int64) {
	m.lag.Set(float64(max(lag, 0)))
	m.retained.Set(float64(max(retained, 0)))
}

// SetInflight takes the bytes of batches that are not acknowledged.
func (m *metrics) SetInflight(bytes int) { m.inflight.Set(float64(bytes)) }

// Published implements sink.Observer.
func (m *metrics) Published(topic string, n int, _ time.Time) {
	c, ok := m.byTopic.Load(topic)
	if !ok {
		c, _ = m.byTopic.LoadOrStore(topic, m.published.WithLabelValues(topic))
	}
	c.(prometheus.Counter).Add(float64(n))
}

// Acked implements sink.Observer. The server's clock may be ahead of ours: such
// an event counts as acknowledged at once.
func (m *metrics) Acked(commit time.Time) {
	m.ack.Observe(max(time.Since(commit), 0).Seconds())
}

// DeadLetter implements sink.Observer.
func (m *metrics) DeadLetter(reason sink.Reason) { m.dead.WithLabelValues(string(reason)).Inc() }

// Retry implements sink.Observer.
func (m *metrics) Retry(peer, kind string) { m.retries.WithLabelValues(peer, kind).Inc() }

// Blocked implements sink.Observer: cause "" ends it. The series stays at 0, so
// that an alert sees the end.
func (m *metrics) Blocked(topic, cause string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cause == "" {
		if _, was := m.causes[topic]; !was {
			return
		}
		delete(m.causes, topic)
		m.blocked.WithLabelValues(topic).Set(0)
		return
	}
	m.causes[topic] = cause
	m.blocked.WithLabelValues(topic).Set(1)
}

// blockedTopics says "topic orders: cause" for each blocked topic.
func (m *metrics) blockedTopics() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]string, 0, len(m.causes))
	for topic, cause := range m.causes {
		out = append(out, fmt.Sprintf("topic %s: %s", topic, cause))
	}
	return out
}
