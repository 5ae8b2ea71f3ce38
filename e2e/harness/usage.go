package harness

import (
	"bufio"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is what a process has used so far.
type Usage struct {
	RSS, PeakRSS int64         // bytes; RSS is 0 after the end
	CPU          time.Duration // user and system
}

// Usage reads the relay's use of memory and CPU: from /proc while it lives,
// from the kernel's account of it afterwards. Elsewhere than on Linux only the
// latter is known.
func (r *Relay) Usage() Usage {
	r.t.Helper()
	if !r.exited() {
		u, err := processUsage(r.PID())
		if err == nil {
			return u
		}
		if !r.exited() {
			// It may be ending in this moment: give the wait a chance to see it.
			select {
			case <-r.done:
			case <-time.After(2 * time.Second):
				r.t.Fatalf("usage of process %d: %v", r.PID(), err)
			}
		}
	}
	state := r.cmd.ProcessState
	u := Usage{CPU: state.UserTime() + state.SystemTime()}
	if ru, ok := state.SysUsage().(*syscall.Rusage); ok {
		u.PeakRSS = ru.Maxrss
		if runtime.GOOS != "darwin" { // there it is in bytes, else in KiB
			u.PeakRSS *= 1024
		}
	}
	return u
}

// Metrics are the samples of /metrics, by name with labels as they are written:
// `tailer_ready{slot="tailer"}`.
type Metrics map[string]float64

// Metrics reads /metrics.
func (r *Relay) Metrics() Metrics {
	r.t.Helper()
	code, body := r.Probe("/metrics")
	if code != http.StatusOK {
		r.t.Fatalf("/metrics: %d %s", code, body)
	}
	m, err := parseMetrics(body)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func parseMetrics(text string) (Metrics, error) {
	m := Metrics{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if i < 0 || err != nil {
			return nil, fmt.Errorf("metric %q: no value", line)
		}
		m[line[:i]] = value
	}
	return m, nil
}

// Sum adds up the samples of a metric over all its labels that hold each of
// the given parts, such as `topic="order"`. ok says whether there was any.
func (m Metrics) Sum(name string, labels ...string) (sum float64, ok bool) {
next:
	for key, value := range m {
		bare, rest, _ := strings.Cut(key, "{")
		if bare != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue next
			}
		}
		sum += value
		ok = true
	}
	return sum, ok
}
