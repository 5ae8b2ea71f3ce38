package schema

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder writes files below a new folder.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// loadError expects an error with every one of wants in it, each on one line.
func loadError(t *testing.T, cfg Config, wants ...string) {
	t.Helper()
	_, err := newCatalog(t.Context(), cfg, new(lines).logger(), newClock().still())
	if err == nil {
		t.Errorf("%+v loads; want %q", cfg, wants)
		return
	}
	all := strings.Split(err.Error(), "\n")
	for _, want := range wants {
		found := false
		for _, line := range all {
			found = found || strings.Contains(line, want)
		}
		if !found {
			t.Errorf("no line with %q in:\n%v", want, err)
		}
	}
	if len(all) != len(wants) {
		t.Errorf("%d lines, want %d:\n%v", len(all), len(wants), err)
	}
}

const (
	moneySchema  = `{"type":"record","name":"Money","namespace":"shop","fields":[{"name":"cents","type":"long"},{"name":"currency","type":"Currency"}]}`
	currencies   = `{"type":"enum","name":"Currency","namespace":"shop","symbols":["EUR","USD"]}`
	placedSchema = `{"type":"record","name":"Placed","namespace":"shop.order","fields":[{"name":"total","type":"shop.Money"},{"name":"also","type":["null","shop.Currency"],"default":null}]}`
)

func TestFolderResolvesReferences(t *testing.T) {
	// The names are such that what is needed comes last in every order of reading.
	dir := folder(t, map[string]string{
		"a/order.placed.v1.avsc": placedSchema,
		"b/m.avsc":               moneySchema,
		"z.avsc":                 currencies,
		"readme.txt":             "not a schema",
		"old.avsc~":              "{",
	})
	c := openCatalog(t, Config{Dir: dir, Encoding: SingleObject}, newClock().still(), nil)
	got := encode(t, c, "order.placed.v1", `{"also":"USD","total":{"currency":"EUR","cents":-1}}`)
	if got[:2] != "\xc3\x01" || got[10:] != "\x01\x00\x02\x02" {
		t.Errorf("%q", got)
	}
	// A file that defines names for others is a type like any other.
	if got := encode(t, c, "z", `"USD"`); got[10:] != "\x02" {
		t.Errorf("%q", got)
	}
	missing, _ := refusal(t, c, "order.placed.v2")
	if missing == nil || missing.Type != "order.placed.v2" || !strings.Contains(missing.Where, dir) {
		t.Errorf("%+v", missing)
	}
	e, err := c.Encoder(t.Context(), []byte("order.placed.v1"))
	if err != nil || e.DataSchema() != "" || e.SchemaHeader() != nil {
		t.Errorf("%q, %q, %v", e.DataSchema(), e.SchemaHeader(), err)
	}
}

func TestFolderErrorsComeTogether(t *testing.T) {
	dir := folder(t, map[string]string{
		"good.v1.avsc":     `"long"`,
		"syntax.v1.avsc":   `{"type":`,
		"default.v1.avsc":  `{"type":"record","name":"D","fields":[{"name":"count","type":"int","default":"none"}]}`,
		"lost.v1.avsc":     `{"type":"record","name":"L","fields":[{"name":"m","type":"shop.Nothing"}]}`,
		"ring1.avsc":       `{"type":"record","name":"Ring1","fields":[{"name":"x","type":"Ring2"}]}`,
		"ring2.avsc":       `{"type":"record","name":"Ring2","fields":[{"name":"x","type":"Ring3"}]}`,
		"ring3.avsc":       `{"type":"record","name":"Ring3","fields":[{"name":"x","type":["null","Ring1"]}]}`,
		"intoring.avsc":    `{"type":"record","name":"Into","fields":[{"name":"x","type":"Ring1"}]}`,
		"twice1.avsc":      `{"type":"enum","name":"Twice","symbols":["A"]}`,
		"twice2.avsc":      `{"type":"enum","name":"Twice","symbols":["B"]}`,
		"wants.v1.avsc":    `{"type":"record","name":"W","fields":[{"name":"x","type":"Twice"}]}`,
		"sub/good.v1.avsc": `"int"`,
	})
	loadError(t, Config{Dir: dir, Types: map[string]TypeConfig{"other": {File: "nowhere.avsc"}}},
		"syntax.v1.avsc: ",
		"default.v1.avsc: ",
		"lost.v1.avsc: it refers to shop.Nothing",
		"circle: ring1.avsc -> ring2.avsc -> ring3.avsc -> ring1.avsc",
		"wants.v1.avsc: it refers to Twice, which is defined in twice1.avsc and twice2.avsc",
		`sub/good.v1.avsc: its type "good.v1" is already that of good.v1.avsc`,
		"schema.types.other.file: nowhere.avsc is not among",
	)
	_, err := newCatalog(t.Context(), Config{Dir: dir}, new(lines).logger(), newClock().still())
	for _, field := range []string{"count"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("no field %s in %v", field, err)
		}
	}
}

func TestFolderThatIsNone(t *testing.T) {
	loadError(t, Config{Dir: filepath.Join(t.TempDir(), "missing")}, "no such file")
	loadError(t, Config{Dir: folder(t, map[string]string{"x.json": "{}"})}, "has no .avsc file")
}

