package record

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

const nowMs = int64(1_700_000_000_000)

// clientRules are a topic's defaults and the newest Produce.
func clientRules() Rules {
	return Rules{
		MaxMessageBytes: 1048588, SegmentBytes: 1 << 30, TargetCodec: CodecProducer,
		NowMs: nowMs, BeforeMaxMs: math.MaxInt64, AfterMaxMs: math.MaxInt64, APIVersion: 11,
	}
}

// newRand returns a generator whose seed is printed when the test fails.
func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

var allCodecs = []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd}

// sealed sets the length and the CRC of an entry of any format right.
func sealed(b []byte) []byte {
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-LogOverhead))
	if int8(b[posMagic]) < MagicV2 {
		Legacy(b).updateCRC()
	} else if len(b) >= posAttributes {
		Batch(b).updateCRC()
	}
	return b
}

// simpleBatch is n records with keys and values, one millisecond apart.
func simpleBatch(codec Codec, n int) Batch {
	b := NewBuilder(BuilderOptions{Codec: codec})
	for i := range n {
		b.Append(nowMs+int64(i), []byte{'k', byte(i)}, []byte("value of some length"), nil)
	}
	return b.Build()
}
