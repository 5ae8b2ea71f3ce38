package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

// patient is a registry configuration whose deadline no healthy answer misses.
func patient(url string) *RegistryConfig { return &RegistryConfig{URL: url, Timeout: 10 * time.Second} }

func TestCase_L17_RegistryTroubleIsNeverMissing(t *testing.T) {
	refused := func() string { // an address where nobody listens
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return "http://" + l.Addr().String()
	}
	for _, c := range []struct {
		name  string
		fault http.HandlerFunc
		want  string // in the error
	}{
		{"500", answer(500, `{"error_code":50001,"message":"Error in the backend data store"}`), "status 500 (50001): Error in the backend data store"},
		{"50002", answer(500, `{"error_code":50002,"message":"Operation timed out"}`), "50002"},
		{"503 page", answer(503, "<html>\n<h1>503</h1>\n no server is available</html>"), "status 503: <html> <h1>503</h1> no server is available</html>"},
		{"429", answer(429, `{"error_code":42901,"message":"slow down"}`), "slow down"},
		{"401", answer(401, `{"error_code":40101,"message":"who are you"}`), "who are you"},
		{"404 of a proxy", answer(404, "no such page"), "status 404"},
		{"40402", answer(404, `{"error_code":40402,"message":"Version not found"}`), "40402"},
		{"302", answer(302, ""), "status 302"},
		{"empty object", answer(200, `{}`), "no schema id"},
		{"no text", answer(200, `{"id":7}`), "no schema"},
		{"page with 200", answer(200, "<html>log in</html>"), "unable to decode"},
		{"protobuf", answer(200, `{"id":7,"version":1,"schema":"syntax","schemaType":"PROTOBUF"}`), "PROTOBUF"},
		{"unusable schema", answer(200, `{"id":7,"version":1,"schema":"{\"type\":\"long\",\"default\":"}`), "schema id 7 cannot be used"},
		{"connection cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		{"hang", hang, "no answer within"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := startRegistry(t, "")
			f.seed("a", 1, 7, idSchema("x"))
			cl := newClock()
			cfg := patient(f.url)
			if c.name == "hang" {
				cfg.Timeout = 100 * time.Millisecond
			}
			f.setFault(c.fault)
			cat := openCatalog(t, Config{Registry: cfg, Encoding: Confluent}, cl.still(), nil)
			missing, later := refusal(t, cat, "a")
			if missing != nil {
				t.Fatalf("taken for missing: %v", missing)
			}
			if !strings.Contains(later.Error(), c.want) || !strings.Contains(later.Error(), `"a"`) || strings.ContainsAny(later.Error(), "\n\r") {
				t.Errorf("error %q, want %q in it, on one line", later, c.want)
			}
			// A thousand events in the pause ask nobody.
			asked := f.asked()
			for range 1000 {
				refusal(t, cat, "a")
			}
			if f.asked() != asked {
				t.Errorf("%d requests in the pause", f.asked()-asked)
			}
			f.setFault(nil)
			cl.advance(later.RetryAt.Sub(cl.now()))
			cat.registry.timeout = 10 * time.Second
			if got := encode(t, cat, "a", `{"id":1}`); got != "\x00\x00\x00\x00\x07\x02" {
				t.Errorf("%q", got)
			}
			if len(cat.waiting) != 0 {
				t.Errorf("a type that was found is still waited for: %v", cat.waiting)
			}
		})
	}
	t.Run("refused connection", func(t *testing.T) {
		cat := openCatalog(t, Config{Registry: patient(refused()), Encoding: Confluent}, newClock().still(), nil)
		missing, later := refusal(t, cat, "a")
		if missing != nil || !strings.Contains(later.Error(), "connection refused") {
			t.Errorf("%v, %v", missing, later)
		}
	})
}

