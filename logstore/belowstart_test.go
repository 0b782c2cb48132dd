package logstore

import (
	"fmt"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

// TestTransactionFromBelowTheStart cuts a log in which a transaction has been
// open since before its start, at every offset. It stays open as long as the log
// has a batch, or an empty segment, above its start, though no record of it may
// be read any more: Kafka too has it in the snapshot at that segment's base
// (ProducerStateManager.truncateAndReload keeps those above the start). Only a
// log that begins anew forgets it. A stop and a crash change nothing.
func TestTransactionFromBelowTheStart(t *testing.T) {
	// Batches 0-1 of the transaction, 2-3, 4-5, a gap, 10-11, 12-13; the start is 8.
	type cut struct {
		to, end cluster.Offset
		open    bool
	}
	layouts := map[string]struct {
		rolled bool
		cuts   []cut
	}{
		// 11 and 10 leave the segment that begins at 10 empty: it stays.
		"new segment behind the gap": {true, []cut{
			{15, 14, true}, {14, 14, true}, {13, 12, true}, {12, 12, true}, {11, 10, true}, {10, 10, true},
			{9, 8, false}, {8, 8, false}, {7, 7, false}, {1, 1, false},
		}},
		// Kafka, without a snapshot above the start, forgets it at 13 and 12 too.
		"one segment": {false, []cut{
			{15, 14, true}, {14, 14, true}, {13, 12, true}, {12, 12, true},
			{11, 8, false}, {10, 8, false}, {9, 8, false}, {8, 8, false}, {7, 7, false}, {1, 1, false},
		}},
	}
	restarts := map[string]func(r *rig){
		"none":           func(*rig) {},
		"stop":           func(r *rig) { r.close(); r.open() },
		"crash":          func(r *rig) { r.crash(); r.open() },
		"stop and crash": func(r *rig) { r.close(); r.open(); r.crash(); r.open() },
		"crash and stop": func(r *rig) { r.crash(); r.open(); r.close(); r.open() },
	}
	for layout, x := range layouts {
		for restart, do := range restarts {
			for _, c := range x.cuts {
				t.Run(fmt.Sprintf("%s, cut to %d, restart: %s", layout, c.to, restart), func(t *testing.T) {
					r, l := openSinceBelow(t, x.rolled)
					if err := l.TruncateTo(c.to); err != nil {
						t.Fatal(err)
					}
					do(r)
					checkOpenSinceBelow(t, r.log(tpA), min(c.to, 8), c.end, c.open)
					r.close()
				})
			}
		}
	}
}

func openSinceBelow(t *testing.T, rolled bool) (*rig, *Log) {
	cfg := testConfig()
	cfg.Compact = true // which is what leaves gaps
	r := newRig(t, vfs.NewMem(), cfg).open()
	l := r.create(tpA)
	mustAppend(t, l, producerBatchOf(7, 0, 0, 2, true, testStartMs), 0)
	for range 2 {
		mustAppend(t, l, batchOf(2, 10, testStartMs), 0)
	}
	if rolled {
		l.append.Lock()
		err := l.roll(10)
		l.append.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, base := range []cluster.Offset{10, 12} {
		b := batchOf(2, 10, testStartMs)
		b.SetBaseOffset(base)
		if _, err := l.AppendAsFollower(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	l.HighWatermarkMoved(l.LEO())
	if err := l.DeleteRecordsBefore(8, l.LEO()); err != nil {
		t.Fatal(err)
	}
	if err := r.s.CheckpointAll(); err != nil {
		t.Fatal(err)
	}
	return r, l
}

func checkOpenSinceBelow(t *testing.T, l *Log, start, end cluster.Offset, open bool) {
	t.Helper()
	lso, txn, aborted := end, int64(-1), "[]"
	if open {
		lso, txn, aborted = start, 0, "[{7 0}]"
	}
	l.HighWatermarkMoved(l.LEO())
	if l.LogStart() != start || l.LEO() != end || l.LSO(l.LEO()) != lso {
		t.Errorf("log %d..%d, LSO %d; want %d..%d, %d", l.LogStart(), l.LEO(), l.LSO(l.LEO()), start, end, lso)
	}
	for _, p := range l.ActiveProducers() {
		if int64(p.TxnStart) != txn {
			t.Errorf("producer %d has a transaction from %d, want %d", p.ID, p.TxnStart, txn)
		}
	}
	mustMark(t, l, false, 7, 0)
	l.HighWatermarkMoved(l.LEO())
	if got, err := l.AbortedTxns(start, l.LEO()); err != nil || fmt.Sprint(got) != aborted {
		t.Errorf("aborted: %v %v, want %s", got, err, aborted)
	}
	if l.LSO(l.LEO()) != l.LEO() {
		t.Errorf("LSO %d of %d after the marker", l.LSO(l.LEO()), l.LEO())
	}
}
