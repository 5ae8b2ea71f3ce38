package decoder

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
)

// captures are recordings of real servers, made by testdata/capture.
var captures = []string{"pg14", "pg15", "pg15-binary", "pg18"}

func readFrames(t testing.TB, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".frames"))
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		frame, err := hex.DecodeString(line)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		frames = append(frames, frame)
	}
	if len(frames) == 0 {
		t.Fatalf("%s holds no frames", name)
	}
	return frames
}

// The functions below write messages as the protocol documentation lays them
// out, for tests that need one a real server would not send.

func u16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
func u32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
func u64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }
func str(b []byte, s string) []byte { return append(append(b, s...), 0) }

func beginFrame(lsn pglogrepl.LSN, micros int64, xid uint32) []byte {
	return u32(u64(u64([]byte{'B'}, uint64(lsn)), uint64(micros)), xid)
}

func commitFrame(lsn, end pglogrepl.LSN, micros int64) []byte {
	return u64(u64(u64([]byte{'C', 0}, uint64(lsn)), uint64(end)), uint64(micros))
}

func relationFrame(id uint32, namespace, name string, columns ...RelationColumn) []byte {
	b := append(str(str(u32([]byte{'R'}, id), namespace), name), 'd')
	b = u16(b, uint16(len(columns)))
	for _, c := range columns {
		flags := byte(0)
		if c.Key {
			flags = 1
		}
		b = u32(u32(str(append(b, flags), c.Name), c.TypeOID), uint32(c.TypeModifier))
	}
	return b
}

func insertFrame(id uint32, columns ...Column) []byte {
	return appendTuple(append(u32([]byte{'I'}, id), 'N'), columns)
}

func appendTuple(b []byte, columns []Column) []byte {
	b = u16(b, uint16(len(columns)))
	for _, c := range columns {
		b = append(b, c.Kind)
		if c.Kind == ColumnText || c.Kind == ColumnBinary {
			b = append(u32(b, uint32(len(c.Data))), c.Data...)
		}
	}
	return b
}

func text(s string) Column { return Column{Kind: ColumnText, Data: []byte(s)} }

// decodeAll feeds frames that must all be accepted.
func decodeAll(t testing.TB, d *Decoder, frames ...[]byte) (last Message) {
	t.Helper()
	for _, frame := range frames {
		if err := d.Decode(frame, &last); err != nil {
			t.Fatalf("%x: %v", frame, err)
		}
	}
	return last
}
