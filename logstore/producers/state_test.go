package producers

import (
	"errors"
	"hash/crc32"
	"math"
	"testing"
	"unsafe"

	"github.com/kbroker/kbroker/cluster"
)

// data is an idempotent batch of n records at offset first.
func data(id cluster.ProducerID, epoch cluster.ProducerEpoch, seq int32, first cluster.Offset, n int32) Batch {
	return Batch{
		ProducerID: id, Epoch: epoch, BaseSequence: seq, LastSequence: AddSequence(seq, n-1),
		First: first, Last: first + cluster.Offset(n) - 1, MaxTimestamp: 1000,
	}
}

func txn(id cluster.ProducerID, epoch cluster.ProducerEpoch, seq int32, first cluster.Offset, n int32) Batch {
	b := data(id, epoch, seq, first, n)
	b.Transactional = true
	return b
}

func marker(id cluster.ProducerID, epoch cluster.ProducerEpoch, at cluster.Offset, m Marker) Batch {
	return Batch{
		ProducerID: id, Epoch: epoch, BaseSequence: NoSequence, LastSequence: NoSequence, First: at, Last: at,
		MaxTimestamp: 2000, Transactional: true, Control: true, Marker: m,
	}
}

func mustApply(t *testing.T, s *State, b Batch) Completed {
	t.Helper()
	if _, dup, err := s.Check(&b, CheckOptions{Origin: Coordinator}); dup || err != nil {
		t.Fatalf("%+v: %v %v", b, dup, err)
	}
	done, ok := s.Apply(&b)
	if ok {
		s.Complete(done)
	}
	s.SetEnd(b.Last + 1)
	return done
}

func wantErr(t *testing.T, s *State, b Batch, o CheckOptions, want error) {
	t.Helper()
	if _, dup, err := s.Check(&b, o); dup || !errors.Is(err, want) {
		t.Fatalf("%+v: duplicate %v, %v, want %v", b, dup, err, want)
	}
}

// TestWindow: any of the last batches is recognised with its offsets, one before them
// without.
func TestWindow(t *testing.T) {
	var s State
	const sent = WindowSize + 1
	for i := range int32(sent) {
		mustApply(t, &s, data(1, 0, i*2, cluster.Offset(100+i*2), 2))
	}
	for i := range int32(sent) {
		b := data(1, 0, i*2, 500, 2)
		got, dup, err := s.Check(&b, CheckOptions{})
		if before := (Written{First: -1, Last: 101, Timestamp: -1}); i == 0 {
			if !dup || err != nil || got != before {
				t.Fatalf("the batch before the window: %+v %v %v, want %+v", got, dup, err, before)
			}
			continue
		}
		if want := (Written{First: cluster.Offset(100 + i*2), Last: cluster.Offset(101 + i*2), Timestamp: 1000}); !dup || err != nil || got != want {
			t.Fatalf("batch %d: %+v %v %v, want %+v", i, got, dup, err, want)
		}
	}
	wantErr(t, &s, data(1, 0, 2*sent-2, 500, 1), CheckOptions{}, ErrOutOfOrderSequence) // half of the last batch
	wantErr(t, &s, data(1, 0, 2*sent+1, 500, 1), CheckOptions{}, ErrOutOfOrderSequence) // a gap
}

// What a Java producer does at a change of leader, seen in a drill: three batches
// without an answer from the old leader, which the new one has as well, three new
// ones at that, and then the first of all again.
func TestRepeatsAtTheNextLeader(t *testing.T) {
	var s State
	for i := range int32(6) {
		mustApply(t, &s, data(1, 0, 401+i, cluster.Offset(1609+i), 1))
	}
	for i := range int32(6) {
		b := data(1, 0, 401+i, 1700, 1)
		got, dup, err := s.Check(&b, CheckOptions{})
		if want := cluster.Offset(1609 + i); !dup || err != nil || got.First != want {
			t.Errorf("batch %d of 6 again: offset %d, duplicate %v (%v), want %d", i+1, got.First, dup, err, want)
		}
	}
}

