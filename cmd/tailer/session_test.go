package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/schema"
	"github.com/tailer-relay/tailer/sink"
)

// newSession is a session whose stream and broker are the script's, with a
// database that cannot be watched.
func (p *scripted) newSession(t *testing.T, enc *encoder) *session {
	m := newMetrics("script")
	enc.retries = m
	builder, err := sink.NewBuilder(sink.BatchConfig{Slot: "script", Topic: "{domain}", MaxRecords: p.records}, enc)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{builder: builder, encoder: enc, publisher: p, health: newHealth(m), metrics: m, log: slog.New(slog.DiscardHandler),
		stream:  replication.Config{DSN: "postgres://127.0.0.1:1/", Table: replication.Table{Schema: "public", Name: "outbox"}},
		mapping: schema.Mapping{ID: "id", Key: "key", Type: "type", Payload: "payload"}}
	s := &session{relay: r, stream: p, tracker: checkpoint.NewTracker(0x1000)}
	s.hand = newHandoff(builder.NewBatch, r.health.Beat)
	return s
}

// A registry that takes the request and never answers holds the reader for three
// times its timeout. A stop does not wait for that.
//
// Seen red: the look-up ended with the session, which ended with the look-up.
func TestDrainDoesNotWaitForTheRegistry(t *testing.T) {
	asked, end := make(chan struct{}, 1), make(chan struct{})
	registry := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-end
	}))
	defer registry.Close()
	defer close(end)
	catalog, err := schema.NewCatalog(t.Context(), schema.Config{Encoding: schema.Confluent,
		Registry: &schema.RegistryConfig{URL: registry.URL, Timeout: time.Minute}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer catalog.Close()

	p := newScripted(t)
	s := p.newSession(t, &encoder{catalog: catalog})
	s.drain = 100 * time.Millisecond
	shutdown, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.run(shutdown) }()
	for _, data := range [][]byte{relationMessage(), beginMessage(0x1100), insertMessage("a")} {
		p.frames <- replication.Frame{Data: data}
	}
	<-asked
	stop()
	select {
	case err := <-ended:
		if !errors.Is(err, errDrain) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the session waits for the registry")
	}
}

// deaf is a stream that was not heard for long.
type deaf struct{ *scripted }

func (deaf) Heard() time.Time { return time.Now().Add(-time.Hour) }

// The reader is held back and hears nothing, the slot cannot be watched: nobody
// tells whether it is still ours. The session is given up, since it would wait
// for ever and say that it is active.
func TestUnheardSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScripted(t)
		s := p.newSession(t, &encoder{})
		s.stream = deaf{p}
		began := time.Now()
		err := s.heard(t.Context(), func() {})
		if err == nil {
			t.Fatal("a cycle may begin")
		}
		if v := classify(err); v.kind != verdictRetry || v.peer != "postgres" {
			t.Errorf("after %v: %v, %+v", time.Since(began), err, v)
		}
		if waited := time.Since(began); waited < monitorEvery || waited > 10*time.Second {
			t.Errorf("given up after %v", waited)
		}
		// A look at the slot in time is enough.
		go func() {
			time.Sleep(monitorEvery)
			s.owned.seen(time.Now())
		}()
		if err := s.heard(t.Context(), func() {}); err != nil {
			t.Error(err)
		}
	})
}

// No cycle begins after the session has ended, also where a batch lies there.
func TestNothingIsTakenAfterTheEnd(t *testing.T) {
	p := newScripted(t)
	s := p.newSession(t, &encoder{})
	life, end := context.WithCancel(t.Context())
	b, err := s.hand.open(life, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.hand.offer(life, b); err != nil {
		t.Fatal(err)
	}
	end()
	if b, err := s.next(life, t.Context()); b != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("took %v, %v", b, err)
	}
}

// silent is a broker that takes the connection and does not answer.
type silent struct{ *scripted }

