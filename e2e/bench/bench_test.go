package main

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestMain turns this binary into the bare loop.
func TestMain(m *testing.M) {
	if cfg := os.Getenv(bareVariable); cfg != "" {
		os.Exit(bareMain(cfg))
	}
	os.Exit(m.Run())
}

// Everything is measured once, in small. Figures come out, and nothing is lost,
// which the program itself makes sure of after each turn; no speed is judged.
func TestMeasure(t *testing.T) {
	opt := options{events: 5000, rounds: 1, duration: time.Second, warm: 200 * time.Millisecond, rates: "50,200", sizes: "1,100",
		postgres: "debian", kafka: "fake", tailer: os.Getenv("TAILER_E2E_BINARY")}
	var out, progress bytes.Buffer
	rep, err := measure(t.Context(), opt, nil, &out, &progress)
	t.Logf("%s%s", progress.String(), out.String())
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.drains) != 2 || len(rep.latencies) != 2 {
		t.Fatalf("%d drains and %d latencies", len(rep.drains), len(rep.latencies))
	}
	linux := runtime.GOOS == "linux"
	for _, d := range rep.drains {
		if len(d.turns[tailer]) != 1 || len(d.turns[plain]) != 1 && len(rep.notes) == 0 {
			t.Errorf("drain with %d rows a transaction: turns %v", d.rows, d.turns)
		}
		for _, turn := range append(d.turns[tailer], d.turns[plain]...) {
			if turn.wall <= 0 || turn.cpu <= 0 || linux && turn.peak <= 0 {
				t.Errorf("drain with %d rows a transaction: %v", d.rows, turn)
			}
		}
	}
	for _, l := range rep.latencies {
		if len(l.turns[tailer]) != 1 || len(l.turns[bare]) != 1 {
			t.Errorf("latency at %d tx/s: turns %v", l.rate, l.turns)
		}
		for _, turn := range append(l.turns[tailer], l.turns[bare]...) {
			if turn.p50 <= 0 || turn.p99 < turn.p50 || turn.rate <= 0 || turn.cpu <= 0 {
				t.Errorf("latency at %d tx/s: %+v", l.rate, turn)
			}
		}
	}
	for _, want := range []string{"tailer", "bare loop", "| drain |", "| latency |", "aim"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q", want)
		}
	}
}

// A topic that lacks an event, has one twice, or had one refused gives no figure.
func TestReadBack(t *testing.T) {
	b := &bed{progress: &bytes.Buffer{}}
	defer b.close()
	if err := b.startKafka(t.Context(), "fake"); err != nil {
		t.Fatal(err)
	}
	produce := func(topic string, ids ...string) {
		for _, id := range ids {
			r := &kgo.Record{Topic: topic, Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}}}
			if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for topic, c := range map[string]struct {
		ids  []string
		want string
	}{
		"whole": {[]string{"a", "b", "c"}, ""},
		"lost":  {[]string{"a", "b"}, "has 2 records for 3 events"},
		"more":  {[]string{"a", "b", "c", "c"}, "has 4 records for 3 events"},
		"twice": {[]string{"a", "b", "b"}, "has 2 different events, not 3"},
	} {
		if err := b.createTopic(ctx, topic, 2); err != nil {
			t.Fatal(err)
		}
		produce(topic, c.ids...)
		err := b.readBack(ctx, topic, 3)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", topic, err, c.want)
		}
	}
	produce(deadLetters, "d")
	if err := b.readBack(ctx, "whole", 3); err == nil || !strings.Contains(err.Error(), "dead letters") {
		t.Errorf("with a dead letter: %v", err)
	}
}

// The payload is what the text says: so long, and the same from Go and SQL,
// which TestMeasure's load checks for the latter.
func TestPayload(t *testing.T) {
	for _, i := range []int{0, 7, 999_999} {
		if n := len(payload(i)); n != payloadSize {
			t.Errorf("payload %d has %d bytes, want %d", i, n, payloadSize)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		all  []int
		want int
	}{{nil, 0}, {[]int{3}, 3}, {[]int{9, 1, 5}, 5}, {[]int{4, 2}, 2}} {
		if got := median(c.all, func(v int) int { return v }); got != c.want {
			t.Errorf("median of %v is %d, want %d", c.all, got, c.want)
		}
	}
}
