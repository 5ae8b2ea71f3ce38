package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/replication"
)

// Seen red with a warning at every session.
func TestWarnOnce(t *testing.T) {
	var out bytes.Buffer
	warn := warnOnce(newLogger(&out, LogConfig{"info", "text"}))
	for range 3 {
		warn(replication.Warning{Text: "one", Hint: "type this"})
		warn(replication.Warning{Text: "two"})
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `msg=one hint="type this"`) || !strings.Contains(got, "msg=two") {
		t.Errorf("%s", got)
	}
}
