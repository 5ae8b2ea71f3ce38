package schema

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailer-relay/tailer/internal/backoff"
)

// Catalog gives the encoder of every event type, from a folder, a registry or
// both:
//
//   - from a folder, everything is compiled at the start, and what is not there
//     does not exist;
//   - from a folder with an encoding that names the schema, each file's text is
//     looked up under its subject when its type is first met, in the cache
//     before the registry: the id of a text never changes;
//   - from the registry alone, the latest version under the type's subject is
//     taken when the type is first met, from the cache where the registry is
//     away. A goroutine of the catalogue then asks for newer versions, one
//     request at a time and at most one a second, until Close.
//
// A type in use stays in use, whatever becomes of the registry.
//
// A type that the registry does not have is asked for again after 30 s, one it
// did not answer for with growing pauses; in between, Encoder repeats its error
// and asks nobody.
//
// Encoder is meant for the one goroutine that reads rows, and safe for any
// number: the goroutines share an immutable map that is replaced, and the
// bookkeeping under a lock that is never held during a request.
type Catalog struct {
	cfg      Config
	log      *slog.Logger
	files    map[string]*schemaFile // nil: from the registry alone
	registry *registry              // nil: from the folder alone
	pace     pace

	// known is read without a lock, on every row.
	// Invariant: the map it points to never changes.
	known atomic.Pointer[map[string]*TypeEncoder]

	mu      sync.Mutex
	waiting map[string]waiting   // types asked for in vain
	checked map[string]time.Time // when the latest version of a known type was last asked for
	away    time.Time            // until then the registry is taken to be away where the cache can answer

	stop context.CancelFunc
	done chan struct{} // closed when the refreshing goroutine has ended
}

// waiting is a type that has no encoder now.
type waiting struct {
	err      error // *NotFound or *Unavailable
	until    time.Time
	failures int // in a row; 0 for a *NotFound
}

// pace is how often the registry is asked.
type pace struct {
	missing    time.Duration // before asking again for what is not there
	first, max time.Duration // pauses after failures: first, doubled up to max
	refresh    time.Duration // between two looks at a type's latest version
	newer      time.Duration // the same, when a payload did not fit
	tick       time.Duration // between two requests of the refreshing goroutine
	now        func() time.Time
}

func defaultPace() pace {
	return pace{
		missing: 30 * time.Second,
		first:   time.Second,
		max:     10 * time.Second,
		refresh: 30 * time.Second,
		newer:   2 * time.Second,
		tick:    time.Second,
		now:     time.Now,
	}
}

// maxWaiting bounds what is remembered of types that do not exist.
const maxWaiting = 4096

// resolveLimit is how many timeouts of one request a type may take as a whole;
// references make several requests.
const resolveLimit = 3

// NewCatalog checks cfg, loads its folder and opens its registry. What is
// wrong with configuration or folder is one error with a line each. The
// registry need not answer: what it says only makes warnings here.
func NewCatalog(ctx context.Context, cfg Config, log *slog.Logger) (*Catalog, error) {
	return newCatalog(ctx, cfg, log, defaultPace())
}

func newCatalog(ctx context.Context, cfg Config, log *slog.Logger, p pace) (*Catalog, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Catalog{cfg: cfg, log: log, pace: p, waiting: map[string]waiting{}, checked: map[string]time.Time{}, done: make(chan struct{}), stop: func() {}}
	known := map[string]*TypeEncoder{}
	if cfg.Dir != "" {
		var err error
		if c.files, err = loadDir(cfg); err != nil {
			return nil, err
		}
		if !cfg.Encoding.needsID() {
			for typ, f := range c.files {
				t, err := newTypeEncoder(f.encoder, cfg.Encoding, 0, "", "")
				if err != nil {
					return nil, err
				}
				known[typ] = t
			}
		}
	}
	c.known.Store(&known)
	if cfg.Registry != nil && (cfg.Dir == "" || cfg.Encoding.needsID()) {
		var err error
		if c.registry, err = newRegistry(*cfg.Registry, cfg.CacheDir, log); err != nil {
			return nil, err
		}
	}
	switch {
	case c.registry != nil && c.files != nil:
		c.warm(ctx)
		close(c.done)
	case c.registry != nil:
		background, stop := context.WithCancel(context.Background())
		c.stop = stop
		go c.refresh(background)
	default:
		close(c.done)
	}
	return c, nil
}

