package logstore

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

var rewrite = flag.Bool("rewrite-order", false, "write testdata/order anew")

// TestOrderOnDisk prints what is written, synced and renamed, in which order.
// The order is part of the contract: a change of testdata/order is a change of
// what survives a power loss, and is reviewed as such.
func TestOrderOnDisk(t *testing.T) {
	mem := vfs.NewMem()
	trace := vfs.NewTrace("/data")
	cfg := testConfig()
	cfg.SegmentBytes, cfg.SegmentIndexBytes, cfg.IndexIntervalBytes = 1000, 4096, 300
	cfg.FileDeleteDelay = time.Minute
	r := newRig(t, vfs.WithHook(mem, trace.Hook), cfg)
	r.opts.HighWatermarkCheckpointInterval = time.Hour
	var out []byte
	step := func(what string, f func()) {
		f()
		out = append(out, "# "+what+"\n"+trace.Take()+"\n"...)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var l *Log
	step("first start: the directory is claimed", func() { r.open() })
	step("a partition is created", func() { l = r.create(tpA) })
	step("its topic id is written in the background", func() { r.clock.Advance(0) })
	step("it gets a leader: the epoch is durable with the next flush", func() { must(l.BecomeLeaderEpoch(3, 0)) })
	step("append: one write", func() { mustAppend(t, l, producerBatchOf(7, 0, 0, 3, true, testStartMs), 3) })
	step("append of an abort marker: log, then transaction index", func() {
		_, err := l.AppendAsLeader(validated(record.EndTxnMarker(false, 7, 0, 0, testStartMs)), 3, AppendOptions{Origin: Coordinator})
		must(err)
	})
	step("flush: log, epochs, names", func() { must(l.Flush(l.LEO())) })
	step("flush.messages=1: append, then fsync, then acknowledge", func() {
		every := cfg
		every.FlushMessages = 1
		l.SetConfig(every)
		mustAppend(t, l, batchOf(1, 100, testStartMs+1), 3)
		l.SetConfig(cfg)
	})
	step("append that rolls: the old indexes are cut, the new log comes last, then the snapshot", func() {
		for l.Segments() == 1 {
			mustAppend(t, l, batchOf(1, 300, testStartMs+2), 3)
		}
	})
	step("the old segment is made durable in the background", func() { r.clock.Advance(0) })
	step("checkpoints", func() { must(r.s.CheckpointAll()) })
	step("truncation: newest segment first, then the log, all durable before the recovery point is lowered", func() { must(l.TruncateTo(5)) })
	step("append after it", func() { mustAppend(t, l, batchOf(1, 100, testStartMs+3), 3) })
	step("the log's start moves", func() {
		l.HighWatermarkMoved(l.LEO())
		must(l.DeleteRecordsBefore(l.LEO(), l.LEO()))
	})
	step("retention: a new segment, then the old one gets its new name, log first", func() {
		_, err := l.DeleteOldSegments()
		must(err)
		must(forceRoll(l))
		_, err = l.DeleteOldSegments()
		must(err)
	})
	step("its files go after a minute", func() { r.clock.Advance(time.Minute) })
	step("truncation of everything", func() { must(l.TruncateFullyAndStartAt(100)) })
	step("append", func() { mustAppend(t, l, batchOf(1, 100, testStartMs+3), 3) })
	step("deletion of another partition", func() {
		r.create(tpB)
		trace.Take()
		must(r.s.Delete(tpB))
	})
	step("stop: snapshot, indexes, fsyncs; checkpoints; the marker last", func() {
		r.s.SetBrokerEpoch(cluster.BrokerEpoch(42))
		r.close()
	})
	step("clean start: the marker goes first", func() { r.open() })
	mustAppend(t, r.log(tpA), batchOf(1, 100, testStartMs+4), 3)
	r.crash()
	trace.Take()
	step("start after a crash: indexes and snapshot anew", func() { r.open() })
	step("stop", func() { r.close() })

	compareGolden(t, filepath.Join("testdata", "order", "order.txt"), scrubIDs(out))
}

// scrubIDs takes the random part out of the names of deleted directories.
func scrubIDs(out []byte) []byte {
	marker := []byte(".")
	for i := 0; i+33 < len(out); i++ {
		if out[i] == marker[0] && isHex(out[i+1:i+33]) {
			copy(out[i+1:], "<32 hex digits>")
			out = append(out[:i+1+len("<32 hex digits>")], out[i+33:]...)
		}
	}
	return out
}

func isHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; look at it, and run the test with -rewrite-order if it is right. Now:\n%s", name, got)
	}
}
