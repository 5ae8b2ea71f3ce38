package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen is the only writer of the output. On a terminal it colours, counts the
// seconds of a running step, and cuts lines at the edge; elsewhere it writes
// plain lines.
type screen struct {
	mu    sync.Mutex
	out   io.Writer
	live  bool
	color bool
	width func() int
	step  *step // the one whose line is not finished; guarded by mu
}

func newScreen(f *os.File) *screen {
	s := &screen{out: f, width: func() int { return 1 << 20 }}
	if term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		_, plain := os.LookupEnv("NO_COLOR")
		s.live, s.color = true, !plain
		s.width = func() int {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 20 {
				return w
			}
			return 80
		}
	}
	return s
}

// style is what a text means; the colour follows.
type style string

const (
	plain  style = ""
	strong style = "1"
	faint  style = "2"
	good   style = "32"
	bad    style = "31"
	odd    style = "33"
)

// part is a text with one style.
type part struct {
	style style
	text  string
}

// line writes one line, cut at the edge of a terminal.
func (s *screen) line(parts ...part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step != nil { // an interrupted step goes on below
		if s.live {
			io.WriteString(s.out, "\r\x1b[K")
		} else if !s.step.broken {
			io.WriteString(s.out, "\n")
			s.step.broken = true
		}
	}
	io.WriteString(s.out, s.render(parts)+"\n")
}

func (s *screen) render(parts []part) string {
	var b strings.Builder
	room := s.width()
	for _, p := range parts {
		text := p.text
		if n := utf8.RuneCountInString(text); n > room {
			text = string([]rune(text)[:max(0, room-1)]) + "…"
			room = 0
		} else {
			room -= n
		}
		if s.color && p.style != plain && text != "" {
			fmt.Fprintf(&b, "\x1b[%sm%s\x1b[0m", p.style, text)
		} else {
			b.WriteString(text)
		}
		if room == 0 {
			break
		}
	}
	return b.String()
}

// step is a line that is written while its work runs: name, seconds, outcome.
type step struct {
	screen *screen
	name   string
	hint   string // shown once it takes longer than expected
	began  time.Time
	broken bool // other lines stand between; guarded by the screen's mu
	stop   chan struct{}
	ticked sync.WaitGroup
}

const (
	stepName = 24
	patience = 2 * time.Second
)

// start begins a step. Only one runs at a time.
func (s *screen) start(name, hint string) *step {
	st := &step{screen: s, name: name, hint: hint, began: time.Now(), stop: make(chan struct{})}
	s.mu.Lock()
	s.step = st
	if !s.live {
		fmt.Fprintf(s.out, "  %-*s", stepName, name)
	}
	s.mu.Unlock()
	st.ticked.Go(st.tick)
	return st
}

func (st *step) tick() {
	every := 100 * time.Millisecond
	if !st.screen.live {
		every = patience
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-st.stop:
			return
		case <-tick.C:
			st.show()
		}
	}
}

// show writes how long it takes: in place, or where that cannot be done by one
// word after a while, and a dot every two seconds.
func (st *step) show() {
	s := st.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(st.began)
	if s.live {
		parts := []part{{plain, fmt.Sprintf("  %-*s%6.1f s", stepName, st.name, took.Seconds())}}
		if took > patience {
			parts = append(parts, part{faint, "   " + st.hint})
		}
		io.WriteString(s.out, "\r\x1b[K"+s.render(parts))
		return
	}
	if st.hint != "" {
		io.WriteString(s.out, "("+st.hint+") ")
		st.hint = ""
	}
	io.WriteString(s.out, ".")
}

// done finishes a step's line.
func (st *step) done(format string, args ...any) { st.finish(plain, fmt.Sprintf(format, args...)) }

// end finishes the line of a step that failed or did not, and returns err.
func (st *step) end(err error, format string, args ...any) error {
	switch {
	case errors.Is(err, errStopped):
		st.finish(odd, "stopped")
	case err != nil:
		st.finish(bad, "failed")
	default:
		st.done(format, args...)
	}
	return err
}

func (st *step) finish(look style, outcome string) {
	close(st.stop)
	st.ticked.Wait()
	s := st.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = nil
	if look == plain {
		look = faint
	}
	took := fmt.Sprintf("%6.1f s", time.Since(st.began).Seconds())
	switch {
	case s.live:
		io.WriteString(s.out, "\r\x1b[K"+s.render([]part{{plain, fmt.Sprintf("  %-*s", stepName, st.name)}, {plain, took}, {look, "   " + outcome}})+"\n")
	case st.broken:
		fmt.Fprintf(s.out, "  %-*s%s   %s\n", stepName, st.name, took, outcome)
	default:
		fmt.Fprintf(s.out, "%s   %s\n", took, outcome)
	}
}