func TestCase_L17_PausesGrowAndAreBounded(t *testing.T) {
	f := startRegistry(t, "")
	f.setFault(answer(503, ""))
	cl := newClock()
	cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, cl.still(), nil)
	var pauses []time.Duration
	begin := cl.now()
	for cl.now().Sub(begin) < 90*time.Second {
		_, later := refusal(t, cat, "a")
		pause := later.RetryAt.Sub(cl.now())
		pauses = append(pauses, pause)
		cl.advance(pause)
	}
	if n := f.asked(); n != len(pauses) || n > 15 {
		t.Errorf("%d requests in 90 s: %v", n, pauses)
	}
	for i, p := range pauses {
		want := min(time.Second<<i, 10*time.Second)
		if i > 10 {
			want = 10 * time.Second
		}
		if p < want*4/5 || p > want*6/5 {
			t.Errorf("pause %d is %v, want %v give or take a fifth", i, p, want)
		}
	}
}

func TestCase_S21_RefusalOfASchemaHoldsItsTypeOnly(t *testing.T) {
	for status, body := range map[int]string{
		409: `{"error_code":409,"message":"incompatible with version 3"}`,
		422: `{"error_code":42201,"message":"Input schema is an invalid Avro schema"}`,
	} {
		f := startRegistry(t, "")
		f.seed("good", 1, 5, idSchema("x"))
		f.setFault(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/bad") {
				answer(status, body)(w, r)
				return
			}
			f.Registry.Handler().ServeHTTP(w, r)
		})
		cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent, Types: map[string]TypeConfig{"t": {Subject: "bad"}}}, newClock().still(), nil)
		var later *Unavailable
		for range 1000 {
			var missing *NotFound
			if missing, later = refusal(t, cat, "t"); missing != nil {
				t.Fatal(missing)
			}
		}
		if n := f.asked(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		var said struct{ Message string }
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(later.Error(), `subject "bad"`) || !strings.Contains(later.Error(), said.Message) || later.Hint == "" {
			t.Errorf("%v (%s)", later, later.Hint)
		}
		if got := encode(t, cat, "good", `{"id":1}`); got != "\x00\x00\x00\x00\x05\x02" {
			t.Errorf("other type: %q", got)
		}
	}
}

func TestCase_S22_SlowRegistryHasADeadline(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("known", 1, 3, idSchema("x"))
	f.seed("late", 1, 4, idSchema("y"))
	cl := newClock()
	cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, cl.still(), nil)
	encode(t, cat, "known", `{"id":1}`)

	cat.registry.timeout = 100 * time.Millisecond
	f.setFault(hang)
	begin := time.Now()
	missing, later := refusal(t, cat, "late")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the deadline came after %v", took)
	}
	if missing != nil || !errors.Is(later, context.DeadlineExceeded) {
		t.Fatalf("%v, %v", missing, later)
	}
	// What is known flows meanwhile, without a request.
	asked := f.asked()
	for i := range 1000 {
		if got := encode(t, cat, "known", fmt.Sprintf(`{"id":%d}`, i%64)); len(got) != 6 && len(got) != 7 {
			t.Fatalf("%q", got)
		}
	}
	if f.asked() != asked {
		t.Errorf("%d requests for a known type", f.asked()-asked)
	}
	// 50002, then success.
	cat.registry.timeout = 10 * time.Second
	f.setFault(answer(500, `{"error_code":50002,"message":"timed out"}`))
	cl.advance(20 * time.Second)
	if _, later = refusal(t, cat, "late"); later == nil {
		t.Fatal("taken for missing")
	}
	f.setFault(nil)
	cl.advance(20 * time.Second)
	if got := encode(t, cat, "late", `{"id":1}`); got != "\x00\x00\x00\x00\x04\x02" {
		t.Errorf("%q", got)
	}
}

