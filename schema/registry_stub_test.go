package schema

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

// fakeRegistry is srfake behind a path of its own, with faults and a count of
// what it was asked.
type fakeRegistry struct {
	*srfake.Registry
	*httptest.Server
	url string

	mu       sync.Mutex
	fault    http.HandlerFunc // nil: none
	requests []string         // method and path
}

// startRegistry serves under path, as Apicurio does under /apis/ccompat/v7.
func startRegistry(t testing.TB, path string) *fakeRegistry {
	f := &fakeRegistry{Registry: srfake.NewRegistry()}
	next := http.StripPrefix(path, f.Registry.Handler())
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests = append(f.requests, r.Method+" "+r.URL.EscapedPath())
		fault := f.fault
		f.mu.Unlock()
		if fault != nil {
			fault(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}))
	f.url = f.Server.URL + path
	t.Cleanup(f.Server.Close)
	return f
}

func (f *fakeRegistry) Close() { f.Server.Close() }

func (f *fakeRegistry) setFault(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = h
}

func (f *fakeRegistry) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

func (f *fakeRegistry) askedFor() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.requests...)
}

// seed registers a schema under a fixed id.
func (f *fakeRegistry) seed(subject string, version, id int, text string, refs ...sr.SchemaReference) {
	f.SeedSchema(subject, version, id, sr.Schema{Schema: text, Type: sr.TypeAvro, References: refs})
}

// answer is a fault that always says the same.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// hang answers nothing until the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // only then is the client's leaving noticed
	<-r.Context().Done()
}

// clock is time as the test wants it.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Unix(1767323045, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// still is the pace of a test whose clock moves by hand; the refreshing
// goroutine does not get to ask.
func (c *clock) still() pace {
	p := defaultPace()
	p.now, p.tick = c.now, time.Hour
	return p
}

// lines collects log output.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// openCatalog fails the test on an error and closes the catalogue at its end.
func openCatalog(t testing.TB, cfg Config, p pace, log *slog.Logger) *Catalog {
	t.Helper()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c, err := newCatalog(context.Background(), cfg, log, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// encode encodes a payload or fails the test.
func encode(t testing.TB, c *Catalog, typ, json string) string {
	t.Helper()
	e, err := c.Encoder(t.Context(), []byte(typ))
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.Append(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

// refusal expects no encoder, and tells a NotFound from an Unavailable.
func refusal(t testing.TB, c *Catalog, typ string) (missing *NotFound, later *Unavailable) {
	t.Helper()
	e, err := c.Encoder(t.Context(), []byte(typ))
	if err == nil {
		t.Fatalf("type %s has schema id %d", typ, e.id)
	}
	if !errors.As(err, &missing) && !errors.As(err, &later) {
		t.Fatalf("%T: %v", err, err)
	}
	return missing, later
}

func idSchema(namespace string) string {
	return fmt.Sprintf(`{"type":"record","name":"Rec","namespace":%q,"fields":[{"name":"id","type":"long"}]}`, namespace)
}
