package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// The judge of repeats is shown one of each kind: a relay is killed at second 20
// of a world in which a record is written every second, at the offset and with
// the commit of its second.
func TestWindow(t *testing.T) {
	zero := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(second float64) time.Time { return zero.Add(time.Duration(second * float64(time.Second))) }
	record := func(commit, offset int) harness.Record {
		return harness.Record{Topic: "order", Offset: int64(offset), Headers: []kgo.RecordHeader{
			{Key: "ce_id", Value: fmt.Append(nil, commit)}, {Key: "ce_sequence", Value: fmt.Appendf(nil, "%016X-%010d", commit, 0)}}}
	}
	p := harness.Partition{Topic: "order"}
	fault := func(kind Kind, from, to float64) spell { return spell{kind, at(from), at(to)} }
	began := func(second float64, start int) session { return session{at(second), pglogrepl.LSN(start)} }

	for _, c := range []struct {
		name     string
		spells   []spell
		sessions []session
		forgets  bool
		commit   int // of the event that is repeated in second 25
		problem  string
	}{
		{"of the last moment", []spell{fault("kill the holder", 20, 21)}, []session{began(22, 19)}, false, 20, ""},
		{"of long before", []spell{fault("kill the holder", 20, 21)}, []session{began(22, 5)}, false, 10, "the disturbance began"},
		{"without a fault", nil, nil, false, 20, "nothing was disturbed"},
		{"of an earlier fault's time, in an unbroken row", []spell{fault("network to Postgres: slow", 9, 18), fault("kill the holder", 20, 21)},
			[]session{began(22, 5)}, false, 10, ""},
		{"of an earlier fault's time, and all was well in between", []spell{fault("kill the standby", 9, 10), fault("kill the holder", 20, 21)},
			[]session{began(22, 5)}, false, 10, "the disturbance began"},
		{"the server crashed", []spell{fault("Postgres: immediate stop", 20, 21)}, []session{began(22, 5)}, false, 10, ""},
		{"the server was restarted, up to 16", []spell{fault("Postgres: fast restart", 20, 21)}, []session{began(22, 5)}, true, 10, ""},
		{"the server was restarted, from 17 on", []spell{fault("Postgres: fast restart", 20, 21)}, []session{began(22, 5)}, false, 10, "the disturbance began"},
		{"of a round before, the server crashed", []spell{fault("Postgres: immediate stop", 20, 21)}, []session{began(22, 0)}, false, 0, ""},
		{"of a round before, a relay was killed", []spell{fault("kill the holder", 20, 21)}, []session{began(22, 0)}, false, 0, "the server forgot nothing"},
		{"of a round before, and no session began there", []spell{fault("Postgres: immediate stop", 20, 21)}, []session{began(22, 5)}, false, 0, "no session began"},
		{"a cycle sent again in a session", []spell{fault("network to Kafka: cut", 20, 21)}, nil, false, 20, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := window{spells: c.spells, sessions: c.sessions, forgets: c.forgets}
			for second := 1; second <= 25; second++ {
				w.first = append(w.first, record(second, second))
				w.samples = append(w.samples, harness.Sample{EndAt: at(float64(second)), End: harness.Offsets{p: int64(second + 1)}})
			}
			problems := w.judge([]harness.Repeat{{Record: record(c.commit, 25), First: p, Offset: int64(c.commit)}})
			switch {
			case c.problem == "" && len(problems) > 0:
				t.Errorf("found %q", problems)
			case c.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.problem)):
				t.Errorf("found %q, want one with %q", problems, c.problem)
			}
		})
	}
}
