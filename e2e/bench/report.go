package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is everything that was measured.
type report struct {
	command  string
	machine  []string
	servers  []string
	notes    []string
	events   int
	rounds   int
	duration time.Duration

	drains    []drain
	latencies []latency
}

// median of what a field of each turn is; of an even number the lower one.
func median[T any, V cmp.Ordered](turns []T, field func(T) V) (m V) {
	if len(turns) == 0 {
		return m
	}
	all := make([]V, len(turns))
	for i, t := range turns {
		all[i] = field(t)
	}
	slices.Sort(all)
	return all[(len(all)-1)/2]
}

// The targets that figures are shown beside.
const (
	targetCPU  = 10.0 // seconds for a million events
	targetRSS  = 96   // MiB
	targetLate = 1.5  // times the bare loop's p99
)

// targetWall is a drain's wall time as a multiple of pg_recvlogical's.
func targetWall(rows int) float64 {
	if rows < 10 {
		return 0.9
	}
	return 1.2
}

// table is rows of cells, the first of them the heading.
type table [][]string

func (r *report) drainTable() table {
	t := table{{"drain", "rows/tx", "wall s", "events/s", "ratio", "CPU s", "peak RSS", "walsender CPU s"}}
	for _, d := range r.drains {
		for _, c := range []struct {
			name  string
			turns []drained
		}{{"pg_recvlogical", d.plain}, {"tailer", d.relay}} {
			if len(c.turns) == 0 {
				continue
			}
			wall := median(c.turns, func(t drained) time.Duration { return t.wall })
			ratio := ""
			if base := median(d.plain, func(t drained) time.Duration { return t.wall }); base > 0 {
				ratio = fmt.Sprintf("%.2f", wall.Seconds()/base.Seconds())
			}
			t = append(t, []string{c.name, fmt.Sprint(d.rows),
				fmt.Sprintf("%.1f (%s)", wall.Seconds(), span(c.turns, func(t drained) time.Duration { return t.wall }, seconds)),
				fmt.Sprintf("%.0f", float64(r.events)/wall.Seconds()), ratio,
				seconds(median(c.turns, func(t drained) time.Duration { return t.cpu })),
				mebibytes(median(c.turns, func(t drained) int64 { return t.peak })),
				seconds(median(c.turns, func(t drained) time.Duration { return t.server }))})
		}
	}
	return t
}

func (r *report) latencyTable() table {
	t := table{{"latency", "tx/s", "p50 ms", "p99 ms", "ratio p50", "ratio p99", "CPU s"}}
	for _, l := range r.latencies {
		p50 := func(d delays) time.Duration { return d.p50 }
		p99 := func(d delays) time.Duration { return d.p99 }
		for _, c := range []struct {
			name  string
			turns []delays
		}{{"bare loop", l.bare}, {"tailer", l.relay}} {
			m50, m99 := median(c.turns, p50), median(c.turns, p99)
			t = append(t, []string{c.name, fmt.Sprintf("%d", l.rate),
				fmt.Sprintf("%s (%s)", millis(m50), span(c.turns, p50, millis)), fmt.Sprintf("%s (%s)", millis(m99), span(c.turns, p99, millis)),
				fmt.Sprintf("%.2f", m50.Seconds()/median(l.bare, p50).Seconds()), fmt.Sprintf("%.2f", m99.Seconds()/median(l.bare, p99).Seconds()),
				seconds(median(c.turns, func(d delays) time.Duration { return d.cpu }))})
		}
	}
	return t
}

// verdicts holds the figures against what was aimed at.
func (r *report) verdicts() []string {
	var lines []string
	say := func(what string, got, target float64, format string) {
		word := "reached"
		if got > target {
			word = "missed"
		}
		lines = append(lines, fmt.Sprintf("%s: "+format+", aim "+format+", %s", what, got, target, word))
	}
	for _, d := range r.drains {
		name := fmt.Sprintf("drain, %d rows a transaction, ", d.rows)
		if base := median(d.plain, func(t drained) time.Duration { return t.wall }); base > 0 {
			say(name+"wall / pg_recvlogical", median(d.relay, func(t drained) time.Duration { return t.wall }).Seconds()/base.Seconds(), targetWall(d.rows), "%.2f")
		}
		say(name+"CPU s a million events", median(d.relay, func(t drained) time.Duration { return t.cpu }).Seconds()*1e6/float64(r.events), targetCPU, "%.1f")
		if rss := median(d.relay, func(t drained) int64 { return t.peak }); rss > 0 {
			say(name+"peak MiB", float64(rss)/(1<<20), targetRSS, "%.0f")
		}
	}
	for _, l := range r.latencies {
		p99 := func(d delays) time.Duration { return d.p99 }
		say(fmt.Sprintf("latency at %d tx/s, p99 / bare loop", l.rate), median(l.relay, p99).Seconds()/median(l.bare, p99).Seconds(), targetLate, "%.2f")
	}
	return lines
}

func (r *report) tables() []table {
	var all []table
	if len(r.drains) > 0 {
		all = append(all, r.drainTable())
	}
	if len(r.latencies) > 0 {
		all = append(all, r.latencyTable())
	}
	return all
}

// text is the report for a terminal.
func (r *report) text() string {
	var text strings.Builder
	for _, t := range r.tables() {
		w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
		for _, row := range t {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		w.Flush() // a Builder does not fail
		fmt.Fprintln(&text)
	}
	for _, line := range r.verdicts() {
		fmt.Fprintln(&text, line)
	}
	for _, note := range r.notes {
		fmt.Fprintln(&text, "note:", note)
	}
	return text.String()
}

// markdown is the report for a document.
func (r *report) markdown() string {
	var text strings.Builder
	fmt.Fprintf(&text, "`%s` on %s; %s.\n", r.command, strings.Join(r.machine, ", "), strings.Join(r.servers, ", "))
	fmt.Fprintf(&text, "Medians of %d rounds (all of them in brackets); drains of %d events, latencies over %v.\n", r.rounds, r.events, r.duration)
	for _, t := range r.tables() {
		fmt.Fprintln(&text)
		for i, row := range t {
			fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&text, "|%s\n", strings.Repeat("---|", len(row)))
			}
		}
	}
	fmt.Fprintln(&text)
	for _, line := range r.verdicts() {
		fmt.Fprintf(&text, "- %s\n", line)
	}
	for _, note := range r.notes {
		fmt.Fprintf(&text, "- Note: %s\n", note)
	}
	return text.String()
}

// span lists what a field was in each turn, smallest first.
func span[T any](turns []T, field func(T) time.Duration, format func(time.Duration) string) string {
	var all []time.Duration
	for _, t := range turns {
		all = append(all, field(t))
	}
	slices.Sort(all)
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = format(v)
	}
	return strings.Join(texts, ", ")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

func millis(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1000) }

func mebibytes(n int64) string {
	if n == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}
