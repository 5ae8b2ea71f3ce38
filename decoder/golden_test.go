package decoder

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden decodes what a real server sent and compares the result with a
// text that was read by eye once.
func TestGolden(t *testing.T) {
	for _, name := range captures {
		t.Run(name, func(t *testing.T) {
			var d Decoder
			var m Message
			var out strings.Builder
			for _, frame := range readFrames(t, name) {
				if err := d.Decode(frame, &m); err != nil {
					t.Fatalf("%x: %v", frame, err)
				}
				render(&out, &m)
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, expected := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
			for i := range max(len(got), len(expected)) {
				if i >= len(got) || i >= len(expected) || got[i] != expected[i] {
					t.Fatalf("%s:%d differs\n got %q\nwant %q", path, i+1, got[min(i, len(got)):], expected[min(i, len(expected)):])
				}
			}
		})
	}
}

func render(w *strings.Builder, m *Message) {
	if m.CommitLSN != 0 && m.Kind != KindBegin && m.Kind != KindCommit {
		w.WriteString("  ")
	}
	w.WriteString(m.Kind.String())
	switch m.Kind {
	case KindBegin:
		fmt.Fprintf(w, " %s xid=%d at=%s", m.CommitLSN, m.XID, m.CommitTime.Format(time.RFC3339Nano))
	case KindCommit:
		fmt.Fprintf(w, " %s xid=%d at=%s end=%s", m.CommitLSN, m.XID, m.CommitTime.Format(time.RFC3339Nano), m.EndLSN)
	case KindRelation:
		fmt.Fprintf(w, " %d %q.%q identity=%c", m.Relation.ID, m.Relation.Namespace, m.Relation.Name, m.Relation.ReplicaIdentity)
		for _, c := range m.Relation.Columns {
			fmt.Fprintf(w, " %q:%d/%d", c.Name, c.TypeOID, c.TypeModifier)
			if c.Key {
				w.WriteString("(key)")
			}
		}
	case KindInsert, KindUpdate, KindDelete:
		fmt.Fprintf(w, " %s", m.Relation.Name)
		for _, c := range m.Columns {
			switch {
			case c.Data == nil:
				fmt.Fprintf(w, " %c", c.Kind)
			case len(c.Data) > 200:
				fmt.Fprintf(w, " %c:%q…(%d bytes)", c.Kind, c.Data[:10], len(c.Data))
			default:
				fmt.Fprintf(w, " %c:%q", c.Kind, c.Data)
			}
		}
	}
	w.WriteByte('\n')
}
