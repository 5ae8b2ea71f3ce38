package schema

import (
	"errors"
	"fmt"
	"net/url"
	"sort"
	"strings"
	"sync/atomic"
	"time"
)

// Encoding is the form of a record's value.
type Encoding int

const (
	JSON            Encoding = iota // the payload's text, validated
	SingleObject                    // Avro single-object: C3 01, fingerprint, body
	Confluent                       // 00, schema id, body
	ConfluentHeader                 // body; the schema's GUID stands in a header
)

func (e Encoding) String() string {
	switch e {
	case JSON:
		return "json"
	case SingleObject:
		return "single-object"
	case Confluent:
		return "confluent"
	case ConfluentHeader:
		return "confluent-header"
	}
	return fmt.Sprintf("Encoding(%d)", int(e))
}

// needsID tells whether a value names its schema as the registry does.
func (e Encoding) needsID() bool { return e == Confluent || e == ConfluentHeader }

// Config says where schemas come from and what is made of them. At least one
// of Dir and Registry is set.
type Config struct {
	Dir         string // a folder of <type>.avsc files
	Registry    *RegistryConfig
	Types       map[string]TypeConfig
	Encoding    Encoding
	DropUnknown bool
	Dropped     *atomic.Uint64 // counts what DropUnknown dropped; nil: nobody asks
	// Subject is the template of a type's registry subject: {type}, and with
	// Dir also {record}, the full name of the file's schema. "" is "{type}".
	Subject string
	// CacheDir holds what the registry answered, so that the relay starts and
	// runs without it. "" keeps nothing.
	CacheDir string
}

// TypeConfig overrides what follows from a type's name.
type TypeConfig struct {
	File    string // path below Dir
	Subject string
	Topic   string // not used here; routing reads it
}

// RegistryConfig is a Confluent-compatible schema registry.
type RegistryConfig struct {
	URL      string // base address, which may have a path; credentials in it are used when Username is empty
	Username string
	Password func() (string, error) // called for every request; nil: none
	Timeout  time.Duration          // of one request; 0: 5 s
}

// NotFound says that a source was asked and has no schema for a type. It is
// permanent for the record at hand, though the source is asked again later.
type NotFound struct {
	Type  string
	Where string // where it was looked for
}

func (e *NotFound) Error() string {
	return fmt.Sprintf("no schema for type %q: %s", clip(e.Type, 100), e.Where)
}

// Unavailable says that a type's schema could not be had now: the registry is
// away, refuses, or holds something that cannot be used. It says nothing about
// the record, which has to wait. Until RetryAt the same error is returned
// without asking anyone.
type Unavailable struct {
	Type, Subject string
	RetryAt       time.Time
	Hint          string // what an operator may do; may be empty
	Err           error
}

func (e *Unavailable) Error() string {
	return fmt.Sprintf("schema of type %q (subject %q) cannot be had now: %v", clip(e.Type, 100), clip(e.Subject, 100), e.Err)
}

func (e *Unavailable) Unwrap() error { return e.Err }

// check validates what needs no file and no network, all errors together, and
// sets the default subject.
func (c *Config) check() error {
	var errs []error
	add := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if c.Dir == "" && c.Registry == nil {
		add("schema needs dir or registry; set schema.dir, schema.registry.url, or schema.mode: off")
	}
	if c.Encoding < JSON || c.Encoding > ConfluentHeader {
		add("schema.encoding: %v is unknown", c.Encoding)
	}
	if c.Encoding.needsID() && c.Registry == nil {
		add("schema.encoding: %v needs a registry; set schema.registry.url, or use single-object or json", c.Encoding)
	}
	if c.Registry != nil {
		if _, _, _, err := splitURL(c.Registry.URL); err != nil {
			errs = append(errs, err)
		}
	}
	if c.Subject == "" {
		c.Subject = "{type}"
	}
	if err := checkTemplate(c.Subject, c.Dir != ""); err != nil {
		add("schema.registry.subject: %w", err)
	}
	bySubject, byFile := map[string]string{}, map[string]string{}
	for _, typ := range sortedKeys(c.Types) {
		t := c.Types[typ]
		if t.File != "" && c.Dir == "" {
			add("schema.types.%s.file: %s needs schema.dir", typ, t.File)
		}
		collides := func(field, value string, seen map[string]string) {
			if value == "" {
				return
			}
			if other, ok := seen[value]; ok {
				add("schema.types.%s.%s: %s is already that of type %q; two types may not share a schema", typ, field, value, other)
			}
			seen[value] = typ
		}
		collides("subject", t.Subject, bySubject)
		collides("file", t.File, byFile)
	}
	return errors.Join(errs...)
}

func checkTemplate(s string, withFiles bool) error {
	rest := strings.ReplaceAll(s, "{type}", "")
	distinct := rest != s
	if without := strings.ReplaceAll(rest, "{record}", ""); without != rest {
		if !withFiles {
			return fmt.Errorf("%q: {record} needs schema.dir, since only a file says its record's name before the registry is asked", s)
		}
		rest, distinct = without, true
	}
	if strings.ContainsAny(rest, "{}") {
		return fmt.Errorf("%q: only {type} and {record} can stand in braces", s)
	}
	if !distinct {
		return fmt.Errorf("%q has neither {type} nor {record}: all types would share one schema", s)
	}
	return nil
}

// subject gives a type's subject; record is its schema's full name, where known.
func (c *Config) subject(typ, record string) string {
	if s := c.Types[typ].Subject; s != "" {
		return s
	}
	return strings.NewReplacer("{type}", typ, "{record}", record).Replace(c.Subject)
}

// splitURL takes the credentials out of a registry's address. Neither the
// address it returns nor its error ever holds them.
func splitURL(raw string) (base, user, password string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", "", "", errors.New("schema.registry.url is not an address; it looks like http://registry:8081")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", "", "", errors.New("schema.registry.url must begin with http:// or https:// and name a host")
	}
	if u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
		return "", "", "", errors.New("schema.registry.url must have no query and no fragment")
	}
	if u.User != nil {
		user = u.User.Username()
		password, _ = u.User.Password()
		u.User = nil
	}
	return strings.TrimRight(u.String(), "/"), user, password, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
