package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Prefer makes a broker of a real cluster of three the first replica of a
// partition: the one that an election of preferred leaders makes its leader.
func Prefer(ctx context.Context, admin *kadm.Client, topic string, partition, broker int32) error {
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, partition, []int32{broker, broker%3 + 1, (broker+1)%3 + 1})
	resp, err := admin.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return err
	}
	return resp.Error()
}

// MoveLeaders has a real cluster of three elect other leaders for all partitions
// of the topics.
func MoveLeaders(ctx context.Context, admin *kadm.Client, topics ...string) error {
	listed, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return err
	}
	var set kadm.TopicsSet
	for _, topic := range listed {
		for _, p := range topic.Partitions {
			if err := Prefer(ctx, admin, topic.Topic, p.Partition, max(p.Leader, 0)%3+1); err != nil {
				return err
			}
			set.Add(topic.Topic, p.Partition)
		}
	}
	_, err = admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	return err
}
