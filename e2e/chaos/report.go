package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// report tells what happens as it happens, on stdout and in a file beside the
// other logs, and counts.
type report struct {
	began time.Time
	dir   string
	file  *os.File

	mu      sync.Mutex
	faults  map[Kind]int
	changes int

	// Of the machine's goroutine.
	missed                                int
	rounds, committed, delivered, repeats int
	samples                               int
	readyLongest, drainLongest            time.Duration
	peak                                  int64
}

// newReport begins a report in a folder. One of its own is removed when all went
// well.
func newReport(t testing.TB, dir string) *report {
	t.Helper()
	own := dir == ""
	var err error
	if own {
		dir, err = tempDir()
	} else {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &report{began: time.Now(), dir: dir, faults: map[Kind]int{}}
	if r.file, err = r.create("chaos.log"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.file.Close()
		if own && !t.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func (r *report) create(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(r.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// keep writes a log beside the others.
func (r *report) keep(name, text string) {
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
		r.say("keep %s: %v", name, err)
	}
}

// say tells something to whoever watches.
func (r *report) say(format string, args ...any) {
	line := r.line(fmt.Sprintf(format, args...))
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Print(line)
	_, _ = r.file.WriteString(line) // stdout has it
}

// note goes to the file alone.
func (r *report) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.file.WriteString(r.line(text))
}

func (r *report) line(text string) string {
	since := time.Since(r.began)
	return fmt.Sprintf("%s %7.1f  %s\n", r.began.Add(since).UTC().Format("15:04:05.000"), since.Seconds(), text)
}

func (r *report) fault(p Planned, err error) {
	switch {
	case err == nil:
		r.say("  %s, for %v", p.Kind, p.For)
	case isMissed(err):
		r.missed++
		r.say("  %s: not now: %v", p.Kind, err)
		return
	default:
		r.say("  %s: %v", p.Kind, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[p.Kind]++
}

func (r *report) change(kind string, err error) {
	if err != nil {
		r.note(fmt.Sprintf("  change: %s: not now: %v", kind, err))
		return
	}
	r.say("  change: %s", kind)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
}

// total is how many faults there were.
func (r *report) total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, count := range r.faults {
		n += count
	}
	return n
}

// figures tell what the whole run was.
func (r *report) figures() {
	r.say("%d rounds judged in %v: %d faults, %d changes of the table",
		r.rounds, time.Since(r.began).Round(time.Second), r.total(), r.changes)
	r.mu.Lock()
	kinds := slices.SortedFunc(maps.Keys(r.faults), func(a, b Kind) int { return cmp.Or(r.faults[b]-r.faults[a], cmp.Compare(a, b)) })
	r.mu.Unlock()
	for _, kind := range kinds {
		r.say("  %5d  %s", r.faults[kind], kind)
	}
	if r.missed > 0 {
		r.say("  %d more could not be made in their moment and do not count", r.missed)
	}
	r.say("%d events committed, %d delivered, %d repeats; %d looks at the slot", r.committed, r.delivered, r.repeats, r.samples)
	r.say("longest: %v until ready, %v until drained; %d MiB the most memory of a relay",
		r.readyLongest.Round(time.Millisecond), r.drainLongest.Round(time.Millisecond), r.peak>>20)
}
