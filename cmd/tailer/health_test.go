package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadiness(t *testing.T) {
	m := newMetrics("shop")
	h := newHealth(m)
	handler := newHandler(h, m)
	for _, step := range []struct {
		name   string
		do     func()
		code   int
		body   string
		active string
	}{
		{"before the first session", func() {}, 503, "starting", "0"},
		{"a topic is blocked at the start", func() { m.Blocked("shop.dlq", "it does not exist") }, 503, "topic shop.dlq: it does not exist", "0"},
		{"no session", func() { h.NotReady("connect to postgres:\n connection refused") }, 503, "connect to postgres: connection refused (and 1 more)", "0"},
		{"the topic is back", func() { m.Blocked("shop.dlq", "") }, 503, "connect to postgres: connection refused", "0"},
		{"streaming", h.Active, 200, "active", "1"},
		{"two topics are blocked", func() { m.Blocked("b", "no leader"); m.Blocked("a", "not authorised") }, 503, "topic a: not authorised (and 1 more)", "1"},
		{"another cause for one", func() { m.Blocked("a", "no leader") }, 503, "topic a: no leader (and 1 more)", "1"},
		{"one left", func() { m.Blocked("a", "") }, 503, "topic b: no leader", "1"},
		{"another relay took over", func() { h.Standby() }, 200, "standby", "0"},
		{"streaming again, still blocked", h.Active, 503, "topic b: no leader", "1"},
		{"none left", func() { m.Blocked("b", "") }, 200, "active", "1"},
		{"ended twice", func() { m.Blocked("b", "") }, 200, "active", "1"},
		{"a fault under the stream", func() { h.Fault("it is not\n published") }, 503, "it is not published", "1"},
		{"an event waits and does no more", func() { h.NotReady("no schema"); h.Active() }, 503, "it is not published", "1"},
		{"standing by, it is the holder's", h.Standby, 200, "standby", "0"},
		{"put right", func() { h.Active(); h.Fault("") }, 200, "active", "1"},
	} {
		step.do()
		code, body := get(handler, "/readyz")
		if code != step.code || body != step.body+"\n" {
			t.Errorf("%s: %d %q, want %d %q", step.name, code, body, step.code, step.body)
		}
		ready := "0"
		if step.code == 200 {
			ready = "1"
		}
		_, page := get(handler, "/metrics")
		for _, line := range []string{`tailer_ready{slot="shop"} ` + ready, `tailer_active{slot="shop"} ` + step.active} {
			if !strings.Contains(page, line+"\n") {
				t.Errorf("%s: no %q", step.name, line)
			}
		}
		// Nothing of this is a reason to restart.
		if code, body := get(handler, "/healthz"); code != 200 || body != "ok\n" {
			t.Errorf("%s: healthz %d %q", step.name, code, body)
		}
	}
}

func get(handler http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics("shop")
		h := newHealth(m)
		handler := newHandler(h, m)
		alive := func(what string, want bool) {
			t.Helper()
			if got := h.Alive(); got != want {
				t.Errorf("%s: alive is %v", what, got)
			}
		}
		time.Sleep(time.Hour)
		alive("no loop is armed", true)
		h.Start(loopReader)
		h.Start(loopPublisher)
		for range 100 {
			time.Sleep(29 * time.Second)
			h.Beat(loopReader)
			h.Beat(loopPublisher)
			alive("both beat", true)
		}
		for range 2 {
			time.Sleep(20 * time.Second)
			h.Beat(loopReader)
			h.Alive()
		}
		alive("the publisher does not beat", false)
		if code, body := get(handler, "/healthz"); code != 503 || body != "the publisher has not moved for 40s\n" {
			t.Errorf("healthz %d %q", code, body)
		}
		h.Beat(loopPublisher)
		alive("the publisher beats again", true)
		h.Stop(loopPublisher)
		time.Sleep(20 * time.Second)
		h.Beat(loopReader)
		alive("the publisher has ended", true)
		time.Sleep(20 * time.Second)
		h.Start(loopPublisher)
		h.Beat(loopReader)
		alive("the publisher starts with a full allowance", true)
		time.Sleep(31 * time.Second)
		// Nobody asked since the reader's last beat: it is only now seen to have moved.
		alive("the publisher never beat", false)
		h.limit = time.Minute
		alive("a longer limit", true)
	})
}

func TestHTTPServer(t *testing.T) {
	m := newMetrics("shop")
	h := newHealth(m)
	var logged bytes.Buffer
	log := newLogger(&logged, LogConfig{"info", "json"})
	addr, stop, err := serveHTTP(t.Context(), "127.0.0.1:0", h, m, log)
	if err != nil {
		t.Fatal(err)
	}
	var line struct{ Msg, Addr string }
	if err := json.Unmarshal(logged.Bytes(), &line); err != nil || line.Msg != "http listening" || line.Addr != addr || strings.HasSuffix(addr, ":0") {
		t.Errorf("logged %s for %s", logged.String(), addr)
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/nothing": 404, "/": 404} {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	resp, err := http.Post("http://"+addr+"/healthz", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}

	_, _, err = serveHTTP(t.Context(), addr, h, m, log)
	if code := report(io.Discard, err); err == nil || code != exitUsage {
		t.Errorf("an address in use: exit %d, %v", code, err)
	}

	// The command asks it, from a configuration that a container would have.
	_, port, _ := net.SplitHostPort(addr)
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		do   func()
		args string
		code int
		out  string
	}{
		{func() {}, "", 1, "starting\n"},
		{func() {}, "--live", 0, "ok\n"},
		{h.Active, "", 0, "active\n"},
		{func() { h.Standby() }, "", 0, "standby\n"},
	} {
		c.do()
		args := append([]string{"health", "--http-listen", "0.0.0.0:" + port}, strings.Fields(c.args)...)
		code, stdout, stderr := tailer(t.Context(), variables(), args...)
		if code != c.code || stdout != c.out {
			t.Errorf("health %s: exit %d, %q, %s", c.args, code, stdout, stderr)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	stop(ctx)
	if code, _, stderr := tailer(t.Context(), variables(), "health", "--http-listen", addr); code != 1 || !strings.HasPrefix(stderr, "tailer: no relay answers at http://"+addr+": ") {
		t.Errorf("stopped: exit %d, %s", code, stderr)
	}
	if addr, stop, err := serveHTTP(t.Context(), "", h, m, log); addr != "" || err != nil {
		t.Errorf("off: %q %v", addr, err)
	} else {
		stop(t.Context())
	}
}

func TestRelayURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:9479": "http://127.0.0.1:9479", ":9479": "http://127.0.0.1:9479", "0.0.0.0:1": "http://127.0.0.1:1",
		"[::]:1": "http://127.0.0.1:1", "[::1]:1": "http://[::1]:1", "relay:1": "http://relay:1",
	} {
		if got, err := relayURL(listen); got != want || err != nil {
			t.Errorf("%s: %s %v", listen, got, err)
		}
	}
	for _, listen := range []string{"", ":0", "x"} {
		if got, err := relayURL(listen); err == nil {
			t.Errorf("%s: %s", listen, got)
		}
	}
}

func BenchmarkBeat(b *testing.B) {
	h := newHealth(newMetrics("shop"))
	b.ReportAllocs()
	for b.Loop() {
		h.Beat(loopReader)
	}
}

func ExampleConfigError() {
	fmt.Println(&ConfigError{Problems: []string{"tailer.yaml:3: unknown key slot, the nearest is postgres.slot"}})
	// Output: tailer.yaml:3: unknown key slot, the nearest is postgres.slot
}
