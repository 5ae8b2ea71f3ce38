package scenario

import (
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/harness"
)

func TestJudgeRepeats(t *testing.T) {
	// One partition; an event's id is its commit, so a text of digits is a history.
	history := func(commits string) (records []harness.Record) {
		for i, c := range commits {
			records = append(records, harness.Record{Topic: "order", Offset: int64(i), Headers: []kgo.RecordHeader{
				{Key: "ce_id", Value: []byte(string(c))},
				{Key: "ce_sequence", Value: fmt.Appendf(nil, "%016X-%010d", c-'0', 0)},
			}})
		}
		return records
	}
	at := func(n int64) harness.Offsets { return harness.Offsets{{Topic: "order"}: n} }
	died := func(before, end int64, confirmed pglogrepl.LSN) life {
		return life{before: at(before), end: at(end), confirmed: confirmed}
	}
	for _, c := range []struct {
		name, history string
		lives         []life
		open          int
		good          bool
	}{
		{"no kill, no repeat", "123", nil, 0, true},
		{"a repeat without a kill", "1233", nil, 0, false},
		{"the last moment's", "1234" + "3456", []life{died(2, 4, 3)}, 0, true},
		{"one more than that", "1234" + "23456", []life{died(2, 4, 3)}, 0, false},
		{"an open transaction's rows", "1234" + "23456", []life{died(2, 4, 3)}, 1, true},
		{"left to the life after the next", "1234" + "" + "345", []life{died(2, 4, 3), died(4, 4, 3)}, 0, true},
		{"repeated twice after a second kill", "1234" + "34" + "345", []life{died(2, 4, 3), died(4, 6, 3)}, 0, true},
		{"not left when it was confirmed", "1234" + "56" + "345", []life{died(2, 4, 3), died(6, 6, 6)}, 0, false},
	} {
		if problems := judgeRepeats(c.lives, history(c.history), c.open); (len(problems) == 0) != c.good {
			t.Errorf("%s: %q", c.name, problems)
		}
	}
}
