package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// limits are the topics that were seen to exist and the largest batch each takes. kgo asks from its own goroutines.
type limits struct {
	mu     sync.RWMutex
	topics map[string]int32
}

func (l *limits) get(topic string) (int32, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n, ok := l.topics[topic]
	return n, ok
}

// of is the limit of a topic, known or not.
func (l *limits) of(topic string) int32 {
	if n, ok := l.get(topic); ok {
		return n
	}
	return defaultLimit
}

func (l *limits) set(topic string, n int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics == nil {
		l.topics = make(map[string]int32)
	}
	l.topics[topic] = n
}

func (l *limits) forget(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.topics, topic)
}

// learn takes over what another one knows. A client never hears of later changes, so each has limits of its own.
func (l *limits) learn(from *limits) {
	from.mu.RLock()
	defer from.mu.RUnlock()
	l.topics = maps.Clone(from.topics)
}

// asked is a number of the configuration for the log: -1 leaves it to the broker.
func asked(n int) any {
	if n < 0 {
		return "the broker's default"
	}
	return n
}

// ensure sees to it that a topic exists and that its limit is known, and creates it where that is wanted. A topic is
// never created by naming it in a request for metadata.
func ensure(ctx context.Context, cl *kgo.Client, cfg TopicsConfig, topic string, l *limits, log *slog.Logger) error {
	if err := exists(ctx, cl, topic); err != nil {
		if !cfg.Create || !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return err
		}
		if err := create(ctx, cl, cfg, topic); err != nil {
			return err
		}
		log.Info("created topic", "topic", topic, "partitions", asked(int(cfg.Partitions)), "replication_factor", asked(int(cfg.Replication)))
	}
	n, err := maxMessageBytes(ctx, cl, topic)
	if err != nil {
		return err
	}
	if n == 0 {
		if known, ok := l.get(topic); ok {
			n = known
		}
	}
	if n == 0 {
		log.Info("max.message.bytes of the topic may not be read; larger records go to the broker one by one", "topic", topic, "assumed", defaultLimit)
		n = defaultLimit
	}
	l.set(topic, n)
	return nil
}

// exists asks for the topic's metadata.
func exists(ctx context.Context, cl *kgo.Client, topic string) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("ask for topic %q: %w", topic, err)
	}
	for _, t := range resp.Topics {
		if t.Topic != nil && *t.Topic == topic {
			return kerr.ErrorForCode(t.ErrorCode)
		}
	}
	return kerr.UnknownTopicOrPartition
}

func create(ctx context.Context, cl *kgo.Client, cfg TopicsConfig, topic string) error {
	configs := make(map[string]*string, len(cfg.Config))
	for k, v := range cfg.Config {
		configs[k] = &v
	}
	resps, err := kadm.NewClient(cl).CreateTopics(ctx, cfg.Partitions, cfg.Replication, configs, topic)
	if err != nil {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	resp, ok := resps[topic]
	switch {
	case !ok:
		return fmt.Errorf("create topic %q: the broker did not answer for it", topic)
	case resp.Err == nil, errors.Is(resp.Err, kerr.TopicAlreadyExists): // somebody else was quicker
		return nil
	case resp.ErrMessage != "":
		return fmt.Errorf("create topic %q: %w: %s", topic, resp.Err, resp.ErrMessage)
	}
	return fmt.Errorf("create topic %q: %w", topic, resp.Err)
}

// maxMessageBytes is the topic's limit, 0 where we may not know it. A missing right to read a setting must not stop
// the records that may be written.
func maxMessageBytes(ctx context.Context, cl *kgo.Client, topic string) (int32, error) {
	configs, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, topic)
	var denied *kadm.AuthError
	if errors.As(err, &denied) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the configuration of topic %q: %w", topic, err)
	}
	rc, err := configs.On(topic, nil)
	if err == nil {
		err = rc.Err
	}
	if Classify(err) == Transient && err != nil {
		return 0, fmt.Errorf("read the configuration of topic %q: %w", topic, err)
	}
	for _, c := range rc.Configs {
		if c.Key != "max.message.bytes" || c.Value == nil {
			continue
		}
		n, err := strconv.Atoi(*c.Value)
		if err != nil || n <= 0 {
			return 0, nil
		}
		// kgo wants no less than 512, and keeps some of its largest request for itself.
		return int32(max(512, min(n, maxRequest/2))), nil
	}
	return 0, nil
}
