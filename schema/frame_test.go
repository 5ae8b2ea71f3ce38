package schema

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func TestCase_W32_WireFormats(t *testing.T) {
	enc, err := Compile([]byte(idSchema("shop")))
	if err != nil {
		t.Fatal(err)
	}
	fp := enc.Fingerprint()
	const payload, body = ` {"id": 64} `, "8001"
	const guid = "00112233-4455-6677-8899-aaBBccDDeeff"
	for _, c := range []struct {
		name     string
		encoding Encoding
		id       int
		want     string // hex
		header   string // hex
		schema   string
	}{
		{"confluent, id 1", Confluent, 1, "0000000001" + body, "", "http://r/x/schemas/ids/1"},
		{"confluent, id 256", Confluent, 256, "0000000100" + body, "", "http://r/x/schemas/ids/256"},
		{"confluent, id 2^31-1", Confluent, 1<<31 - 1, "007fffffff" + body, "", "http://r/x/schemas/ids/2147483647"},
		{"header", ConfluentHeader, 7, body, "0100112233445566778899aabbccddeeff", "http://r/x/schemas/ids/7"},
		{"single object", SingleObject, 0, "c301" + hex.EncodeToString(fp[:]) + body, "", ""},
		{"json", JSON, 0, hex.EncodeToString([]byte(payload)), "", ""},
		{"json, from a registry", JSON, 9, hex.EncodeToString([]byte(payload)), "", "http://r/x/schemas/ids/9"},
	} {
		e, err := newTypeEncoder(enc, c.encoding, c.id, guid, "http://r/x")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := e.Append([]byte("before"), []byte(payload))
		if err != nil || hex.EncodeToString(bytes.TrimPrefix(got, []byte("before"))) != c.want {
			t.Errorf("%s: %x, %v; want %s", c.name, got, err, c.want)
		}
		if hex.EncodeToString(e.SchemaHeader()) != c.header || (e.SchemaHeader() == nil) != (c.header == "") || e.DataSchema() != c.schema {
			t.Errorf("%s: header %x, data schema %q", c.name, e.SchemaHeader(), e.DataSchema())
		}
		got, err = e.Append([]byte("before"), []byte(`{"id": "64"}`))
		var invalid *Invalid
		if !errors.As(err, &invalid) || string(got) != "before" {
			t.Errorf("%s: an invalid payload gave %q, %v", c.name, got, err)
		}
		room, json := make([]byte, 0, 256), []byte(payload)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := e.Append(room, json); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

func TestFramesRefuse(t *testing.T) {
	enc, err := Compile([]byte(`"int"`))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []int{0, -1, 1 << 31} {
		if _, err := newTypeEncoder(enc, Confluent, id, "", ""); err == nil {
			t.Errorf("schema id %d fits four bytes", id)
		}
	}
	if _, err := newTypeEncoder(enc, ConfluentHeader, 1, "", ""); !errors.Is(err, errNoGUID) {
		t.Errorf("no GUID: %v", err)
	}
	for _, guid := range []string{"00112233-4455-6677-8899-aabbccddeef", "00112233445566778899aabbccddeeff", "0g112233-4455-6677-8899-aabbccddeeff", strings.Repeat("-", 36)} {
		if _, err := newTypeEncoder(enc, ConfluentHeader, 1, guid, ""); err == nil {
			t.Errorf("GUID %s is taken", guid)
		}
	}
	if _, err := newTypeEncoder(enc, Encoding(7), 1, "", ""); err == nil {
		t.Error("an unknown encoding is taken")
	}
}

func TestEncodingNames(t *testing.T) {
	for e, want := range map[Encoding]string{JSON: "json", SingleObject: "single-object", Confluent: "confluent", ConfluentHeader: "confluent-header"} {
		if e.String() != want {
			t.Errorf("%s, want %s", e, want)
		}
	}
}
