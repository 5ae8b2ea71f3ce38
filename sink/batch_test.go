package sink

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Everything in an event is borrowed: whatever happens to its memory after Add must not be seen.
func TestAddKeepsCopies(t *testing.T) {
	for _, p := range []Profile{CloudEvents, Plain, Debezium} {
		cfg := config(p)
		cfg.HeaderColumns = []string{"zone"}
		add := func(b *Batch) *Event {
			ev := order()
			ev.HeaderColumns = [][]byte{[]byte("z1")}
			if err := b.Add(ev); err != nil {
				t.Fatal(err)
			}
			return ev
		}
		enc := &framedEncoder{info: EncodeInfo{SchemaHeader: []byte("schema")}}
		untouched := builder(t, cfg, enc).NewBatch()
		add(untouched)
		b := builder(t, cfg, enc).NewBatch()
		ev := add(b)
		for _, p := range [][]byte{
			ev.ID, ev.Key, ev.Type, ev.Payload, ev.Headers, ev.CorrelationID, ev.CausationID, ev.Traceparent, ev.Tenant,
			ev.AggregateType, ev.OccurredAt, ev.OccurredAtText, ev.HeaderColumns[0], enc.info.SchemaHeader,
		} {
			for i := range p {
				p[i] = '!'
			}
		}
		rej := &Rejection{Reason: ReasonRefused, Message: "m"}
		if got, want := show(b.seal()[0]), show(untouched.seal()[0]); got != want {
			t.Errorf("%s: got\n%swant\n%s", p, got, want)
		}
		if got, want := show(b.deadLetter(0, rej)), show(untouched.deadLetter(0, rej)); got != want {
			t.Errorf("%s: dead letter: got\n%swant\n%s", p, got, want)
		}
	}
}

