package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

func TestStatusFrame(t *testing.T) {
	var f statusFrame
	now := time.Date(2000, 1, 1, 0, 0, 1, 2000, time.UTC) // 1,000,002 µs
	f.fill(0x0123456789ABCDEF, now, true)
	lsn := "\x01\x23\x45\x67\x89\xAB\xCD\xEF"
	want := "d\x00\x00\x00\x26" + "r" + lsn + lsn + lsn + "\x00\x00\x00\x00\x00\x0F\x42\x42" + "\x01"
	if string(f[:]) != want {
		t.Errorf("got  %x\nwant %x", f[:], want)
	}
	if len(f)-5 != 34 {
		t.Errorf("a status of %d bytes", len(f)-5)
	}
	// The flag of the frame before must not stay.
	f.fill(1, now, false)
	if f[len(f)-1] != 0 {
		t.Error("asks for a reply")
	}
}

func xlogData(start, end uint64, micros int64, data string) []byte {
	b := []byte{frameXLogData}
	b = binary.BigEndian.AppendUint64(b, start)
	b = binary.BigEndian.AppendUint64(b, end)
	b = binary.BigEndian.AppendUint64(b, uint64(micros))
	return append(b, data...)
}

func keepalive(end uint64, micros int64, reply byte) []byte {
	b := []byte{frameKeepalive}
	b = binary.BigEndian.AppendUint64(b, end)
	b = binary.BigEndian.AppendUint64(b, uint64(micros))
	return append(b, reply)
}

func TestParseFrame(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89000, time.UTC)
	micros := at.UnixMicro() - pgEpochUnixMicro

	f, err := parseFrame(xlogData(1, 2, micros, "I..."))
	if err != nil || f.Keepalive || f.WALStart != 1 || f.WALEnd != 2 || f.sent != micros || string(f.Data) != "I..." {
		t.Errorf("XLogData: %+v, %v", f, err)
	}
	if cap(f.Data) != len(f.Data) {
		t.Error("appending to Data would write into the next frame")
	}
	f, err = parseFrame(keepalive(1<<33, micros, 1))
	if err != nil || !f.Keepalive || f.WALEnd != 1<<33 || !f.ReplyRequested || f.sent != micros || f.Data != nil {
		t.Errorf("keepalive: %+v, %v", f, err)
	}
	f, err = parseFrame(keepalive(7, -micros, 0)) // a server whose clock stands before 2000
	if err != nil || f.ReplyRequested || f.sent != -micros {
		t.Errorf("keepalive: %+v, %v", f, err)
	}
	for _, whole := range [][]byte{xlogData(1, 2, 3, ""), keepalive(1, 2, 0)} {
		for n := range whole {
			var violation *protocolError
			if _, err := parseFrame(whole[:n]); !errors.As(err, &violation) {
				t.Errorf("%x: %v", whole[:n], err)
			}
		}
	}
	for _, wrong := range [][]byte{append(keepalive(1, 2, 0), 0), {'s'}, {0}} {
		if _, err := parseFrame(wrong); err == nil {
			t.Errorf("%x is accepted", wrong)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	f.Add(xlogData(1, 2, 3, "B123"))
	f.Add(keepalive(1, 2, 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := parseFrame(b)
		// The library is the oracle, but for times that overflow its nanoseconds.
		sameTime := func(want time.Time) bool {
			return frame.sent > 8e15 || frame.sent < -8e15 || time.UnixMicro(frame.sent+pgEpochUnixMicro).Equal(want)
		}
		switch {
		case len(b) > 0 && b[0] == frameXLogData:
			want, wantErr := pglogrepl.ParseXLogData(b[1:])
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%v, the library says %v", err, wantErr)
			}
			if err == nil && (frame.WALStart != want.WALStart || frame.WALEnd != want.ServerWALEnd ||
				!sameTime(want.ServerTime) || !bytes.Equal(frame.Data, want.WALData)) {
				t.Fatalf("%+v, the library says %+v", frame, want)
			}
		case len(b) > 0 && b[0] == frameKeepalive:
			want, wantErr := pglogrepl.ParsePrimaryKeepaliveMessage(b[1:])
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%v, the library says %v", err, wantErr)
			}
			if err == nil && (frame.WALEnd != want.ServerWALEnd || frame.ReplyRequested != want.ReplyRequested ||
				!sameTime(want.ServerTime)) {
				t.Fatalf("%+v, the library says %+v", frame, want)
			}
		case err == nil:
			t.Fatalf("%x is accepted", b)
		}
	})
}

