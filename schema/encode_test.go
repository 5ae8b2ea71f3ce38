package schema

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// vector is one line of testdata/avro/vectors.jsonl: schemas, payloads and
// bodies that Java's avro 1.12.2 wrote and fastavro 1.13.1 read back.
type vector struct {
	Name        string          `json:"name"`
	Schema      json.RawMessage `json:"schema"`
	JSON        *string         `json:"json"`
	Hex         string          `json:"hex"`
	Fingerprint string          `json:"fingerprint"`
	Canonical   string          `json:"canonical"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	f, err := os.Open("testdata/avro/vectors.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []vector
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(out) < 39 {
		t.Fatalf("%d vectors, want all 39", len(out))
	}
	return out
}

func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			e, err := Compile(v.Schema)
			if err != nil {
				t.Fatal(err)
			}
			if fp := e.Fingerprint(); hex.EncodeToString(fp[:]) != v.Fingerprint {
				t.Errorf("fingerprint %x, want %s", fp, v.Fingerprint)
			}
			if canonicalForm(e.root) != v.Canonical {
				t.Errorf("canonical form\n%s, want\n%s", canonicalForm(e.root), v.Canonical)
			}
			if v.JSON == nil {
				return
			}
			prefix := []byte("before")
			out, err := e.Append(prefix, []byte(*v.JSON))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(out), "before") {
				t.Fatalf("what dst held is gone: %x", out)
			}
			if got := hex.EncodeToString(out[len(prefix):]); got != v.Hex {
				t.Errorf("body\n%s, want\n%s", got, v.Hex)
			}
		})
	}
}

func compile(t testing.TB, text string, refs ...string) *Encoder {
	t.Helper()
	e, err := compileText(text, Options{}, refs...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

func compileText(text string, o Options, refs ...string) (*Encoder, error) {
	var others [][]byte
	for _, r := range refs {
		others = append(others, []byte(r))
	}
	return CompileOptions([]byte(text), o, others...)
}

// check is one document and what must come of it: bytes in hex, or an error.
type check struct{ doc, hex, err string }

func (e *Encoder) run(t *testing.T, checks []check) {
	t.Helper()
	for _, c := range checks {
		doc := c.doc
		out, err := e.Append(nil, []byte(doc))
		c.doc = clip(c.doc, 100)
		var invalid *Invalid
		switch {
		case err == nil && c.err != "":
			t.Errorf("%s: accepted as %x, want error %q", c.doc, out, c.err)
		case err == nil && hex.EncodeToString(out) != c.hex:
			t.Errorf("%s: %x, want %s", c.doc, out, c.hex)
		case err != nil && c.err == "":
			t.Errorf("%s: %v, want %s", c.doc, err, c.hex)
		case err != nil && !errors.As(err, &invalid):
			t.Errorf("%s: error is a %T", c.doc, err)
		case err != nil && !strings.Contains(err.Error(), c.err):
			t.Errorf("%s: error %q, want one with %q", c.doc, err, c.err)
		}
	}
}
