package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// diskCache keeps what a registry answered. Two kinds of entries are
// immutable, as the registry's own: an id's schema, and the id of a text under
// a subject. The third, which id was a subject's latest, is replaced whenever
// the registry says so, and read only while it is away.
//
// Every entry is a file of its own, written whole and renamed into place, with
// a digest before its content: one that was cut, changed or renamed is
// ignored, with a warning, and asked for again. Entries carry the registry's
// address, so several registries and several relays may share a folder. A
// registry rebuilt under the same address with other ids needs an emptied
// folder. A nil cache keeps nothing.
type diskCache struct {
	dir      string
	registry string
	log      *slog.Logger
}

type (
	// schemaEntry is an id's schema.
	schemaEntry struct {
		Registry string   `json:"registry"`
		ID       int      `json:"id"`
		GUID     string   `json:"guid,omitempty"`
		Text     string   `json:"text"`
		Refs     []string `json:"refs,omitempty"` // texts, each after those it refers to
	}
	// lookupEntry is what a text is called under a subject.
	lookupEntry struct {
		Registry string `json:"registry"`
		Subject  string `json:"subject"`
		Digest   string `json:"digest"` // of the text and of the texts it refers to
		ID       int    `json:"id"`
		Version  int    `json:"version"`
		GUID     string `json:"guid,omitempty"`
	}
	// latestEntry is which schema a subject had last.
	latestEntry struct {
		Registry string `json:"registry"`
		Subject  string `json:"subject"`
		ID       int    `json:"id"`
		Version  int    `json:"version"`
	}
)

const (
	cacheMagic  = "tailer-schema-1 "
	tempPrefix  = ".new-"
	tempExpires = time.Hour
)

// openCache makes the folder where it is missing and clears what a crash left.
func openCache(dir, registry string, log *slog.Logger) (*diskCache, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make schema cache folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read schema cache folder: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		// A younger one may be another relay's, about to be renamed.
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > tempExpires {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return &diskCache{dir: dir, registry: registry, log: log}, nil
}

func (c *diskCache) path(kind string, key ...string) string {
	h := sha256.New()
	for _, k := range append([]string{c.registry}, key...) {
		fmt.Fprintf(h, "%d:%s", len(k), k)
	}
	return filepath.Join(c.dir, kind+"-"+hex.EncodeToString(h.Sum(nil)[:16])+".json")
}

func (c *diskCache) schema(id int) (e schemaEntry, ok bool) {
	if c == nil || !c.load(c.path("schema", fmt.Sprint(id)), &e) {
		return schemaEntry{}, false
	}
	return e, e.Registry == c.registry && e.ID == id && e.Text != ""
}

func (c *diskCache) keepSchema(e schemaEntry) {
	if c == nil {
		return
	}
	e.Registry = c.registry
	c.store(c.path("schema", fmt.Sprint(e.ID)), e)
}

func (c *diskCache) lookup(subject, digest string) (e lookupEntry, ok bool) {
	if c == nil || !c.load(c.path("lookup", subject, digest), &e) {
		return lookupEntry{}, false
	}
	return e, e.Registry == c.registry && e.Subject == subject && e.Digest == digest && e.ID > 0
}

func (c *diskCache) keepLookup(e lookupEntry) {
	if c == nil {
		return
	}
	e.Registry = c.registry
	c.store(c.path("lookup", e.Subject, e.Digest), e)
}

func (c *diskCache) latest(subject string) (e latestEntry, ok bool) {
	if c == nil || !c.load(c.path("latest", subject), &e) {
		return latestEntry{}, false
	}
	return e, e.Registry == c.registry && e.Subject == subject && e.ID > 0
}

func (c *diskCache) keepLatest(e latestEntry) {
	if c == nil {
		return
	}
	e.Registry = c.registry
	c.store(c.path("latest", e.Subject), e)
}

// load reads one entry; a missing one is ordinary, a bad one is worth a line.
func (c *diskCache) load(path string, into any) bool {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		err = openEntry(data, into)
	}
	if err != nil {
		c.log.Warn("schema cache file ignored", "file", path, "err", err)
		return false
	}
	return true
}

func openEntry(data []byte, into any) error {
	head, body, ok := bytes.Cut(data, []byte{'\n'})
	if !ok || !bytes.HasPrefix(head, []byte(cacheMagic)) {
		return errors.New("it does not begin as a cache file does")
	}
	sum := sha256.Sum256(body)
	if string(head[len(cacheMagic):]) != hex.EncodeToString(sum[:]) {
		return errors.New("its content does not have its digest")
	}
	return json.Unmarshal(body, into)
}

// store writes one entry. A cache that cannot be written costs a warning, not
// an event: the answer itself is at hand.
func (c *diskCache) store(path string, v any) {
	if err := writeEntry(path, v); err != nil {
		c.log.Warn("schema cache file not written; the relay will need the registry at its next start", "file", path, "err", err)
	}
}

func writeEntry(path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once renamed, as it should
	_, err = fmt.Fprintf(f, "%s%s\n%s", cacheMagic, hex.EncodeToString(sum[:]), body)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
