package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// written is a log of a few batches, its file's bytes, and where each batch ends.
type written struct {
	mem  *vfs.Mem
	file string
	data []byte
	ends []int
	leos []cluster.Offset
}

// writeSome makes a log that was killed: a transaction, an idempotent producer,
// plain and compressed batches.
func writeSome(t *testing.T) written {
	mem := vfs.NewMem()
	cfg := testConfig()
	cfg.IndexIntervalBytes = 100
	r := newRig(t, mem, cfg).open()
	l := r.create(tpA)
	w := written{mem: mem, file: "/data/alpha-0/00000000000000000000.log"}
	c := record.NewBuilder(record.BuilderOptions{Codec: record.CodecSnappy})
	for i := range 5 {
		c.Append(testStartMs+int64(i), []byte("k"), bytes.Repeat([]byte("v"), 50), nil)
	}
	for i, b := range []record.Batch{
		batchOf(3, 40, testStartMs), producerBatchOf(1, 0, 0, 2, false, testStartMs+5), producerBatchOf(7, 0, 0, 2, true, testStartMs+6),
		batchOf(1, 200, testStartMs+9), record.EndTxnMarker(false, 7, 0, 0, testStartMs+10), producerBatchOf(1, 0, 2, 1, false, testStartMs+11), c.Build(),
	} {
		o := AppendOptions{}
		if b.Control() {
			o.Origin = Coordinator
		}
		info, err := l.AppendAsLeader(validated(b), cluster.LeaderEpoch(i/4), o)
		if err != nil {
			t.Fatal(err)
		}
		w.ends = append(w.ends, int(l.Size()))
		w.leos = append(w.leos, info.Last+1)
	}
	r.crash()
	data, err := vfs.ReadFile(mem, w.file, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	w.data = data
	return w
}

// validEnd is the obvious way to find where valid batches end.
func validEnd(data []byte) (end int, leo cluster.Offset) {
	for {
		one, _, err := record.Next(data[end:])
		if err != nil {
			return end, leo
		}
		b := record.Batch(one)
		if b.CheckHeader() != nil || b.CheckCRC() != nil || b.BaseOffset() < leo {
			return end, leo
		}
		end, leo = end+len(one), b.LastOffset()+1
	}
}

// TestEveryCutOfTheLastBatches kills the log at every byte of its last three
// batches, in every way, and wants exactly the valid batches back.
func TestEveryCutOfTheLastBatches(t *testing.T) {
	w := writeSome(t)
	rnd := rand.New(rand.NewSource(1))
	kinds := map[string]func(at int) []byte{
		"cut":  func(at int) []byte { return bytes.Clone(w.data[:at]) },
		"zero": func(at int) []byte { return append(bytes.Clone(w.data[:at]), make([]byte, len(w.data)-at)...) },
		"zero beyond": func(at int) []byte {
			return append(bytes.Clone(w.data[:at]), make([]byte, 5000)...)
		},
		"garbage": func(at int) []byte {
			b := bytes.Clone(w.data)
			rnd.Read(b[at:])
			return b
		},
		"repeated tail": func(at int) []byte { return append(bytes.Clone(w.data[:at]), w.data[w.ends[2]:]...) },
		"one bit":       func(at int) []byte { b := bytes.Clone(w.data); b[min(at, len(b)-1)] ^= 4; return b },
	}
	first := w.ends[len(w.ends)-4]
	for kind, damage := range kinds {
		t.Run(kind, func(t *testing.T) {
			for at := first; at <= len(w.data); at++ {
				recoverDamaged(t, &w, damage(at), fmt.Sprintf("%s at %d", kind, at))
			}
		})
	}
}

// recoverDamaged opens a log whose file was replaced, compares it with the valid
// batches, and opens it again, which may not change anything.
func recoverDamaged(t *testing.T, w *written, data []byte, what string) {
	t.Helper()
	mem := w.mem.CrashClone(vfs.Crash{UnsyncedPercent: 100})
	writeWhole(t, mem, w.file, data)
	end, leo := validEnd(data)
	r := newRig(t, mem, testConfig())
	for round := range 2 {
		r.open()
		l := r.log(tpA)
		if l.LEO() != leo || l.Size() != int64(end) {
			t.Fatalf("%s, start %d: log ends at offset %d, byte %d; want %d, %d", what, round, l.LEO(), l.Size(), leo, end)
		}
		if got := readAll(t, l, 0); !bytes.Equal(got, data[:end]) {
			t.Fatalf("%s: other bytes than were valid", what)
		}
		checkRebuilt(t, l, data[:end], what)
		r.crash()
	}
}

// checkRebuilt compares what recovery derives from the batches.
func checkRebuilt(t *testing.T, l *Log, data []byte, what string) {
	t.Helper()
	m := modelLog{}
	m.add(data)
	m.hw = m.leo
	l.HighWatermarkMoved(l.LEO())
	if got := int64(l.LSO(l.LEO())); got != m.lso() {
		t.Fatalf("%s: LSO %d, want %d", what, got, m.lso())
	}
	got, err := l.AbortedTxns(0, l.LEO()+1)
	if want := m.aborted(0, m.leo+1); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: aborted %v %v, want %v", what, got, err, want)
	}
	found, ok, err := l.OffsetForTimestamp(testStartMs + 9)
	if want, there := m.byTime(testStartMs + 9); err != nil || ok != there || found != want {
		t.Fatalf("%s: by time %v %v %v, want %v %v", what, found, ok, err, want, there)
	}
	for _, b := range m.batches {
		if strings.HasPrefix(what, "one bit") {
			break // no checksum covers the leader epoch
		}
		if e, ok := l.Epochs().EpochAt(cluster.Offset(b.base)); !ok || e != record.Batch(b.raw).LeaderEpoch() {
			t.Fatalf("%s: epoch of %d is %d %v", what, b.base, e, ok)
		}
	}
}