func (silent) Ping(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A peer that does not answer at the start fails nothing. It is named all the
// same, within ten seconds, and not after the relay has gone on.
func TestSilentPeerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScripted(t)
		s := p.newSession(t, &encoder{})
		var log bytes.Buffer
		s.log = slog.New(slog.NewTextHandler(&log, nil))
		s.publisher = silent{p}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.relay.session(ctx) }()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if ready, cause := s.health.ready(); ready || !strings.Contains(cause, "Kafka") {
			t.Errorf("ready %v: %s", ready, cause)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "peer=Kafka"); n != 1 {
			t.Errorf("said %d times:\n%s", n, log.String())
		}
		stop()
		<-ended
		s.health.Active()
		time.Sleep(time.Minute)
		if ready, cause := s.health.ready(); !ready {
			t.Errorf("after the end: %s", cause)
		}
	})
}

// An event that waits for hours is a line a minute, not one a try.
//
// Seen red: one for each try.
func TestEventThatWaitsIsSaidSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScripted(t)
		s := p.newSession(t, &encoder{})
		var log bytes.Buffer
		s.log = slog.New(slog.NewTextHandler(&log, nil))
		builder, err := sink.NewBuilder(sink.BatchConfig{Slot: "script", Topic: "{domain}"}, away{})
		if err != nil {
			t.Fatal(err)
		}
		s.hand = newHandoff(builder.NewBatch, s.health.Beat)
		r := s.reader()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		ev := &sink.Event{ID: []byte("a"), Type: []byte("order.placed.v1"), Payload: []byte("{}")}
		if err := r.add(ctx, ev); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "an event waits"); n < 9 || n > 11 {
			t.Errorf("said %d times in ten minutes", n)
		}
	})
}

// away is an encoder whose registry does not answer.
type away struct{}

func (away) Encode(dst, _, _ []byte) ([]byte, sink.EncodeInfo, error) {
	return dst, sink.EncodeInfo{}, errors.New("the registry does not answer")
}

// A relay whose drain ran out of time says what it waited for.
func TestDrainThatRanOutNamesTheCause(t *testing.T) {
	s := newScripted(t).newSession(t, &encoder{})
	s.health.NotReady("holding: no schema")
	err := s.relay.stopped(errDrain)
	var exit *exitError
	if !errors.As(err, &exit) || exit.code != exitRetry || !strings.Contains(exit.Error(), "holding: no schema") {
		t.Errorf("%v", err)
	}
	s.health.Active()
	if err := s.relay.stopped(errDrain); err.Error() != errDrain.Error() {
		t.Errorf("%v", err)
	}
}

// Lanes that stand still while something waits in them are a wedge, whatever the
// publisher's loop does; when nothing waits there is nobody to beat.
//
// Seen red with a watchdog that is not armed for them, and with one that stays so.
func TestLanesThatStandStillAreAWedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newScripted(t)
		p.start(t, 0x1000)
		defer p.end()
		h := p.session.health
		h.Start(loopPublisher)
		for _, data := range [][]byte{relationMessage(), beginMessage(0x1100), insertMessage("a"), commitMessage(0x1100, 0x1130)} {
			p.frames <- replication.Frame{Data: data}
		}
		p.answers <- answer{outcome: sink.Left}
		time.Sleep(20 * time.Second)
		h.Beat(loopLanes)
		if wedged := h.wedged(); wedged != "" {
			t.Errorf("after a beat: %s", wedged)
		}
		time.Sleep(31 * time.Second)
		if wedged := h.wedged(); !strings.Contains(wedged, "the publisher of a sick topic has not moved") {
			t.Errorf("wedged: %q", wedged)
		}
		p.late <- sink.Late{Settled: []uint64{1}}
		synctest.Wait()
		time.Sleep(time.Minute)
		if wedged := h.wedged(); wedged != "" {
			t.Errorf("when nothing waits: %s", wedged)
		}
	})
}
