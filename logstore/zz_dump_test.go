package logstore

import (
	"os"
	"testing"

	"github.com/kbroker/kbroker/internal/vfs"
)

func TestZZDump(t *testing.T) {
	dir := os.Getenv("ZZ_DIR")
	if dir == "" {
		t.Skip()
	}
	cfg := testConfig()
	cfg.SegmentBytes = 20_000
	cfg.IndexIntervalBytes = 1000
	r := newRig(t, vfs.OS, cfg, dir).open()
	l := r.create(tpA)
	l.BecomeLeaderEpoch(5, 0)
	for i := range 100 {
		mustAppend(t, l, batchOf(1+i%4, 100+i*7%900, testStartMs+int64(i)), 5)
	}
	seq := int32(0)
	for i := range 10 {
		mustAppend(t, l, producerBatchOf(7, 0, seq, 3, true, testStartMs+int64(i)), 5)
		seq += 3
	}
	mustMark(t, l, false, 7, 0)
	r.close()
}
