package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"golang.org/x/sync/errgroup"

	"github.com/tailer-relay/tailer/checkpoint"
	"github.com/tailer-relay/tailer/replication"
	"github.com/tailer-relay/tailer/schema"
	"github.com/tailer-relay/tailer/sink"
)

var updatePipeline = flag.Bool("update-pipeline", false, "rewrite testdata/pipeline")

// TestPipelineScripts drives the reader and the publish loop with a scripted
// stream, a real batch and a publisher that answers when told. Each line of a
// script is a command; the lines below it that start with a tab are what could
// be seen once everything had come to rest: what the publisher holds, what was
// confirmed, how a loop ended.
//
// Seen red: confirming at the hand-over instead of after Publish; marking a
// keepalive inside a transaction; marking a commit's own LSN instead of its end;
// not dropping marks below the start; not reading on to the end of a transaction
// at a stop.
func TestPipelineScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/pipeline/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = playScript(t, want) })
			if *updatePipeline {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s does not hold; got\n%s", file, got)
			}
		})
	}
}

func playScript(t *testing.T, script []byte) string {
	var out strings.Builder
	p := newScripted(t)
	defer p.end()
	for lines := bufio.NewScanner(bytes.NewReader(script)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "\t") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p.do(t, strings.Fields(line))
		synctest.Wait()
		for _, seen := range p.seen() {
			fmt.Fprintf(&out, "\t%s\n", seen)
		}
	}
	return out.String()
}

// answer is what a Publish returns.
type answer struct {
	outcome sink.Outcome
	err     error
}

// scripted is a pipeline whose stream and broker are the script's.
type scripted struct {
	frames  chan replication.Frame
	answers chan answer
	late    chan sink.Late
	stop    context.CancelFunc
	cut     context.CancelFunc
	group   *errgroup.Group
	session *session
	records int // bound of a batch
	limit   int // of the window

	mu     sync.Mutex
	events []string
}

func newScripted(t *testing.T) *scripted {
	return &scripted{frames: make(chan replication.Frame), answers: make(chan answer), late: make(chan sink.Late), records: 3}
}

func (p *scripted) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, fmt.Sprintf(format, args...))
}

func (p *scripted) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.events
	p.events = nil
	return seen
}

func (p *scripted) start(t *testing.T, lsn pglogrepl.LSN) {
	log := slog.New(slog.DiscardHandler)
	m := newMetrics("script")
	enc := &encoder{ctx: t.Context(), retries: m}
	builder, err := sink.NewBuilder(sink.BatchConfig{Slot: "script", Topic: "{domain}", MaxRecords: p.records}, enc)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{builder: builder, encoder: enc, publisher: p, health: newHealth(m), metrics: m, log: log,
		stream:  replication.Config{Table: replication.Table{Schema: "public", Name: "outbox"}},
		mapping: schema.Mapping{ID: "id", Key: "key", Type: "type", Payload: "payload"}}
	s := &session{relay: r, stream: p, tracker: checkpoint.NewTracker(lsn), window: window{limit: p.limit}}
	s.hand = newHandoff(builder.NewBatch, r.health.Beat)
	p.session = s

	group, life := errgroup.WithContext(context.Background())
	late, cut := context.WithCancel(context.Background())
	stop, cancel := context.WithCancel(life)
	p.group, p.stop, p.cut = group, cancel, cut
	group.Go(func() error {
		err := s.reader().run(withEither(life, late), stop)
		p.note("reader ended: %v", err)
		return err
	})
	group.Go(func() error {
		err := s.publishLoop(life, late)
		p.note("publisher ended: %v", err)
		return err
	})
}

func (p *scripted) end() {
	if p.group != nil {
		p.stop()
		p.cut()
		_ = p.group.Wait()
	}
}

func (p *scripted) do(t *testing.T, words []string) {
	lsn := func(i int) pglogrepl.LSN {
		v, err := pglogrepl.ParseLSN(words[i])
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return v
	}
	wal := func(data []byte) { p.frames <- replication.Frame{Data: data} }
	switch words[0] {
	case "start":
		p.start(t, lsn(1))
		wal(relationMessage())
	case "begin":
		wal(beginMessage(lsn(1)))
	case "insert":
		for _, id := range words[1:] {
			wal(insertMessage(id))
		}
	case "commit":
		wal(commitMessage(lsn(1), lsn(2)))
	case "keepalive":
		p.frames <- replication.Frame{Keepalive: true, WALEnd: lsn(1)}
	case "ack":
		p.answers <- answer{}
	case "leave": // a sick topic's records wait as copies
		p.answers <- answer{outcome: sink.Left}
	case "hold": // they wait in the batch's own memory
		p.answers <- answer{outcome: sink.Held}
	case "late":
		var l sink.Late
		for _, word := range words[1:] {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			l.Settled = append(l.Settled, n)
		}
		p.late <- l
	case "lanefail":
		p.late <- sink.Late{Err: errors.New("the broker refused the login")}
	case "limit": // bytes that may wait
		n, err := strconv.Atoi(words[1])
		if err != nil {
			t.Fatal(err)
		}
		p.limit = n
	case "fail":
		p.answers <- answer{err: errors.New("the broker said no")}
	case "stop":
		p.stop()
	default:
		t.Fatalf("unknown command %v", words)
	}
}

// Next, Confirm, Heard, Interval and Server are the stream's side.
func (p *scripted) Next(ctx context.Context) (replication.Frame, error) {
	select {
	case f := <-p.frames:
		return f, nil
	case <-ctx.Done():
		return replication.Frame{}, ctx.Err()
	}
}

func (p *scripted) Confirm(lsn pglogrepl.LSN)  { p.note("confirmed %s", lsn) }
func (p *scripted) Heard() time.Time           { return time.Now() }
func (p *scripted) Interval() time.Duration    { return time.Second }
func (p *scripted) Server() replication.Server { return replication.Server{} }

// Publish, Settle, Ping and Close are the broker's side.
func (p *scripted) Publish(ctx context.Context, b *sink.Batch) (sink.Outcome, error) {
	p.note("publishing %d records", b.Len())
	select {
	case a := <-p.answers:
		if a.outcome != sink.Done {
			p.note("left as %d", b.Number)
		}
		return a.outcome, a.err
	case <-ctx.Done():
		return sink.Done, context.Cause(ctx)
	}
}
func (p *scripted) Late() <-chan sink.Late       { return p.late }
func (p *scripted) Settle(context.Context) error { return nil }
func (p *scripted) Ping(context.Context) error   { return nil }
func (p *scripted) Close(context.Context) error  { return nil }

// The messages of pgoutput that a script needs.

func beginMessage(final pglogrepl.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(final))
	return append(b, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7)
}

func commitMessage(commit, end pglogrepl.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(commit))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	return append(b, 0, 0, 0, 0, 0, 0, 0, 1)
}

func relationMessage() []byte {
	b := []byte{'R', 0, 0, 0, 9}
	b = append(b, "public\x00outbox\x00d\x00\x04"...)
	for _, name := range []string{"id", "key", "type", "payload"} {
		b = append(append(append(b, 0), name...), 0)
		b = append(b, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff)
	}
	return b
}

func insertMessage(id string) []byte {
	b := []byte{'I', 0, 0, 0, 9, 'N', 0, 4}
	for _, v := range []string{id, "k", "order.placed.v1", `{}`} {
		b = append(binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v))), v...)
	}
	return b
}
