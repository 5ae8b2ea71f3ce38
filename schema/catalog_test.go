package schema

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestEncoderDoesNotAllocateForKnownTypes(t *testing.T) {
	dir := folder(t, map[string]string{"order.placed.v1.avsc": `"long"`})
	c := openCatalog(t, Config{Dir: dir}, newClock().still(), nil)
	typ := []byte("order.placed.v1")
	if n := testing.AllocsPerRun(100, func() {
		if _, err := c.Encoder(t.Context(), typ); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCase_S22_StartsAndRunsWithoutTheRegistry(t *testing.T) {
	text := idSchema("x")
	dir := folder(t, map[string]string{"order.avsc": text, "new.avsc": idSchema("new")})
	for name, cfg := range map[string]Config{
		"registry alone": {},
		"with a folder":  {Dir: dir},
	} {
		for _, enc := range []Encoding{Confluent, ConfluentHeader} {
			t.Run(fmt.Sprint(name, " ", enc), func(t *testing.T) {
				f := startRegistry(t, "")
				f.seed("order", 1, 17, text)
				cfg.Registry, cfg.Encoding, cfg.CacheDir = patient(f.url), enc, filepath.Join(t.TempDir(), "cache")
				c := openCatalog(t, cfg, newClock().still(), nil)
				want := encode(t, c, "order", `{"id":1}`)
				e, err := c.Encoder(t.Context(), []byte("order"))
				if err != nil {
					t.Fatal(err)
				}

				f.Server.Close()
				c = openCatalog(t, cfg, newClock().still(), nil)
				if got := encode(t, c, "order", `{"id":1}`); got != want {
					t.Errorf("%q, want %q", got, want)
				}
				again, err := c.Encoder(t.Context(), []byte("order"))
				if err != nil || string(again.SchemaHeader()) != string(e.SchemaHeader()) || again.DataSchema() != e.DataSchema() || again.id != 17 {
					t.Errorf("%+v, want %+v (%v)", again, e, err)
				}
				// What was never seen waits, and is not taken for missing.
				if missing, later := refusal(t, c, "new"); missing != nil || later == nil {
					t.Errorf("%v, %v", missing, later)
				}
			})
		}
	}
}

// TestHangingRegistryCostsOneDeadline: with the cache at hand, not each type
// waits for a registry that hangs.
func TestHangingRegistryCostsOneDeadline(t *testing.T) {
	f := startRegistry(t, "")
	cfg := Config{Registry: patient(f.url), Encoding: Confluent, CacheDir: t.TempDir()}
	c := openCatalog(t, cfg, newClock().still(), nil)
	for i := range 20 {
		f.seed(fmt.Sprint("t", i), 1, i+1, idSchema(fmt.Sprint("n", i)))
		encode(t, c, fmt.Sprint("t", i), `{"id":1}`)
	}
	asked := f.asked()
	f.setFault(hang)
	c = openCatalog(t, cfg, newClock().still(), nil)
	c.registry.timeout = 50 * time.Millisecond
	for i := range 20 {
		if got := encode(t, c, fmt.Sprint("t", i), `{"id":1}`); int(got[4]) != i+1 {
			t.Errorf("t%d: %q", i, got)
		}
	}
	if n := f.asked() - asked; n != 1 {
		t.Errorf("%d requests to a registry that hangs", n)
	}
}

func TestFolderAsksTheRegistryOnce(t *testing.T) {
	dir := folder(t, map[string]string{"a.avsc": idSchema("a"), "b.avsc": idSchema("b"), "unregistered.avsc": idSchema("u")})
	f := startRegistry(t, "")
	f.seed("a", 1, 1, idSchema("a"))
	f.seed("b", 1, 2, idSchema("b"))
	f.seed("unregistered", 1, 3, idSchema("another text"))
	cfg := Config{Dir: dir, Registry: patient(f.url), Encoding: Confluent, CacheDir: t.TempDir()}
	var log lines
	cl := newClock()
	c := openCatalog(t, cfg, cl.still(), log.logger())
	if n := f.asked(); n != 3 {
		t.Errorf("%d requests at the start: %v", n, f.askedFor())
	}
	if !strings.Contains(log.String(), `the text of unregistered.avsc is not registered under subject`) {
		t.Errorf("nothing is said of what is not registered: %s", log.String())
	}
	missing, _ := refusal(t, c, "unregistered")
	if missing == nil || !strings.Contains(missing.Error(), "unregistered.avsc") {
		t.Errorf("%v", missing)
	}
	encode(t, c, "a", `{"id":1}`)
	// The next start asks for what it has not seen, and nothing else.
	asked := f.asked()
	c = openCatalog(t, cfg, cl.still(), nil)
	encode(t, c, "a", `{"id":1}`)
	encode(t, c, "b", `{"id":1}`)
	if got := f.askedFor()[asked:]; len(got) != 1 || !strings.Contains(got[0], "unregistered") {
		t.Errorf("asked for %v", got)
	}
	// A text registered later is found within 30 s.
	f.seed("unregistered", 2, 4, idSchema("u"))
	if missing, _ := refusal(t, c, "unregistered"); missing == nil {
		t.Error("asked too soon")
	}
	cl.advance(30 * time.Second)
	if got := encode(t, c, "unregistered", `{"id":1}`); got[4] != 4 {
		t.Errorf("%q", got)
	}
	// Encodings that do not name the schema need no registry.
	asked = f.asked()
	cfg.Encoding = SingleObject
	encode(t, openCatalog(t, cfg, newClock().still(), nil), "unregistered", `{"id":1}`)
	if f.asked() != asked {
		t.Error("single-object asked the registry")
	}
}

func TestHeaderEncodingNeedsGUIDs(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("a", 1, 5, idSchema("x"))
	stored, ok := f.GetSchema("a", 1)
	if !ok {
		t.Fatal("not seeded")
	}
	cache := t.TempDir()
	cfg := Config{Registry: patient(f.url), Encoding: ConfluentHeader, CacheDir: cache}
	cl := newClock()
	c := openCatalog(t, cfg, cl.still(), nil)
	f.setFault(answer(200, `{"subject":"a","version":1,"id":5,"schema":"{\"type\":\"record\",\"name\":\"Rec\",\"namespace\":\"x\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"}]}"}`))
	missing, later := refusal(t, c, "a")
	if missing != nil || !errors.Is(later, errNoGUID) || !strings.Contains(later.Hint, "schema.encoding: confluent") {
		t.Fatalf("%v, %v", missing, later)
	}
	// The cache was written without a GUID; a registry that gives one since then is asked.
	f.setFault(nil)
	cl.advance(time.Minute)
	if got := encode(t, c, "a", `{"id":1}`); got != "\x02" {
		t.Errorf("%q", got)
	}
	e, err := c.Encoder(t.Context(), []byte("a"))
	if want := "01" + strings.ReplaceAll(stored.GUID, "-", ""); err != nil || hex.EncodeToString(e.SchemaHeader()) != want {
		t.Errorf("header %x, want %s (%v)", e.SchemaHeader(), want, err)
	}

	// That answer took the place of the old one: it does without the registry.
	f.setFault(answer(503, ""))
	if got := encode(t, openCatalog(t, cfg, cl.still(), nil), "a", `{"id":1}`); got != "\x02" {
		t.Errorf("from the cache: %q", got)
	}

	// The same with a folder.
	dir := folder(t, map[string]string{"a.avsc": idSchema("x")})
	cfg = Config{Dir: dir, Registry: patient(f.url), Encoding: ConfluentHeader, CacheDir: t.TempDir()}
	f.setFault(answer(200, `{"subject":"a","version":1,"id":5}`))
	c = openCatalog(t, cfg, cl.still(), nil)
	if missing, later := refusal(t, c, "a"); missing != nil || !errors.Is(later, errNoGUID) || later.Hint == "" {
		t.Errorf("%v, %v", missing, later)
	}
	f.setFault(nil)
	cl.advance(time.Minute)
	if got := encode(t, c, "a", `{"id":1}`); got != "\x02" {
		t.Errorf("%q", got)
	}
}

const wider = `{"type":"record","name":"Rec","namespace":"x","fields":[{"name":"id","type":"long"},{"name":"note","type":["null","string"],"default":null}]}`

// until waits for a condition that a goroutine brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

func TestLaterVersionIsTaken(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("a", 1, 1, idSchema("x"))
	var log lines
	p := defaultPace()
	p.tick, p.refresh, p.max = time.Millisecond, time.Millisecond, time.Millisecond
	c := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, p, log.logger())
	id := func() int {
		e, err := c.Encoder(t.Context(), []byte("a"))
		if err != nil {
			t.Fatal(err)
		}
		return e.id
	}
	if id() != 1 {
		t.Fatal("not the first version")
	}
	f.seed("a", 2, 2, wider)
	until(t, "version 2", func() bool { return id() == 2 })
	if got := encode(t, c, "a", `{"id":1,"note":"n"}`); got != "\x00\x00\x00\x00\x02\x02\x02\x02n" {
		t.Errorf("%q", got)
	}
	// Nothing that the registry says or does not say takes a type out of use.
	for what, fault := range map[string]string{"no look at the latest": `{"error_code":50001}`, "subject is gone": `{"error_code":40401}`, "the latest schema cannot be used": `{"id":3,"version":3,"schema":"{}"}`} {
		status := 500
		if strings.Contains(fault, "schema") {
			status = 200
		}
		f.setFault(answer(status, fault))
		until(t, what, func() bool { return strings.Contains(log.String(), what) })
		if id() != 2 {
			t.Errorf("%s: schema id %d", what, id())
		}
	}
	f.setFault(nil)
	f.seed("a", 4, 4, idSchema("back"))
	until(t, "version 4", func() bool { return id() == 4 })
}

func TestNewer(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("a", 1, 1, idSchema("x"))
	cl := newClock()
	c := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, cl.still(), nil)
	typ := []byte("a")
	old, err := c.Encoder(t.Context(), typ)
	if err != nil {
		t.Fatal(err)
	}
	asked := f.asked()
	f.seed("a", 2, 2, wider)
	for range 1000 { // within 2 s of the last look
		if c.Newer(t.Context(), typ, old) != nil {
			t.Fatal("asked too soon")
		}
	}
	cl.advance(2 * time.Second)
	e := c.Newer(t.Context(), typ, old)
	if e == nil || e.id != 2 {
		t.Fatalf("%+v", e)
	}
	if again := c.Newer(t.Context(), typ, old); again != e {
		t.Error("another goroutine's old encoder is not replaced")
	}
	cl.advance(2 * time.Second)
	if c.Newer(t.Context(), typ, e) != nil {
		t.Error("newer than the newest")
	}
	if n := f.asked() - asked; n != 2 {
		t.Errorf("%d requests", n)
	}
	// Silence counts as no, and is not waited for again at once.
	f.setFault(answer(503, ""))
	for range 1000 {
		cl.advance(time.Millisecond)
		if c.Newer(t.Context(), typ, e) != nil {
			t.Fatal("newer from nowhere")
		}
	}
	cl.advance(5 * time.Second)
	c.Newer(t.Context(), typ, e)
	c.Newer(t.Context(), typ, e)
	if n := f.asked() - asked; n != 3 {
		t.Errorf("%d requests", n)
	}
	if c.Newer(t.Context(), []byte("never seen"), e) != nil {
		t.Error("an unknown type has a newer schema")
	}
	d := openCatalog(t, Config{Dir: folder(t, map[string]string{"a.avsc": `"int"`})}, cl.still(), nil)
	e, err = d.Encoder(t.Context(), typ)
	if err != nil || d.Newer(t.Context(), typ, e) != nil {
		t.Errorf("a folder has a newer schema (%v)", err)
	}
}

// TestRefreshIsPaced counts what the refreshing goroutine asks by a clock that
// it cannot outrun.
func TestRefreshIsPaced(t *testing.T) {
	f := startRegistry(t, "")
	cl := newClock()
	c := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, cl.still(), nil)
	for i := range 3 {
		f.seed(fmt.Sprint("t", i), 1, i+1, idSchema(fmt.Sprint("n", i)))
		encode(t, c, fmt.Sprint("t", i), `{"id":1}`)
		cl.advance(time.Second)
	}
	if typ, due := c.due(); due {
		t.Errorf("%s is due at once", typ)
	}
	cl.advance(27 * time.Second) // 30 s after t0
	for _, want := range []string{"t0", "", "t1", "", "t2", ""} {
		typ, due := c.due()
		if typ != want || due != (want != "") {
			t.Errorf("due is %q, want %q", typ, want)
		}
		if due {
			c.check(t.Context(), typ)
		} else {
			cl.advance(time.Second)
		}
	}
	f.setFault(answer(500, ""))
	cl.advance(time.Minute)
	typ, _ := c.due()
	c.check(t.Context(), typ)
	if typ, due := c.due(); due {
		t.Errorf("%s is due right after a failure", typ)
	}
}