func writeWhole(t testing.TB, fs vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil && len(data) > 0 {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// severalSegments is a log of several segments, cleanly stopped.
func severalSegments(t *testing.T, mem *vfs.Mem) (*rig, []byte) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 4000, 300
	cfg.RetentionMs = 1000 * 3600 * 1e9
	r := newRig(t, mem, cfg).open()
	l := r.create(tpA)
	for i := range 60 {
		mustAppend(t, l, batchOf(2, 50+i, testStartMs+int64(i)*10), cluster.LeaderEpoch(i/20))
	}
	all := readAll(t, l, 0)
	r.close()
	return r, all
}

// TestDamagedIndexes spoils every index file in every way, after a clean stop
// and after a kill, and wants every answer as before.
func TestDamagedIndexes(t *testing.T) {
	damages := map[string]func(t *testing.T, mem *vfs.Mem, name string, data []byte){
		"missing": func(t *testing.T, mem *vfs.Mem, name string, _ []byte) {
			if err := mem.Remove(name); err != nil {
				t.Fatal(err)
			}
		},
		"empty":    func(t *testing.T, mem *vfs.Mem, name string, _ []byte) { writeWhole(t, mem, name, nil) },
		"odd size": func(t *testing.T, mem *vfs.Mem, name string, d []byte) { writeWhole(t, mem, name, d[:len(d)-3]) },
		"zero tail": func(t *testing.T, mem *vfs.Mem, name string, d []byte) {
			writeWhole(t, mem, name, append(bytes.Clone(d), make([]byte, 240)...))
		},
		"all zero": func(t *testing.T, mem *vfs.Mem, name string, d []byte) {
			writeWhole(t, mem, name, make([]byte, len(d)))
		},
		"reversed": func(t *testing.T, mem *vfs.Mem, name string, d []byte) {
			r := bytes.Clone(d)
			reverse(r)
			writeWhole(t, mem, name, r)
		},
		"one zero entry": func(t *testing.T, mem *vfs.Mem, name string, d []byte) {
			n := offsetEntry
			if strings.HasSuffix(name, extTimeIndex) {
				n = timeEntry
			}
			writeWhole(t, mem, name, make([]byte, n))
		},
		"beyond": func(t *testing.T, mem *vfs.Mem, name string, d []byte) {
			b := bytes.Clone(d)
			binary.BigEndian.PutUint32(b[len(b)-4:], 1<<30)
			writeWhole(t, mem, name, b)
		},
		"off by one": func(t *testing.T, mem *vfs.Mem, name string, d []byte) {
			b := bytes.Clone(d)
			b[7]++
			writeWhole(t, mem, name, b)
		},
	}
	for kind, damage := range damages {
		for _, ext := range []string{extIndex, extTimeIndex} {
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s clean=%v", kind, ext, clean), func(t *testing.T) {
					mem := vfs.NewMem()
					r, all := severalSegments(t, mem)
					for _, base := range basesIn(t, mem) {
						name := "/data/alpha-0/" + fileName(base, ext)
						if data, err := vfs.ReadFile(mem, name, 1<<20); err == nil && len(data) >= 24 {
							damage(t, mem, name, data)
						}
					}
					if !clean {
						if err := mem.Remove("/data/" + cleanShutdownFile); err != nil {
							t.Fatal(err)
						}
					}
					r.open()
					checkAnswers(t, r, all)
					r.close()
					if kind != "off by one" { // nothing can tell
						checkDir(t, mem)
					}
				})
			}
		}
	}
}

