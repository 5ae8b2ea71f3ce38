package sink

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Seen red with a topic that may not be created and counted as one that may.
func TestInspect(t *testing.T) {
	c := fakeCluster(t, kfake.SeedTopics(3, "orders", "forbidden"))
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	value := "2000000"
	if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, "orders"); err != nil {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r := req.(*kmsg.MetadataRequest)
		if len(r.Topics) != 1 || r.Topics[0].Topic == nil || *r.Topics[0].Topic != "forbidden" {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.ErrorCode = r.Topics[0].Topic, kerr.TopicAuthorizationFailed.Code
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})

	p, _ := publisherFor(t, c.ListenAddrs(), nil)
	states, err := p.Inspect(context.Background(), []string{"orders", "forbidden", "absent"})
	if err != nil || len(states) != 3 {
		t.Fatalf("%v, %v", states, err)
	}
	if s := states[0]; !s.Exists || s.Err != nil || s.Replicas < 1 || s.MaxMessageBytes != 2000000 {
		t.Errorf("%+v", s)
	}
	if s := states[1]; s.Err == nil || !strings.Contains(s.Err.Hint, "--operation Write") {
		t.Errorf("%+v", s)
	}
	if s := states[2]; s.Exists || s.Err == nil || !strings.Contains(s.Err.Hint, "--create --topic absent") {
		t.Errorf("%+v", s)
	}

	p, _ = publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) {
		cfg.Topics.Create, cfg.Topics.Partitions, cfg.Topics.Replication = true, -1, -1
	})
	if states, err := p.Inspect(context.Background(), []string{"absent"}); err != nil || states[0].Exists || states[0].Err != nil {
		t.Errorf("may be created: %+v, %v", states, err)
	}
	p, _ = publisherFor(t, c.ListenAddrs(), func(cfg *KafkaConfig) { cfg.Topics.Create, cfg.Topics.Partitions, cfg.Topics.Replication = true, -1, 9 })
	if states, err := p.Inspect(context.Background(), []string{"absent"}); err != nil || states[0].Err == nil || !strings.Contains(states[0].Err.Hint, "kafka.topics.replication_factor") {
		t.Errorf("more replicas than brokers: %+v, %v", states, err)
	}
	if all, err := admin.ListTopics(t.Context(), "absent"); err == nil && all.Has("absent") && all["absent"].Err == nil {
		t.Error("asking has created the topic")
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	p, _ = publisherFor(t, []string{nobody}, nil)
	if _, err := p.Inspect(context.Background(), []string{"orders"}); Classify(err) != Transient || !strings.Contains(err.Error(), nobody) || hintOf(err) == "" {
		t.Errorf("without a broker: %v", err)
	}
}
