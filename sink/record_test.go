package sink

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// verbatimEncoder is the encoder of mode off: the payload's text is the value.
type verbatimEncoder struct{}

func (verbatimEncoder) Encode(dst, _, payload []byte) ([]byte, EncodeInfo, error) {
	return append(dst, payload...), EncodeInfo{}, nil
}

// framedEncoder stands for a binary encoding: the value differs from the payload.
type framedEncoder struct {
	info EncodeInfo
	err  error // returned for every payload
}

func (e *framedEncoder) Encode(dst, _, payload []byte) ([]byte, EncodeInfo, error) {
	dst = append(dst, 0, 0, 0, 0, 7)
	dst = append(dst, payload...)
	return dst, e.info, e.err
}

var (
	commitTime = time.Date(2026, 3, 4, 5, 6, 7, 891234000, time.FixedZone("", 3600))
	commitText = "2026-03-04T04:06:07.891234Z"
)

// order is an event with every column set.
func order() *Event {
	return &Event{
		CommitLSN:      0x1A2B3C4D5,
		Ordinal:        7,
		CommitTime:     commitTime,
		ID:             []byte("e-1"),
		Key:            []byte("42"),
		Type:           []byte("orders.placed.v1"),
		Payload:        []byte(`{"n": 1}`),
		Headers:        []byte(`{"region": "eu", "baggage": "k=v", "attempt": 2, "tracestate": "x=1"}`),
		CorrelationID:  []byte("corr"),
		CausationID:    []byte("cause"),
		Traceparent:    []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
		Tenant:         []byte("acme"),
		AggregateType:  []byte("order"),
		OccurredAt:     []byte("2026-01-02T03:04:05.678901Z"),
		OccurredAtText: []byte("2026-01-02 03:04:05.678901+00"),
	}
}

func config(p Profile) BatchConfig {
	return BatchConfig{Slot: "shop", Profile: p, Topic: "{domain}", ContentType: "application/json"}
}

func builder(t testing.TB, cfg BatchConfig, enc Encoder) *Builder {
	t.Helper()
	c, err := NewBuilder(cfg, enc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// recordOf adds one event and gives its record.
func recordOf(t testing.TB, cfg BatchConfig, enc Encoder, ev *Event) *kgo.Record {
	t.Helper()
	b := builder(t, cfg, enc).NewBatch()
	if err := b.Add(ev); err != nil {
		t.Fatal(err)
	}
	return b.seal()[0]
}

func text(p []byte) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprintf("%q", p)
}

// show writes a record as lines, so that a test can state all of it: topic, key, value, headers in their order.
func show(r *kgo.Record) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s %s %s\n", r.Topic, text(r.Key), text(r.Value), r.Timestamp.UTC().Format("15:04:05.000000"))
	s.WriteString(showHeaders(r))
	return s.String()
}

func showHeaders(r *kgo.Record) string {
	var s strings.Builder
	for _, h := range r.Headers {
		fmt.Fprintf(&s, "%s=%s\n", h.Key, text(h.Value))
	}
	return s.String()
}

// want compares what show gives with lines that a test indents as it likes.
func want(t testing.TB, got, lines string) {
	t.Helper()
	var s strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		s.WriteString(strings.TrimSpace(line) + "\n")
	}
	if got != s.String() {
		t.Errorf("got\n%swant\n%s", got, s.String())
	}
}

func headerOf(r *kgo.Record, key string) (value []byte, count int) {
	for _, h := range r.Headers {
		if strings.EqualFold(h.Key, key) {
			value = h.Value
			count++
		}
	}
	return value, count
}

// wantReason fails unless the record is a dead letter with that reason and path.
func wantReason(t testing.TB, r *kgo.Record, reason Reason, path string) {
	t.Helper()
	if r.Topic != "shop.dlq" {
		t.Errorf("topic %q, want the dead letter topic", r.Topic)
	}
	if got, _ := headerOf(r, "dlq_reason"); string(got) != string(reason) {
		t.Errorf("reason %q, want %q", got, reason)
	}
	if got, _ := headerOf(r, "dlq_path"); string(got) != path {
		t.Errorf("path %q, want %q", got, path)
	}
}