// checkDir runs the offline check.
func checkDir(t *testing.T, fs vfs.FS) {
	t.Helper()
	problems, err := CheckDir(fs, "/data")
	if err != nil || len(problems) > 0 {
		t.Errorf("check: %v %v", problems, err)
	}
}

func reverse(b []byte) {
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
}

func basesIn(t *testing.T, fs vfs.FS) []int64 {
	entries, err := fs.ReadDir("/data/alpha-0")
	if err != nil {
		t.Fatal(err)
	}
	var bases []int64
	for _, e := range entries {
		if base, ext, ok := parseFileName(e.Name); ok && ext == extLog {
			bases = append(bases, base)
		}
	}
	return bases
}

// checkAnswers compares a log with the batches that it must hold: reads from
// every offset, lookups by time, and that retention deletes nothing young.
func checkAnswers(t *testing.T, r *rig, all []byte) {
	t.Helper()
	l := r.log(tpA)
	m := modelLog{}
	m.add(all)
	m.hw = m.leo
	for from := int64(0); from < m.leo; from++ {
		s, err := l.Read(cluster.Offset(from), 1, l.LEO(), true)
		if err != nil {
			t.Fatalf("read from %d: %v", from, err)
		}
		got, err := s.Bytes()
		if want := m.read(from, 1, m.leo, true); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read from %d: %d bytes %v, want %d", from, len(got), err, len(want))
		}
		s.Release()
	}
	for ts := int64(testStartMs) - 5; ts < testStartMs+620; ts += 7 {
		got, ok, err := l.OffsetForTimestamp(ts)
		if want, there := m.byTime(ts); err != nil || ok != there || got != want {
			t.Fatalf("offset for %d: %v %v %v, want %v %v", ts, got, ok, err, want, there)
		}
	}
	l.HighWatermarkMoved(l.LEO())
	if n, err := l.DeleteOldSegments(); n != 0 || err != nil {
		t.Fatalf("retention deleted %d segments: %v", n, err)
	}
	mustAppend(t, l, batchOf(1, 10, testStartMs), 2)
}

// TestLostFiles takes away what can be rebuilt.
func TestLostFiles(t *testing.T) {
	for _, name := range []string{
		"/data/" + recoveryPointCheckpoint, "/data/" + logStartCheckpoint, "/data/" + highWatermarkCheckpoint,
		"/data/alpha-0/" + leaderEpochCheckpoint, "/data/alpha-0/*.snapshot", "/data/alpha-0/" + partitionMetadataFile,
	} {
		for _, garbled := range []bool{false, true} {
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s garbled=%v clean=%v", name, garbled, clean), func(t *testing.T) {
					mem := vfs.NewMem()
					r, all := severalSegments(t, mem)
					spoil(t, mem, name, garbled)
					if !clean {
						if err := mem.Remove("/data/" + cleanShutdownFile); err != nil {
							t.Fatal(err)
						}
					}
					r.open()
					l := r.log(tpA)
					for i := range 60 {
						if e, ok := l.Epochs().EpochAt(cluster.Offset(i * 2)); !ok || e != cluster.LeaderEpoch(i/20) {
							t.Fatalf("epoch of %d is %d %v", i*2, e, ok)
						}
					}
					checkAnswers(t, r, all)
					r.close()
				})
			}
		}
	}
}

