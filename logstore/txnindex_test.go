package logstore

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/producers"
)

func newTxnIndex(t *testing.T, f vfs.FS, base cluster.Offset) *txnIndex {
	t.Helper()
	x, err := openTxnIndex(f, "/x.txnindex", base)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestTxnIndexModel compares with a list that is searched from end to end, with
// few entries (kept in memory) and many (read from the file), across reopening,
// truncation and reset.
func TestTxnIndexModel(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := vfs.NewMem()
		base := cluster.Offset(r.IntN(100))
		x := newTxnIndex(t, m, base)
		var model []abortedEntry
		next := base
		fill := 60
		if seed%20 == 0 {
			fill = 3 * txnCached
		}
		for step := range fill {
			what := r.IntN(10)
			if what > 4 || seed%20 == 0 && step%500 != 0 {
				what = 0
			}
			switch what {
			case 0, 1: // an abort; transactions overlap, and begin in earlier segments
				next += cluster.Offset(1 + r.IntN(4))
				e := abortedEntry{ProducerID: cluster.ProducerID(r.IntN(9)), First: max(0, next-cluster.Offset(r.IntN(120))), Last: next}
				e.LastStable = next + 1 - cluster.Offset(r.IntN(40))
				if n := len(model); n > 0 {
					e.LastStable = max(e.LastStable, model[n-1].LastStable)
				}
				if err := x.append(e); err != nil {
					t.Fatal(err)
				}
				model = append(model, e)
			case 2:
				x = newTxnIndex(t, m, base)
			case 3:
				off := next - cluster.Offset(r.IntN(60))
				if err := x.truncateTo(off); err != nil {
					t.Fatal(err)
				}
				model = slices.DeleteFunc(model, func(e abortedEntry) bool { return e.Last >= off })
				next = max(base, off)
			case 4:
				if r.IntN(5) == 0 {
					if err := x.reset(); err != nil {
						t.Fatal(err)
					}
					model, next = nil, base
				}
			}
			from := base + cluster.Offset(r.IntN(int(next-base)+20))
			upTo := from + cluster.Offset(1+r.IntN(100))
			if fill > txnCached && step%20 != 0 {
				continue
			}
			compareTxns(t, seed, x, model, from, upTo)
		}
		all, err := x.all()
		if err != nil || !slices.Equal(all, model) {
			t.Fatalf("seed %d: %v, %d entries, want %d", seed, err, len(all), len(model))
		}
		if n := m.OpenFiles(); n != 0 {
			t.Fatalf("%d files left open", n)
		}
	}
}

func compareTxns(t *testing.T, seed uint64, x *txnIndex, model []abortedEntry, from, upTo cluster.Offset) {
	t.Helper()
	var want []abortedEntry
	wantDone := false
	for _, e := range model {
		if e.Last >= from && e.First < upTo {
			want = append(want, e)
		}
		if e.LastStable >= upTo {
			wantDone = true
			break
		}
	}
	got, done, err := x.collect(nil, from, upTo)
	if err != nil || !slices.Equal(got, want) || done != wantDone {
		t.Fatalf("seed %d: %d-%d of %d: got %v %v, want %v %v, %v", seed, from, upTo, len(model), got, done, want, wantDone, err)
	}
}

// TestTxnIndexBytes reads Apache Kafka's file and writes the same.
func TestTxnIndexBytes(t *testing.T) {
	for _, base := range []int64{20, 55, 119, 228} {
		path := filepath.Join(kafkaData, "data/gold-0", fileName(base, extTxnIndex))
		x, err := openTxnIndex(vfs.OS, path, cluster.Offset(base))
		if err != nil {
			t.Fatal(err)
		}
		all, err := x.all()
		if err != nil || len(all) < 2 {
			t.Fatal(all, err)
		}
		m := vfs.NewMem()
		ours := newTxnIndex(t, m, cluster.Offset(base))
		for _, e := range all {
			if err := ours.append(e); err != nil {
				t.Fatal(err)
			}
		}
		if want := getFile(t, vfs.OS, path); string(getFile(t, m, "/x.txnindex")) != string(want) {
			t.Fatalf("segment %d: other bytes", base)
		}
	}
}

