package main

import (
	"context"
	"time"

	"github.com/tailer-relay/tailer/sink"
)

// handoff is where the reader and the publisher of a session meet. It holds two
// batches: one that the reader fills, one that the publisher has in flight.
//
// At a commit the reader offers its batch. A free publisher takes it at once, so
// a lone event leaves without waiting for anything. A busy publisher leaves it
// there, and the reader takes it back to append the next transaction: a backlog
// fills large batches by itself, with no timer (group commit).
//
// Invariant: of the two batches each is in exactly one place: offered, free,
// with the reader, or with the publisher.
type handoff struct {
	offered chan *sink.Batch
	free    chan *sink.Batch
	beat    func(loop)
}

func newHandoff(newBatch func() *sink.Batch, beat func(loop)) *handoff {
	h := &handoff{
		offered: make(chan *sink.Batch, 1),
		free:    make(chan *sink.Batch, 2),
		beat:    beat,
	}
	h.free <- newBatch()
	h.free <- newBatch()
	return h
}

// open returns the batch to append to: the one still on offer, else a free one.
// It is the reader's, and it waits while both batches are with the publisher's
// side, which is where back-pressure begins: nobody reads the socket then, and
// TCP holds the server back.
//
// full says that the batch on offer must not be taken back.
func (h *handoff) open(ctx context.Context, full bool) (*sink.Batch, error) {
	if !full {
		select {
		case b := <-h.offered:
			return b, nil
		default:
		}
	}
	return h.receive(ctx, h.free, loopReader)
}

// offer lays a batch out for the publisher. It can wait only for the moment in
// which the publisher has released one batch and not yet taken the full one that
// lies there.
func (h *handoff) offer(ctx context.Context, b *sink.Batch) error {
	select {
	case h.offered <- b:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close tells the publisher that nothing will follow what is on offer.
func (h *handoff) close() { close(h.offered) }

// take is the publisher's: the next batch, or nil when the reader has closed. It
// takes nothing once ctx has ended.
func (h *handoff) take(ctx context.Context) (*sink.Batch, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return h.receive(ctx, h.offered, loopPublisher)
}

// receive waits for a batch and beats for the loop that waits. A batch that is
// there already costs no ticker.
func (h *handoff) receive(ctx context.Context, from <-chan *sink.Batch, l loop) (*sink.Batch, error) {
	select {
	case b := <-from:
		return b, nil
	default:
	}
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case b := <-from:
			return b, nil
		case <-tick.C:
			h.beat(l)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// release gives an emptied batch back.
func (h *handoff) release(b *sink.Batch) { h.free <- b }
