package record

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// fillWords fills p with made-up words, which compress about as logs do.
func fillWords(rnd *rand.Rand, p []byte) {
	for i := 0; i < len(p); {
		word := rnd.IntN(300)
		n := 3 + word%9
		for j := 0; j < n && i < len(p); j, i = j+1, i+1 {
			p[i] = byte('a' + (word*31+j*j*7)%26)
		}
		if i < len(p) {
			p[i] = ' '
			i++
		}
	}
}

// benchBatch builds a batch of about total bytes of records of recSize bytes.
func benchBatch(codec Codec, total, recSize int) Batch {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := NewBuilder(BuilderOptions{Codec: codec})
	value := make([]byte, recSize)
	ts := int64(1_700_000_000_000)
	for b.Size()+recSize <= total {
		fillWords(rnd, value)
		ts += int64(rnd.IntN(3))
		b.Append(ts, nil, value, nil)
	}
	return b.Build()
}

func benchRules() Rules {
	return Rules{
		MaxMessageBytes: 2 << 20, SegmentBytes: 1 << 30, TargetCodec: CodecProducer,
		NowMs: 1_700_000_000_000, BeforeMaxMs: math.MaxInt64, AfterMaxMs: math.MaxInt64, APIVersion: 11,
	}
}

func BenchmarkValidateProduce(b *testing.B) {
	for _, codec := range []Codec{CodecNone, CodecLZ4, CodecSnappy, CodecZstd, CodecGzip} {
		for _, total := range []int{1 << 20, 16 << 10} {
			for _, rec := range []int{1000, 100} {
				b.Run(fmt.Sprintf("%s/%dK/%dB", codec, total>>10, rec), func(b *testing.B) {
					batch := benchBatch(codec, total, rec)
					r := benchRules()
					b.SetBytes(int64(total))
					b.ReportAllocs()
					for b.Loop() {
						v, err := ValidateProduce(batch, r)
						if err != nil || v.Rewritten || v.Patched {
							b.Fatal(v, err)
						}
					}
				})
			}
		}
	}
}

func BenchmarkCRC(b *testing.B) {
	for _, total := range []int{1 << 20, 16 << 10} {
		b.Run(fmt.Sprintf("%dK", total>>10), func(b *testing.B) {
			batch := benchBatch(CodecNone, total, 1000)
			b.SetBytes(int64(total))
			for b.Loop() {
				if batch.CheckCRC() != nil {
					b.Fatal()
				}
			}
		})
	}
}

func BenchmarkWalk(b *testing.B) {
	for _, total := range []int{1 << 20, 16 << 10} {
		for _, rec := range []int{1000, 100} {
			b.Run(fmt.Sprintf("%dK/%dB", total>>10, rec), func(b *testing.B) {
				batch := benchBatch(CodecNone, total, rec)
				b.SetBytes(int64(total))
				for b.Loop() {
					t := newTally(batch.BaseTimestamp())
					if err := t.plain(batch[HeaderLen:], batch.Count()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch.Count()), "ns/record")
			})
		}
	}
}
