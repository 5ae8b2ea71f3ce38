package sink

import (
	"bytes"
	"sync"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lz4Block is the size of the blocks that a batch is compressed in. The client's own compressor has blocks of 4 MiB,
// two buffers of twice that for every one at work, and copies each batch through them; a batch is 1 MB at most. Whole
// blocks are compressed where they are, and no reference reaches farther back than 64 KiB anyway.
const lz4Block = lz4.Block256Kb

// lz4Compressor compresses batches to LZ4 frames. It is safe for concurrent use.
type lz4Compressor struct {
	writers sync.Pool // of *lz4.Writer
}

// Compress implements kgo.Compressor.
func (c *lz4Compressor) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	w, ok := c.writers.Get().(*lz4.Writer)
	if ok {
		w.Reset(dst)
	} else {
		w = lz4.NewWriter(dst)
		if err := w.Apply(lz4.BlockSizeOption(lz4Block)); err != nil {
			return nil, kgo.CodecError
		}
	}
	defer c.writers.Put(w)
	if _, err := w.Write(src); err != nil {
		return nil, kgo.CodecError
	}
	if err := w.Close(); err != nil {
		return nil, kgo.CodecError
	}
	return dst.Bytes(), kgo.CodecLz4
}
