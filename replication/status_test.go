package replication

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

func lsn(n uint64) pglogrepl.LSN { return pglogrepl.LSN(n) }

// A script of the status writer: what happens at which millisecond, and
// whether a status goes out then and asks for a reply.
func TestPacer(t *testing.T) {
	type step struct {
		at        int // ms
		watermark uint64
		requested bool
		send, ask bool
		wait      int // ms, when nothing is sent
	}
	for name, steps := range map[string][]step{
		"an idle stream asks once an interval": {
			{at: 0, watermark: 1, send: true, ask: true},
			{at: 1, watermark: 1, wait: 2999},
			{at: 2999, watermark: 1, wait: 1},
			{at: 3000, watermark: 1, send: true, ask: true},
			{at: 3000, watermark: 1, wait: 3000},
		},
		"a watermark leaves at once, the next after 100 ms": {
			{at: 0, watermark: 1, send: true, ask: true},
			{at: 500, watermark: 2, send: true},
			{at: 501, watermark: 3, wait: 99},
			{at: 599, watermark: 9, wait: 1},
			{at: 600, watermark: 9, send: true},
			{at: 700, watermark: 9, wait: 2300},
		},
		"a moving watermark does not put off the question": {
			{at: 0, watermark: 1, send: true, ask: true},
			{at: 2950, watermark: 2, send: true},
			{at: 2999, watermark: 3, wait: 1},
			{at: 3000, watermark: 3, send: true, ask: true},
		},
		"a request is answered at once, a storm of them every 10 ms": {
			{at: 0, watermark: 1, send: true, ask: true},
			{at: 40, watermark: 1, requested: true, send: true},
			{at: 40, watermark: 1, requested: true, wait: 10},
			{at: 49, watermark: 5, requested: true, wait: 1},
			{at: 50, watermark: 5, requested: true, send: true},
			{at: 50, watermark: 5, wait: 2950},
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := time.Unix(1000, 0)
			p := pacer{interval: 3 * time.Second, sent: 1}
			for i, s := range steps {
				now := base.Add(time.Duration(s.at) * time.Millisecond)
				send, ask, wait := p.due(now, lsn(s.watermark), s.requested)
				if send != s.send || ask != s.ask || wait != time.Duration(s.wait)*time.Millisecond {
					t.Fatalf("step %d at %d ms: send %v, ask %v, wait %v", i, s.at, send, ask, wait)
				}
				if send {
					p.done(now, lsn(s.watermark), ask)
				}
			}
		})
	}
}

func TestStatusInterval(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0:                    3 * time.Second, // off
		time.Minute:          3 * time.Second,
		10 * time.Second:     2500 * time.Millisecond,
		2 * time.Second:      500 * time.Millisecond,
		4 * time.Millisecond: 10 * time.Millisecond,
	} {
		if got := statusInterval(timeout); got != want {
			t.Errorf("wal_sender_timeout %v: %v, want %v", timeout, got, want)
		}
	}
}

func TestFarewell(t *testing.T) {
	now := time.Unix(1000, 0)
	var f farewell
	// The pace of a server that waits for us: asked again after each answer.
	for i := range 600 {
		now = now.Add(10 * time.Millisecond)
		if leave := f.asked(now, 7); leave != (i >= 500) {
			t.Fatalf("request %d, %v after the first: leave %v", i, now.Sub(f.first), leave)
		}
	}
	// A server that goes on is not going down.
	f = farewell{}
	for i := range 10000 {
		now = now.Add(10 * time.Millisecond)
		if f.asked(now, lsn(uint64(i/100))) {
			t.Fatal("leaves a server whose position moves")
		}
	}
	// Nor is one that asks now and then.
	f = farewell{}
	for range 1000 {
		now = now.Add(1100 * time.Millisecond)
		if f.asked(now, 7) {
			t.Fatal("leaves a server that asks once a second")
		}
	}
}

func TestAgeMeter(t *testing.T) {
	begin := func(commit int64) string {
		return string(append([]byte{'B'}, append(make([]byte, 8), xlogData(uint64(commit), 0, 0, "")[1:9]...)...)) + "xid."
	}
	ms := func(n int64) int64 { return n * 1000 }
	var m ageMeter
	for i, step := range []struct {
		sent int64
		data string
		want bool
	}{
		{ms(1001), begin(ms(1000)), false},
		{ms(1001), "I", false},
		{ms(1020), "I", false}, // one large transaction gets old while it is sent
		{ms(1025), "I", true},
		{ms(1026), "C", true},
		{ms(1027), begin(ms(1010)), true},  // between the limits it stays
		{ms(1027), begin(ms(1018)), false}, // caught up
		{ms(1040), begin(ms(1020)), false},
		{ms(1040), "B", false},             // never index beyond the data
		{ms(1041), begin(ms(2000)), false}, // a commit time of another clock
	} {
		f, err := parseFrame(xlogData(1, 1, step.sent, step.data))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.behind(&f); got != step.want {
			t.Errorf("step %d: behind %v", i, got)
		}
	}
}