// What stands between the first batch that is known and the window is known to be in
// the log, whatever its boundaries; what comes before is not, and neither is what
// reaches into the window.
func TestRepeatsFromBeforeTheWindow(t *testing.T) {
	near := int32(math.MaxInt32 - 20)
	for _, first := range []int32{0, 17, near} { // 17: its first batches were sent away, or deleted
		var s State
		for i := range int32(40) {
			mustApply(t, &s, data(1, 0, AddSequence(first, i), cluster.Offset(100+i), 1))
		}
		for _, c := range []struct {
			from, n int32
			want    bool
		}{{0, 1, true}, {29, 1, true}, {3, 20, true}, {0, 30, true}, {29, 2, false}, {0, 31, false}, {0, 41, false}, {40, 3, false}, {41, 1, false}} {
			b := data(1, 0, AddSequence(first, c.from), 500, c.n)
			got, dup, err := s.Check(&b, CheckOptions{})
			if c.want && (!dup || err != nil || got != Written{First: -1, Last: 129, Timestamp: -1}) {
				t.Errorf("from %d, %d records at %d: %+v %v %v", first, c.n, c.from, got, dup, err)
			}
			if !c.want && c.from != 40 && (dup || !errors.Is(err, ErrOutOfOrderSequence)) {
				t.Errorf("from %d, %d records at %d: %+v %v %v, want out of order", first, c.n, c.from, got, dup, err)
			}
		}
		for _, c := range []struct{ back, n int32 }{{1, 1}, {3, 2}, {1, 2}, {12, 30}} {
			wantErr(t, &s, data(1, 0, SubSequence(first, c.back), 500, c.n), CheckOptions{}, ErrOutOfOrderSequence)
		}
	}
}

// A hole, which only a replicated log can have, another epoch, and a batch without a
// sequence each end what is known.
func TestRunsEnd(t *testing.T) {
	for name, odd := range map[string]Batch{
		"hole": data(1, 0, 25, 120, 1), "epoch": data(1, 1, 0, 120, 1), "no sequence": {ProducerID: 1, BaseSequence: -1, LastSequence: -1, First: 120, Last: 120},
	} {
		var s State
		for i := range int32(20) {
			mustApply(t, &s, data(1, 0, i, cluster.Offset(100+i), 1))
		}
		s.Apply(&odd)
		next := int32(0)
		if odd.BaseSequence >= 0 {
			next = odd.LastSequence + 1
		}
		for i := range int32(12) {
			b := data(1, odd.Epoch, next+i, cluster.Offset(130+i), 1)
			s.Apply(&b)
		}
		old := data(1, odd.Epoch, 3, 500, 1)
		if got, dup, _ := s.Check(&old, CheckOptions{}); name == "hole" && dup {
			t.Errorf("%s: a repeat of %d is taken for known: %+v", name, old.BaseSequence, got)
		}
		for _, seq := range []int32{next, next + 1} {
			b := data(1, odd.Epoch, seq, 500, 1)
			if _, dup, err := s.Check(&b, CheckOptions{}); !dup || err != nil {
				t.Errorf("%s: %d was written after it: %v %v", name, seq, dup, err)
			}
		}
	}
}

func TestSequenceWraps(t *testing.T) {
	if AddSequence(math.MaxInt32, 1) != 0 || AddSequence(math.MaxInt32-1, 3) != 1 || SubSequence(1, 3) != math.MaxInt32-1 || SubSequence(0, 1) != math.MaxInt32 {
		t.Fatal("sequence arithmetic")
	}
	var s State
	mustApply(t, &s, data(1, 0, math.MaxInt32-1, 0, 2))
	wantErr(t, &s, data(1, 0, 1, 2, 1), CheckOptions{}, ErrOutOfOrderSequence)
	next := data(1, 0, 0, 2, 3)
	if _, dup, err := s.Check(&next, CheckOptions{}); dup || err != nil {
		t.Fatal(dup, err)
	}
	mustApply(t, &s, next)
	across := data(1, 0, math.MaxInt32-1, 9, 2)
	if w, dup, _ := s.Check(&across, CheckOptions{}); !dup || w.First != 0 {
		t.Fatal("the batch before the wrap is not recognised")
	}
}

