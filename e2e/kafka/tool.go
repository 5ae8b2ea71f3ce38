package kafka

import (
	"context"
	"os/exec"
)

// Tool is one of the programs that Kafka brings, by its class, such as
// org.apache.kafka.tools.consumer.ConsoleConsumer.
func (r *Real) Tool(ctx context.Context, class string, args ...string) *exec.Cmd {
	return r.brokers[0].command(ctx, class, args...)
}
