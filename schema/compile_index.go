package schema

import "encoding/binary"

// A nameIndex finds a field or symbol by name. It beats a map because it looks at
// 16 bytes of a name at most and has no hash state to prepare.
type nameIndex struct {
	names []string
	slots []int32 // index + 1, 0 when free; a power of two long, mostly free
}

func newNameIndex(names []string) nameIndex {
	size := 4
	for size < 4*len(names) {
		size *= 2
	}
	x := nameIndex{names: names, slots: make([]int32, size)}
	for i, name := range names {
		at := hashName([]byte(name)) & uint64(size-1)
		for x.slots[at] != 0 {
			at = (at + 1) & uint64(size-1)
		}
		x.slots[at] = int32(i + 1)
	}
	return x
}

// find returns the position of key, -1 when it is not there.
func (x *nameIndex) find(key []byte) int {
	mask := uint64(len(x.slots) - 1)
	for at := hashName(key) & mask; ; at = (at + 1) & mask {
		i := int(x.slots[at]) - 1
		if i < 0 || x.names[i] == string(key) {
			return i
		}
	}
}

// hashName mixes the length with the first and the last eight bytes.
func hashName(b []byte) uint64 {
	const k = 0x9e3779b97f4a7c15
	n := len(b)
	h := uint64(n) * k
	switch {
	case n >= 8:
		h ^= binary.LittleEndian.Uint64(b)
		h *= k
		h ^= binary.LittleEndian.Uint64(b[n-8:])
	case n >= 4:
		h ^= uint64(binary.LittleEndian.Uint32(b))<<32 | uint64(binary.LittleEndian.Uint32(b[n-4:]))
	case n > 0:
		h ^= uint64(b[0])<<16 | uint64(b[n/2])<<8 | uint64(b[n-1])
	}
	h *= k
	return h >> 32
}
