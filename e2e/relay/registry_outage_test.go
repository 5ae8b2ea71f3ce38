package relay_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// registry is srfake with troubles.
type registry struct {
	*srfake.Registry
	url   string
	mood  atomic.Pointer[http.HandlerFunc] // answers instead; nil: none
	asked atomic.Int64
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{Registry: srfake.NewRegistry()}
	next := r.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		if mood := r.mood.Load(); mood != nil {
			(*mood)(w, req)
			return
		}
		next.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// seed registers a version of a type's schema.
func (r *registry) seed(typ string, version, id int, schema string) {
	r.SeedSchema(typ, version, id, sr.Schema{Schema: schema, Type: sr.TypeAvro})
}

func (r *registry) set(mood http.HandlerFunc) { r.mood.Store(&mood) }
func (r *registry) heal()                     { r.mood.Store(nil) }

// hang takes a request and never answers.
func hang(_ http.ResponseWriter, req *http.Request) {
	io.Copy(io.Discard, req.Body) // only then is the client's leaving noticed
	<-req.Context().Done()
}

// answer says always the same.
func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

const (
	numberSchema = `{"type":"record","name":"N","fields":[{"name":"n","type":"long"}]}`
	widerSchema  = `{"type":"record","name":"N","fields":[{"name":"n","type":"long"},{"name":"note","type":["null","string"],"default":null}]}`
)

// framed checks the five bytes before a body and decodes it.
func framed(t *testing.T, r *harness.Record, id int, schema string) any {
	t.Helper()
	if len(r.Value) < 5 || r.Value[0] != 0 || int(binary.BigEndian.Uint32(r.Value[1:])) != id {
		t.Errorf("event %s in %s has value %x, want schema id %d", r.ID(), r.Topic, r.Value, id)
		return nil
	}
	return decodeBody(t, schema, r.Value[5:])
}

// A relay that has seen a type goes on without the registry, also when it starts
// anew, and its records do not change. One that has not seen it says what it
// waits for, and makes no dead letter of it.
//
// Seen red with a relay that keeps nothing on disk.
func TestCase_S22_WarmCacheStartsWithoutTheRegistry(t *testing.T) {
	t.Parallel()
	const typ = "order.placed.v1"
	reg := newRegistry(t)
	reg.seed(typ, 1, 77, numberSchema)
	for name, schema := range map[string]harness.Config{
		"registry":            {"registry": harness.Config{"url": reg.url}},
		"folder and registry": {"registry": harness.Config{"url": reg.url}, "dir": schemaFolder(t, map[string]string{typ: numberSchema}), "encoding": "confluent"},
	} {
		t.Run(name, func(t *testing.T) {
			reg.heal()
			o := newOutbox(t, outboxOptions{config: map[string]any{"schema": schema}})
			cache := "XDG_CACHE_HOME=" + t.TempDir()
			relay := o.run(o.config, cache)
			o.insert("k", typ, `{"n":1}`)
			o.read(1, "order")
			relay.Stop()

			reg.set(answer(http.StatusServiceUnavailable))
			relay = o.run(o.config, cache)
			o.insert("k", typ, `{"n":2}`)
			for i, r := range byOffset(o.read(2, "order", "tailer.dlq")) {
				if d := differs("$.n", map[string]any{"n": int64(i + 1)}, framed(t, r, 77, numberSchema)); d != "" {
					t.Error(d)
				}
			}
			relay.Stop()

			cold := harness.StartRelay(t, harness.RelayOptions{Config: o.config})
			o.insert("k", typ, `{"n":3}`)
			cold.WaitNotReady(reg.url, 2*loudness)
			if _, body := cold.Probe("/readyz"); !strings.Contains(body, typ) || !strings.Contains(body, "503") {
				t.Errorf("not ready: %s", body)
			}
			reg.heal()
			cold.WaitReady("active", waitLimit)
			o.read(3, "order", "tailer.dlq")
		})
	}
}

// A registry that takes a question and never answers holds back the type it was
// asked for, and nothing that came before; the position stays before that
// event, and the database does not notice.
//
// Seen red with a relay that makes a dead letter of any failed look-up.
func TestCase_S22_HangingRegistry(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.seed("order.placed.v1", 1, 1, numberSchema)
	reg.seed("order.changed.v1", 1, 256, numberSchema)
	o := newOutbox(t, outboxOptions{
		config:   map[string]any{"schema": harness.Config{"registry": harness.Config{"url": reg.url}}},
		settings: map[string]string{"wal_sender_timeout": "2s"},
	})
	relay := o.run(o.config)
	walsender := "SELECT pid::text FROM pg_stat_replication"
	pid := o.text(walsender)
	o.insert("k", "order.placed.v1", `{"n":0}`)
	o.read(1, "order")

	reg.set(hang)
	for n := range 10 {
		o.insert("k", "order.placed.v1", `{"n":`+formatInt(int64(n+1))+`}`)
	}
	held := o.text("SELECT pg_current_wal_lsn()::text")
	o.insert("k", "order.changed.v1", `{"n":11}`)
	o.insert("k", "order.placed.v1", `{"n":12}`)
	before := o.read(11, "order", "tailer.dlq")
	for i, r := range byOffset(before) {
		if d := differs("$", map[string]any{"n": int64(i)}, framed(t, r, 1, numberSchema)); d != "" {
			t.Error(d)
		}
	}
	relay.WaitNotReady("no answer within", loudness)
	if _, body := relay.Probe("/readyz"); !strings.Contains(body, "order.changed.v1") || !strings.Contains(body, reg.url) {
		t.Errorf("not ready: %s", body)
	}
	relay.WaitLog("an event waits", loudness)
	if n, _ := relay.Metrics().Sum("tailer_retries_total", `peer="registry"`); n == 0 {
		t.Error("no retry was counted")
	}
	// Three times as long as the server would bear a silent client.
	asked := time.Now()
	harness.Eventually(t, waitLimit, "three times wal_sender_timeout", func() bool { return time.Since(asked) > 6*time.Second })
	if now := o.text(walsender); now != pid {
		t.Errorf("the connection was lost: server process %s, then %s", pid, now)
	}
	limit, err := pglogrepl.ParseLSN(held)
	if err != nil {
		t.Fatal(err)
	}
	confirmed, err := pglogrepl.ParseLSN(o.text("SELECT confirmed_flush_lsn::text FROM pg_replication_slots"))
	if err != nil || confirmed > limit {
		t.Errorf("%v was confirmed although the event after %v waits (%v)", confirmed, limit, err)
	}
	if code, body := relay.Probe("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}

	reg.heal()
	relay.WaitReady("active", waitLimit)
	for i, r := range byOffset(o.read(13, "order", "tailer.dlq")) {
		id := 1
		if i == 11 {
			id = 256
		}
		if d := differs("$", map[string]any{"n": int64(i)}, framed(t, r, id, numberSchema)); d != "" {
			t.Error(d)
		}
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// SIGTERM while an event waits for the registry: nothing of it is confirmed, and
// it comes after the next start.
func TestStopWhileTheRegistryHangs(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.seed("order.placed.v1", 1, 5, numberSchema)
	reg.set(hang)
	o := newOutbox(t, outboxOptions{config: map[string]any{
		"schema":                 harness.Config{"registry": harness.Config{"url": reg.url}},
		"delivery.drain_timeout": "1s",
	}})
	relay := o.run(o.config)
	id := o.insert("k", "order.placed.v1", `{"n":1}`)
	relay.WaitNotReady("order.placed.v1", loudness)
	if code := relay.Stop(); code != 1 {
		t.Errorf("exit code %d after SIGTERM, with an event that could not be drained", code)
	}
	o.named(o.ended(relay, "drain"), "comes again")
	reg.heal()
	o.run(o.config)
	framed(t, o.read(1, "order", "tailer.dlq")[id], 5, numberSchema)
}
