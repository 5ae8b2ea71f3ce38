package schema

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

// registry asks a Confluent-compatible schema registry. It looks up, and never
// registers. It has no state but its cache, and no memory of failures: when to
// ask again is the catalogue's business.
type registry struct {
	client  *sr.Client
	http    *http.Transport
	url     string // without credentials; may stand in logs, errors and records
	timeout time.Duration
	cache   *diskCache
}

// definition is a schema as the registry holds it.
type definition struct {
	id, version int
	guid        string
	text        string
	refs        []string // texts, each after those it refers to
}

const (
	defaultTimeout = 5 * time.Second
	maxAnswer      = 16 << 20 // bytes of one answer
	maxReferences  = 256      // of one schema, directly or not
	maxSubject     = 512      // bytes; a longer one would be refused with the address, not as missing
)

// errMissing is the registry's word that a subject or a text under it does not
// exist: 40401 or 40403. Nothing else is ever that.
var errMissing = errors.New("not in the registry")

// requestError is any other answer, or none.
type requestError struct {
	url, what string
	status    int // 0: no answer
	code      int // the registry's own, 0: none
	text      string
	err       error // why there is no answer
}

func (e *requestError) Error() string {
	switch {
	case e.status == 0:
		return fmt.Sprintf("registry %s: %s: %v", e.url, e.what, e.err)
	case e.code == 0:
		return fmt.Sprintf("registry %s: %s: status %d: %s", e.url, e.what, e.status, e.text)
	}
	return fmt.Sprintf("registry %s: %s: status %d (%d): %s", e.url, e.what, e.status, e.code, e.text)
}

func (e *requestError) Unwrap() error { return e.err }

// away tells whether nothing was said about the request itself, so that any
// other would fare the same.
func (e *requestError) away() bool {
	return e.status == 0 || e.status == http.StatusTooManyRequests || e.status >= 500
}

// hint says what may cure an answer that will not cure itself.
func (e *requestError) hint() string {
	switch {
	case e.status == http.StatusUnauthorized || e.status == http.StatusForbidden:
		return "check schema.registry.username and password_file, and that this user may read the subject"
	case e.status >= 300 && e.status < 400:
		return "set schema.registry.url to the address it redirects to"
	case e.status == http.StatusNotFound:
		return "check schema.registry.url: it must be the base of a Confluent-compatible API (with Apicurio it ends in /apis/ccompat/v7)"
	case e.status == http.StatusUnprocessableEntity || e.status == http.StatusConflict:
		return "the registry refuses this schema; compare the file with what is registered under the subject"
	}
	return ""
}