func TestEncoderFromManyGoroutines(t *testing.T) {
	f := startRegistry(t, "")
	for i := range 4 {
		f.seed(fmt.Sprint("t", i), 1, i+1, idSchema(fmt.Sprint("n", i)))
	}
	p := defaultPace()
	p.tick, p.refresh, p.missing = time.Millisecond, time.Millisecond, time.Millisecond
	c := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent, CacheDir: t.TempDir()}, p, nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				n := i % 5
				e, err := c.Encoder(t.Context(), []byte(fmt.Sprint("t", n)))
				if n == 4 {
					var missing *NotFound
					if !errors.As(err, &missing) {
						t.Errorf("t4: %v", err)
					}
					continue
				}
				if err != nil || e.id != n+1 {
					t.Errorf("t%d: %+v, %v", n, e, err)
					return
				}
				c.Newer(t.Context(), []byte(fmt.Sprint("t", n)), e)
			}
		})
	}
	wg.Wait()
}

func TestCloseEndsARequestOfTheGoroutine(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("a", 1, 1, idSchema("x"))
	p := defaultPace()
	p.tick, p.refresh = time.Millisecond, time.Millisecond
	cfg := patient(f.url)
	cfg.Timeout = time.Hour
	c, err := newCatalog(t.Context(), Config{Registry: cfg, Encoding: Confluent}, new(lines).logger(), p)
	if err != nil {
		t.Fatal(err)
	}
	encode(t, c, "a", `{"id":1}`)
	asked := f.asked()
	f.setFault(hang)
	until(t, "a request that hangs", func() bool { return f.asked() > asked })
	c.Close()
	c.Close() // idempotent
	encode(t, c, "a", `{"id":1}`)
}

func TestNewCatalogEndsWithItsContext(t *testing.T) {
	f := startRegistry(t, "")
	f.setFault(hang)
	dir := folder(t, map[string]string{"a.avsc": idSchema("a"), "b.avsc": idSchema("b")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, err := NewCatalog(ctx, Config{Dir: dir, Registry: &RegistryConfig{URL: f.url, Timeout: time.Hour}, Encoding: Confluent}, new(lines).logger())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func BenchmarkEncoderLookup(b *testing.B) {
	dir := folder(b, map[string]string{"order.placed.v1.avsc": `"long"`})
	c := openCatalog(b, Config{Dir: dir}, newClock().still(), nil)
	typ := []byte("order.placed.v1")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Encoder(context.Background(), typ); err != nil {
			b.Fatal(err)
		}
	}
}