// The slab moves many times while a batch fills; every record must come out as if it had been alone.
func TestGrowthIsHarmless(t *testing.T) {
	cfg := config(CloudEvents)
	c := builder(t, cfg, &framedEncoder{})
	b := c.NewBatch()
	event := func(i int) *Event {
		ev := order()
		ev.Ordinal = uint64(i)
		ev.ID = fmt.Appendf(nil, "id-%d", i)
		ev.Key = fmt.Appendf(nil, "key-%d", i)
		ev.Payload = bytes.Repeat([]byte{byte('a' + i%26)}, i)
		switch i % 5 {
		case 1:
			ev.Headers = fmt.Appendf(nil, `{"n":%d}`, i)
		case 2:
			ev.Headers = []byte(`[]`)
		case 3:
			ev.Type = []byte("no shape")
		}
		return ev
	}
	const n = 1500
	for i := range n {
		if err := b.Add(event(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range b.seal() {
		if got, want := show(r), show(recordOf(t, cfg, &framedEncoder{}, event(i))); got != want {
			t.Fatalf("record %d: got\n%swant\n%s", i, got, want)
		}
	}
	if b.Len() != n {
		t.Errorf("%d records", b.Len())
	}
}

// An error that is no verdict on the row leaves the batch as it was, and the same event can be given again.
func TestAddAgainAfterAnError(t *testing.T) {
	enc := &framedEncoder{}
	b := builder(t, config(CloudEvents), enc).NewBatch()
	if err := b.Add(order()); err != nil {
		t.Fatal(err)
	}
	length, size, slab, headers := b.Len(), b.Bytes(), len(b.slab), len(b.headers)
	enc.err = errors.New("registry away")
	if err := b.Add(order()); !errors.Is(err, enc.err) {
		t.Fatalf("error %v", err)
	}
	if b.Len() != length || b.Bytes() != size || len(b.slab) != slab || len(b.headers) != headers {
		t.Fatal("the failed event left something behind")
	}
	enc.err = nil
	if err := b.Add(order()); err != nil {
		t.Fatal(err)
	}
	sealed := b.seal()
	if len(sealed) != 2 || show(sealed[0]) != show(sealed[1]) {
		t.Errorf("after the error the event came out as\n%s", show(sealed[len(sealed)-1]))
	}
}

func TestBounds(t *testing.T) {
	cfg := config(Debezium)
	cfg.MaxRecords = 3
	b := builder(t, cfg, verbatimEncoder{}).NewBatch()
	for i := range 3 {
		if b.Full() {
			t.Fatalf("full with %d records", i)
		}
		if err := b.Add(order()); err != nil {
			t.Fatal(err)
		}
	}
	if !b.Full() {
		t.Error("not full with 3 records")
	}

	cfg.MaxRecords, cfg.MaxBytes = 1000, 4000
	b = builder(t, cfg, &framedEncoder{}).NewBatch()
	ev := order()
	ev.Payload = bytes.Repeat([]byte("x"), 1000)
	for !b.Full() {
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
	}
	// The framed value and the payload's copy are some 2,000 bytes a record.
	if b.Len() != 2 {
		t.Errorf("full with %d records, %d bytes", b.Len(), b.Bytes())
	}
}

// What Bytes says must never be below what the client counts against its own limits, nor below the slab's memory.
func TestBytesIsAnUpperBound(t *testing.T) {
	for _, p := range []Profile{CloudEvents, Plain, Debezium} {
		b := builder(t, config(p), &framedEncoder{}).NewBatch()
		for i := range 50 {
			ev := order()
			switch i % 4 {
			case 1: // the slab keeps what was replaced
				ev.Headers = []byte(`{"a":"` + strings.Repeat("x", 5000) + `","a":"2","ce_x":"dropped","b":[1, 2]}`)
			case 2:
				ev.Payload = nil
			case 3:
				ev.Key, ev.Headers = nil, nil
			}
			if err := b.Add(ev); err != nil {
				t.Fatal(err)
			}
		}
		client := 0
		for _, r := range b.seal() {
			client += len(r.Key) + len(r.Value)
			for _, h := range r.Headers {
				client += len(h.Key) + len(h.Value)
			}
		}
		if b.Bytes() < client || b.Bytes() < len(b.slab)-len(b.builder.prefix) {
			t.Errorf("%s: Bytes is %d, the client counts %d, the slab has %d", p, b.Bytes(), client, len(b.slab))
		}
	}
}

func TestBytesCountsEachPart(t *testing.T) {
	b := builder(t, config(Plain), &framedEncoder{}).NewBatch()
	ev := order()
	ev.Payload = bytes.Repeat([]byte("x"), 10_000)
	if err := b.Add(ev); err != nil {
		t.Fatal(err)
	}
	r := b.seal()[0]
	parts := len(r.Key) + len(r.Value) + len(ev.Payload) + 2*rowHeaderCost // region and attempt
	for _, h := range r.Headers {
		parts += len(h.Key) + len(h.Value)
	}
	if b.Bytes() != parts {
		t.Errorf("Bytes is %d, the parts have %d", b.Bytes(), parts)
	}
}

func TestMarks(t *testing.T) {
	b := builder(t, config(Plain), verbatimEncoder{}).NewBatch()
	if !b.Empty() || b.LastMark() != 0 {
		t.Error("a new batch is not empty")
	}
	b.Mark(5)
	b.Mark(9)
	b.Mark(7)
	if b.Empty() || b.LastMark() != 9 || b.Len() != 0 {
		t.Errorf("empty %t, mark %d, %d records", b.Empty(), b.LastMark(), b.Len())
	}
	b.Reset()
	if !b.Empty() || b.LastMark() != 0 {
		t.Error("not empty after Reset")
	}
	if err := b.Add(order()); err != nil {
		t.Fatal(err)
	}
	if b.Empty() {
		t.Error("empty with a record")
	}
}

func TestResetStartsAfresh(t *testing.T) {
	cfg := config(CloudEvents)
	b := builder(t, cfg, &framedEncoder{}).NewBatch()
	for i := range 10 {
		ev := order()
		ev.Payload = bytes.Repeat([]byte("z"), 100*i)
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
	}
	b.Mark(3)
	b.Number = 7
	b.seal()[0].Partition = 5 // as the client does
	b.Reset()
	if b.Len() != 0 || b.Bytes() != 0 || b.Number != 0 {
		t.Fatalf("after Reset: %d records, %d bytes, ticket %d", b.Len(), b.Bytes(), b.Number)
	}
	if err := b.Add(order()); err != nil {
		t.Fatal(err)
	}
	r := b.seal()[0]
	if got, want := show(r), show(recordOf(t, cfg, &framedEncoder{}, order())); got != want || r.Partition != 0 {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestResetShrinksWhatIsOutsized(t *testing.T) {
	cfg := config(Plain)
	cfg.MaxBytes, cfg.MaxRecords = 100_000, 10
	b := builder(t, cfg, verbatimEncoder{}).NewBatch()
	fill := func(payload int, headers string) {
		ev := order()
		ev.Payload = bytes.Repeat([]byte("x"), payload)
		ev.Headers = []byte(headers)
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
		b.seal()
	}
	fill(90_000, `{}`)
	kept := &b.slab[0]
	b.Reset()
	if &b.slab[0] != kept {
		t.Error("a slab of the usual size was thrown away")
	}

	var many strings.Builder
	many.WriteString(`{"x":1`)
	for i := range 2000 {
		fmt.Fprintf(&many, `,"%d":1`, i)
	}
	many.WriteString(`}`)
	fill(5_000_000, many.String())
	b.Reset()
	if cap(b.slab) > 2*cfg.MaxBytes+smallSlab {
		t.Errorf("the slab kept %d bytes", cap(b.slab))
	}
	if cap(b.headers) > cfg.MaxRecords*manyHeaders || cap(b.kgoHeaders) > cfg.MaxRecords*manyHeaders {
		t.Errorf("room for %d and %d headers was kept", cap(b.headers), cap(b.kgoHeaders))
	}
	fill(1, `{}`)
	if r := b.sealed[0]; string(r.Value) != "x" {
		t.Errorf("after shrinking: %s", show(r))
	}
}

// The client stamps a record without a time with the present, which a repeat would not have.
func TestTimestampIsTheCommits(t *testing.T) {
	ev := order()
	for _, c := range []struct{ commit, want time.Time }{
		{commitTime, time.UnixMilli(commitTime.UnixMilli())},
		{time.UnixMicro(-1), time.UnixMilli(-1)},
	} {
		ev.CommitTime = c.commit
		if got := recordOf(t, config(Plain), verbatimEncoder{}, ev).Timestamp; !got.Equal(c.want) {
			t.Errorf("committed %v, timestamp %v", c.commit, got)
		}
	}
}

func cycle(b *Batch, ev *Event, n int) error {
	b.Reset()
	for i := range n {
		ev.Ordinal = uint64(i)
		if err := b.Add(ev); err != nil {
			return err
		}
	}
	b.Mark(ev.CommitLSN)
	b.seal()
	return nil
}

func benchEvent() *Event {
	ev := order()
	ev.Payload = []byte(`{"id": 42, "note": "` + strings.Repeat("n", 300) + `"}`)
	ev.HeaderColumns = [][]byte{[]byte("z1"), nil}
	return ev
}

func benchConfig(p Profile) BatchConfig {
	cfg := config(p)
	cfg.HeaderColumns = []string{"zone", "actor"}
	cfg.Topic = "ev.{domain}.{event}"
	return cfg
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, p := range []Profile{CloudEvents, Plain, Debezium} {
		for name, enc := range map[string]Encoder{
			"text": verbatimEncoder{},
			"avro": &framedEncoder{info: EncodeInfo{DataSchema: "http://sr/schemas/ids/7", SchemaHeader: []byte("h")}},
		} {
			b := builder(t, benchConfig(p), enc).NewBatch()
			ev := benchEvent()
			if err := cycle(b, ev, 200); err != nil {
				t.Fatal(err)
			}
			if n := testing.AllocsPerRun(20, func() {
				if err := cycle(b, ev, 200); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%s, %s: %v allocations for 200 events", p, name, n)
			}
			ev.OccurredAt, ev.Headers = nil, nil
			if n := testing.AllocsPerRun(20, func() {
				if err := cycle(b, ev, 200); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%s, %s, without occurred_at: %v allocations for 200 events", p, name, n)
			}
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, p := range []Profile{CloudEvents, Plain, Debezium} {
		for _, row := range []string{"", `{"region": "eu", "attempt": 2, "shard": "7"}`} {
			name := p.String()
			ev := benchEvent()
			ev.Headers = nil
			if row != "" {
				name += " with headers"
				ev.Headers = []byte(row)
			}
			b.Run(name, func(b *testing.B) {
				const n = 1000
				batch := builder(b, benchConfig(p), &framedEncoder{}).NewBatch()
				if err := cycle(batch, ev, n); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(ev.Payload)))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%n == 0 {
						batch.seal()
						batch.Reset()
					}
					if err := batch.Add(ev); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

var sink *kgo.Record

func BenchmarkDeadLetter(b *testing.B) {
	batch := builder(b, benchConfig(CloudEvents), &framedEncoder{}).NewBatch()
	if err := cycle(batch, benchEvent(), 1); err != nil {
		b.Fatal(err)
	}
	rej := &Rejection{Reason: ReasonRefused, Message: "refused"}
	b.ReportAllocs()
	for b.Loop() {
		sink = batch.deadLetter(0, rej)
	}
}
