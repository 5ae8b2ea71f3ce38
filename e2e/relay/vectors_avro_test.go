package relay_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// avroVector is a payload, and what Java's Avro made of it.
type avroVector struct {
	Name        string
	Schema      json.RawMessage
	JSON        string
	Hex         string
	Fingerprint string
}

func (v avroVector) typ() string { return "vector." + v.Name + ".v1" }

// fingerprintOnly are payloads for the vectors that have none, with bodies
// written by hand after the specification.
var fingerprintOnly = map[string][2]string{
	"fp_doc_alias_default_order": {`{"f":1}`, "02"},
	"fp_namespaces":              {`{"x":"A","y":"\u0000\u0001\u0002\u0003","z":"A","w":"abcd"}`, "00" + "00010203" + "00" + "61626364"},
	"fp_logical":                 {`{"id":1,"name":"n","note":null,"amount":12.34,"at":"1970-01-01T00:00:00.000001Z"}`, "02" + "026e" + "00" + "0404d2" + "02"},
	"fp_string_java":             {`{"s":"a","m":{"k":"v"}}`, "0261" + "02026b027600"},
	"fp_unicode":                 {`"b"`, "02"},
	"fp_primitive_object":        {`[1]`, "020200"},
}

func avroVectors(t *testing.T) []avroVector {
	t.Helper()
	f, err := os.Open("../../schema/testdata/avro/vectors.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []avroVector
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v avroVector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		if own, ok := fingerprintOnly[v.Name]; ok {
			v.JSON, v.Hex = own[0], own[1]
		}
		all = append(all, v)
	}
	if len(all) != 39 {
		t.Fatalf("%d vectors", len(all))
	}
	return all
}

// Every vector in every encoding, byte for byte, from a row to a consumer. The
// relays of the encodings share table, publication and broker. Schema ids
// include the smallest and the largest, and those at which a byte order shows.
//
// Seen red with a fingerprint that is written big endian, and with an id that is
// written little endian.
func TestAvroVectors(t *testing.T) {
	t.Parallel()
	vectors := avroVectors(t)
	schemas := map[string]string{}
	registry := srfake.NewRegistry()
	server := httptest.NewServer(registry.Handler())
	t.Cleanup(server.Close)
	ids := map[string]int{}
	for i, v := range vectors {
		schemas[v.typ()] = string(v.Schema)
		id := map[int]int{0: 1, 1: 256, 2: math.MaxInt32, 3: 0x01020304}[i]
		if id == 0 {
			id = 1000 + i
		}
		ids[v.Name] = id
		registry.SeedSchema(v.typ(), 1, id, sr.Schema{Schema: string(v.Schema), Type: sr.TypeAvro})
	}
	o := newOutbox(t, outboxOptions{before: []string{jsonTable}, config: map[string]any{"postgres.slot": "setup"}})
	dir := schemaFolder(t, schemas)
	relays := map[string]harness.Config{
		"single-object":    {"dir": dir, "encoding": "single-object"},
		"json":             {"dir": dir},
		"confluent":        {"registry": harness.Config{"url": server.URL}},
		"confluent-dir":    {"registry": harness.Config{"url": server.URL}, "dir": dir},
		"confluent-header": {"registry": harness.Config{"url": server.URL}, "encoding": "confluent-header"},
	}
	for name, schema := range relays {
		slot := strings.ReplaceAll(name, "-", "_")
		config := o.config.With("postgres.slot", slot).With("schema", schema).With("routing.topic", name)
		o.init(config)
		o.run(config)
	}
	rows := map[string]string{}
	for _, v := range vectors {
		rows[v.Name] = o.insert(v.Name, v.typ(), v.JSON)
	}
	for name := range relays {
		t.Run(name, func(t *testing.T) {
			o := *o
			o.t = t
			records := o.read(len(vectors), name, strings.ReplaceAll(name, "-", "_")+".dlq")
			for _, v := range vectors {
				body, err := hex.DecodeString(v.Hex)
				if err != nil {
					t.Fatal(err)
				}
				r := records[rows[v.Name]]
				if r.Topic != name {
					why, _ := r.Header("dlq_message")
					t.Errorf("%s is a dead letter: %s", v.Name, why)
					continue
				}
				want, content := body, "application/avro"
				schemaHeader, dataSchema := "", fmt.Sprintf("%s/schemas/ids/%d", server.URL, ids[v.Name])
				switch name {
				case "json":
					want, content, dataSchema = []byte(v.JSON), "application/json", ""
				case "single-object":
					fingerprint, err := hex.DecodeString("c301" + v.Fingerprint)
					if err != nil {
						t.Fatal(err)
					}
					want, dataSchema = append(fingerprint, body...), ""
				case "confluent", "confluent-dir":
					want = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(ids[v.Name])), body...)
				case "confluent-header":
					stored, ok := registry.GetSchema(v.typ(), 1)
					guid, err := hex.DecodeString(strings.ReplaceAll(stored.GUID, "-", ""))
					if !ok || err != nil || len(guid) != 16 {
						t.Fatalf("the registry's GUID is %q, %v", stored.GUID, err)
					}
					schemaHeader = "\x01" + string(guid)
				}
				if !bytes.Equal(r.Value, want) {
					t.Errorf("%s: value\n%x, want\n%x", v.Name, r.Value, want)
				}
				for header, want := range map[string]string{"__value_schema_id": schemaHeader, "ce_dataschema": dataSchema, "content-type": content} {
					if got, ok := r.Header(header); got != want || ok != (want != "") {
						t.Errorf("%s: header %s is %q, want %q", v.Name, header, got, want)
					}
				}
				if name != "json" {
					decodeBody(t, string(v.Schema), r.Value[len(want)-len(body):])
				}
			}
		})
	}
}
