package sink

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// compressible is something like a record batch of n bytes.
func compressible(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for len(b) < n {
		b = fmt.Appendf(b, `{"id": %d, "type": "order.placed.v1", "total": "%d.%02d", "customer": "c%016x", "currency": "EUR"}`,
			1_000_000_000+len(b), rnd.IntN(1000), rnd.IntN(100), rnd.Uint64())
	}
	return b[:n]
}

// Whatever the size, what is compressed comes out again, and is no larger than
// what the client's own compressor makes by more than a tenth.
func TestLZ4Compressor(t *testing.T) {
	own, err := kgo.DefaultCompressor(kgo.Lz4Compression())
	if err != nil {
		t.Fatal(err)
	}
	decompress := kgo.DefaultDecompressor()
	c := &lz4Compressor{}
	const block = 256 << 10
	for _, n := range []int{0, 1, 100, block - 1, block, block + 1, 400_000, 1_000_012, 5 << 20} {
		src := compressible(n)
		got, codec := c.Compress(new(bytes.Buffer), src)
		if codec != kgo.CodecLz4 {
			t.Fatalf("%d bytes: codec %d", n, codec)
		}
		back, err := decompress.Decompress(got, codec)
		if err != nil || !bytes.Equal(back, src) {
			t.Errorf("%d bytes: came back as %d (%v)", n, len(back), err)
		}
		want, _ := own.Compress(new(bytes.Buffer), src)
		if len(got) > len(want)*11/10+20 {
			t.Errorf("%d bytes: compressed to %d, the client's own to %d", n, len(got), len(want))
		}
	}
}

func BenchmarkCompress(b *testing.B) {
	own, err := kgo.DefaultCompressor(kgo.Lz4Compression())
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		kgo.Compressor
	}{{"ours", &lz4Compressor{}}, {"client", own}} {
		for _, n := range []int{500, 375_000} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				src := compressible(n)
				var dst bytes.Buffer
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					dst.Reset()
					out, _ := c.Compress(&dst, src)
					b.ReportMetric(float64(len(out))/float64(n), "ratio")
				}
			})
		}
	}
}
