//go:build integration

package integration

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// wantReplicasEqual compares the replicas of every partition batch by batch, byte
// by byte, below the highest high watermark that any of them has checkpointed.
// The brokers are stopped. It wants at least so many records below it.
func (c *cluster) wantReplicasEqual(t testing.TB, topic string, counts []int, ids ...int) {
	t.Helper()
	for p := range counts {
		hw := int64(-1)
		for _, id := range ids {
			hw = max(hw, c.checkpointedHW(t, id, topic, p))
		}
		if hw < int64(counts[p]) {
			t.Errorf("%s-%d: the high watermark is %d, but %d records were committed", topic, p, hw, counts[p])
		}
		first := c.batchesOnDisk(t, ids[0], topic, p, hw)
		for _, id := range ids[1:] {
			if err := sameBatches(first, c.batchesOnDisk(t, id, topic, p, hw)); err != nil {
				t.Errorf("%s-%d on brokers %d and %d below %d: %v", topic, p, ids[0], id, hw, err)
			}
		}
	}
	c.step(t, "replicas of %s compared", topic)
}

// checkpointedHW is the high watermark in a broker's checkpoint, -1 if it has none.
func (c *cluster) checkpointedHW(t testing.TB, id int, topic string, partition int) int64 {
	t.Helper()
	for _, line := range checkpoint(t, c.broker(id), "replication-offset-checkpoint") {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%s %d ", topic, partition)); ok {
			var hw int64
			if _, err := fmt.Sscan(rest, &hw); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return hw
		}
	}
	return -1
}

// batchesOnDisk are the batches of a replica that begin below an offset; they
// must reach it without a hole.
func (c *cluster) batchesOnDisk(t testing.TB, id int, topic string, partition int, below int64) (out []batchOnDisk) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(c.broker(id).partitionDir(topic, int32(partition)), "*.log"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("broker %d has no segment of %s-%d (%v)", id, topic, partition, err)
	}
	next := int64(0)
	for _, path := range segments { // Glob sorts, and names sort by offset
		raw := []byte(mustReadFile(t, path))
		for _, b := range splitBatches(t, withoutAllocated(raw)) {
			if b.FirstOffset >= below {
				continue
			}
			if b.FirstOffset != next {
				t.Errorf("broker %d: %s-%d goes on with offset %d where %d is due", id, topic, partition, b.FirstOffset, next)
			}
			next = b.lastOffset() + 1
			out = append(out, b)
		}
	}
	if next < below {
		t.Errorf("broker %d: %s-%d ends at %d, below the high watermark %d", id, topic, partition, next, below)
	}
	return out
}

// withoutAllocated leaves out the zeros of space that was allocated ahead.
func withoutAllocated(raw []byte) []byte {
	at := 0
	for at+12 <= len(raw) {
		size := int(binary.BigEndian.Uint32(raw[at+8:]))
		if size == 0 || at+12+size > len(raw) {
			break
		}
		at += 12 + size
	}
	return raw[:at]
}

func sameBatches(a, b []batchOnDisk) error {
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i].raw, b[i].raw) {
			return fmt.Errorf("batch %d: offsets %d to %d in epoch %d, and %d to %d in epoch %d", i,
				a[i].FirstOffset, a[i].lastOffset(), a[i].PartitionLeaderEpoch, b[i].FirstOffset, b[i].lastOffset(), b[i].PartitionLeaderEpoch)
		}
	}
	if len(a) != len(b) {
		return fmt.Errorf("%d and %d batches", len(a), len(b))
	}
	return nil
}