// TestFolderOfAConfigMap has the links that Kubernetes makes for a mounted
// ConfigMap: every file must be read once.
func TestFolderOfAConfigMap(t *testing.T) {
	dir := folder(t, map[string]string{"..2026_01_02/order.v1.avsc": `"long"`})
	for link, to := range map[string]string{"..data": "..2026_01_02", "order.v1.avsc": "..data/order.v1.avsc"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	entry := filepath.Join(t.TempDir(), "schemas")
	if err := os.Symlink(dir, entry); err != nil {
		t.Fatal(err)
	}
	c := openCatalog(t, Config{Dir: entry, Encoding: JSON}, newClock().still(), nil)
	if got := encode(t, c, "order.v1", " 12 "); got != " 12 " {
		t.Errorf("%q", got)
	}
	if len(c.files) != 1 {
		t.Errorf("%d files", len(c.files))
	}
}

func TestCase_W13_TypeNamesOfAFolder(t *testing.T) {
	dir := folder(t, map[string]string{
		"order.placed-v1.avsc": `"long"`,
		"9lives.avsc":          `"string"`,
		"订单.avsc":              `"boolean"`,
		"created.avsc":         `"int"`,
		"deep/down/a b.avsc":   `"null"`,
	})
	c := openCatalog(t, Config{Dir: dir, Encoding: JSON, Types: map[string]TypeConfig{"Order$Created/v1": {File: "created.avsc"}, "routed.only": {Topic: "t"}}}, newClock().still(), nil)
	for typ, json := range map[string]string{"order.placed-v1": "1", "9lives": `"x"`, "订单": "true", "Order$Created/v1": "2", "a b": "null"} {
		if got := encode(t, c, typ, json); got != json {
			t.Errorf("%s: %q", typ, got)
		}
	}
	// The file has the one type it was given, and nothing is read into a name.
	for _, typ := range []string{"created", "order.placed_v1", "order.placed-v1.avsc", "Order$Created", "routed.only", "../x", "down/a b"} {
		if missing, _ := refusal(t, c, typ); missing == nil {
			t.Errorf("%s is not missing", typ)
		}
	}
}

func TestCase_W13_TypesDoNotCollapse(t *testing.T) {
	dir := folder(t, map[string]string{"a.avsc": idSchema("x"), "b.avsc": `"int"`, "c.avsc": idSchema("x"), "d.avsc": `"int"`})
	registry := &RegistryConfig{URL: "http://127.0.0.1:1"}
	types := func(m map[string]TypeConfig) Config { return Config{Dir: dir, Types: m} }
	loadError(t, types(map[string]TypeConfig{"x": {File: "a.avsc"}, "y": {File: "a.avsc"}}), "schema.types.y.file: a.avsc is already that of type \"x\"")
	loadError(t, types(map[string]TypeConfig{"x": {File: "a.avsc"}, "y": {File: "./a.avsc"}}), "schema.types.y.file: ./a.avsc is already that of another type")
	loadError(t, types(map[string]TypeConfig{"a": {File: "b.avsc"}}), `a.avsc: its type "a" is already that of b.avsc`)
	loadError(t, Config{Registry: registry, Types: map[string]TypeConfig{"x": {Subject: "s"}, "y": {Subject: "s"}}}, "schema.types.y.subject: s is already that of type \"x\"")
	loadError(t, Config{Registry: registry, Subject: "all"}, `schema.registry.subject: "all" has neither {type} nor {record}`)
	loadError(t, Config{Registry: registry, Dir: dir, Encoding: Confluent, Subject: "{record}"},
		"b.avsc: \"{record}\" gives no subject", "c.avsc: its subject x.Rec is already that of type \"a\"", "d.avsc: \"{record}\" gives no subject")
	loadError(t, Config{Registry: registry, Dir: dir, Encoding: Confluent, Types: map[string]TypeConfig{"a": {Subject: "b"}}}, "b.avsc: its subject b is already that of type \"a\"")
	loadError(t, types(map[string]TypeConfig{"nofile": {Subject: "s"}}), "schema.types.nofile: "+dir+" has no nofile.avsc")
}

func TestConfigurationErrorsComeTogether(t *testing.T) {
	loadError(t, Config{}, "schema needs dir or registry")
	loadError(t, Config{Dir: "x", Encoding: Confluent}, "schema.encoding: confluent needs a registry")
	loadError(t, Config{Dir: "x", Encoding: Encoding(9)}, "Encoding(9) is unknown")
	loadError(t, Config{Registry: &RegistryConfig{URL: "http://u:pw@r?x=1"}, Subject: "{topic}-{type}", Types: map[string]TypeConfig{"t": {File: "t.avsc"}}},
		"schema.registry.url must have no query", "only {type} and {record} can stand in braces", "schema.types.t.file: t.avsc needs schema.dir")
	loadError(t, Config{Registry: &RegistryConfig{URL: "http://r"}, Subject: "{record}"}, "{record} needs schema.dir")
}

func TestNotFoundDoesNotShowAHugeName(t *testing.T) {
	dir := folder(t, map[string]string{"a.avsc": `"int"`})
	c := openCatalog(t, Config{Dir: dir}, newClock().still(), nil)
	_, err := c.Encoder(t.Context(), []byte(strings.Repeat("x", 1<<20)))
	var missing *NotFound
	if !errors.As(err, &missing) || len(err.Error()) > 1000 {
		t.Errorf("%d bytes of error", len(err.Error()))
	}
}
