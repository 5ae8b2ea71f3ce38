package checkpoint

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
)

var update = flag.Bool("update", false, "write what the scripts print anew")

// TestScripts plays the sessions under testdata. A script is commands, one a
// line, each followed by an indented line with what came of it:
//
//	start LSN        a new tracker
//	ring N           a new tracker at the same start with room for N tickets
//	accept LSN       the reader meets a mark
//	hand NAME LSN    a batch leaves with its last mark; - for none
//	done NAME        the publisher is through with it
//
// Lines with # are comments. After a change of behaviour that is meant, -update
// writes the answers anew.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var p player
			var out strings.Builder
			for line := range strings.Lines(string(text)) {
				line = strings.TrimRight(line, " \n")
				if strings.HasPrefix(line, " ") {
					continue // an answer
				}
				fmt.Fprintln(&out, line)
				if line == "" || line[0] == '#' {
					continue
				}
				answer, err := p.play(strings.Fields(line))
				if err != nil {
					t.Fatalf("%s: %q: %v", path, line, err)
				}
				fmt.Fprintln(&out, "   ", answer)
			}
			if *update {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			got, want := strings.Split(out.String(), "\n"), strings.Split(string(text), "\n")
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("%s:%d: got %q, want %q", path, i+1, got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))])
				}
			}
		})
	}
}

type player struct {
	start   pglogrepl.LSN
	tracker *Tracker
	tickets map[string]Ticket
}

func (p *player) play(words []string) (string, error) {
	lsn := func(i int) (pglogrepl.LSN, error) {
		if i >= len(words) {
			return 0, fmt.Errorf("a position is missing")
		}
		if words[i] == "-" {
			return 0, nil
		}
		return pglogrepl.ParseLSN(words[i])
	}
	if p.tracker == nil && words[0] != "start" {
		return "", fmt.Errorf("a script begins with start")
	}
	switch words[0] {
	case "start":
		at, err := lsn(1)
		if err != nil {
			return "", err
		}
		*p = player{start: at, tracker: NewTracker(at), tickets: map[string]Ticket{}}
	case "ring":
		var size int
		if _, err := fmt.Sscan(words[1], &size); err != nil {
			return "", err
		}
		*p = player{start: p.start, tracker: newTracker(p.start, size), tickets: map[string]Ticket{}}
	case "accept":
		at, err := lsn(1)
		if err != nil {
			return "", err
		}
		if p.tracker.Accept(at) {
			return "news", nil
		}
		return "dropped", nil
	case "hand":
		at, err := lsn(2)
		if err != nil {
			return "", err
		}
		p.tickets[words[1]] = p.tracker.Hand(at)
	case "done":
		k, ok := p.tickets[words[1]]
		if !ok {
			return "", fmt.Errorf("%s was never handed over", words[1])
		}
		if got := p.tracker.Done(k); got != p.tracker.Watermark() {
			return "", fmt.Errorf("done gives %s, the watermark is %s", got, p.tracker.Watermark())
		}
	default:
		return "", fmt.Errorf("unknown command")
	}
	return fmt.Sprintf("watermark %s, %d outstanding", p.tracker.Watermark(), p.tracker.Outstanding()), nil
}
