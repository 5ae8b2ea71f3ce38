package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
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
