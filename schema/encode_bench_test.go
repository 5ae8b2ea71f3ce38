package schema

import (
	"encoding/json"
	"testing"
)

// orderSchema and the two documents are the shape the relay is tuned for: an
// order event of 299 bytes, once in schema order and once as jsonb prints it,
// keys by length and then by bytes.
const orderSchema = `{"type":"record","name":"OrderPlaced","namespace":"shop.order","fields":[
 {"name":"order_id","type":{"type":"string","logicalType":"uuid"}},
 {"name":"customer_id","type":"long"},
 {"name":"status","type":{"type":"enum","name":"Status","symbols":["NEW","PAID","SENT"]}},
 {"name":"total","type":{"type":"bytes","logicalType":"decimal","precision":12,"scale":2}},
 {"name":"currency","type":"string"},
 {"name":"placed_at","type":{"type":"long","logicalType":"timestamp-micros"}},
 {"name":"note","type":["null","string"],"default":null},
 {"name":"items","type":{"type":"array","items":{"type":"record","name":"Item","fields":[
   {"name":"sku","type":"string"},{"name":"quantity","type":"int"},{"name":"price","type":"double"}]}}},
 {"name":"gift","type":"boolean"}]}`

const (
	orderInOrder = `{"order_id":"0f8fad5b-d9cb-469f-a165-70867728950e","customer_id":9007199254740993,"status":"PAID","total":1234.56,"currency":"EUR","placed_at":"2026-01-02T03:04:05.678901Z","note":"at door","items":[{"sku":"A-1001","quantity":2,"price":19.95},{"sku":"B-7","quantity":1,"price":1194.66}],"gift":true}`
	orderAsJSONB = `{"gift": true, "note": "at door", "items": [{"sku": "A-1001", "price": 19.95, "quantity": 2}, {"sku": "B-7", "price": 1194.66, "quantity": 1}], "total": 1234.56, "status": "PAID", "currency": "EUR", "order_id": "0f8fad5b-d9cb-469f-a165-70867728950e", "placed_at": "2026-01-02T03:04:05.678901Z", "customer_id": 9007199254740993}`
)

func BenchmarkAppend(b *testing.B) {
	for _, bench := range []struct{ name, doc string }{
		{"schema_order", orderInOrder},
		{"jsonb_order", orderAsJSONB},
	} {
		b.Run(bench.name, func(b *testing.B) {
			e := compile(b, orderSchema)
			doc := []byte(bench.doc)
			var dst []byte
			var err error
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if dst, err = e.Append(dst[:0], doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The same document through encoding/json's tree, as a yardstick of what reading
// it costs without any Avro.
func BenchmarkUnmarshal(b *testing.B) {
	doc := []byte(orderInOrder)
	b.ReportAllocs()
	for b.Loop() {
		var v any
		if err := json.Unmarshal(doc, &v); err != nil {
			b.Fatal(err)
		}
	}
}
