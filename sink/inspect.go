package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicState is what the brokers say about a topic to somebody who looks and touches nothing.
type TopicState struct {
	Name   string
	Exists bool
	// Err is why records could not be written there, with a hint; nil where they could, or where the topic may be
	// created.
	Err *Error

	Replicas        int   // of the partition that has fewest; 0 when it does not exist
	MinInSync       int   // 0: may not be read
	MaxMessageBytes int32 // 0: may not be read
}

// aclWrite is WRITE's bit among a topic's authorised operations.
const aclWrite = 1 << 4

// Inspect asks what Ping would find, for all the topics, and creates none. Its own error is about the brokers: no
// topic could be asked for.
func (p *Idempotent) Inspect(ctx context.Context, topics []string) ([]TopicState, error) {
	c, err := p.client(false)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, askPatience, c.Ping); err != nil {
		return nil, p.failure("reach brokers", fmt.Sprint(p.cfg.Brokers), p.cfg.DLQTopic, err)
	}
	err = p.await(ctx, askPatience, func(ctx context.Context) error {
		_, _, err := c.ProducerID(ctx)
		return err
	})
	if err != nil {
		p.renew() // the client keeps a refused producer id for ever
		return nil, p.failure("get a producer id", "", p.cfg.DLQTopic, err)
	}
	var states []TopicState
	for _, topic := range topics {
		state := TopicState{Name: topic}
		err := p.await(ctx, askPatience, func(ctx context.Context) error { return p.inspect(ctx, c, &state) })
		if err != nil {
			state.Err = p.failure("check topic", topic, topic, err)
		}
		states = append(states, state)
	}
	return states, nil
}

func (p *Idempotent) inspect(ctx context.Context, c *client, state *TopicState) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.IncludeTopicAuthorizedOperations = true
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &state.Name
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return kerr.UnknownTopicOrPartition
	}
	topic := &resp.Topics[0]
	err = kerr.ErrorForCode(topic.ErrorCode)
	if errors.Is(err, kerr.UnknownTopicOrPartition) && p.cfg.Topics.Create {
		return p.mayCreate(ctx, c, state.Name)
	}
	if err != nil {
		return err
	}
	state.Exists = true
	for i, partition := range topic.Partitions {
		if n := len(partition.Replicas); i == 0 || n < state.Replicas {
			state.Replicas = n
		}
	}
	if err := p.settings(ctx, c, state); err != nil {
		return err
	}
	// Brokers that do not tell say math.MinInt32.
	if ops := topic.AuthorizedOperations; ops != math.MinInt32 && ops&aclWrite == 0 {
		return kerr.TopicAuthorizationFailed
	}
	return nil
}

// mayCreate asks for the topic without making it.
func (p *Idempotent) mayCreate(ctx context.Context, c *client, topic string) error {
	configs := make(map[string]*string, len(p.cfg.Topics.Config))
	for k, v := range p.cfg.Topics.Config {
		configs[k] = &v
	}
	resps, err := kadm.NewClient(c.Client).ValidateCreateTopics(ctx, p.cfg.Topics.Partitions, p.cfg.Topics.Replication, configs, topic)
	if err != nil {
		return err
	}
	if err := resps[topic].Err; !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	return nil
}

// settings reads what bounds a record and its replication. Not to be allowed to is no fault.
func (p *Idempotent) settings(ctx context.Context, c *client, state *TopicState) error {
	configs, err := kadm.NewClient(c.Client).DescribeTopicConfigs(ctx, state.Name)
	var denied *kadm.AuthError
	if errors.As(err, &denied) {
		return nil
	}
	if err != nil {
		return err
	}
	rc, err := configs.On(state.Name, nil)
	if err != nil || rc.Err != nil {
		return nil
	}
	for _, s := range rc.Configs {
		if s.Value == nil {
			continue
		}
		n, err := strconv.ParseInt(*s.Value, 10, 32)
		if err != nil {
			continue
		}
		switch s.Key {
		case "max.message.bytes":
			state.MaxMessageBytes = int32(n)
		case "min.insync.replicas":
			state.MinInSync = int(n)
		}
	}
	return nil
}
