package latency

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/kbroker/kbroker/protocol/record"
)

// The batch by hand is the builder's, byte for byte.
func TestBatch(t *testing.T) {
	for _, c := range []struct{ records, size int }{{1, 16}, {1, 1024}, {3, 100}, {200, 50}, {100, 8192}} {
		hand := newBatch(c.size)
		builder := record.NewBuilder(record.BuilderOptions{})
		for i := range c.records {
			value := make([]byte, c.size)
			binary.BigEndian.PutUint64(value, uint64(i))
			binary.BigEndian.PutUint64(value[8:], uint64(1000+i))
			builder.Append(1_700_000_000_000, nil, value, nil)
			hand.add(int64(i), int64(1000+i))
		}
		got, want := hand.finish(1_700_000_000_000), builder.Build()
		if !bytes.Equal(got, want) {
			t.Fatalf("%d records of %d bytes:\n%x\nwant\n%x", c.records, c.size, got[:min(len(got), 120)], want[:min(len(want), 120)])
		}
		next := int64(0)
		ok := stamps(got, func(due, sent int64) {
			if due != next || sent != 1000+next {
				t.Errorf("record %d: due %d, sent %d", next, due, sent)
			}
			next++
		})
		if !ok || next != int64(c.records) {
			t.Errorf("%d records read of %d, %v", next, c.records, ok)
		}
		hand.reset()
		hand.add(1, 2)
		if b := record.Batch(hand.finish(5)); b.CheckHeader() != nil || b.CheckCRC() != nil || b.Count() != 1 {
			t.Error("a batch after another one is wrong")
		}
	}
	if stamps(append(make([]byte, headerLen-1), 1, 2, 3), func(int64, int64) {}) {
		t.Error("garbage was read")
	}
}
