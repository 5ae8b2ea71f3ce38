package decoder

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"
)

// FuzzDecode gives one message to a decoder that knows every relation of the
// captures, inside a transaction or not. Decode must do what the oracle says,
// and refuse whatever a byte is missing from or added to.
func FuzzDecode(f *testing.F) {
	var relations [][]byte
	for _, name := range captures {
		for _, frame := range readFrames(f, name) {
			f.Add(frame, true)
			f.Add(frame, false)
			if frame[0] == 'R' {
				relations = append(relations, frame)
			}
		}
	}
	f.Add([]byte{}, false)
	for flags := range byte(4) { // of a column
		f.Add(append([]byte("R\x00\x00\x00\x01p\x00t\x00d\x00\x01"), flags, 'c', 0, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff), false)
	}
	f.Add([]byte("T\x00\x00\x00\x00\x00"), true)
	f.Add([]byte("T\x40\x00\x00\x00\x00"), true)
	f.Add(u32([]byte("I\x00\x00\x00\x01N\x00\x01t"), 0xffffffff), true)
	f.Fuzz(func(t *testing.T, frame []byte, open bool) {
		var d Decoder
		var m Message
		o := newOracle()
		prelude := relations
		if open {
			prelude = append(prelude[:len(prelude):len(prelude)], beginFrame(0x1964268, 1, 7))
		}
		for _, p := range prelude {
			want, ok := o.accept(p)
			compare(t, p, &m, d.Decode(p, &m), want, ok)
		}
		want, ok := o.accept(frame)
		if ok {
			// None of these changes the decoder, or the frame itself would
			// not be understood afterwards.
			for n := range min(len(frame), 4096) {
				if d.Decode(frame[:n], &m) == nil {
					t.Fatalf("%q: accepted without its last %d bytes", frame, len(frame)-n)
				}
			}
			if longer := append(frame[:len(frame):len(frame)], 0); d.Decode(longer, &m) == nil {
				t.Fatalf("%q: accepted with a byte added", frame)
			}
		}
		err := d.Decode(frame, &m)
		compare(t, frame, &m, err, want, ok)
		if d.InTransaction() != (o.open != nil) {
			t.Fatalf("%q: in a transaction: %v", frame, d.InTransaction())
		}
	})
}

// FuzzStream gives a sequence of messages, each behind its length in two bytes,
// to a fresh decoder and a fresh oracle.
func FuzzStream(f *testing.F) {
	for _, name := range captures {
		for _, seed := range transactions(readFrames(f, name)) {
			var stream []byte
			for _, frame := range seed {
				stream = append(u16(stream, uint16(len(frame))), frame...)
			}
			f.Add(stream)
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var d Decoder
		var m Message
		o := newOracle()
		for len(stream) >= 2 {
			n := min(int(binary.BigEndian.Uint16(stream)), len(stream)-2)
			frame := stream[2 : 2+n]
			stream = stream[2+n:]
			want, ok := o.accept(frame)
			err := d.Decode(frame, &m)
			compare(t, frame, &m, err, want, ok)
			if d.InTransaction() != (o.open != nil) {
				t.Fatalf("%q: in a transaction: %v", frame, d.InTransaction())
			}
		}
	})
}

// transactions cuts a recording behind each commit, and puts before each piece
// the relations that were known by then. Short seeds are what a fuzzer can work
// with.
func transactions(frames [][]byte) (pieces [][][]byte) {
	current := map[uint32][]byte{}
	var known, piece [][]byte
	for _, frame := range frames {
		piece = append(piece, frame)
		switch frame[0] {
		case 'R':
			current[binary.BigEndian.Uint32(frame[1:])] = frame
		case 'C':
			pieces = append(pieces, slices.Concat(known, piece))
			known, piece = slices.Collect(maps.Values(current)), nil
		}
	}
	return pieces
}
