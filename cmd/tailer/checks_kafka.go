package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tailer-relay/tailer/sink"
)

func (x *examination) brokers(ctx context.Context) []outcome {
	tlsConfig, err := sink.NewTLS(sink.TLSConfig(x.cfg.Kafka.TLS))
	if err != nil {
		return failures(err, exitUsage)
	}
	x.publisher, err = sink.NewIdempotent(ctx, sink.PublisherConfig{Kafka: kafkaConfig(x.cfg, tlsConfig)}, x.log)
	if err != nil {
		return failures(err, exitUsage)
	}
	if x.known, err = x.publisher.Inspect(ctx, namedTopics(x.cfg)); err != nil {
		return failures(err, exitRetry)
	}
	return one(fine(strings.Join(x.cfg.Kafka.Brokers, ", ") + " answer, and give a producer id"))
}

// namedTopics are the topics that the configuration names; a template's others
// are known with their events.
func namedTopics(cfg *Config) []string {
	topics := []string{cfg.Routing.Default}
	if !strings.Contains(cfg.Routing.Topic, "{") {
		topics = append(topics, cfg.Routing.Topic)
	}
	for _, t := range cfg.Schema.Types {
		topics = append(topics, t.Topic)
	}
	slices.Sort(topics)
	topics = append([]string{cfg.DLQ.Topic}, slices.Compact(topics)...)
	return slices.DeleteFunc(topics, func(t string) bool { return t == "" })
}

func (x *examination) topics(context.Context) (found []outcome) {
	for _, t := range x.known {
		found = append(found, topicOutcomes(t)...)
	}
	return found
}

func topicOutcomes(t sink.TopicState) (found []outcome) {
	alter := func(setting string) string {
		return fmt.Sprintf("kafka-configs.sh --alter --topic %s --add-config %s", t.Name, setting)
	}
	switch {
	case t.Err != nil:
		return failures(t.Err, exitRetry)
	case !t.Exists:
		return one(fine(fmt.Sprintf("%s does not exist, and is created when it is needed", t.Name)))
	case t.MinInSync > t.Replicas:
		return one(outcome{Status: levelFail, code: exitRetry, Type: alter(fmt.Sprintf("min.insync.replicas=%d", max(1, t.Replicas-1))),
			Says: fmt.Sprintf("%s has %d replicas and min.insync.replicas %d: no record can ever be written", t.Name, t.Replicas, t.MinInSync)})
	case t.MinInSync == t.Replicas && t.Replicas > 1:
		found = append(found, warning(fmt.Sprintf("%s has %d replicas and min.insync.replicas %d: with one broker away nothing can be written", t.Name, t.Replicas, t.MinInSync),
			alter(fmt.Sprintf("min.insync.replicas=%d", t.Replicas-1))))
	case t.MinInSync == 1 && t.Replicas > 1:
		found = append(found, warning(fmt.Sprintf("%s has %d replicas and min.insync.replicas 1: what one broker alone has acknowledged can be lost with it", t.Name, t.Replicas),
			alter("min.insync.replicas=2")))
	}
	if t.MaxMessageBytes == 0 {
		return append(found, warning(fmt.Sprintf("the settings of %s may not be read: larger records go to the broker one by one", t.Name), "allow DESCRIBE_CONFIGS on the topic"))
	}
	return append(found, fine(fmt.Sprintf("%s exists and may be written; %d replicas, max.message.bytes %d", t.Name, t.Replicas, t.MaxMessageBytes)))
}

// schemas loads them as the relay does: all that is wrong comes at once.
func (x *examination) schemas(ctx context.Context) []outcome {
	if x.cfg.Schema.Mode == "off" {
		return one(fine("schema.mode is off: payloads are sent as they are"))
	}
	enc, err := newEncoder(ctx, x.cfg, newMetrics(x.cfg.Postgres.Slot), x.log)
	if err != nil {
		f := failure(err, exitUsage)
		if f.Type == "" {
			f.Type = "correct what the message names; `tailer doctor` reads the schemas again"
		}
		return one(f)
	}
	enc.close()
	return one(fine("every schema that is known at start is one"))
}