// Close ends the refreshing goroutine and waits for it. Encoders stay usable.
func (c *Catalog) Close() {
	c.stop()
	<-c.done
	if c.registry != nil {
		c.registry.close()
	}
}

// Encoder returns a type's encoder. A *NotFound concerns the record; any other
// error is not the record's fault, and it must wait: a *Unavailable says until
// when asking again is of no use. typ is not kept.
func (c *Catalog) Encoder(ctx context.Context, typ []byte) (*TypeEncoder, error) {
	if t := (*c.known.Load())[string(typ)]; t != nil { // does not allocate
		return t, nil
	}
	return c.resolve(ctx, string(typ))
}

// resolve finds a type that is not known yet.
func (c *Catalog) resolve(ctx context.Context, typ string) (*TypeEncoder, error) {
	var file *schemaFile
	if c.files != nil {
		if file = c.files[typ]; file == nil {
			return nil, &NotFound{Type: typ, Where: fmt.Sprintf("no file %s%s in %s", clip(typ, 100), schemaSuffix, c.cfg.Dir)}
		}
	}
	if len(typ) > maxSubject {
		// Not remembered either: what is, has to stay small.
		return nil, &NotFound{Type: typ, Where: fmt.Sprintf("a type name of %d bytes is no subject", len(typ))}
	}
	c.mu.Lock()
	w, again := c.waiting[typ]
	c.mu.Unlock()
	if again && c.pace.now().Before(w.until) {
		return nil, w.err
	}
	limited, cancel := context.WithTimeout(ctx, resolveLimit*c.registry.timeout)
	defer cancel()
	var t *TypeEncoder
	var err error
	if file != nil {
		t, err = c.fromFile(limited, typ, file)
	} else {
		t, err = c.fromRegistry(limited, typ)
	}
	if err == nil {
		c.install(typ, t)
		return t, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("look up the schema of type %q: %w", clip(typ, 100), ctx.Err())
	}
	if err == context.DeadlineExceeded {
		err = fmt.Errorf("registry %s: schema and references took longer than %v: %w", c.registry.url, resolveLimit*c.registry.timeout, err)
	}
	return nil, c.postpone(typ, file, w.failures, err)
}

// fromFile names a compiled file as the registry does.
func (c *Catalog) fromFile(ctx context.Context, typ string, f *schemaFile) (*TypeEncoder, error) {
	id, err := c.registry.identify(ctx, f, c.subjectOf, c.cfg.Encoding == ConfluentHeader)
	if err != nil {
		return nil, err
	}
	return newTypeEncoder(f.encoder, c.cfg.Encoding, id.id, id.guid, c.registry.url)
}

// subjectOf gives a file's subject; its type is the one of schema.types or of
// its name.
func (c *Catalog) subjectOf(f *schemaFile) string {
	return c.cfg.subject(f.typ, f.record())
}

// fromRegistry takes a subject's latest version, or the last one seen where
// the registry is away.
func (c *Catalog) fromRegistry(ctx context.Context, typ string) (*TypeEncoder, error) {
	subject := c.cfg.subject(typ, "")
	c.mu.Lock()
	away := c.pace.now().Before(c.away)
	c.mu.Unlock()
	if away {
		if d, ok := c.registry.lastSeen(subject); ok {
			return c.compile(d)
		}
	}
	d, err := c.registry.latest(ctx, subject)
	if err == nil {
		c.mu.Lock()
		c.checked[typ] = c.pace.now()
		c.mu.Unlock()
		return c.compile(d)
	}
	if err == errMissing || ctx.Err() == context.Canceled {
		return nil, err
	}
	var answer *requestError
	if !errors.As(err, &answer) || answer.away() {
		c.mu.Lock()
		c.away = c.pace.now().Add(c.pace.max)
		c.mu.Unlock()
	}
	seen, ok := c.registry.lastSeen(subject)
	if !ok {
		return nil, err
	}
	c.log.Warn("registry does not answer; the schema seen last is used", "type", typ, "subject", subject, "schema_id", seen.id, "err", err)
	return c.compile(seen)
}