// TestFirstSequence is KAFKA-15591: an unknown producer may begin anywhere,
// unless its earlier batches are known to be under way.
func TestFirstSequence(t *testing.T) {
	var s State
	var away SentAway
	b := data(9, 2, 17, 0, 5)
	if _, _, err := s.Check(&b, CheckOptions{FromZero: away.Has(9, 2)}); err != nil {
		t.Fatalf("its records may have been deleted: %v", err)
	}
	away.Add(9, 2)
	wantErr(t, &s, b, CheckOptions{FromZero: away.Has(9, 2)}, ErrOutOfOrderSequence)
	if away.Has(9, 3) || away.Has(8, 2) {
		t.Fatal("only the producer in this epoch was sent away")
	}
	first := data(9, 2, 0, 0, 17)
	if _, _, err := s.Check(&first, CheckOptions{FromZero: true}); err != nil {
		t.Fatal(err)
	}
	mustApply(t, &s, first)
	if _, _, err := s.Check(&b, CheckOptions{FromZero: true}); err != nil {
		t.Fatal(err)
	}
	for i := range cluster.ProducerID(40) {
		away.Add(100+i, 0)
	}
	if away.Has(9, 2) || !away.Has(139, 0) {
		t.Fatal("the last few are remembered")
	}
	if (*SentAway)(nil).Has(1, 0) {
		t.Fatal("nobody was sent away from nowhere")
	}
}

