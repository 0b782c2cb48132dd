package record

import "fmt"

// Codec is a compression type as the attributes of a batch carry it.
type Codec int8

// The codecs of Kafka 3.9, and CodecProducer, which is no codec but the
// compression.type "producer": keep what the producer chose.
const (
	CodecNone     Codec = 0
	CodecGzip     Codec = 1
	CodecSnappy   Codec = 2
	CodecLZ4      Codec = 3
	CodecZstd     Codec = 4
	CodecProducer Codec = -1
)

// codecMask selects the codec in the attributes of every format.
const codecMask = 0x07

// Valid reports whether c is one of the codecs that batches may use.
func (c Codec) Valid() bool { return c >= CodecNone && c <= CodecZstd }

// String is the name in compression.type, "none" for CodecNone.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLZ4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	case CodecProducer:
		return "producer"
	}
	return fmt.Sprintf("codec(%d)", int8(c))
}

// ParseCodec reads a value of compression.type; "none" and "uncompressed" both
// mean CodecNone.
func ParseCodec(name string) (Codec, error) {
	switch name {
	case "none", "uncompressed":
		return CodecNone, nil
	case "gzip":
		return CodecGzip, nil
	case "snappy":
		return CodecSnappy, nil
	case "lz4":
		return CodecLZ4, nil
	case "zstd":
		return CodecZstd, nil
	case "producer":
		return CodecProducer, nil
	}
	return CodecNone, fmt.Errorf("%w: %q", ErrUnsupportedCompression, name)
}
