package sink

import (
	"context"
	"log/slog"
)

// Lanes is the publisher of at_least_once. It publishes as Idempotent does, and no batch waits beside another yet.
type Lanes struct{ main *Idempotent }

// NewLanes checks the configuration, all of it at once. It does not touch the network; Ping does.
func NewLanes(ctx context.Context, cfg PublisherConfig, log *slog.Logger) (*Lanes, error) {
	main, err := NewIdempotent(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return &Lanes{main: main}, nil
}

// Publish returns when what can be written of the batch is settled.
func (l *Lanes) Publish(ctx context.Context, b *Batch) (Outcome, error) {
	return Done, l.main.Publish(ctx, b)
}

// Late tells of batches that Publish has left out.
func (l *Lanes) Late() <-chan Late { return nil }

// Settle waits until no record of an earlier session is open.
func (l *Lanes) Settle(ctx context.Context) error { return l.main.Settle(ctx) }

// Ping is the check at start.
func (l *Lanes) Ping(ctx context.Context) error { return l.main.Ping(ctx) }

// Close waits for every promise.
func (l *Lanes) Close(ctx context.Context) error { return l.main.Close(ctx) }