func TestEpochs(t *testing.T) {
	var s State
	mustApply(t, &s, data(1, 3, 0, 0, 5))
	wantErr(t, &s, data(1, 2, 5, 5, 1), CheckOptions{}, ErrInvalidProducerEpoch)
	wantErr(t, &s, data(1, 4, 5, 5, 1), CheckOptions{}, ErrOutOfOrderSequence)
	mustApply(t, &s, data(1, 4, 0, 5, 1))
	if len(s.Window(1)) != 1 {
		t.Fatal("a new epoch starts an empty window")
	}
	// A marker of a higher epoch fences the producer, and its successor starts at 0.
	mustApply(t, &s, marker(1, 6, 6, Abort))
	wantErr(t, &s, data(1, 5, 0, 7, 1), CheckOptions{}, ErrInvalidProducerEpoch)
	wantErr(t, &s, data(1, 6, 1, 7, 1), CheckOptions{}, ErrOutOfOrderSequence)
	if b := data(1, 6, 0, 7, 1); true {
		if _, _, err := s.Check(&b, CheckOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTransactions(t *testing.T) {
	var s State
	mustApply(t, &s, txn(1, 0, 0, 0, 2))
	mustApply(t, &s, txn(2, 0, 0, 2, 2))
	if lso := s.LSO(0, 4); lso != 0 {
		t.Fatalf("LSO %d, want 0", lso)
	}
	wantErr(t, &s, data(1, 0, 2, 4, 1), CheckOptions{}, ErrInvalidTxnState)
	done := mustApply(t, &s, marker(1, 0, 4, Abort))
	if want := (Completed{ProducerID: 1, First: 0, Last: 4, Aborted: true, LastStable: 2}); done != want {
		t.Fatalf("%+v, want %+v", done, want)
	}
	if lso := s.LSO(0, 4); lso != 0 {
		t.Fatalf("the marker is not replicated: LSO %d, want 0", lso)
	}
	s.HighWatermarkMoved(5)
	if lso := s.LSO(0, 5); lso != 2 {
		t.Fatalf("LSO %d, want 2", lso)
	}
	done = mustApply(t, &s, marker(2, 0, 5, Commit))
	if want := (Completed{ProducerID: 2, First: 2, Last: 5, LastStable: 6}); done != want {
		t.Fatalf("%+v, want %+v", done, want)
	}
	if lso := s.LSO(3, 5); lso != 3 {
		t.Fatalf("LSO %d, want the log's start, 3", lso)
	}
	s.HighWatermarkMoved(6)
	if first, ok := s.FirstUnstable(); ok || s.LSO(0, 6) != 6 {
		t.Fatalf("unstable from %d", first)
	}
	b := marker(1, 0, 6, Commit) // nothing is open
	if _, ok := s.Apply(&b); ok {
		t.Fatal("a marker alone completes nothing")
	}
	// What compaction leaves of a marker changes nothing.
	b = marker(7, 0, 7, NoMarker)
	if s.Apply(&b); s.Len() != 2 {
		t.Fatal("an empty control batch makes no producer")
	}
}

func TestCoordinatorFencing(t *testing.T) {
	var s State
	b := marker(1, 0, 0, Commit)
	b.CoordinatorEpoch = 5
	mustApply(t, &s, b)
	b.CoordinatorEpoch = 4
	wantErr(t, &s, b, CheckOptions{Origin: Coordinator}, ErrCoordinatorFenced)
	if _, _, err := s.Check(&b, CheckOptions{Origin: Replication}); err != nil {
		t.Fatal(err)
	}
}

// TestVerification is KIP-890: the answer of the coordinator must not let a
// batch into a transaction that a marker has ended meanwhile.
func TestVerification(t *testing.T) {
	var s State
	b := txn(1, 0, 0, 0, 1)
	verify := func(g Guard) CheckOptions { return CheckOptions{Verify: true, Guard: g} }
	wantErr(t, &s, b, verify(NoGuard), ErrInvalidTxnState)
	g := s.StartVerification(1, 0, 0, 0)
	if g == NoGuard || s.StartVerification(1, 0, 3, 0) != g || s.Verification(1) != g {
		t.Fatal("one verification at a time")
	}
	wantErr(t, &s, b, verify(g+1), ErrInvalidTxnState)
	wantErr(t, &s, txn(1, 0, 3, 0, 1), verify(g), ErrOutOfOrderSequence) // 0 waits too
	mustApply(t, &s, marker(1, 0, 0, Abort))                             // before the answer came
	wantErr(t, &s, b, verify(g), ErrInvalidTxnState)
	g2 := s.StartVerification(1, 0, 0, 0)
	if g2 == g {
		t.Fatal("a guard is good once")
	}
	wantErr(t, &s, b, verify(g), ErrInvalidTxnState)
	if _, _, err := s.Check(&b, verify(g2)); err != nil {
		t.Fatal(err)
	}
	b.First, b.Last = 1, 1
	mustApply(t, &s, b)
	if s.StartVerification(1, 0, 1, 0) != NoGuard {
		t.Fatal("nothing is to be verified while the transaction is open")
	}
	next := txn(1, 0, 1, 2, 1)
	if _, _, err := s.Check(&next, verify(NoGuard)); err != nil {
		t.Fatal(err)
	}
	s.Reset(0)
	if s.StartVerification(1, 0, 0, 0) <= g2 {
		t.Fatal("a guard comes back after a reset")
	}
}

func TestExpire(t *testing.T) {
	var s State
	mustApply(t, &s, data(1, 0, 0, 0, 1)) // at 1000
	mustApply(t, &s, txn(2, 0, 0, 1, 1))
	s.StartVerification(3, 0, 0, 1000)
	if n := s.Expire(1999, 1000); n != 0 || s.Verification(3) == NoGuard {
		t.Fatal("too early")
	}
	if n := s.Expire(2000, 1000); n != 1 || s.Len() != 1 || s.Verification(3) != NoGuard {
		t.Fatalf("%d expired, %d left; an open transaction keeps its producer", n, s.Len())
	}
	if s.HasLateTxn(1000+60000+300000, 60000) || !s.HasLateTxn(1000+60000+300001, 60000) {
		t.Fatal("late means five minutes after the time-out")
	}
}

func TestLogStartMoved(t *testing.T) {
	var s State
	mustApply(t, &s, txn(1, 0, 0, 0, 1))
	mustApply(t, &s, marker(1, 0, 1, Commit))
	mustApply(t, &s, txn(2, 0, 0, 2, 1))
	s.LogStartMoved(2)
	if len(s.Unreplicated()) != 0 || s.Len() != 2 || s.End() != 3 {
		t.Fatalf("%v, %d producers, end %d", s.Unreplicated(), s.Len(), s.End())
	}
	s.LogStartMoved(10)
	if s.End() != 10 || s.LSO(10, 10) != 10 {
		t.Fatalf("end %d, LSO %d", s.End(), s.LSO(10, 10))
	}
}

func TestSnapshotErrors(t *testing.T) {
	var s State
	mustApply(t, &s, txn(1, 0, 0, 0, 1))
	good := s.Snapshot(nil)
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x40
		if err := new(State).Load(bad, 1, 0, 1<<40); !errors.Is(err, ErrCorruptSnapshot) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if err := new(State).Load(good[:i], 1, 0, 1<<40); !errors.Is(err, ErrCorruptSnapshot) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	other := SnapshotEntry{ProducerID: 1, LastOffset: 5, TxnFirst: 0}
	for _, entries := range [][]SnapshotEntry{
		{{ProducerID: 1}, {ProducerID: 1, TxnFirst: -1}},
		{{ProducerID: -1, TxnFirst: -1}},
		{other, {ProducerID: 2, TxnFirst: 0}},
		{{ProducerID: 1, LastOffset: 5, OffsetDelta: 6, TxnFirst: -1}},
		{{ProducerID: 1, LastOffset: 5, OffsetDelta: -1, TxnFirst: -1}},
	} {
		fresh := State{end: 77}
		if err := fresh.Load(EncodeSnapshot(nil, entries), 1, 0, 1<<40); !errors.Is(err, ErrCorruptSnapshot) || fresh.end != 77 {
			t.Fatalf("%+v: %v, end %d", entries, err, fresh.end)
		}
	}
	if err := s.Load(good, 1, 2000, 1000); err != nil || s.Len() != 1 || !s.TxnOpen(1) {
		t.Fatal("a producer with an open transaction does not expire")
	}
}

// TestNoAllocation is the append path of a batch without a producer id (which
// does not come here but for SetEnd and LSO) and of a known producer.
func TestNoAllocation(t *testing.T) {
	var s State
	b := data(1, 0, 0, 0, 3)
	mustApply(t, &s, b)
	if n := testing.AllocsPerRun(1000, func() {
		b.BaseSequence, b.First = AddSequence(b.LastSequence, 1), b.Last+1
		b.LastSequence, b.Last = AddSequence(b.BaseSequence, 2), b.First+2
		if _, dup, err := s.Check(&b, CheckOptions{Origin: Client}); dup || err != nil {
			t.Fatal(dup, err)
		}
		s.Apply(&b)
		s.SetEnd(b.Last + 1)
		s.HighWatermarkMoved(b.Last)
		s.LSO(0, b.Last)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// FuzzSnapshot: nothing but what can be written is read, and it is written
// again as it was.
func FuzzSnapshot(f *testing.F) {
	var s State
	f.Add(s.Snapshot(nil), true)
	for i := range cluster.ProducerID(3) {
		b := txn(i, 0, 5, cluster.Offset(i), 1)
		s.Apply(&b)
	}
	f.Add(s.Snapshot(nil), true)
	f.Add(s.Snapshot(nil)[:40], false)
	f.Add(EncodeSnapshot(nil, []SnapshotEntry{{ProducerID: 7, LastOffset: -1, TxnFirst: -1, Timestamp: -1}}), true)
	f.Fuzz(func(t *testing.T, file []byte, fixCRC bool) {
		if fixCRC && len(file) >= snapshotHeader {
			crc := crc32.Checksum(file[snapshotCRCFrom:], castagnoli)
			file = append([]byte{file[0], file[1], byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)}, file[snapshotCRCFrom:]...)
		}
		entries, err := DecodeSnapshot(file)
		if err != nil {
			if !errors.Is(err, ErrCorruptSnapshot) {
				t.Fatal(err)
			}
			return
		}
		if again := EncodeSnapshot(nil, entries); string(again) != string(file) {
			t.Fatalf("%x, written again %x", file, again)
		}
		var s State
		if err := s.Load(file, 100, 0, 1<<62); err != nil {
			return
		}
		if err := s.Invariants(); err != nil {
			t.Fatal(err)
		}
		s.Snapshot(nil)
	})
}

func BenchmarkCheckApply(b *testing.B) {
	var s State
	x := data(1, 0, 0, 0, 3)
	s.Apply(&x)
	for b.Loop() {
		x.BaseSequence, x.First = AddSequence(x.LastSequence, 1), x.Last+1
		x.LastSequence, x.Last = AddSequence(x.BaseSequence, 2), x.First+2
		_, _, _ = s.Check(&x, CheckOptions{})
		s.Apply(&x)
		s.SetEnd(x.Last + 1)
	}
}

// TestSize: a broker has tens of thousands of partitions, most without producers.
func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(State{}); n > 96 {
		t.Errorf("an empty state has %d bytes", n)
	}
	if n := unsafe.Sizeof(entry{}); n > 288 {
		t.Errorf("a producer has %d bytes", n)
	}
}
