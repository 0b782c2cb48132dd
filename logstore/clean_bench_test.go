package logstore

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// BenchmarkClean compacts a log in which every key was written four times; bytes
// are those of the log.
func BenchmarkClean(b *testing.B) {
	const records, perBatch, keys = 400_000, 100, 100_000
	for _, codec := range []record.Codec{record.CodecNone, record.CodecLZ4, record.CodecZstd} {
		b.Run(codec.String(), func(b *testing.B) {
			rng := rand.New(rand.NewSource(1))
			var batches [][]byte
			size := int64(0)
			for i := 0; i < records; i += perBatch {
				bl := record.NewBuilder(record.BuilderOptions{Codec: codec, BaseOffset: cluster.Offset(i)})
				for range perBatch {
					bl.Append(testStartMs+int64(i), fmt.Appendf(nil, "user-%08d", rng.Intn(keys)), bytes.Repeat([]byte{byte('a' + rng.Intn(26)), byte(rng.Intn(256))}, 100), nil)
				}
				raw := bl.Build()
				raw.SetLeaderEpoch(0)
				batches = append(batches, raw)
				size += int64(len(raw))
			}
			b.SetBytes(size)
			b.ReportAllocs()
			cfg := compactConfig()
			cfg.SegmentBytes, cfg.SegmentIndexBytes, cfg.IndexIntervalBytes = 16<<20, 10<<20, 4096
			for b.Loop() {
				b.StopTimer()
				r := newRig(b, vfs.OS, cfg, tempDir(b)).open()
				l := r.create(tpA)
				for _, raw := range batches {
					if _, err := l.AppendAsFollower(raw, 0); err != nil {
						b.Fatal(err)
					}
				}
				if err := forceRoll(l); err != nil {
					b.Fatal(err)
				}
				if err := l.Flush(l.LEO()); err != nil {
					b.Fatal(err)
				}
				l.HighWatermarkMoved(l.LEO())
				w := newCleaners(r.s).newWorker(0)
				c := cleanerConfig()
				c.DedupeBuffer, c.IOBuffer = 128<<20, 512<<10
				b.StartTimer()
				if !w.round(c) {
					b.Fatal("nothing was cleaned")
				}
				b.StopTimer()
				r.close()
				b.StartTimer()
			}
		})
	}
}
