package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/schema"
)

func TestAWaitingEventSaysWhatEndsTheWait(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"registry refuses the login": {fmt.Errorf("add: %w", &schema.Unavailable{Type: "a.b.v1", Hint: "check the user", Err: io.EOF}), "; check the user"},
		"registry is away":           {&schema.Unavailable{Type: "a.b.v1", Err: io.EOF}, "cannot be had now: EOF"},
		"no schema":                  {&hold{&schema.NotFound{Type: "a.b.v1", Where: "no file"}}, "; put the schema where it is looked for; the next look is in 30 s"},
		"payload does not fit":       {&hold{errors.New("does not fit")}, "; put a schema in place that takes the payload; the next look is in 30 s"},
	} {
		if got := withHint(c.err, waitHint(c.err)); !strings.HasPrefix(got, c.err.Error()) || !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
