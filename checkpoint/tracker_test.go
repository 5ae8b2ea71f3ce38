package checkpoint

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// naive is the definition of the watermark, recomputed from all history.
type naive struct {
	start, accepted pglogrepl.LSN
	batches         []naiveBatch
}

type naiveBatch struct {
	mark   pglogrepl.LSN
	ticket Ticket
	done   bool
}

func (n *naive) unfinished() map[Ticket]bool {
	unfinished := map[Ticket]bool{}
	for _, b := range n.batches {
		if !b.done {
			unfinished[b.ticket] = true
		}
	}
	return unfinished
}

// unreleased is how many tickets there are from the first unfinished one on.
func (n *naive) unreleased() int {
	tickets := map[Ticket]bool{}
	unfinished := n.unfinished()
	for _, b := range n.batches {
		if unfinished[b.ticket] || len(tickets) > 0 {
			tickets[b.ticket] = true
		}
	}
	return len(tickets)
}

func (n *naive) watermark() pglogrepl.LSN {
	unfinished := n.unfinished()
	low := n.start
	for _, b := range n.batches {
		if unfinished[b.ticket] {
			break
		}
		low = max(low, min(b.mark, n.accepted))
	}
	return low
}

// bound is the watermark as it would be if no two batches ever shared a ticket:
// what must never be passed.
func (n *naive) bound() pglogrepl.LSN {
	low := n.start
	for _, b := range n.batches {
		if !b.done {
			break
		}
		low = max(low, min(b.mark, n.accepted))
	}
	return low
}

func (n *naive) Outstanding() (open []int) {
	for i, b := range n.batches {
		if !b.done {
			open = append(open, i)
		}
	}
	return open
}

// TestAgainstNaive plays random sessions: marks below and above what is known,
// batches with and without one, completions in any order, completions of
// tickets that are not outstanding.
func TestAgainstNaive(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for round := range uint64(400) {
		seed := base + round
		r := rand.New(rand.NewPCG(seed, 0))
		size := []int{1, 2, 3, 7, 64, slots}[r.IntN(6)]
		fail := func(format string, args ...any) {
			t.Helper()
			t.Logf("seed %d, ring of %d", seed, size)
			t.Fatalf(format, args...)
		}
		start := pglogrepl.LSN(r.Uint64N(1 << 33))
		tracker := newTracker(start, size)
		model := &naive{start: start, accepted: start}
		lsn, last := start, start
		var pending pglogrepl.LSN // the open batch's last mark
		for range 300 {
			switch r.IntN(8) {
			case 0, 1, 2: // a commit or keepalive, now and then one from the past
				mark := lsn + pglogrepl.LSN(r.Uint64N(1<<30))
				if r.IntN(4) == 0 {
					mark = lsn - pglogrepl.LSN(r.Uint64N(uint64(lsn)+1))
				}
				want := mark > model.accepted
				if got := tracker.Accept(mark); got != want {
					fail("accept %s is %v with %s accepted", mark, got, model.accepted)
				}
				if want {
					lsn, pending, model.accepted = mark, mark, mark
				}
			case 3, 4: // a batch leaves
				mark := pending
				if r.IntN(30) == 0 {
					mark = pglogrepl.LSN(r.Uint64()) // garbage, perhaps beyond everything read
				}
				var newest Ticket
				if n := len(model.batches); n > 0 {
					newest = model.batches[n-1].ticket
				}
				full := model.unreleased() == size
				k := tracker.Hand(mark)
				if full && k != newest || !full && k <= newest {
					fail("ticket %d after %d with the ring full: %v", k, newest, full)
				}
				model.batches = append(model.batches, naiveBatch{mark: min(mark, model.accepted), ticket: k})
				pending = 0
			case 5, 6: // a batch is done
				if open := model.Outstanding(); len(open) > 0 {
					i := open[r.IntN(len(open))]
					if r.IntN(2) == 0 {
						i = open[0]
					}
					model.batches[i].done = true
					if got, want := tracker.Done(model.batches[i].ticket), model.watermark(); got != want {
						fail("done gives %s, want %s", got, want)
					}
				}
			case 7: // a ticket that is not outstanding
				k := Ticket(0)
				if n := len(model.batches); n > 0 {
					k = model.batches[n-1].ticket + 1 + Ticket(r.Uint64N(1<<40))
					unfinished := model.unfinished()
					for _, b := range model.batches {
						if !unfinished[b.ticket] && r.IntN(3) == 0 {
							k = b.ticket
							break
						}
					}
				}
				tracker.Done(k)
			}
			got := tracker.Watermark()
			switch {
			case got != model.watermark():
				fail("watermark %s, want %s", got, model.watermark())
			case got > model.bound():
				fail("watermark %s passes an unfinished batch after %s", got, model.bound())
			case got < last:
				fail("watermark fell from %s to %s", last, got)
			case got > model.accepted:
				fail("watermark %s, above everything accepted (%s)", got, model.accepted)
			case tracker.Outstanding() != len(model.Outstanding()):
				fail("%d outstanding, want %d", tracker.Outstanding(), len(model.Outstanding()))
			}
			last = got
		}
		for _, i := range model.Outstanding() {
			model.batches[i].done = true
			tracker.Done(model.batches[i].ticket)
		}
		if got := tracker.Watermark(); got != model.bound() || tracker.Outstanding() != 0 {
			fail("with nothing outstanding the watermark is %s, want %s", got, model.bound())
		}
	}
}

