package sink

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// A copy of a record is the record, in every profile, dead letters made at once or later included.
func TestCopiedRecords(t *testing.T) {
	for _, profile := range []Profile{CloudEvents, Debezium, Plain} {
		cfg := config(profile)
		cfg.HeaderColumns = []string{"extra"}
		builder, err := NewBuilder(cfg, verbatimEncoder{})
		if err != nil {
			t.Fatal(err)
		}
		from := builder.NewBatch()
		for i := range 40 {
			e := Event{CommitLSN: 77, Ordinal: uint64(i), CommitTime: committed, ID: fmt.Appendf(nil, "id%d", i),
				Key: []byte("k"), Type: []byte("order.placed.v1"), Payload: fmt.Appendf(nil, `{"n":%d}`, i), AggregateType: []byte("order"),
				Headers: []byte(`{"one":"1","empty":"","more":"` + strings.Repeat("x", i) + `"}`), HeaderColumns: [][]byte{nil}}
			switch i % 8 {
			case 1:
				e.Key = nil
			case 2:
				e.Key = []byte{}
			case 3:
				e.Payload = nil
			case 4:
				e.Type = []byte("no topic at all")
			case 5:
				e.ID = nil
			case 6:
				e.HeaderColumns = [][]byte{[]byte("v")}
			case 7:
				e.CorrelationID, e.Tenant = []byte("k"), []byte{}
			}
			if err := from.Add(&e); err != nil {
				t.Fatal(err)
			}
		}
		to := builder.NewBatch()
		for i := range from.records {
			to.copyRecord(from, i)
		}
		want, got := from.seal(), to.seal()
		rej := &Rejection{Reason: ReasonRefused, Message: "no"}
		for i := range want {
			if !reflect.DeepEqual(want[i], got[i]) {
				t.Fatalf("%v: record %d:\n%+v\n%+v", profile, i, want[i], got[i])
			}
			if w, g := from.deadLetter(i, rej), to.deadLetter(i, rej); !reflect.DeepEqual(w, g) {
				t.Fatalf("%v: dead letter %d:\n%+v\n%+v", profile, i, w, g)
			}
		}
		if to.Len() != from.Len() || len(to.slab) > len(from.slab) {
			t.Errorf("%v: the copy has %d records in %d bytes, the original %d in %d", profile, to.Len(), len(to.slab), from.Len(), len(from.slab))
		}
	}
}
