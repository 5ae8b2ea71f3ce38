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
// with the reader, or with the publisher. One that the publisher must leave to a
// sick topic is replaced.
type handoff struct {
	offered  chan *sink.Batch
	free     chan *sink.Batch
	newBatch func() *sink.Batch
	beat     func(loop)
}

func newHandoff(newBatch func() *sink.Batch, beat func(loop)) *handoff {
	h := &handoff{
		offered:  make(chan *sink.Batch, 1),
		free:     make(chan *sink.Batch, 2),
		newBatch: newBatch,
		beat:     beat,
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
	return h.receive(ctx, h.free)
}

// offer lays a batch out for the publisher. It waits while a full one lies there:
// for a moment after the publisher has released a batch, and for long when the
// publisher takes none because too much waits for a sick topic.
func (h *handoff) offer(ctx context.Context, b *sink.Batch) error {
	select {
	case h.offered <- b:
		return nil
	default:
	}
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case h.offered <- b:
			return nil
		case <-tick.C:
			h.beat(loopReader)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// taken tells that nothing is on offer.
func (h *handoff) taken() bool { return len(h.offered) == 0 }

// close tells the publisher that nothing will follow what is on offer.
func (h *handoff) close() { close(h.offered) }

// receive waits for a batch and beats for the reader. A batch that is there
// already costs no ticker.
func (h *handoff) receive(ctx context.Context, from <-chan *sink.Batch) (*sink.Batch, error) {
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
			h.beat(loopReader)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// release gives an emptied batch back.
func (h *handoff) release(b *sink.Batch) { h.free <- b }

// replace puts a new batch in the place of one that does not come back.
func (h *handoff) replace() { h.free <- h.newBatch() }