// TestTwoGoroutines runs a reader and several publishers as lanes would be,
// with a ring so small that tickets are shared, while others look on.
func TestTwoGoroutines(t *testing.T) {
	const batches = 20000
	tracker := newTracker(100, 8)
	handed := make(chan Ticket, 16)
	var publishers, watchers sync.WaitGroup
	for range 3 {
		publishers.Go(func() {
			last := pglogrepl.LSN(0)
			for k := range handed {
				low := tracker.Done(k)
				if low < last {
					t.Errorf("watermark fell from %s to %s", last, low)
				}
				last = low
			}
		})
	}
	stop := make(chan struct{})
	watchers.Go(func() {
		for last := pglogrepl.LSN(100); ; {
			low, open := tracker.Watermark(), tracker.Outstanding()
			if low < last || open < 0 || open > 8+cap(handed)+3 {
				t.Errorf("watermark %s after %s, %d outstanding", low, last, open)
				return
			}
			last = low
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	lsn := pglogrepl.LSN(100)
	for range batches {
		lsn += 10
		if !tracker.Accept(lsn) {
			t.Fatal("a rising mark was not accepted")
		}
		handed <- tracker.Hand(lsn)
	}
	close(handed)
	publishers.Wait()
	close(stop)
	watchers.Wait()
	if tracker.Watermark() != lsn || tracker.Outstanding() != 0 {
		t.Errorf("watermark %s with %d outstanding, want %s", tracker.Watermark(), tracker.Outstanding(), lsn)
	}
}

func TestCase_D12_PositionsAre64BitNumbers(t *testing.T) {
	parse := func(s string) pglogrepl.LSN {
		lsn, err := pglogrepl.ParseLSN(s)
		if err != nil {
			t.Fatal(err)
		}
		if lsn.String() != s {
			t.Fatalf("%s is written %s", s, lsn)
		}
		return lsn
	}
	tracker := NewTracker(parse("0/FFFFFFFE"))
	for _, s := range []string{"0/FFFFFFFF", "1/0", "1/FFFFFFFF", "2/0", "7FFFFFFF/FFFFFFFF", "80000000/0", "FFFFFFFF/FFFFFFFE", "FFFFFFFF/FFFFFFFF"} {
		lsn := parse(s)
		if !tracker.Accept(lsn) {
			t.Errorf("%s is not above %s", s, tracker.Watermark())
		}
		if tracker.Accept(lsn) || tracker.Accept(lsn-1) {
			t.Errorf("%s or the position before it was accepted again", s)
		}
		if got := tracker.Done(tracker.Hand(lsn)); got != lsn {
			t.Errorf("watermark %s, want %s", got, s)
		}
	}
	if tracker.Accept(parse("1/0")) {
		t.Error("1/0 was taken to be above FFFFFFFF/FFFFFFFF")
	}
}

func TestNoAllocation(t *testing.T) {
	tracker := NewTracker(0)
	lsn := pglogrepl.LSN(0)
	if n := testing.AllocsPerRun(10*slots, func() {
		lsn++
		tracker.Accept(lsn)
		first := tracker.Hand(lsn)
		tracker.Done(tracker.Hand(0))
		tracker.Done(first)
	}); n != 0 {
		t.Errorf("a batch allocates %v times", n)
	}
	// Nothing is ever done: the ring is full, and still does not grow.
	if n := testing.AllocsPerRun(10*slots, func() {
		lsn++
		tracker.Accept(lsn)
		tracker.Hand(lsn)
	}); n != 0 || len(tracker.ring) != slots {
		t.Errorf("an outstanding batch allocates %v times; the ring has %d slots", n, len(tracker.ring))
	}
}

// BenchmarkBatch is what a batch costs: two in flight, done in order.
func BenchmarkBatch(b *testing.B) {
	tracker := NewTracker(0)
	lsn := pglogrepl.LSN(0)
	before := tracker.Hand(0)
	b.ReportAllocs()
	for b.Loop() {
		lsn++
		tracker.Accept(lsn)
		k := tracker.Hand(lsn)
		tracker.Done(before)
		before = k
	}
}

// BenchmarkAccept is what a commit or a keepalive costs.
func BenchmarkAccept(b *testing.B) {
	tracker := NewTracker(0)
	lsn := pglogrepl.LSN(0)
	b.ReportAllocs()
	for b.Loop() {
		lsn++
		tracker.Accept(lsn)
	}
}

// BenchmarkReversed finishes a full ring from its newest ticket to its oldest,
// as lanes can: the last completion releases them all.
func BenchmarkReversed(b *testing.B) {
	tracker := NewTracker(0)
	lsn := pglogrepl.LSN(0)
	tickets := make([]Ticket, slots)
	b.ReportAllocs()
	for b.Loop() {
		for i := range tickets {
			lsn++
			tracker.Accept(lsn)
			tickets[i] = tracker.Hand(lsn)
		}
		for i := range tickets {
			tracker.Done(tickets[slots-1-i])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/slots, "ns/batch")
}