func TestCase_S22_CallersContextEndsARequest(t *testing.T) {
	f := startRegistry(t, "")
	arrived := make(chan struct{}, 1)
	f.setFault(func(w http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; hang(w, r) })
	cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, newClock().still(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := cat.Encoder(ctx, []byte("a"))
	var later *Unavailable
	if !errors.Is(err, context.Canceled) || errors.As(err, &later) {
		t.Errorf("%T %v", err, err)
	}
	// That says nothing about the registry: the next one asks at once.
	f.setFault(nil)
	f.seed("a", 1, 1, idSchema("x"))
	encode(t, cat, "a", `{"id":1}`)
}

func TestCase_S23_MissingTypesAreAskedForSeldomAndFoundSoon(t *testing.T) {
	for name, unknown := range map[string]http.HandlerFunc{
		"40401": answer(404, `{"error_code":40401,"message":"Subject 'a' not found."}`),
		"40403": answer(404, `{"error_code":40403,"message":"Schema not found"}`),
	} {
		t.Run(name, func(t *testing.T) {
			f := startRegistry(t, "")
			f.setFault(unknown)
			f.seed("a", 1, 9, idSchema("x"))
			cl := newClock()
			cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, cl.still(), nil)
			begin, found := cl.now(), time.Duration(0)
			for range 10_000 { // 100 s at 100 events a second
				if cl.now().Sub(begin) >= 30*time.Second {
					f.setFault(nil)
				}
				if _, err := cat.Encoder(t.Context(), []byte("a")); err == nil {
					if found == 0 {
						found = cl.now().Sub(begin)
					}
				} else {
					var missing *NotFound
					if !errors.As(err, &missing) || missing.Type != "a" || !strings.Contains(missing.Where, `"a"`) {
						t.Fatalf("%T %v", err, err)
					}
				}
				cl.advance(10 * time.Millisecond)
			}
			if n := f.asked(); n > 4 {
				t.Errorf("%d requests in 100 s", n)
			}
			if found == 0 || found > 60*time.Second {
				t.Errorf("registered after 30 s, found after %v", found)
			}
		})
	}
}

func TestCase_S23_WhatIsRememberedIsBounded(t *testing.T) {
	f := startRegistry(t, "")
	cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, newClock().still(), nil)
	for i := range maxWaiting + 100 {
		cat.postpone(fmt.Sprint("type", i), nil, 0, errMissing)
	}
	if n := len(cat.waiting); n != maxWaiting {
		t.Errorf("%d types remembered", n)
	}
	// A name that cannot be a subject is missing without a request or a memory.
	clear(cat.waiting)
	for _, typ := range []string{strings.Repeat("x", 1<<20), "", ".", ".."} {
		if missing, _ := refusal(t, cat, typ); missing == nil || len(missing.Error()) > 500 {
			t.Errorf("%.20q: %v", typ, missing)
		}
	}
	if f.asked() != 0 {
		t.Errorf("asked for %v", f.askedFor())
	}
	for typ := range cat.waiting {
		if len(typ) > maxSubject {
			t.Errorf("a type of %d bytes is remembered", len(typ))
		}
	}
}

func TestCase_W33_SubjectsByStrategy(t *testing.T) {
	f := startRegistry(t, "/apis/ccompat/v7")
	text := idSchema("ns")
	for subject, id := range map[string]int{"t-value": 11, "ns.Rec": 12, "t-ns.Rec": 13, "order.placed.v1": 14, "order.placed.v1-value": 15} {
		f.seed(subject, 1, id, text)
	}
	dir := folder(t, map[string]string{"order.placed.v1.avsc": text})
	const typ = "order.placed.v1"
	for _, c := range []struct {
		name string
		cfg  Config
		want int
	}{
		{"default", Config{}, 14},
		{"default, with a folder", Config{Dir: dir}, 14},
		{"topic", Config{Types: map[string]TypeConfig{typ: {Subject: "t-value"}}}, 11},
		{"record", Config{Dir: dir, Subject: "{record}"}, 12},
		{"topic and record", Config{Dir: dir, Subject: "t-{record}"}, 13},
		{"type and suffix", Config{Subject: "{type}-value"}, 15},
		{"one type's own", Config{Dir: dir, Types: map[string]TypeConfig{typ: {Subject: "t-ns.Rec"}}}, 13},
	} {
		c.cfg.Registry, c.cfg.Encoding = patient(f.url+"/"), Confluent
		cat := openCatalog(t, c.cfg, newClock().still(), nil)
		e, err := cat.Encoder(t.Context(), []byte(typ))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if e.id != c.want {
			t.Errorf("%s: id %d, want %d", c.name, e.id, c.want)
		}
		if want := fmt.Sprintf("%s/schemas/ids/%d", f.url, c.want); e.DataSchema() != want {
			t.Errorf("%s: data schema %s, want %s", c.name, e.DataSchema(), want)
		}
	}
	// Several types, one topic: each by its own subject.
	f.seed("order.paid.v1", 1, 21, idSchema("paid"))
	cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, newClock().still(), nil)
	if a, b := encode(t, cat, typ, `{"id":1}`), encode(t, cat, "order.paid.v1", `{"id":1}`); a[4] != 14 || b[4] != 21 {
		t.Errorf("%x, %x", a, b)
	}
}

