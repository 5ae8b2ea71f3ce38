package schema

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
)

// TypeEncoder makes the record value of one event type: an Encoder and the
// frame around its body. It is immutable and safe for concurrent use.
type TypeEncoder struct {
	encoder    *Encoder
	text       bool   // the value is the payload's text; the body is made only to validate it
	prefix     []byte // stands before the body
	header     []byte // value of __value_schema_id
	dataSchema string
	id         int // in the registry; 0: not known
}

// errNoGUID is an answer without the GUID that confluent-header needs.
var errNoGUID = errors.New("the registry gives no GUID for its schemas, which encoding confluent-header needs")

const hintNoGUID = "use a registry that gives GUIDs (Confluent 8 or newer), or set schema.encoding: confluent"

// Framing bytes, as their specifications name them.
const (
	confluentMagic = 0x00 // before a schema id, in the value
	guidMagic      = 0x01 // before a schema GUID, in the header
)

// newTypeEncoder frames enc; id, guid and url are the registry's, where it was
// asked.
func newTypeEncoder(enc *Encoder, encoding Encoding, id int, guid, url string) (*TypeEncoder, error) {
	t := &TypeEncoder{encoder: enc, id: id}
	if id > 0 {
		t.dataSchema = fmt.Sprintf("%s/schemas/ids/%d", url, id)
	}
	switch encoding {
	case JSON:
		t.text = true
	case SingleObject:
		fp := enc.Fingerprint()
		t.prefix = append([]byte{0xC3, 0x01}, fp[:]...)
	case Confluent:
		if id <= 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("schema id %d does not fit the wire format", id)
		}
		t.prefix = []byte{confluentMagic, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
	case ConfluentHeader:
		if guid == "" {
			return nil, errNoGUID
		}
		raw, err := hex.DecodeString(strings.ReplaceAll(guid, "-", ""))
		if err != nil || len(raw) != 16 || len(guid) != 36 {
			return nil, fmt.Errorf("the registry's GUID %.60q is none", guid)
		}
		t.header = append([]byte{guidMagic}, raw...)
	default:
		return nil, fmt.Errorf("encoding %v is unknown", encoding)
	}
	return t, nil
}

// Append appends the value for a payload: frame and Avro body, or for encoding
// json the payload's text, once it is known to fit its schema. On an error,
// which is an *Invalid, dst is returned with its old length and undefined
// bytes beyond it. json must not lie in dst's spare capacity.
func (t *TypeEncoder) Append(dst, json []byte) ([]byte, error) {
	start := len(dst)
	out, err := t.encoder.Append(append(dst, t.prefix...), json)
	if err != nil {
		return dst[:start], err
	}
	if t.text {
		return append(out[:start], json...), nil
	}
	return out, nil
}

// SchemaHeader is the value of the record header __value_schema_id, nil where
// the encoding has none. Not to be changed.
func (t *TypeEncoder) SchemaHeader() []byte { return t.header }

// DataSchema is the registry's address of the schema, without credentials, ""
// where there is none.
func (t *TypeEncoder) DataSchema() string { return t.dataSchema }
