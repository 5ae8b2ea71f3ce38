package relay_test

import (
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/e2e/postgres"
)

// The server says things in places where no real one can be made to say them:
// a stage in front of it plays the walsender.

// kindOf is the plugin's message in a CopyData, 0 for a keepalive.
func kindOf(data []byte) byte {
	if len(data) <= 25 || data[0] != pglogrepl.XLogDataByteID {
		return 0
	}
	return data[25]
}

// A keepalive in the middle of a transaction, far beyond its rows, confirms
// nothing: the transaction is not whole, however much of it is acknowledged. The
// server waits at every point for several statuses, each time after the broker
// has had time to acknowledge what was sent.
//
// Seen red with a reader that takes a keepalive's mark also inside a transaction.
func TestWire_KeepaliveInsideATransaction(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{})
	var mu sync.Mutex
	var begun pglogrepl.LSN // where the open transaction's rows lie before
	var early []string
	stage := postgres.NewStage(t, p.pg, func(s *postgres.Sender, data []byte) {
		s.Data(data)
		switch kindOf(data) {
		case 'B':
			mu.Lock()
			begun = pglogrepl.LSN(binary.BigEndian.Uint64(data[26:]))
			mu.Unlock()
		case 'C', 0:
			return
		}
		mu.Lock()
		final := begun
		mu.Unlock()
		s.Keepalive(final+1<<20, true)
		s.Await(t, 3, 10*time.Second)
		if got := s.Flushed(); got >= final {
			mu.Lock()
			early = append(early, got.String()+" while the transaction that commits at "+final.String()+" was open")
			mu.Unlock()
		}
	})
	relay := p.startWith(p.config().With("postgres.dsn", stage.DSN("postgres")).With("delivery.batch_records", 1)).Ready()
	p.ledger.Insert(t, 0, 4)
	p.ledger.WaitDelivered(t, p.consumer, time.Minute)
	p.end(relay, 0)
	mu.Lock()
	defer mu.Unlock()
	if begun == 0 {
		t.Error("no transaction passed the stage")
	}
	for _, e := range early {
		t.Errorf("confirmed %s", e)
	}
}

// A reply that the server asks for is there at once, at whatever point it asks:
// the next periodic status would be half a second away.
//
// Seen red with a status writer that does not look at the request.
func TestWire_ReplyAtEveryPoint(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{Settings: map[string]string{"wal_sender_timeout": "60000"}}) // a status every 3 s
	var mu sync.Mutex
	asked := map[byte]int{}
	stage := postgres.NewStage(t, p.pg, func(s *postgres.Sender, data []byte) {
		s.Data(data)
		kind := kindOf(data)
		if kind == 0 {
			return
		}
		mu.Lock()
		asked[kind]++
		mu.Unlock()
		s.Keepalive(s.Start, true)
		s.Await(t, 1, time.Second) // a deadline that the server counts on, not a speed
	})
	relay := p.startWith(p.config().With("postgres.dsn", stage.DSN("postgres"))).Ready()
	for key := range 3 {
		p.ledger.Insert(t, key, 2)
	}
	p.end(relay, 0)
	mu.Lock()
	defer mu.Unlock()
	for _, kind := range []byte("BRIC") {
		if asked[kind] == 0 {
			t.Errorf("no message %q passed the stage", kind)
		}
	}
}

// What no server should send ends the session or the relay, says where, and
// confirms nothing: with the real server behind it again everything is there.
//
// Seen red with a decoder that steps over a message it does not know.
func TestWire_Hostile(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plantOptions{})
	cases := map[string]struct {
		play func(s *postgres.Sender, data []byte) // in place of the first row
		exit bool                                  // nothing that another try could mend
		says string
	}{
		"row cut short":      {func(s *postgres.Sender, data []byte) { s.Data(data[:len(data)-3]) }, true, "decode the message at"},
		"row too long":       {func(s *postgres.Sender, data []byte) { s.Data(append(data[:len(data):len(data)], 7)) }, true, "decode the message at"},
		"no such message":    {func(s *postgres.Sender, data []byte) { s.WAL(s.Start, []byte("Zabc")) }, true, "decode the message at"},
		"empty message":      {func(s *postgres.Sender, data []byte) { s.WAL(s.Start, nil) }, true, "decode the message at"},
		"begin in a begin":   {func(s *postgres.Sender, data []byte) { s.WAL(s.Start, append([]byte{'B'}, make([]byte, 20)...)) }, true, "decode the message at"},
		"another's commit":   {func(s *postgres.Sender, data []byte) { s.WAL(s.Start, append([]byte{'C'}, make([]byte, 25)...)) }, true, "decode the message at"},
		"unknown relation":   {func(s *postgres.Sender, data []byte) { s.WAL(s.Start, []byte{'I', 0, 0, 0, 9, 'N', 0, 0}) }, true, "decode the message at"},
		"unknown frame":      {func(s *postgres.Sender, data []byte) { s.Data([]byte("?")) }, false, "unknown replication frame"},
		"empty frame":        {func(s *postgres.Sender, data []byte) { s.Data(nil) }, false, "empty replication frame"},
		"short keepalive":    {func(s *postgres.Sender, data []byte) { s.Data([]byte("k12345")) }, false, "keepalive frame of 6 bytes"},
		"length below four":  {func(s *postgres.Sender, data []byte) { s.Wire([]byte{'d', 0, 0, 0, 3}) }, false, "session ended"},
		"length of 4 GiB":    {func(s *postgres.Sender, data []byte) { s.Wire([]byte{'d', 0xff, 0xff, 0xff, 0xff}) }, false, "session ended"},
		"end in mid message": {func(s *postgres.Sender, data []byte) { s.Wire([]byte{'d', 0, 0, 1, 0, 'w'}); s.HangUp() }, false, "session ended"},
	}
	stage := postgres.NewStage(t, p.pg, nil)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			played := make(chan pglogrepl.LSN, 1) // where the transaction commits
			var final pglogrepl.LSN               // the script's
			stage.Play(func(s *postgres.Sender, data []byte) {
				switch kindOf(data) {
				case 'B':
					final = pglogrepl.LSN(binary.BigEndian.Uint64(data[26:]))
				case 'I':
					c.play(s, data)
					stage.Play((*postgres.Sender).Data)
					select {
					case played <- final:
					default:
					}
					return
				}
				s.Data(data)
			})
			relay := p.startWith(p.config().With("postgres.dsn", stage.DSN("postgres")))
			p.ledger.Insert(t, 0, 1)
			var at pglogrepl.LSN
			select {
			case at = <-played:
			case <-time.After(30 * time.Second):
				t.Fatal("no row passed the stage")
			}
			if !c.exit {
				p.ledger.WaitDelivered(t, p.consumer, time.Minute) // by the next session
			} else {
				if code := relay.WaitExit(20 * time.Second); code != 1 {
					t.Errorf("exit code %d", code)
				}
				if got := p.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", p.ledger.Slot()); got > at {
					t.Errorf("confirmed %s, and a transaction that commits at %s was not whole", got, at)
				}
			}
			if log := relay.Logs(); !strings.Contains(log, c.says) || strings.Contains(log, "panic") {
				t.Errorf("%q is not in the log:\n%s", c.says, log)
			}
			relay.Kill()
		})
	}
	p.end(p.start().Ready(), 1000)
}
