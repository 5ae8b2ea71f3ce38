package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/sink"
)

// Seen red with min.insync.replicas compared the other way round.
func TestTopicOutcomes(t *testing.T) {
	for _, c := range []struct {
		state sink.TopicState
		want  string // "status says > type", one for each outcome
	}{
		{sink.TopicState{Name: "o"}, "ok o does not exist, and is created when it is needed"},
		{sink.TopicState{Name: "o", Exists: true, Replicas: 3, MinInSync: 2, MaxMessageBytes: 1000}, "ok o exists and may be written; 3 replicas, max.message.bytes 1000"},
		{sink.TopicState{Name: "o", Exists: true, Replicas: 1, MinInSync: 1, MaxMessageBytes: 1000}, "ok o exists and may be written; 1 replicas, max.message.bytes 1000"},
		{sink.TopicState{Name: "o", Exists: true, Replicas: 1, MinInSync: 2, MaxMessageBytes: 1000},
			"fail o has 1 replicas and min.insync.replicas 2: no record can ever be written > kafka-configs.sh --alter --topic o --add-config min.insync.replicas=1"},
		{sink.TopicState{Name: "o", Exists: true, Replicas: 3, MinInSync: 3, MaxMessageBytes: 1000},
			"warn o has 3 replicas and min.insync.replicas 3: with one broker away nothing can be written > kafka-configs.sh --alter --topic o --add-config min.insync.replicas=2\n" +
				"ok o exists and may be written; 3 replicas, max.message.bytes 1000"},
		{sink.TopicState{Name: "o", Exists: true, Replicas: 3, MinInSync: 1, MaxMessageBytes: 1000},
			"warn o has 3 replicas and min.insync.replicas 1: what one broker alone has acknowledged can be lost with it > kafka-configs.sh --alter --topic o --add-config min.insync.replicas=2\n" +
				"ok o exists and may be written; 3 replicas, max.message.bytes 1000"},
		{sink.TopicState{Name: "o", Exists: true, Replicas: 3},
			"warn the settings of o may not be read: larger records go to the broker one by one > allow DESCRIBE_CONFIGS on the topic"},
		{sink.TopicState{Name: "o", Err: &sink.Error{Op: "check topic", Object: "o", Hint: "create it", Err: errors.New("unknown")}}, "fail kafka: check topic o: unknown > create it"},
	} {
		var got []string
		for _, o := range topicOutcomes(c.state) {
			line := string(o.Status) + " " + o.Says
			if o.Type != "" {
				line += " > " + o.Type
			}
			got = append(got, line)
		}
		if text := strings.Join(got, "\n"); text != c.want {
			t.Errorf("%+v:\n%s\nwant\n%s", c.state, text, c.want)
		}
	}
}

// The code is that of the gravest failure, and each error brings its own.
func TestVerdictOfChecks(t *testing.T) {
	gap := &replication.Error{Op: "check", Object: "slot", Class: replication.Gap, Hint: "decide", Err: errors.New("gone")}
	found := []outcome{fine("well"), warning("hm", ""), failure(errors.New("no broker"), exitRetry), failure(gap, exitRetry), failure(usageError("look", "wrong"), exitRetry)}
	if code, failed := verdictOf(found); code != exitGap || failed != 3 {
		t.Errorf("code %d, %d failed", code, failed)
	}
	if code, failed := verdictOf(found[:2]); code != exitDone || failed != 0 {
		t.Errorf("code %d, %d failed", code, failed)
	}
	if f := found[3]; f.Type != "decide" || f.Says != "check slot: gone" {
		t.Errorf("%+v", f)
	}
	if f := found[4]; f.Type != "look" || f.code != exitUsage {
		t.Errorf("%+v", f)
	}
}