func TestCase_W13_TypeNamesReachTheRegistryUnchanged(t *testing.T) {
	f := startRegistry(t, "/base")
	names := []string{"order.placed-v1", "Order$Created", "9lives", "订单", "a/b", "a b", "a%2Fb", "a?b#c", "a+b&c"}
	for i, name := range names {
		f.seed(name, 1, i+1, idSchema("x"))
	}
	cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, newClock().still(), nil)
	for i, name := range names {
		if got := encode(t, cat, name, `{"id":1}`); int(got[4]) != i+1 {
			t.Errorf("%s: schema id %d, want %d (%v)", name, got[4], i+1, f.askedFor())
		}
	}
}

func TestLookUpGivesTheFilesOriginalText(t *testing.T) {
	text := "{ \"type\" : \"record\",\n  \"name\":\"R\", \"doc\":\"ü\", \"fields\":[{\"name\":\"m\",\"type\":\"shop.Money\"},{\"name\":\"c\",\"type\":\"shop.Currency\"}] }\n"
	money := `{"type":"record","name":"Money","namespace":"shop","fields":[{"name":"cents","type":"long"},{"name":"currency","type":"Currency"}]}`
	currency := `{"type":"enum","name":"shop.Currency","symbols":["EUR"]}`
	f := startRegistry(t, "")
	refs := []sr.SchemaReference{{Name: "shop.Money", Subject: "money-subject", Version: 4}, {Name: "shop.Currency", Subject: "Currency", Version: 2}}
	f.seed("Currency", 2, 31, currency)
	f.seed("money-subject", 4, 32, money, refs[1])
	f.seed("order", 1, 33, text, refs...)
	var posted sr.Schema
	f.setFault(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/subjects/order" {
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &posted); err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
		}
		f.Registry.Handler().ServeHTTP(w, r)
	})
	dir := folder(t, map[string]string{"order.avsc": text, "shared/Money.avsc": money, "shared/Currency.avsc": currency})
	cat := openCatalog(t, Config{Dir: dir, Registry: patient(f.url), Encoding: Confluent, Types: map[string]TypeConfig{"Money": {Subject: "money-subject"}}}, newClock().still(), nil)
	if got := encode(t, cat, "order", `{"m":{"cents":1,"currency":"EUR"},"c":"EUR"}`); got != "\x00\x00\x00\x00\x21\x02\x00\x00" {
		t.Errorf("%q", got)
	}
	if posted.Schema != text {
		t.Errorf("looked up %q, the file has %q", posted.Schema, text)
	}
	if len(posted.References) != 2 || posted.References[0] != refs[0] || posted.References[1] != refs[1] {
		t.Errorf("references %v, want %v", posted.References, refs)
	}
	for _, r := range f.askedFor() {
		if strings.HasSuffix(r, "/versions") || strings.HasPrefix(r, "PUT") || strings.HasPrefix(r, "DELETE") {
			t.Errorf("more than a look-up: %s", r)
		}
	}
}

