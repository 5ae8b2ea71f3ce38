package schema

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/avro"
)

// same compares what was meant with what was read.
func same(want, got any) bool {
	switch w := want.(type) {
	case float32:
		g, ok := got.(float32)
		return ok && math.Float32bits(w) == math.Float32bits(g)
	case float64:
		g, ok := got.(float64)
		return ok && math.Float64bits(w) == math.Float64bits(g)
	case time.Time:
		g, ok := got.(time.Time)
		return ok && w.Equal(g)
	case *big.Rat:
		g, ok := got.(*big.Rat)
		return ok && w.Cmp(g) == 0
	case []any:
		g, ok := got.([]any)
		if !ok || len(w) != len(g) {
			return false
		}
		for i := range w {
			if !same(w[i], g[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(w) != len(g) {
			return false
		}
		for k := range w {
			v, ok := g[k]
			if !ok || !same(w[k], v) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(want, got)
}

// TestOracle encodes random documents of random schemas and reads them back with
// twmb/avro.
func TestOracle(t *testing.T) {
	const schemas, docs = 300, 6
	m := &maker{Rand: rand.New(rand.NewPCG(1, 2))}
	encoded := 0
	for range schemas {
		text := m.schema(4, false)
		e, err := compileText(text, Options{})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		oracle, err := avro.Parse(text)
		if err != nil {
			t.Fatalf("%s: twmb/avro: %v", text, err)
		}
		if got, want := canonicalForm(e.root), string(oracle.Canonical()); got != want {
			t.Fatalf("%s: canonical form\n%s, twmb/avro has\n%s", text, got, want)
		}
		if fp, want := e.Fingerprint(), oracle.Fingerprint(avro.NewRabin()); !bytes.Equal(fp[:], reversed(want)) {
			t.Fatalf("%s: fingerprint %x, twmb/avro has %x", text, fp, want)
		}
		for range docs {
			doc, want := m.value(e.root, 8)
			body, err := e.Append(nil, []byte(doc))
			if err != nil {
				t.Fatalf("%v\nschema %s\ndocument %s", err, text, doc)
			}
			var got any
			rest, err := oracle.Decode(body, &got, avro.TaggedUnions())
			if err != nil || len(rest) > 0 {
				t.Fatalf("schema %s\ndocument %s\nbody %x: %v, %d bytes left", text, doc, body, err, len(rest))
			}
			if !same(want, got) {
				t.Fatalf("schema %s\ndocument %s\nread back as %#v\nwant %#v", text, doc, got, want)
			}
			encoded++
			if !json.Valid([]byte(doc)) {
				t.Fatalf("the test made %s, which is not JSON", doc)
			}
		}
	}
	if encoded != schemas*docs {
		t.Errorf("%d documents, want %d", encoded, schemas*docs)
	}
}

func reversed(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[len(b)-1-i] = b[i]
	}
	return out
}