func (c *Catalog) compile(d definition) (*TypeEncoder, error) {
	refs := make([][]byte, len(d.refs))
	for i, r := range d.refs {
		refs[i] = []byte(r)
	}
	enc, err := CompileOptions([]byte(d.text), Options{DropUnknown: c.cfg.DropUnknown, Dropped: c.cfg.Dropped}, refs...)
	if err != nil {
		return nil, &unusable{id: d.id, err: err}
	}
	t, err := newTypeEncoder(enc, c.cfg.Encoding, d.id, d.guid, c.registry.url)
	if err != nil {
		return nil, &unusable{id: d.id, err: err}
	}
	return t, nil
}

// unusable is a schema that the registry has and that makes no encoder.
type unusable struct {
	id  int
	err error
}

func (e *unusable) Error() string { return fmt.Sprintf("schema id %d cannot be used: %v", e.id, e.err) }
func (e *unusable) Unwrap() error { return e.err }

func (c *Catalog) install(typ string, t *TypeEncoder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(*c.known.Load())
	next[typ] = t
	c.known.Store(&next)
	delete(c.waiting, typ)
	c.log.Info("schema found", "type", typ, "schema_id", t.id)
}

// postpone notes that a type has no encoder now, and until when it is not
// asked for again.
func (c *Catalog) postpone(typ string, file *schemaFile, failures int, err error) error {
	subject := c.cfg.subject(typ, "")
	if file != nil {
		subject = c.subjectOf(file)
	}
	now := c.pace.now()
	var w waiting
	var text *missingText
	switch {
	case err == errMissing:
		w = waiting{err: &NotFound{Type: typ, Where: fmt.Sprintf("registry %s has no subject %q", c.registry.url, clip(subject, 100))}, until: now.Add(c.pace.missing)}
	case errors.As(err, &text):
		w = waiting{err: &NotFound{Type: typ, Where: fmt.Sprintf("registry %s: %v", c.registry.url, text)}, until: now.Add(c.pace.missing)}
	default:
		w.failures = failures + 1
		w.until = now.Add(backoff.Pause(w.failures, c.pace.first, c.pace.max))
		w.err = &Unavailable{Type: typ, Subject: subject, RetryAt: w.until, Hint: hintOf(err), Err: err}
	}
	c.log.Warn("no schema for a type", "type", clip(typ, 100), "subject", clip(subject, 100), "again_in", w.until.Sub(now).Round(time.Millisecond), "err", w.err)

	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) >= maxWaiting {
		for k, old := range c.waiting {
			if !now.Before(old.until) {
				delete(c.waiting, k)
			}
		}
	}
	for k := range c.waiting { // still full: any one goes, and is asked for again
		if len(c.waiting) < maxWaiting {
			break
		}
		delete(c.waiting, k)
	}
	c.waiting[typ] = w
	return w.err
}

func hintOf(err error) string {
	if errors.Is(err, errNoGUID) {
		return hintNoGUID
	}
	var re *requestError
	if errors.As(err, &re) {
		return re.hint()
	}
	var u *unusable
	if errors.As(err, &u) {
		return "register a version of the schema that can be used"
	}
	return ""
}

// warm looks the folder's types up before the first event needs them, so that
// what is not registered is said at the start. It gives up at the first sign
// that the registry is away, and after the time of one request anyway. Files
// that others refer to are looked up with those.
func (c *Catalog) warm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.registry.timeout)
	defer cancel()
	lent := map[*schemaFile]bool{}
	for _, f := range c.files {
		for _, g := range f.closure {
			lent[g] = true
		}
	}
	for _, typ := range sortedKeys(c.files) {
		if lent[c.files[typ]] {
			continue
		}
		_, err := c.Encoder(ctx, []byte(typ))
		var missing *NotFound
		if err != nil && !errors.As(err, &missing) {
			return
		}
	}
}