func TestTxnIndexRefuses(t *testing.T) {
	m := vfs.NewMem()
	x := newTxnIndex(t, m, 10)
	if _, _, err := x.collect(nil, 0, 100); err != nil {
		t.Fatal(err)
	}
	if ok, _ := vfs.Exists(m, "/x.txnindex"); ok {
		t.Fatal("the file is there without an aborted transaction")
	}
	if err := x.append(abortedEntry{ProducerID: 1, First: 5, Last: 12, LastStable: 13}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []abortedEntry{
		{First: 5, Last: 12, LastStable: 13},  // twice
		{First: 5, Last: 11, LastStable: 12},  // back
		{First: 20, Last: 19, LastStable: 20}, // ends before it begins
		{First: -1, Last: 20, LastStable: 20},
	} {
		if err := x.append(e); !errors.Is(err, errBadIndex) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	good := getFile(t, m, "/x.txnindex")
	for i := 1; i < len(good); i++ {
		putFile(t, m, "/x.txnindex", good[:i])
		if _, err := openTxnIndex(m, "/x.txnindex", 10); !errors.Is(err, errBadIndex) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	putFile(t, m, "/x.txnindex", good)
	if _, err := openTxnIndex(m, "/x.txnindex", 13); !errors.Is(err, errBadIndex) {
		t.Errorf("entry before the segment: %v", err)
	}
	bad := slices.Clone(good)
	bad[1] = 1
	putFile(t, m, "/x.txnindex", bad)
	if _, err := openTxnIndex(m, "/x.txnindex", 10); !errors.Is(err, errBadIndex) {
		t.Errorf("version 1: %v", err)
	}
}

// TestTxnIndexTornAppend: an append that failed half way leaves the index as it
// was, and the next one overwrites what it left.
func TestTxnIndexTornAppend(t *testing.T) {
	m := vfs.NewMem()
	var faults vfs.Faults
	x := newTxnIndex(t, vfs.WithHook(m, faults.Hook), 0)
	a := abortedEntry{ProducerID: 1, First: 0, Last: 5, LastStable: 6}
	b := abortedEntry{ProducerID: 2, First: 7, Last: 9, LastStable: 10}
	if err := x.append(a); err != nil {
		t.Fatal(err)
	}
	faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpWrite}, Times: 1, Short: 10, Err: errors.New("no space")})
	if err := x.append(b); err == nil {
		t.Fatal("the write failed")
	}
	if got, _, err := x.collect(nil, 0, 100); err != nil || !slices.Equal(got, []abortedEntry{a}) {
		t.Fatal(got, err)
	}
	if err := x.append(b); err != nil {
		t.Fatal(err)
	}
	if got, err := newTxnIndex(t, m, 0).all(); err != nil || !slices.Equal(got, []abortedEntry{a, b}) {
		t.Fatal(got, err)
	}
}

func TestTxnIndexLookupAllocatesNothing(t *testing.T) {
	x := newTxnIndex(t, vfs.NewMem(), 0)
	for i := range cluster.Offset(100) {
		if err := x.append(abortedEntry{First: i * 10, Last: i*10 + 5, LastStable: i*10 + 6}); err != nil {
			t.Fatal(err)
		}
	}
	dst := make([]abortedEntry, 0, 100)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = x.collect(dst[:0], 400, 500) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// FuzzTxnIndex: a file is either refused as damaged or holds only entries that
// could have been appended, and looking them up agrees with the obvious way.
func FuzzTxnIndex(f *testing.F) {
	one := appendAborted(nil, abortedEntry{ProducerID: 1, First: 3, Last: 12, LastStable: 13})
	two := appendAborted(slices.Clone(one), abortedEntry{ProducerID: 2, First: 0, Last: 40, LastStable: 20})
	f.Add(one, int64(10), int64(0), int64(100))
	f.Add(two, int64(10), int64(15), int64(20))
	f.Add(two[:50], int64(0), int64(0), int64(1))
	f.Add([]byte{}, int64(0), int64(0), int64(1))
	f.Fuzz(func(t *testing.T, file []byte, base, from, upTo int64) {
		m := vfs.NewMem()
		putFile(t, m, "/x.txnindex", file)
		x, err := openTxnIndex(m, "/x.txnindex", cluster.Offset(base))
		if err != nil {
			if !errors.Is(err, errBadIndex) {
				t.Fatal(err)
			}
			return
		}
		all, err := x.all()
		if err != nil {
			t.Fatal(err)
		}
		var again []byte
		for i, e := range all {
			if e.Last < cluster.Offset(base) || e.First > e.Last || i > 0 && e.Last <= all[i-1].Last {
				t.Fatalf("%+v", all)
			}
			again = appendAborted(again, e)
		}
		if len(all) == int(x.count) && string(again) != string(file) {
			t.Fatalf("%x, written again %x", file, again)
		}
		if _, _, err := x.collect(nil, cluster.Offset(from), cluster.Offset(upTo)); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzIndexFiles: Dump and the check of index files take any bytes.
func FuzzIndexFiles(f *testing.F) {
	for _, ext := range []string{extIndex, extTimeIndex} {
		f.Add(ext == extIndex, getSeed(f, "data/gold-0/"+fileName(20, ext)))
	}
	f.Add(true, make([]byte, 64))
	f.Add(false, make([]byte, 13))
	log := getSeed(f, "data/gold-0/"+fileName(20, extLog))
	f.Fuzz(func(t *testing.T, offsets bool, file []byte) {
		ext := extTimeIndex
		if offsets {
			ext = extIndex
		}
		m := vfs.NewMem()
		if err := m.MkdirAll("/d/gold-0"); err != nil {
			t.Fatal(err)
		}
		putFile(t, m, "/d/gold-0/"+fileName(20, extLog), log)
		putFile(t, m, "/d/gold-0/"+fileName(20, ext), file)
		putFile(t, m, "/d/"+cleanShutdownFile, nil)
		if err := Dump(discard{}, m, "/d/gold-0/"+fileName(20, ext), false); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if _, err := CheckDir(m, "/d"); err != nil {
			t.Fatal(err)
		}
	})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func getSeed(f *testing.F, name string) []byte {
	f.Helper()
	data, err := vfs.ReadFile(vfs.OS, filepath.Join(kafkaData, name), 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	return data
}

// TestSnapshotBytes reads Apache Kafka's snapshots and writes the same.
func TestSnapshotBytes(t *testing.T) {
	for _, base := range []int64{20, 51, 119, 372} {
		data := getFile(t, vfs.OS, filepath.Join(kafkaData, "data/gold-0", fileName(base, extSnapshot)))
		var s producers.State
		if err := s.Load(data, cluster.Offset(base), 0, 1<<62); err != nil {
			t.Fatal(err)
		}
		if got := s.Snapshot(nil); string(got) != string(data) {
			t.Errorf("snapshot %d: other bytes", base)
		}
	}
}
