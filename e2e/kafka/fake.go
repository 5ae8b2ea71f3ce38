// Package kafka gives the end-to-end tests a broker: kfake in this process,
// whose faults a test can steer, or a real Apache Kafka, which knows what kfake
// hides (replication, limits by topic, what is inside a batch).
//
//	fake := kafka.NewFake(t, kafka.FakeOptions{Topics: map[string]int32{"order": 3}})
//	real := kafka.NewReal(t, 3)
//	real.Broker(2).Kill()
//
// Neither creates topics by itself unless asked to. A real broker is a Java
// process of ours: it is killed when we die. One goroutine a broker start waits
// for its process; kfake has its own and ends them in Close.
package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FakeOptions describe a kfake cluster. The zero value is one broker without topics.
type FakeOptions struct {
	Brokers    int
	Topics     map[string]int32 // name to partitions
	AutoCreate bool             // create topics that clients ask for
	Options    []kfake.Opt      // whatever else kfake offers; it wins
}

// Fake is a kfake cluster. The embedded Cluster steers its faults.
type Fake struct{ *kfake.Cluster }

// NewFake starts a cluster for a test.
func NewFake(t testing.TB, opt FakeOptions) *Fake {
	t.Helper()
	f, err := StartFake(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// StartFake starts a cluster that Close ends.
func StartFake(opt FakeOptions) (*Fake, error) {
	opts := []kfake.Opt{kfake.NumBrokers(max(1, opt.Brokers))}
	for name, partitions := range opt.Topics {
		opts = append(opts, kfake.SeedTopics(partitions, name))
	}
	if opt.AutoCreate {
		opts = append(opts, kfake.AllowAutoTopicCreation())
	}
	c, err := kfake.NewCluster(append(opts, opt.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("start kfake: %w", err)
	}
	return &Fake{c}, nil
}

// Addrs are the brokers' addresses.
func (f *Fake) Addrs() []string { return f.ListenAddrs() }

// CreateTopic creates a topic on any cluster. Replication -1 is the broker's
// default. A topic that exists already is an error.
func CreateTopic(t testing.TB, addrs []string, name string, partitions int32, replication int16, config map[string]string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.MetadataMinAge(20*time.Millisecond)) // kadm caches that long
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	entries := map[string]*string{}
	for key, value := range config {
		entries[key] = &value
	}
	admin := kadm.NewClient(client)
	resp, err := admin.CreateTopic(ctx, partitions, replication, entries, name)
	if err != nil {
		t.Fatalf("create topic %s: %v %s", name, err, resp.ErrMessage)
	}
	// The answer comes from the controller; the leaders may not know yet.
	for {
		topics, err := admin.ListTopics(ctx, name)
		if err == nil && topics[name].Err == nil && int32(len(topics[name].Partitions)) == partitions && led(topics[name].Partitions) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("topic %s has no leaders: %v %v", name, err, topics[name].Err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func led(partitions kadm.PartitionDetails) bool {
	for _, p := range partitions {
		if p.Err != nil && p.Err != kerr.ReplicaNotAvailable || p.Leader < 0 {
			return false
		}
	}
	return true
}