// chunks hands out its bytes in pieces of the given sizes, over and over.
type chunks struct {
	b     []byte
	sizes []int
	i     int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(c.b), c.sizes[c.i%len(c.sizes)])
	c.i++
	copy(p, c.b[:n])
	c.b = c.b[n:]
	return n, nil
}

func wire(kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body)))
	return append(b, body...)
}

func TestMessageReader(t *testing.T) {
	bodies := [][]byte{{}, []byte("x"), bytes.Repeat([]byte("y"), readBuffer-5), bytes.Repeat([]byte("z"), readBuffer),
		bytes.Repeat([]byte("w"), 3*readBuffer+7), bytes.Repeat([]byte("v"), keepBuffer+1), []byte("last")}
	var stream []byte
	for i, body := range bodies {
		stream = append(stream, wire('a'+byte(i), body)...)
	}
	for _, sizes := range [][]int{{1 << 30}, {1, 2, 3}, {4096}, {readBuffer - 1, 7}} {
		m := newMessageReader(&chunks{b: stream, sizes: sizes})
		for i, want := range bodies {
			kind, body, err := m.message()
			if err != nil || kind != 'a'+byte(i) || !bytes.Equal(body, want) {
				t.Fatalf("chunks of %v, message %d: %q, %d bytes instead of %d, %v", sizes, i, kind, len(body), len(want), err)
			}
		}
		if _, _, err := m.message(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	}
}

func TestMessageReaderGivesBackLargeBuffer(t *testing.T) {
	stream := append(wire('d', make([]byte, 2*keepBuffer)), wire('d', []byte("small"))...)
	m := newMessageReader(&chunks{b: stream, sizes: []int{1 << 20}})
	for range 2 {
		if _, _, err := m.message(); err != nil {
			t.Fatal(err)
		}
	}
	m.message() // the end of the stream; makes room first
	if len(m.buf) > keepBuffer {
		t.Errorf("keeps a buffer of %d bytes", len(m.buf))
	}
}

func TestMessageReaderRefusesLengths(t *testing.T) {
	for _, n := range []uint32{0, 3, 1<<30 + 1, 1<<32 - 1} {
		m := newMessageReader(bytes.NewReader(binary.BigEndian.AppendUint32([]byte{'d'}, n)))
		if _, _, err := m.message(); err == nil || !strings.Contains(err.Error(), "length") {
			t.Errorf("length %d: %v", n, err)
		}
	}
	// A length that is allowed, but a lie, must not cost memory.
	m := newMessageReader(bytes.NewReader(binary.BigEndian.AppendUint32([]byte{'d'}, 1<<30)))
	if _, _, err := m.message(); err != io.EOF {
		t.Error(err)
	}
	if len(m.buf) > 2*readBuffer {
		t.Errorf("%d bytes allocated for 5 that came", len(m.buf))
	}
}

func FuzzMessageReader(f *testing.F) {
	f.Add(wire('d', keepalive(1, 2, 0)), uint8(3))
	f.Add([]byte{'d', 0, 0, 0, 3}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		m := newMessageReader(&chunks{b: b, sizes: []int{int(size) + 1}})
		rest := b
		for {
			kind, body, err := m.message()
			if err != nil {
				return
			}
			want := wire(kind, body)
			if !bytes.HasPrefix(rest, want) {
				t.Fatalf("returned %x, the stream goes on with %x", want, rest)
			}
			rest = rest[len(want):]
		}
	})
}