func TestLatestResolvesReferences(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("currency", 1, 41, `{"type":"enum","name":"shop.Currency","symbols":["EUR"]}`)
	money := `{"type":"record","name":"shop.Money","fields":[{"name":"c","type":"shop.Currency"}]}`
	f.seed("money", 3, 42, money, sr.SchemaReference{Name: "shop.Currency", Subject: "currency", Version: 1})
	order := `{"type":"record","name":"O","fields":[{"name":"a","type":"shop.Money"},{"name":"b","type":"shop.Currency"}]}`
	f.seed("order", 1, 43, order, sr.SchemaReference{Name: "shop.Money", Subject: "money", Version: 3}, sr.SchemaReference{Name: "shop.Currency", Subject: "currency", Version: 1})
	cl := newClock()
	cfg := Config{Registry: patient(f.url), Encoding: Confluent, CacheDir: t.TempDir()}
	cat := openCatalog(t, cfg, cl.still(), nil)
	if got := encode(t, cat, "order", `{"a":{"c":"EUR"},"b":"EUR"}`); got != "\x00\x00\x00\x00\x2b\x00\x00" {
		t.Errorf("%q", got)
	}
	if n := f.asked(); n != 3 {
		t.Errorf("%d requests: %v", n, f.askedFor())
	}
	// A second relay knows the references of that id.
	before := f.asked()
	encode(t, openCatalog(t, cfg, cl.still(), nil), "order", `{"a":{"c":"EUR"},"b":"EUR"}`)
	if n := f.asked() - before; n != 1 {
		t.Errorf("%d requests with a cache: %v", n, f.askedFor()[before:])
	}
}

func TestBadReferencesAreTrouble(t *testing.T) {
	f := startRegistry(t, "")
	versions := map[string]string{
		// A reference that is gone.
		"/subjects/broken/versions/latest": `{"id":1,"version":1,"schema":"\"int\"","references":[{"name":"x.Y","subject":"gone","version":1}]}`,
		// References that lead in a circle.
		"/subjects/c1/versions/latest": `{"id":2,"version":1,"schema":"{\"type\":\"record\",\"name\":\"C1\",\"fields\":[{\"name\":\"x\",\"type\":\"C2\"}]}","references":[{"name":"C2","subject":"c2","version":1}]}`,
		"/subjects/c2/versions/1":      `{"id":3,"version":1,"schema":"{\"type\":\"record\",\"name\":\"C2\",\"fields\":[{\"name\":\"x\",\"type\":\"C1\"}]}","references":[{"name":"C1","subject":"c1","version":1}]}`,
		"/subjects/c1/versions/1":      `{"id":2,"version":1,"schema":"{\"type\":\"record\",\"name\":\"C1\",\"fields\":[{\"name\":\"x\",\"type\":\"C2\"}]}","references":[{"name":"C2","subject":"c2","version":1}]}`,
	}
	f.setFault(func(w http.ResponseWriter, r *http.Request) {
		if body, ok := versions[r.URL.Path]; ok {
			answer(200, body)(w, r)
			return
		}
		answer(404, `{"error_code":40401,"message":"Subject not found."}`)(w, r)
	})
	cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, newClock().still(), nil)
	missing, later := refusal(t, cat, "broken")
	if missing != nil || !strings.Contains(later.Error(), `"gone"`) || errors.Is(later, errMissing) {
		t.Errorf("%v, %v", missing, later)
	}
	before := f.asked()
	var gone *NotFound
	if _, err := cat.Encoder(t.Context(), []byte("c1")); errors.As(err, &gone) {
		t.Error(err)
	}
	if n := f.asked() - before; n != 3 {
		t.Errorf("%d requests for a circle", n)
	}
}

