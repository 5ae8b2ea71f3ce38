package sink

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// maxLanes bounds how many lanes there are beside the main one, each with a client of its own. With so many sick topics
// the next one holds up the others as long as it takes.
const maxLanes = 16

// convalescence is how long a lane keeps its topics after the last time that something could not be written, so that a
// topic that falls sick again and again holds up the others once and not each time.
const convalescence = 30 * time.Second

// Lanes is the publisher of at_least_once: it keeps a topic that cannot be written to from holding up the others.
//
// As long as nothing is wrong there is one lane, the main one, and Publish is one cycle of one client. When records in
// it cannot be written for a while, their topics are sick. The lane then goes on by itself with what it has, client and
// open requests included, so nothing is taken back and nothing sent twice; Publish goes on with a new main lane, in
// which no record of a sick topic is. From then on records of those topics are copied out of each batch into the
// lane's queue. A batch is settled when its part in the main lane is and all of its copies are.
//
//   - A topic is in one lane at a time, and changes it only when none of its records is open in the lane it leaves.
//     What waits in the queue goes with it. So the order of a topic is that of one lane at any time.
//   - A lane has one cycle in flight, and its queue in order.
//   - Topics fall sick together when they have records in the same stuck cycle. Those whose records get through leave.
//   - A lane that has written everything, and could for a while, gives its topics back to the main one and ends.
//   - The queues are bounded by whoever calls Publish, who knows what was left out.
//   - Lanes end with the context of the Publish that began them, and know nothing of the next session.
//
// Publish, Settle, Ping and Close belong to one goroutine, the publisher's. Each lane has one, which owns its Idempotent:
// the main one's lives as long as a Publish. What they share is guarded by mu.
type Lanes struct {
	log  *slog.Logger
	cfg  PublisherConfig
	late chan Late

	ctx   context.Context // of the session; ends with outer
	cut   context.CancelCauseFunc
	outer context.Context // what Publish was given last

	voices        voices
	convalescence time.Duration // fixed but in tests

	mu      sync.Mutex
	main    *lane            // replaced when it departs
	parcel  *parcel          // of the batch that is being published; nil while nothing of it is elsewhere
	byTopic map[string]*lane // the sick topics
	running []*lane          // lanes beside the main one that have not ended, or have failed
}

// reply is what the goroutine of the main lane tells Publish.
type reply struct {
	err  error
	next *lane  // the new main lane, when this one has departed
	rest *Batch // what of the batch is for that one; nil: nothing
}

// parcel is a batch that is not settled as a whole.
type parcel struct {
	number uint64
	parts  int // Invariant: how often it stands in a chunk, and one for Publish while that runs; guarded by Lanes.mu
}

// chunk is a batch of a lane: what was in the main lane when that stopped being it, or copies.
type chunk struct {
	batch   *Batch
	parcels []*parcel
}

// NewLanes checks the configuration, all of it at once. It does not touch the network; Ping does.
func NewLanes(ctx context.Context, cfg PublisherConfig, log *slog.Logger) (*Lanes, error) {
	f := &Lanes{log: log, cfg: cfg, late: make(chan Late), convalescence: convalescence}
	f.voices.out = cfg.Observer
	if cfg.Observer == nil {
		f.voices.out = nobody{}
	}
	engine, err := NewIdempotent(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	f.main = f.newLane(engine)
	engine.tell(f.voices.one(), cfg.Beat)
	return f, nil
}

func (f *Lanes) newLane(engine *Idempotent) *lane {
	l := &lane{lanes: f, engine: engine, reply: make(chan reply, 1)}
	if f.cfg.Isolate {
		engine.sick = l.sick
	}
	return l
}

// Late tells of batches that Publish has left out. Lanes wait for it to be read.
func (f *Lanes) Late() <-chan Late { return f.late }

// Publish returns when what can be written of the batch is settled: Done when that is all of it, else some waits in
// lanes. Its errors are those of Idempotent; what fails in a lane comes as a Late. What it has begun ends with ctx, also
// after it has returned.
func (f *Lanes) Publish(ctx context.Context, b *Batch) (Outcome, error) {
	if ctx != f.outer {
		f.outer = ctx
		f.ctx, f.cut = context.WithCancelCause(ctx)
	}
	if b.Len() == 0 {
		return Done, nil
	}
	main, part := f.split(b)
	for now := b; !part.empty(); {
		go main.begin(f.ctx, now, part)
		r := <-main.reply
		if r.err != nil {
			return Done, r.err
		}
		if r.next == nil {
			break
		}
		// What was the main lane has left, and b is not all settled.
		main, now, part = r.next, r.rest, run{}
		if now != nil {
			part.recs = now.seal()
		}
	}
	return f.outcome(b), nil
}

// split gives the records of sick topics to their lanes and returns what is for the main one.
func (f *Lanes) split(b *Batch) (*lane, run) {
	part := run{recs: b.seal()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parcel = nil
	if len(f.byTopic) > 0 {
		part = part.without(func(topic string, i int) bool {
			l := f.byTopic[topic]
			if l != nil {
				l.topics[topic].add(b, i, f.parcelOf(b))
				l.rouse()
			}
			return l != nil
		})
	}
	return f.main, part
}

// parcelOf is the parcel of the batch that is being published. mu is held.
func (f *Lanes) parcelOf(b *Batch) *parcel {
	if f.parcel == nil {
		f.parcel = &parcel{number: b.Number, parts: 1} // for Publish itself
	}
	return f.parcel
}

// outcome is what Publish returns when the main lane is through with a batch.
func (f *Lanes) outcome(b *Batch) Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.parcel
	if p == nil {
		return Done
	}
	f.parcel = nil
	if p.parts--; p.parts == 0 {
		return Done
	}
	if slices.ContainsFunc(f.running, func(l *lane) bool { return l.current != nil && l.current.batch == b }) {
		return Held
	}
	return Left
}

// Settle cuts off what an earlier session has left and waits until no record of it is open. A new session calls it
// before its first cycle.
func (f *Lanes) Settle(ctx context.Context) error {
	if f.cut != nil {
		f.cut(errors.New("another session begins"))
		f.outer = nil
	}
	f.mu.Lock()
	ending := slices.Clone(f.running)
	main := f.main
	f.mu.Unlock()
	for _, l := range ending {
		if err := l.wait(ctx, main.engine); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.running, f.byTopic = nil, nil
	f.mu.Unlock()
	for _, l := range ending {
		l.engine.blocked.forget()
	}
	return main.engine.Settle(ctx)
}

// Ping is the check at start: the brokers answer and let us in, we may produce, and the dead letter topic exists or
// was created. Its error has a hint and a class.
func (f *Lanes) Ping(ctx context.Context) error { return f.main.engine.Ping(ctx) }

// Close cuts off every lane, closes the clients and waits for them and for every promise.
func (f *Lanes) Close(ctx context.Context) error {
	err := f.Settle(ctx)
	return errors.Join(err, f.main.engine.Close(ctx))
}
