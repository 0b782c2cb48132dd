package record

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// DefaultMaxDecompressed bounds what one batch may decompress to when the
// caller sets no limit. It bounds work, not memory: validation streams.
const DefaultMaxDecompressed = 1 << 30

// chunkSize is how much a streaming codec decodes at a time.
const chunkSize = 32 << 10

// keepBuffer is the largest buffer that pooled state holds on to.
const keepBuffer = 1 << 20

// errDecompressed ends a stream that exceeds its limit.
var errDecompressed = errors.New("decompressed size exceeds the limit")

// Decompressor is reusable decompression state with a limit. It must not be
// used by two goroutines at once.
//
// Memory held while decoding: 32 KiB for gzip and zstd beside their windows
// (32 KiB; at most maxZstdWindow, and never more than the data needs), a block
// for lz4 and for snappy in Java's framing, the whole output for raw snappy,
// which is at most 22 times its input.
type Decompressor struct {
	limit int64 // bytes per stream
	left  int64 // bytes that the current stream may still yield

	codec  Codec
	source chunker
	out    []byte // where chunks are decoded to
	rec    []byte // a record that spans chunks

	gzip   gzipSource
	snappy snappySource
	lz4    lz4Source
	zstd   zstdSource
}

// chunker yields a stream's decompressed bytes piece by piece: a chunk is
// valid until the next call, the regular end is io.EOF. out is a buffer that it
// may use and replace; what decodes a chunk as a whole fails with errDecompressed
// before it makes one larger than left.
type chunker interface {
	next(out *[]byte, left int64) ([]byte, error)
}

// NewDecompressor returns a Decompressor that yields at most limit bytes of
// each batch; 0 stands for DefaultMaxDecompressed.
func NewDecompressor(limit int64) *Decompressor {
	d := &Decompressor{}
	d.setLimit(limit)
	return d
}

func (d *Decompressor) setLimit(limit int64) {
	if limit <= 0 {
		limit = DefaultMaxDecompressed
	}
	d.limit = limit
}

var decompressors = sync.Pool{New: func() any { return &Decompressor{} }}

// pooledDecompressor takes state from the pool; release gives it back.
func pooledDecompressor(limit int64) *Decompressor {
	d := decompressors.Get().(*Decompressor)
	d.setLimit(limit)
	return d
}

func (d *Decompressor) release() {
	d.end()
	decompressors.Put(d)
}

// end drops references to the input and oversized buffers.
func (d *Decompressor) end() {
	d.source = nil
	d.gzip.end()
	d.zstd.end()
	d.snappy = snappySource{}
	d.lz4 = lz4Source{}
	if cap(d.out) > keepBuffer {
		d.out = nil
	}
	if cap(d.rec) > keepBuffer {
		d.rec = nil
	}
}

// start begins the stream src. magic tells apart the lz4 frames of format 0,
// whose header checksum old clients computed wrongly.
func (d *Decompressor) start(codec Codec, magic int8, src []byte) error {
	d.codec, d.left = codec, d.limit
	var err error
	switch codec {
	case CodecGzip:
		d.source, err = &d.gzip, d.gzip.start(src)
	case CodecSnappy:
		d.source, err = &d.snappy, d.snappy.start(src)
	case CodecLZ4:
		d.source, err = &d.lz4, d.lz4.start(src, magic == MagicV0)
	case CodecZstd:
		d.source, err = &d.zstd, d.zstd.start(src)
	default:
		return rejectf(ErrUnprocessable, FaultNone, "unknown compression type %d", codec)
	}
	if err != nil {
		return d.fail(err)
	}
	return nil
}

// next returns the next non-empty chunk, io.EOF at the end of the stream, or
// an error that wraps ErrUnprocessable or ErrTooLarge.
func (d *Decompressor) next() ([]byte, error) {
	for {
		p, err := d.source.next(&d.out, d.left)
		if err == io.EOF {
			return nil, io.EOF
		}
		if err != nil {
			return nil, d.fail(err)
		}
		if len(p) == 0 {
			continue
		}
		if int64(len(p)) > d.left {
			return nil, d.fail(errDecompressed)
		}
		d.left -= int64(len(p))
		return p, nil
	}
}

func (d *Decompressor) fail(err error) error {
	if errors.Is(err, errDecompressed) {
		return rejectf(ErrTooLarge, FaultNone, "the batch decompresses to more than %d bytes", d.limit)
	}
	return rejectf(ErrUnprocessable, FaultNone, "%s: %v", d.codec, err)
}

// Append decompresses all of src to the end of dst. magic is the format of the
// batch that src is from.
func (d *Decompressor) Append(dst []byte, codec Codec, magic int8, src []byte) ([]byte, error) {
	defer d.end()
	if err := d.start(codec, magic, src); err != nil {
		return dst, err
	}
	for {
		p, err := d.next()
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		dst = append(dst, p...)
	}
}

// grow returns buf with length n, reallocated when it is too small.
func grow(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n)
	}
	return buf[:n]
}

func truncated(what string) error { return fmt.Errorf("%s is cut short", what) }
