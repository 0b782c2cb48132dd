package shards

import (
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/protocol/record"
)

// recordOverhead is more than a record takes beside its key and value.
const recordOverhead = 32

// batches collects the records of a round. Each batch stays below
// max.message.bytes; a record that is larger has one of its own, which the log
// takes up to segment.bytes.
type batches struct {
	o     record.BuilderOptions
	limit int
	nowMs int64
	size  int // of keys and values so far

	open *record.Builder
	full []*record.Validated
}

func newBatches(l *logstore.Log, codec record.Codec, nowMs int64) batches {
	c := l.Config()
	return batches{o: record.BuilderOptions{Codec: codec, LogAppendTime: c.LogAppendTime, AppendTimeMs: nowMs},
		limit: int(min(c.MaxMessageBytes, c.SegmentBytes)), nowMs: nowMs}
}

func (b *batches) empty() bool { return b.open == nil && len(b.full) == 0 }

func (b *batches) add(r coordinator.Record) {
	n := len(r.Key) + len(r.Value) + recordOverhead
	b.size += n
	if b.open != nil && b.open.Size()+n > b.limit {
		b.close()
	}
	if b.open == nil {
		b.open = record.NewBuilder(b.o)
	}
	b.open.Append(b.nowMs, r.Key, r.Value, nil)
}

func (b *batches) close() {
	b.full = append(b.full, validated(b.open.Build(), b.nowMs))
	b.open = nil
}

// build ends the collection.
func (b *batches) build() []*record.Validated {
	if b.open != nil {
		b.close()
	}
	return b.full
}
