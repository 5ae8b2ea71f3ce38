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

// contenders are all there can be, in the order in which they are shown.
var contenders = []string{plain, bare, tailer, tailer + " before"}

func wallOf(t drained) time.Duration { return t.wall }
func p50(d delays) time.Duration     { return d.p50 }
func p99(d delays) time.Duration     { return d.p99 }

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
		for _, name := range contenders {
			turns := d.turns[name]
			if len(turns) == 0 {
				continue
			}
			wall := median(turns, wallOf)
			ratio := ""
			if base := median(d.turns[plain], wallOf); base > 0 {
				ratio = fmt.Sprintf("%.2f", wall.Seconds()/base.Seconds())
			}
			t = append(t, []string{name, fmt.Sprint(d.rows),
				fmt.Sprintf("%.1f (%s)", wall.Seconds(), span(turns, wallOf, seconds)),
				fmt.Sprintf("%.0f", float64(r.events)/wall.Seconds()), ratio,
				seconds(median(turns, func(t drained) time.Duration { return t.cpu })),
				mebibytes(median(turns, func(t drained) int64 { return t.peak })),
				seconds(median(turns, func(t drained) time.Duration { return t.server }))})
		}
	}
	return t
}

func (r *report) latencyTable() table {
	t := table{{"latency", "tx/s", "p50 ms", "p99 ms", "ratio p50", "ratio p99", "CPU s"}}
	for _, l := range r.latencies {
		base50, base99 := median(l.turns[bare], p50), median(l.turns[bare], p99)
		for _, name := range contenders {
			turns := l.turns[name]
			if len(turns) == 0 {
				continue
			}
			m50, m99 := median(turns, p50), median(turns, p99)
			t = append(t, []string{name, fmt.Sprint(l.rate),
				fmt.Sprintf("%s (%s)", millis(m50), span(turns, p50, millis)), fmt.Sprintf("%s (%s)", millis(m99), span(turns, p99, millis)),
				fmt.Sprintf("%.2f", m50.Seconds()/base50.Seconds()), fmt.Sprintf("%.2f", m99.Seconds()/base99.Seconds()),
				seconds(median(turns, func(d delays) time.Duration { return d.cpu }))})
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
		relay := d.turns[tailer]
		if base := median(d.turns[plain], wallOf); base > 0 {
			say(name+"wall / pg_recvlogical", median(relay, wallOf).Seconds()/base.Seconds(), targetWall(d.rows), "%.2f")
		}
		say(name+"CPU s a million events", median(relay, func(t drained) time.Duration { return t.cpu }).Seconds()*1e6/float64(r.events), targetCPU, "%.1f")
		if rss := median(relay, func(t drained) int64 { return t.peak }); rss > 0 {
			say(name+"peak MiB", float64(rss)/(1<<20), targetRSS, "%.0f")
		}
	}
	for _, l := range r.latencies {
		say(fmt.Sprintf("latency at %d tx/s, p99 / bare loop", l.rate), median(l.turns[tailer], p99).Seconds()/median(l.turns[bare], p99).Seconds(), targetLate, "%.2f")
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
