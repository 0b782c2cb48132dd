package record

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Levels of the codecs as Kafka's configuration has them.
const (
	gzipDefaultLevel = -1
	lz4DefaultLevel  = 9 // means the fast compressor, as in Kafka
	zstdDefaultLevel = 3
)

// sink collects what a compressor writes.
type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// encoder is what the codecs' writers have in common. They write to a sink,
// which never fails, and neither do they.
type encoder interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// compressor compresses one stream into out.b. Its state is pooled: open takes
// it, finish gives it back.
type compressor struct {
	enc  encoder
	pool *sync.Pool
	out  *sink
}

// open starts a stream whose output is appended to dst. brokenLZ4 asks for the
// header checksum of format 0.
func (c *compressor) open(codec Codec, level int, brokenLZ4 bool, dst []byte) {
	c.pool = encoderPool(codec, level)
	c.enc = c.pool.Get().(encoder)
	c.out = &sink{b: dst}
	if e, ok := c.enc.(*lz4Encoder); ok {
		e.broken = brokenLZ4
	}
	c.enc.Reset(c.out)
}

func (c *compressor) write(p []byte) {
	if _, err := c.enc.Write(p); err != nil {
		panic("record: a compressor failed in memory: " + err.Error())
	}
}

func (c *compressor) finish() []byte {
	if err := c.enc.Close(); err != nil {
		panic("record: a compressor failed in memory: " + err.Error())
	}
	b := c.out.b
	c.abandon()
	return b
}

// abandon gives the state back without finishing the stream.
func (c *compressor) abandon() {
	if c.enc == nil {
		return
	}
	c.enc.Reset(&sink{})
	c.pool.Put(c.enc)
	*c = compressor{}
}

var (
	gzipEncoders   [11]sync.Pool // by level + 1
	snappyEncoders = sync.Pool{New: func() any { return &snappyEncoder{} }}
	lz4Encoders    [18]sync.Pool // by level
	zstdEncoders   [5]sync.Pool  // by the library's speed level
)

func init() {
	for i := range gzipEncoders {
		gzipEncoders[i].New = func() any {
			w, err := gzip.NewWriterLevel(io.Discard, i-1)
			if err != nil {
				panic(err)
			}
			return w
		}
	}
	for i := range lz4Encoders {
		lz4Encoders[i].New = func() any { return newLZ4Encoder(i) }
	}
	for i := range zstdEncoders {
		zstdEncoders[i].New = func() any {
			w, err := zstd.NewWriter(nil,
				zstd.WithEncoderConcurrency(1), // encodes in the caller's goroutine
				zstd.WithLowerEncoderMem(true),
				zstd.WithWindowSize(2<<20), // what Java's default level has
				zstd.WithEncoderCRC(false), // neither has Java's
				zstd.WithEncoderLevel(zstd.EncoderLevel(i)))
			if err != nil {
				panic(err)
			}
			return w
		}
	}
}

// encoderPool selects by codec and level; a level out of range, 0 for gzip and
// lz4 included, means the codec's default.
func encoderPool(codec Codec, level int) *sync.Pool {
	switch codec {
	case CodecGzip:
		if level < 1 || level > 9 {
			level = gzipDefaultLevel
		}
		return &gzipEncoders[level+1]
	case CodecSnappy:
		return &snappyEncoders
	case CodecLZ4:
		if level < 1 || level > 17 {
			level = lz4DefaultLevel
		}
		return &lz4Encoders[level]
	case CodecZstd:
		if level == 0 || level > 22 {
			level = zstdDefaultLevel
		}
		return &zstdEncoders[zstd.EncoderLevelFromZstd(level)]
	}
	panic("record: no compressor for " + codec.String())
}

// snappyEncoder writes Java's framing of snappy.
type snappyEncoder struct {
	w     io.Writer
	n     int
	plain [xerialBlockSize]byte
	block []byte // length and block
}

func (e *snappyEncoder) Reset(w io.Writer) {
	e.w, e.n = w, 0
	if e.block == nil {
		e.block = make([]byte, 4+s2.MaxEncodedLen(xerialBlockSize))
	}
	var head [xerialHeaderLen]byte
	copy(head[:], xerialMagic)
	binary.BigEndian.PutUint32(head[8:], xerialVersion)
	binary.BigEndian.PutUint32(head[12:], xerialVersion)
	_, _ = w.Write(head[:])
}

func (e *snappyEncoder) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		m := copy(e.plain[e.n:], rest)
		rest, e.n = rest[m:], e.n+m
		if e.n == len(e.plain) {
			e.flush()
		}
	}
	return len(p), nil
}

func (e *snappyEncoder) Close() error {
	if e.n > 0 {
		e.flush()
	}
	return nil
}

func (e *snappyEncoder) flush() {
	n := len(s2.EncodeSnappy(e.block[4:], e.plain[:e.n]))
	binary.BigEndian.PutUint32(e.block, uint32(n))
	_, _ = e.w.Write(e.block[:4+n])
	e.n = 0
}

// lz4Encoder writes lz4 frames as Java does: independent 64 KiB blocks, no
// checksum but the header's.
type lz4Encoder struct {
	w      io.Writer
	broken bool // the header checksum covers the magic too
	n      int
	plain  [lz4BlockSize]byte
	block  []byte // length and block
	fast   *lz4.Compressor
	high   *lz4.CompressorHC
}

func newLZ4Encoder(level int) *lz4Encoder {
	e := &lz4Encoder{block: make([]byte, 4+lz4.CompressBlockBound(lz4BlockSize))}
	if level == lz4DefaultLevel {
		e.fast = &lz4.Compressor{}
	} else {
		e.high = &lz4.CompressorHC{Level: 1 << (8 + min(max(level, 1), 9))}
	}
	return e
}

func (e *lz4Encoder) Reset(w io.Writer) {
	e.w, e.n = w, 0
	var head [7]byte
	binary.LittleEndian.PutUint32(head[:], lz4Magic)
	head[4] = lz4FlagVersion | lz4FlagIndep
	head[5] = lz4BD64K
	covered := head[4:6]
	if e.broken {
		covered = head[:6]
	}
	head[6] = byte(xxh32(covered) >> 8)
	_, _ = w.Write(head[:])
}

func (e *lz4Encoder) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		m := copy(e.plain[e.n:], rest)
		rest, e.n = rest[m:], e.n+m
		if e.n == len(e.plain) {
			e.flush()
		}
	}
	return len(p), nil
}

func (e *lz4Encoder) Close() error {
	if e.n > 0 {
		e.flush()
	}
	_, err := e.w.Write([]byte{0, 0, 0, 0})
	return err
}

func (e *lz4Encoder) flush() {
	var n int
	var err error
	if e.fast != nil {
		n, err = e.fast.CompressBlock(e.plain[:e.n], e.block[4:])
	} else {
		n, err = e.high.CompressBlock(e.plain[:e.n], e.block[4:])
	}
	word := uint32(n)
	if err != nil || n == 0 || n >= e.n {
		n = copy(e.block[4:], e.plain[:e.n])
		word = uint32(n) | lz4Stored
	}
	binary.LittleEndian.PutUint32(e.block, word)
	_, _ = e.w.Write(e.block[:4+n])
	e.n = 0
}