func newRegistry(cfg RegistryConfig, cacheDir string, log *slog.Logger) (*registry, error) {
	base, user, password, err := splitURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	secret := cfg.Password
	if cfg.Username != "" {
		user = cfg.Username
	} else if secret == nil && user != "" {
		secret = func() (string, error) { return password, nil }
	}
	r := &registry{url: base, timeout: cfg.Timeout}
	if r.timeout <= 0 {
		r.timeout = defaultTimeout
	}
	r.http = http.DefaultTransport.(*http.Transport).Clone()
	opts := []sr.ClientOpt{
		sr.URLs(base),
		sr.UserAgent("tailer"),
		sr.HTTPClient(&http.Client{
			Transport: bounded{r.http},
			// A redirected POST would become a GET, and credentials would not follow.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
	}
	if user != "" {
		opts = append(opts, sr.PreReq(func(req *http.Request) error {
			if secret == nil {
				req.SetBasicAuth(user, "")
				return nil
			}
			pass, err := secret()
			if err != nil {
				return fmt.Errorf("read the registry's password: %w", err)
			}
			req.SetBasicAuth(user, pass)
			return nil
		}))
	}
	if r.client, err = sr.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("registry client: %w", err)
	}
	if r.cache, err = openCache(cacheDir, base, log); err != nil {
		// A container's read-only root must not keep a relay from running.
		log.Warn("no schema cache; the relay will need the registry at its next start", "folder", cacheDir, "err", err)
	}
	return r, nil
}

func (r *registry) close() { r.http.CloseIdleConnections() }

// bounded cuts answers off, so that whatever answers in the registry's place
// cannot fill the memory.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// ask runs one request under its deadline and sorts its error: nil, errMissing,
// the caller's own context, or *requestError.
func (r *registry) ask(ctx context.Context, what string, request func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	err := request(limited)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &requestError{url: r.url, what: what}
	var answer *sr.ResponseError
	var transport *url.Error
	switch {
	case errors.As(err, &answer):
		if answer.ErrorCode == sr.ErrSubjectNotFound.Code || answer.ErrorCode == sr.ErrSchemaNotFound.Code {
			return errMissing
		}
		e.status, e.code, e.text = answer.StatusCode, answer.ErrorCode, oneLine(answer.Error())
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		e.err = fmt.Errorf("no answer within %v: %w", r.timeout, context.DeadlineExceeded)
	case errors.As(err, &transport):
		e.err = transport.Err // without the address, which stands before it already
	default:
		e.err = err
	}
	return e
}

// oneLine makes an answer fit a log line: proxies answer with whole pages.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

// usable tells whether a name can stand in an address as a subject. The rest
// cannot exist as one, and is missing without being asked for.
func usable(subject string) bool {
	return subject != "" && subject != "." && subject != ".." && len(subject) <= maxSubject
}

// latest fetches a subject's latest version and all it refers to.
func (r *registry) latest(ctx context.Context, subject string) (definition, error) {
	if !usable(subject) {
		return definition{}, errMissing
	}
	var ss sr.SubjectSchema
	what := fmt.Sprintf("get the latest schema of subject %q", subject)
	if err := r.ask(ctx, what, func(ctx context.Context) (err error) {
		ss, err = r.client.SchemaByVersion(ctx, subject, -1)
		return err
	}); err != nil {
		return definition{}, err
	}
	if err := r.checkAnswer(what, ss, true); err != nil {
		return definition{}, err
	}
	d := definition{id: ss.ID, version: ss.Version, guid: ss.GUID, text: ss.Schema.Schema}
	if e, ok := r.cache.schema(d.id); ok && e.Text == d.text && e.GUID == d.guid {
		d.refs = e.Refs
	} else {
		w := referenceWalk{registry: r, seen: map[string]bool{}}
		if err := w.add(ctx, subject, ss.References); err != nil {
			return definition{}, err
		}
		d.refs = w.texts
		r.cache.keepSchema(schemaEntry{ID: d.id, GUID: d.guid, Text: d.text, Refs: d.refs})
	}
	if e, ok := r.cache.latest(subject); !ok || e.ID != d.id || e.Version != d.version {
		r.cache.keepLatest(latestEntry{Subject: subject, ID: d.id, Version: d.version})
	}
	return d, nil
}

// lastSeen is what latest found the last time, from the cache alone.
func (r *registry) lastSeen(subject string) (definition, bool) {
	l, ok := r.cache.latest(subject)
	if !ok {
		return definition{}, false
	}
	e, ok := r.cache.schema(l.ID)
	if !ok {
		return definition{}, false
	}
	return definition{id: e.ID, version: l.Version, guid: e.GUID, text: e.Text, refs: e.Refs}, true
}

// referenceWalk collects the texts behind references, those they refer to
// themselves first.
type referenceWalk struct {
	registry *registry
	seen     map[string]bool
	texts    []string
}

func (w *referenceWalk) add(ctx context.Context, subject string, refs []sr.SchemaReference) error {
	for _, ref := range refs {
		key := fmt.Sprintf("%d %s", ref.Version, ref.Subject)
		if w.seen[key] {
			continue
		}
		w.seen[key] = true
		what := fmt.Sprintf("get version %d of subject %q, which %q refers to", ref.Version, ref.Subject, subject)
		if len(w.seen) > maxReferences {
			return &requestError{url: w.registry.url, what: what, err: fmt.Errorf("more than %d references", maxReferences)}
		}
		var ss sr.SubjectSchema
		err := w.registry.ask(ctx, what, func(ctx context.Context) (err error) {
			ss, err = w.registry.client.SchemaByVersion(ctx, ref.Subject, ref.Version)
			return err
		})
		if err == errMissing {
			// The schema itself is there: its type is not missing.
			return &requestError{url: w.registry.url, what: what, err: errors.New("it is not there")}
		}
		if err != nil {
			return err
		}
		if err := w.registry.checkAnswer(what, ss, true); err != nil {
			return err
		}
		if err := w.add(ctx, ref.Subject, ss.References); err != nil {
			return err
		}
		w.texts = append(w.texts, ss.Schema.Schema)
	}
	return nil
}

// checkAnswer refuses what is no schema: a page of some proxy in JSON, a
// schema of another kind.
func (r *registry) checkAnswer(what string, ss sr.SubjectSchema, withText bool) error {
	e := &requestError{url: r.url, what: what}
	switch {
	case ss.ID <= 0:
		e.err = errors.New("the answer has no schema id")
	case withText && ss.Schema.Schema == "":
		e.err = errors.New("the answer has no schema")
	case ss.Type == sr.TypeProtobuf || ss.Type == sr.TypeJSON:
		e.err = fmt.Errorf("it is a schema of type %v, not AVRO", ss.Type)
	default:
		return nil
	}
	return e
}

// identity is what a file's text is called in the registry.
type identity struct {
	id, version int
	guid        string
}

// missingText names the subject that does not hold a text.
type missingText struct{ subject, path string }

func (e *missingText) Error() string {
	return fmt.Sprintf("the text of %s is not registered under subject %q", e.path, e.subject)
}

// identify looks a file's text up under its subject, as it stands. The files it
// refers to are looked up first, each under a subject of its own: the registry
// knows a text only together with its references, given here in the order of
// their names in the text.
func (r *registry) identify(ctx context.Context, f *schemaFile, subjectOf func(*schemaFile) string, needGUID bool) (identity, error) {
	subject := subjectOf(f)
	digest := f.digest()
	if e, ok := r.cache.lookup(subject, digest); ok && (e.GUID != "" || !needGUID) {
		return identity{e.ID, e.Version, e.GUID}, nil
	}
	if !usable(subject) {
		return identity{}, &missingText{subject, f.path}
	}
	s := sr.Schema{Schema: string(f.text)}
	known := map[*schemaFile]identity{} // one file may define several of the names
	for _, n := range f.needs {
		ref, ok := known[n.file]
		if !ok {
			var err error
			if ref, err = r.identify(ctx, n.file, subjectOf, false); err != nil {
				return identity{}, err
			}
			known[n.file] = ref
		}
		s.References = append(s.References, sr.SchemaReference{Name: n.name, Subject: subjectOf(n.file), Version: ref.version})
	}
	var ss sr.SubjectSchema
	what := fmt.Sprintf("look up %s under subject %q", f.path, subject)
	err := r.ask(ctx, what, func(ctx context.Context) (err error) {
		ss, err = r.client.LookupSchema(ctx, subject, s)
		return err
	})
	if err == errMissing {
		return identity{}, &missingText{subject, f.path}
	}
	if err != nil {
		return identity{}, err
	}
	if err := r.checkAnswer(what, ss, false); err != nil {
		return identity{}, err
	}
	r.cache.keepLookup(lookupEntry{Subject: subject, Digest: digest, ID: ss.ID, Version: ss.Version, GUID: ss.GUID})
	return identity{ss.ID, ss.Version, ss.GUID}, nil
}

// digest is of the text and of everything it refers to.
func (f *schemaFile) digest() string {
	h := sha256.New()
	for _, g := range append([]*schemaFile{f}, f.closure...) {
		fmt.Fprintf(h, "%d:%s", len(g.text), g.text)
	}
	return hex.EncodeToString(h.Sum(nil))
}
