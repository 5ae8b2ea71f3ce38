package schema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "cache")
	var log lines
	c, err := openCache(dir, "http://r", log.logger())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
	c.keepSchema(schemaEntry{ID: 7, GUID: "g", Text: `"int"`, Refs: []string{"a", "b"}})
	c.keepLookup(lookupEntry{Subject: "s", Digest: "d", ID: 7, Version: 2})
	c.keepLatest(latestEntry{Subject: "s", ID: 7, Version: 2})
	c.keepLatest(latestEntry{Subject: "s", ID: 8, Version: 3})
	if e, ok := c.schema(7); !ok || e.Text != `"int"` || len(e.Refs) != 2 || e.GUID != "g" {
		t.Errorf("%+v, %v", e, ok)
	}
	if e, ok := c.lookup("s", "d"); !ok || e.ID != 7 || e.Version != 2 {
		t.Errorf("%+v, %v", e, ok)
	}
	if e, ok := c.latest("s"); !ok || e.ID != 8 {
		t.Errorf("%+v, %v", e, ok)
	}
	other := &diskCache{dir: dir, registry: "http://other", log: c.log}
	if _, ok := other.schema(7); ok {
		t.Error("another registry's id is taken")
	}
	other.keepSchema(schemaEntry{ID: 7, Text: `"long"`})
	if e, ok := c.schema(7); !ok || e.Text != `"int"` {
		t.Errorf("another registry's id took the place of ours: %+v", e)
	}
	if e, ok := c.schema(8); ok {
		t.Errorf("found what was never kept: %+v", e)
	}
	if e, ok := c.lookup("s", "e"); ok {
		t.Errorf("found what was never kept: %+v", e)
	}
	if e, ok := c.latest("t"); ok {
		t.Errorf("found what was never kept: %+v", e)
	}
	if log.String() != "" {
		t.Errorf("warned of nothing: %s", log.String())
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 || strings.HasPrefix(f.Name(), tempPrefix) {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
	var none *diskCache
	none.keepSchema(schemaEntry{ID: 1, Text: "x"})
	if _, ok := none.schema(1); ok {
		t.Error("no cache keeps something")
	}
}

func TestCorruptCacheIsIgnored(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("m", 1, 1, `{"type":"enum","name":"shop.C","symbols":["EUR"]}`)
	f.seed("a", 1, 2, `{"type":"record","name":"R","fields":[{"name":"c","type":"shop.C"}]}`, sr.SchemaReference{Name: "shop.C", Subject: "m", Version: 1})
	dir := t.TempDir()
	cfg := Config{Registry: patient(f.url), Encoding: Confluent, CacheDir: dir}
	const payload, want = `{"c":"EUR"}`, "\x00\x00\x00\x00\x02\x00"
	encode(t, openCatalog(t, cfg, newClock().still(), nil), "a", payload)
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"cut":      func(b []byte) []byte { return b[:len(b)/2] },
		"empty":    func([]byte) []byte { return nil },
		"one bit":  func(b []byte) []byte { b[len(b)-5] ^= 1; return b },
		"not ours": func([]byte) []byte { return []byte("{}") },
		"head":     func(b []byte) []byte { b[len(cacheMagic)] ^= 1; return b },
	} {
		for _, file := range files {
			good, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, spoil(append([]byte(nil), good...)), 0o600); err != nil {
				t.Fatal(err)
			}
			// Without the registry the entry is as good as none …
			f.setFault(answer(503, ""))
			var log lines
			c := openCatalog(t, cfg, newClock().still(), log.logger())
			if missing, later := refusal(t, c, "a"); missing != nil || later == nil {
				t.Errorf("%s: %v, %v", name, missing, later)
			}
			if !strings.Contains(log.String(), "schema cache file ignored") || !strings.Contains(log.String(), filepath.Base(file)) {
				t.Errorf("%s: no warning names the file: %s", name, log.String())
			}
			// … and with it, it is written anew.
			f.setFault(nil)
			if got := encode(t, openCatalog(t, cfg, newClock().still(), nil), "a", payload); got != want {
				t.Errorf("%s: %q", name, got)
			}
			if again, err := os.ReadFile(file); err != nil || string(again) != string(good) {
				t.Errorf("%s: not written anew (%v)", name, err)
			}
		}
	}
}

func TestCacheThatCannotBeWritten(t *testing.T) {
	f := startRegistry(t, "")
	f.seed("a", 1, 1, idSchema("x"))
	dir := filepath.Join(t.TempDir(), "cache")
	var log lines
	c := openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent, CacheDir: dir}, newClock().still(), log.logger())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	encode(t, c, "a", `{"id":1}`)
	if !strings.Contains(log.String(), "schema cache file not written") {
		t.Errorf("no warning: %s", log.String())
	}
	// A folder that cannot be made is said at the start, and nothing is kept.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c = openCatalog(t, Config{Registry: patient(f.url), Encoding: Confluent, CacheDir: filepath.Join(file, "x")}, newClock().still(), log.logger())
	if !strings.Contains(log.String(), "no schema cache") {
		t.Errorf("no warning: %s", log.String())
	}
	encode(t, c, "a", `{"id":1}`)
}

func TestCacheClearsWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{tempPrefix + "old": 2 * tempExpires, tempPrefix + "young": 0, "other": 2 * tempExpires} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openCache(dir, "http://r", new(lines).logger()); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}
