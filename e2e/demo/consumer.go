package main

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
)

// consumer is a stranger to the relay: a plain client, the registry, and an
// Avro library of its own.
type consumer struct {
	client   *kgo.Client
	registry *sr.Client
	schemas  map[int]*avro.Schema
	ledger   *ledger
	screen   *screen

	records atomic.Int64  // how many were taken and accounted for
	first   chan struct{} // closed with the first of them
}

// received is a record, as far as the ledger cares.
type received struct {
	id, key, topic, sequence string
	partition                int32
	offset                   int64
	dead                     bool
	fetched                  time.Time
}

func (r *received) place() string { return fmt.Sprintf("%s/%d@%d", r.topic, r.partition, r.offset) }

func newConsumer(brokers []string, topics []string, registry string, l *ledger, s *screen) (*consumer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	sc, err := sr.NewClient(sr.URLs(registry))
	if err != nil {
		client.Close()
		return nil, err
	}
	return &consumer{client: client, registry: sc, schemas: map[int]*avro.Schema{}, ledger: l, screen: s, first: make(chan struct{})}, nil
}

// run takes records until ctx ends.
func (c *consumer) run(ctx context.Context) error {
	for {
		fetches := c.client.PollFetches(ctx)
		fetched := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("consumer: fetch from %s: %w", errs[0].Topic, errs[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			c.take(ctx, r, fetched)
			if c.records.Add(1) == 1 {
				close(c.first)
			}
		})
	}
}

// eventLine has type, key, partition with offset, and latency.
const eventLine = "  %-18s%-11s%-15s%8s   "

func (c *consumer) take(ctx context.Context, r *kgo.Record, fetched time.Time) {
	head := map[string]string{}
	for _, h := range r.Headers {
		head[h.Key] = string(h.Value)
	}
	got := received{id: head["ce_id"], key: string(r.Key), topic: r.Topic, sequence: head["ce_sequence"],
		partition: r.Partition, offset: r.Offset, dead: head["dlq_reason"] != "", fetched: fetched}
	want, latency, known := c.ledger.seen(&got)
	if !known {
		return
	}
	if head["ce_type"] != want.typ || got.key != want.key {
		c.ledger.problem("event %s has type %q and key %q, written were %q and %q", got.id, head["ce_type"], got.key, want.typ, want.key)
	}
	row := []part{{plain, fmt.Sprintf(eventLine, head["ce_type"], got.key, got.place(), millis(latency))}}
	if got.dead {
		if head["dlq_reason"] != want.reason {
			c.ledger.problem("dead letter %s has reason %q, expected was %q", got.id, head["dlq_reason"], want.reason)
		}
		c.screen.line(append(row, part{odd, "dead letter: " + head["dlq_reason"]})...)
		why := head["dlq_message"]
		if path := head["dlq_path"]; path != "" && !strings.HasPrefix(why, path) {
			why = path + ": " + why
		}
		c.screen.line(part{odd, "  └ " + why})
		return
	}
	essence, err := c.decode(ctx, want.typ, r.Value)
	if err != nil {
		c.ledger.problem("decode event %s of type %s: %v", got.id, want.typ, err)
		c.screen.line(append(row, part{bad, err.Error()})...)
		return
	}
	if essence != want.essence {
		c.ledger.problem("event %s reads %q, written was %q", got.id, essence, want.essence)
	}
	c.screen.line(append(row, part{plain, essence})...)
}

// decode reads a value as any consumer of the Confluent format would: the
// schema's id in front names the writer's schema.
func (c *consumer) decode(ctx context.Context, typ string, value []byte) (string, error) {
	id, body, err := new(sr.ConfluentHeader).DecodeID(value)
	if err != nil {
		return "", err
	}
	schema := c.schemas[id]
	if schema == nil {
		text, err := c.registry.SchemaByID(ctx, id)
		if err != nil {
			return "", err
		}
		if schema, err = avro.Parse(text.Schema); err != nil {
			return "", err
		}
		c.schemas[id] = schema
	}
	var doc map[string]any
	rest, err := schema.Decode(body, &doc)
	if err != nil {
		return "", err
	}
	if len(rest) > 0 {
		return "", fmt.Errorf("%d bytes follow the value", len(rest))
	}
	return describe(typ, doc), nil
}

// describe is an event in half a line.
func describe(typ string, doc map[string]any) string {
	switch typ {
	case "order.placed.v1":
		var items int
		lines, _ := doc["lines"].([]any)
		for _, l := range lines {
			line, _ := l.(map[string]any)
			quantity, _ := line["quantity"].(int32)
			items += int(quantity)
		}
		return fmt.Sprintf("%v: %s, %s %v", doc["customer"], plural(items, "item"), decimal(doc["total"]), doc["currency"])
	case "order.paid.v1":
		return fmt.Sprintf("%s EUR by %v", decimal(doc["amount"]), doc["method"])
	case "order.shipped.v1":
		day, _ := doc["expected_on"].(time.Time)
		return fmt.Sprintf("%v, due %s", doc["carrier"], day.Format(time.DateOnly))
	case "stock.reserved.v1":
		return fmt.Sprintf("%v for order-%v, %v left", doc["quantity"], doc["order_id"], doc["left"])
	}
	return fmt.Sprint(doc)
}

// decimal writes an amount with the scale of its schema.
func decimal(v any) string {
	if r, ok := v.(*big.Rat); ok {
		return r.FloatString(2)
	}
	return fmt.Sprintf("%v (%T)", v, v)
}