func spoil(t *testing.T, mem *vfs.Mem, pattern string, garbled bool) {
	var names []string
	if pattern == "/data/alpha-0/*.snapshot" {
		entries, _ := mem.ReadDir("/data/alpha-0")
		for _, e := range entries {
			if _, ext, ok := parseFileName(e.Name); ok && ext == extSnapshot {
				names = append(names, "/data/alpha-0/"+e.Name)
			}
		}
	} else {
		names = []string{pattern}
	}
	for _, name := range names {
		if garbled {
			writeWhole(t, mem, name, []byte("0\n7\nnonsense"))
		} else if err := mem.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecoveryPointBeyondEnd is KAFKA-10101.
func TestRecoveryPointBeyondEnd(t *testing.T) {
	mem := vfs.NewMem()
	r, all := severalSegments(t, mem)
	writeWhole(t, mem, "/data/"+recoveryPointCheckpoint, []byte("0\n1\nalpha 0 5000\n"))
	if err := mem.Remove("/data/" + cleanShutdownFile); err != nil {
		t.Fatal(err)
	}
	r.open()
	if l := r.log(tpA); l.RecoveryPoint() > l.LEO() {
		t.Errorf("recovery point %d, log end %d", l.RecoveryPoint(), l.LEO())
	}
	checkAnswers(t, r, all)
	r.close()
}

// TestFilesLeftBehind: indexes without a log, files that were being deleted, and
// what an interrupted compaction leaves.
func TestFilesLeftBehind(t *testing.T) {
	mem := vfs.NewMem()
	r, all := severalSegments(t, mem)
	bases := basesIn(t, mem)
	dir := "/data/alpha-0/"
	second, err := vfs.ReadFile(mem, dir+fileName(bases[1], extLog), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	writeWhole(t, mem, dir+fileName(9999, extIndex), make([]byte, 8))
	writeWhole(t, mem, dir+fileName(9999, extTimeIndex), nil)
	writeWhole(t, mem, dir+fileName(3, extLog)+suffixDeleted, []byte("x"))
	writeWhole(t, mem, dir+fileName(bases[3], extLog)+suffixCleaned, []byte("half"))
	writeWhole(t, mem, dir+fileName(bases[3], extIndex)+suffixCleaned, nil)
	// A finished replacement of the second segment, by itself: only the names
	// had not changed yet.
	writeWhole(t, mem, dir+fileName(bases[1], extLog)+suffixSwap, second)
	writeWhole(t, mem, dir+fileName(bases[1], extIndex)+suffixSwap, nil)
	writeWhole(t, mem, dir+fileName(bases[1], extTimeIndex)+suffixSwap, nil)
	// One of a split that did not get so far: behind a .cleaned file.
	writeWhole(t, mem, dir+fileName(bases[3]+1, extLog)+suffixSwap, []byte("half"))
	r.open()
	checkAnswers(t, r, all)
	r.close()
	entries, _ := mem.ReadDir("/data/alpha-0")
	for _, e := range entries {
		if _, ext, ok := parseFileName(e.Name); ok && ext != extLog && ext != extIndex && ext != extTimeIndex && ext != extSnapshot {
			t.Errorf("%s is still there", e.Name)
		}
		if base, _, _ := parseFileName(e.Name); base == 9999 {
			t.Errorf("%s is still there", e.Name)
		}
	}
}

// TestCorruptionInTheMiddle flips a bit in a flushed segment: nothing is
// truncated, who reads there is told, everything else is served.
func TestCorruptionInTheMiddle(t *testing.T) {
	mem := vfs.NewMem()
	r, _ := severalSegments(t, mem)
	base := basesIn(t, mem)[1]
	name := "/data/alpha-0/" + fileName(base, extLog)
	data, _ := vfs.ReadFile(mem, name, 1<<20)
	at := record.Batch(data).Length()
	data[at+8] ^= 0x40 // the length of the second batch
	writeWhole(t, mem, name, data)
	r.open()
	defer r.close()
	l := r.log(tpA)
	if l.LEO() != 120 || l.Size() == 0 {
		t.Fatalf("log ends at %d", l.LEO())
	}
	if _, err := l.Read(cluster.Offset(base)+2, 1000, l.LEO(), true); !errors.Is(err, ErrCorruptLog) {
		t.Errorf("read of the corrupt batch: %v", err)
	}
	for _, from := range []cluster.Offset{0, cluster.Offset(base), 119} {
		s, err := l.Read(from, 10, l.LEO(), true)
		if err != nil {
			t.Errorf("read from %d: %v", from, err)
			continue
		}
		s.Release()
	}
	if err := l.Offline(); err != nil {
		t.Errorf("the directory went offline: %v", err)
	}
}

// TestWindowSurvivesCleanStop: Apache Kafka 3.9.2 keeps one batch of five.
func TestWindowSurvivesCleanStop(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes = 3000
	r := newRig(t, vfs.NewMem(), cfg).open()
	l := r.create(tpA)
	var sent []record.Batch
	for i := range int32(12) {
		b := producerBatchOf(5, 2, i*2, 2, false, testStartMs)
		sent = append(sent, b)
		mustAppend(t, l, b, 0)
		mustAppend(t, l, batchOf(1, 700, testStartMs), 0) // so that the window lies in several segments
	}
	for range 2 {
		r.close()
		r.open()
		l = r.log(tpA)
		leo := l.LEO()
		for i, b := range sent {
			info, err := l.AppendAsLeader(validated(b), 0, AppendOptions{})
			if i < len(sent)-producers.WindowSize {
				if !errors.Is(err, producers.ErrOutOfOrderSequence) {
					t.Errorf("batch %d, older than the window: %+v %v", i, info, err)
				}
				continue
			}
			if err != nil || !info.Duplicate || info.First != cluster.Offset(i*3) || info.Last != cluster.Offset(i*3+1) {
				t.Errorf("batch %d again: %+v %v", i, info, err)
			}
		}
		if l.LEO() != leo {
			t.Errorf("repeats were written: %d, then %d", leo, l.LEO())
		}
	}
	r.close()
}

// TestHoleBetweenSegments: a power loss took the last batch of a segment whole,
// but not the segment after it.
func TestHoleBetweenSegments(t *testing.T) {
	for _, compact := range []bool{false, true} {
		mem := vfs.NewMem()
		cfg := testConfig()
		cfg.SegmentBytes, cfg.Compact = 1000, compact
		r := newRig(t, mem, cfg).open()
		l := r.create(tpA)
		for range 6 {
			mustAppend(t, l, batchOf(1, 400, testStartMs), 0)
		}
		size := record.Batch(readAll(t, l, 0)).Length()
		r.crash()
		name := "/data/alpha-0/" + fileName(2, extLog)
		data, err := vfs.ReadFile(mem, name, 1<<20)
		if err != nil || len(data) != 2*size {
			t.Fatalf("%d bytes %v", len(data), err)
		}
		writeWhole(t, mem, name, data[:size])
		r.open()
		want := cluster.Offset(3)
		if compact {
			want = 6
		}
		if l := r.log(tpA); l.LEO() != want {
			t.Errorf("compact %v: log ends at %d, want %d", compact, l.LEO(), want)
		}
		r.close()
		if !compact {
			checkDir(t, mem)
		}
	}
}

// TestRollAtTheRecoveryPoint: everything was flushed, and then the segment was
// sealed right there. Its last index entries are not on disk yet; the checkpoint
// must not vouch for them.
func TestRollAtTheRecoveryPoint(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig()
	cfg.IndexIntervalBytes = 100
	r := newRig(t, mem, cfg).open()
	l := r.create(tpA)
	for i := range 20 {
		mustAppend(t, l, batchOf(1, 100, testStartMs+int64(i)), 0)
	}
	step := func(what string) {
		t.Helper()
		if err := r.s.CheckpointAll(); err != nil {
			t.Fatal(err)
		}
		points, err := readOffsetCheckpoint(mem, "/data", recoveryPointCheckpoint)
		if err != nil || points[tpA] >= 20 {
			t.Errorf("%s: the checkpoint says %d %v", what, points[tpA], err)
		}
		lost := mem.CrashClone(vfs.Crash{})
		again := newRig(t, lost, cfg).open()
		checkAnswers(t, again, readAll(t, again.log(tpA), 0))
		if leo := again.log(tpA).LEO(); leo != 21 {
			t.Errorf("%s: log ends at %d after a power loss", what, leo)
		}
		again.close()
	}
	if err := l.Flush(l.LEO()); err != nil || l.RecoveryPoint() != 20 {
		t.Fatalf("recovery point %d: %v", l.RecoveryPoint(), err)
	}
	step("flushed")
	if err := forceRoll(l); err != nil {
		t.Fatal(err)
	}
	step("rolled")
	r.clock.Advance(0) // the sealed segment is synced
	if err := r.s.CheckpointAll(); err != nil {
		t.Fatal(err)
	}
	if points, _ := readOffsetCheckpoint(mem, "/data", recoveryPointCheckpoint); points[tpA] != 20 {
		t.Errorf("synced: the checkpoint says %d", points[tpA])
	}
	r.close()
}