func TestCredentials(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("a", 1, 1, idSchema("x"))
	f.setFault(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != "relay" || pass != "s3cret" {
			answer(401, `{"error_code":40101,"message":"Unauthorized"}`)(w, r)
			return
		}
		f.Registry.Handler().ServeHTTP(w, r)
	})
	inURL := strings.Replace(f.url, "http://", "http://relay:s3cret@", 1)
	wrong := strings.Replace(f.url, "http://", "http://relay:hunter2@", 1)
	password := func(p string, err error) func() (string, error) { return func() (string, error) { return p, err } }
	for _, c := range []struct {
		name string
		cfg  RegistryConfig
		want string // "": works
	}{
		{"in the configuration", RegistryConfig{URL: f.url, Username: "relay", Password: password("s3cret", nil)}, ""},
		{"in the address", RegistryConfig{URL: inURL}, ""},
		{"user in the address, password apart", RegistryConfig{URL: strings.Replace(f.url, "http://", "http://relay@", 1), Password: password("s3cret", nil)}, ""},
		{"configuration over address", RegistryConfig{URL: wrong, Username: "relay", Password: password("s3cret", nil)}, ""},
		{"none", RegistryConfig{URL: f.url}, "status 401"},
		{"wrong in the address", RegistryConfig{URL: wrong}, "status 401"},
		{"unreadable password", RegistryConfig{URL: wrong, Username: "relay", Password: password("", errors.New("open /run/secrets/pw: no such file"))}, "/run/secrets/pw"},
		{"nobody there", RegistryConfig{URL: "http://relay:s3cret@127.0.0.1:1"}, "connection refused"},
	} {
		var log lines
		c.cfg.Timeout = 10 * time.Second
		cat := openCatalog(t, Config{Registry: &c.cfg, Encoding: Confluent}, newClock().still(), log.logger())
		e, err := cat.Encoder(t.Context(), []byte("a"))
		said := log.String()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			said += e.DataSchema()
		} else {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
				continue
			}
			said += err.Error() + fmt.Sprintf("%+v", err)
			var later *Unavailable
			if errors.As(err, &later); strings.Contains(c.want, "401") && !strings.Contains(later.Hint, "password_file") {
				t.Errorf("%s: hint %q", c.name, later.Hint)
			}
		}
		for _, secret := range []string{"s3cret", "hunter2", "relay:"} {
			if strings.Contains(said, secret) {
				t.Errorf("%s: %q is in %q", c.name, secret, said)
			}
		}
	}
}

// TestPasswordIsReadAgain: a rotated secret needs no restart.
func TestPasswordIsReadAgain(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("a", 1, 1, idSchema("x"))
	f.setFault(func(w http.ResponseWriter, r *http.Request) {
		if _, pass, _ := r.BasicAuth(); pass != "new" {
			answer(401, `{"error_code":40101,"message":"Unauthorized"}`)(w, r)
			return
		}
		f.Registry.Handler().ServeHTTP(w, r)
	})
	pass, cl := "old", newClock()
	cat := openCatalog(t, Config{Encoding: Confluent, Registry: &RegistryConfig{URL: f.url, Username: "u", Timeout: 10 * time.Second,
		Password: func() (string, error) { return pass, nil }}}, cl.still(), nil)
	refusal(t, cat, "a")
	pass = "new"
	cl.advance(time.Minute)
	encode(t, cat, "a", `{"id":1}`)
}

func TestAnswersAreBoundedAndRedirectsNotFollowed(t *testing.T) {
	followed := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	defer elsewhere.Close()
	f := startRegistry(t, "")
	f.setFault(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusMovedPermanently)
	})
	cl := newClock()
	cat := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent}, cl.still(), nil)
	if _, later := refusal(t, cat, "a"); later == nil || !strings.Contains(later.Hint, "redirects") {
		t.Errorf("%+v", later)
	}
	if followed {
		t.Error("a redirect was followed")
	}
	sent := 0
	f.setFault(func(w http.ResponseWriter, _ *http.Request) {
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for sent = 0; sent < 10*maxAnswer; sent += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	cl.advance(time.Minute)
	if _, later := refusal(t, cat, "a"); later == nil {
		t.Error("an endless answer is taken for missing")
	}
	f.Server.Close() // waits for the handler
	if sent >= 10*maxAnswer {
		t.Error("all of an endless answer was read")
	}
}

func TestAddresses(t *testing.T) {
	for raw, want := range map[string]string{
		"http://r:8081":                     "http://r:8081",
		"https://r/apis/ccompat/v7/":        "https://r/apis/ccompat/v7",
		"http://user:pw@r:8081/x":           "http://r:8081/x",
		"r:8081":                            "",
		"ftp://user:pw@r":                   "",
		"http://":                           "",
		"http://user:pw@r/?key=pw":          "",
		"http://user:pw@r/#pw":              "",
		"http://user:p%zzw@r":               "",
		"http://user:pw@r:port-that-is-not": "",
	} {
		got, _, _, err := splitURL(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", raw, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: the error %q has the password", raw, err)
		}
	}
}
