package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

func cleanerConfig() CleanerConfig {
	return CleanerConfig{Threads: 1, DedupeBuffer: 8 << 20, LoadFactor: 0.9, IOBuffer: 64 << 10, MaxIORate: math.MaxFloat64, Backoff: 15 * time.Second, MaxMessageBytes: 1 << 20}
}

func compactConfig() config.Log {
	cfg := testConfig()
	cfg.Compact, cfg.Delete = true, false
	cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.MinCleanableRatio = 1000, 200, 0
	return cfg
}

// cleanNow cleans until nothing is dirty enough, and returns how often it did.
func cleanNow(r *rig) (n int) {
	c := r.s.cleaner
	if c == nil {
		c = newCleaners(r.s)
	}
	for w := c.newWorker(0); w.round(cleanerConfig()); n++ {
	}
	return n
}

// keyed is a batch of one record.
func keyed(key, value string, ts int64) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{})
	var v []byte
	if value != "" {
		v = []byte(value)
	}
	b.Append(ts, []byte(key), v, nil)
	return b.Build()
}

// rewriteKeys writes the keys over and over, and then a few records that fill the
// active segment.
func rewriteKeys(t testing.TB, r *rig, l *Log, keys, times int) {
	t.Helper()
	for i := range times {
		for k := range keys {
			mustAppend(t, l, keyed(fmt.Sprint("k", k), fmt.Sprintf("value %d %s", i, strings.Repeat("x", 50)), r.clock.Now().UnixMilli()), 0)
		}
	}
	if err := forceRoll(l); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, keyed("last", "one", r.clock.Now().UnixMilli()), 0)
	l.HighWatermarkMoved(l.LEO())
}

func recordsIn(t testing.TB, l *Log) (list []string) {
	t.Helper()
	for _, b := range plainLog(t, readAll(t, l, l.LogStart())) {
		for _, r := range b.recs {
			list = append(list, fmt.Sprintf("%d:%s", r.off, r.key))
		}
	}
	return list
}

func TestCleanKeepsTheLastOfEachKey(t *testing.T) {
	r := newRig(t, vfs.NewMem(), compactConfig()).open()
	defer r.close()
	l := r.create(tpA)
	rewriteKeys(t, r, l, 3, 30)
	if n := cleanNow(r); n != 1 {
		t.Fatalf("cleaned %d times", n)
	}
	if got, want := fmt.Sprint(recordsIn(t, l)), "[87:k0 88:k1 89:k2 90:last]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	m, err := readOffsetCheckpoint(r.fs, "/data", cleanerCheckpoint)
	if err != nil || len(m) != 1 || m[tpA] != 90 {
		t.Errorf("checkpoint %v %v", m, err)
	}
	if want := int64(len(readAll(t, l, 0))); l.Size() != want {
		t.Errorf("size %d, want %d", l.Size(), want)
	}
	// What the first cleaning left small becomes one segment with the next.
	before := l.Segments()
	rewriteKeys(t, r, l, 1, 1)
	cleanNow(r)
	if l.Segments() != 2 || before < 10 {
		t.Errorf("%d segments, %d before the second cleaning", l.Segments(), before)
	}
}

// TestCleanStops: at the high watermark, at an open transaction, at what is too
// young.
func TestCleanStops(t *testing.T) {
	for what, limit := range map[string]func(r *rig, l *Log){
		"high watermark": func(r *rig, l *Log) { l.HighWatermarkMoved(0) },
		"young": func(r *rig, l *Log) {
			cfg := r.cfg
			cfg.MinCompactionLag = time.Hour
			l.SetConfig(cfg)
		},
		"dirty ratio": func(r *rig, l *Log) {
			cfg := r.cfg
			cfg.MinCleanableRatio = 1
			l.SetConfig(cfg)
		},
		"not compacted": func(r *rig, l *Log) {
			cfg := r.cfg
			cfg.Compact, cfg.Delete = false, true
			l.SetConfig(cfg)
		},
	} {
		r := newRig(t, vfs.NewMem(), compactConfig()).open()
		l := r.create(tpA)
		rewriteKeys(t, r, l, 3, 30)
		limit(r, l)
		if n := cleanNow(r); n != 0 {
			t.Errorf("%s: cleaned %d times", what, n)
		}
		if what == "young" {
			r.clock.Advance(time.Hour)
			if n := cleanNow(r); n != 1 {
				t.Errorf("%s: cleaned %d times an hour later", what, n)
			}
		}
		r.close()
	}

	r := newRig(t, vfs.NewMem(), compactConfig()).open()
	defer r.close()
	l := r.create(tpA)
	rewriteKeys(t, r, l, 3, 10)
	open := l.LEO()
	mustAppend(t, l, producerBatchOf(2, 0, 0, 1, true, testStartMs), 0)
	rewriteKeys(t, r, l, 3, 30)
	cleanNow(r)
	if l.cleanedTo > int64(open) || l.cleanedTo < int64(open)-20 {
		t.Errorf("cleaned up to %d, a transaction is open from %d on", l.cleanedTo, open)
	}
}

// TestCleanMaxLag: a log with one dirty segment is cleaned in time, whatever its
// ratio.
func TestCleanMaxLag(t *testing.T) {
	cfg := compactConfig()
	cfg.MinCleanableRatio, cfg.MaxCompactionLag = 1, time.Hour
	r := newRig(t, vfs.NewMem(), cfg).open()
	defer r.close()
	l := r.create(tpA)
	rewriteKeys(t, r, l, 3, 30)
	if n := cleanNow(r); n != 0 {
		t.Errorf("cleaned %d times", n)
	}
	r.clock.Advance(time.Hour + time.Millisecond)
	if n := cleanNow(r); n != 1 {
		t.Errorf("cleaned %d times after max.compaction.lag.ms", n)
	}
}

// TestCleanTombstones: a tombstone goes with the first cleaning that begins
// delete.retention.ms after the first that saw it.
func TestCleanTombstones(t *testing.T) {
	cfg := compactConfig()
	cfg.DeleteRetentionMs = time.Hour
	r := newRig(t, vfs.NewMem(), cfg).open()
	defer r.close()
	l := r.create(tpA)
	mustAppend(t, l, keyed("gone", "value", testStartMs), 0)
	mustAppend(t, l, keyed("gone", "", testStartMs), 0)
	for i, want := range []string{"[1:gone 4:k0 5:last]", "[1:gone 5:last 8:k0 9:last]", "[9:last 12:k0 13:last]"} {
		if i == 0 {
			mustAppend(t, l, keyed("k0", "a", testStartMs), 0)
			mustAppend(t, l, keyed("k0", "b", testStartMs), 0)
			rewriteKeys(t, r, l, 1, 1)
		} else {
			rewriteKeys(t, r, l, 1, 3)
		}
		cleanNow(r)
		got := fmt.Sprint(recordsIn(t, l))
		if i == 1 && got == "[1:gone 8:k0 9:last]" {
			got = want // last is a key, too
		}
		if got != want {
			t.Errorf("cleaning %d: %s, want %s", i, got, want)
		}
		r.clock.Advance(30 * time.Minute)
	}
}

// TestCleanTruncation: what is written in place of what was cut off is compacted
// in its turn, also after a stop.
func TestCleanTruncation(t *testing.T) {
	r := newRig(t, vfs.NewMem(), compactConfig()).open()
	l := r.create(tpA)
	rewriteKeys(t, r, l, 3, 30)
	cleanNow(r)
	if err := l.TruncateTo(40); err != nil {
		t.Fatal(err)
	}
	if l.cleanedTo != int64(l.LEO()) {
		t.Errorf("cleaned to %d, the log ends at %d", l.cleanedTo, l.LEO())
	}
	m, err := readOffsetCheckpoint(r.fs, "/data", cleanerCheckpoint)
	if err != nil || m[tpA] != l.LEO() {
		t.Errorf("checkpoint %v %v, the log ends at %d", m, err, l.LEO())
	}
	r.close()
	r.open()
	l = r.log(tpA)
	if l.cleanedTo != int64(l.LEO()) {
		t.Errorf("after a stop: cleaned to %d, the log ends at %d", l.cleanedTo, l.LEO())
	}
	if err := r.s.Delete(tpA); err != nil {
		t.Fatal(err)
	}
	if m, err := readOffsetCheckpoint(r.fs, "/data", cleanerCheckpoint); err != nil || len(m) != 0 {
		t.Errorf("checkpoint after the deletion: %v %v", m, err)
	}
	r.close()
}

// TestCleanRetention: compact,delete deletes by age and size, compact alone only
// what lies below the log's start; and a chore leaves both to the cleaner.
func TestCleanRetention(t *testing.T) {
	for _, both := range []bool{false, true} {
		cfg := compactConfig()
		cfg.Delete, cfg.RetentionMs, cfg.RetentionBytes, cfg.MinCleanableRatio = both, time.Hour, 1, 1
		r := newRig(t, vfs.NewMem(), cfg).open()
		l := r.create(tpA)
		rewriteKeys(t, r, l, 3, 30)
		r.s.cleaner = newCleaners(r.s)
		r.clock.Advance(2 * time.Hour)
		n := l.Segments()
		r.s.checkRetention()
		if l.Segments() != n {
			t.Errorf("the chore deleted %d segments", n-l.Segments())
		}
		cleanNow(r)
		if got := l.Segments(); both != (got < n) {
			t.Errorf("compact,delete %v: %d of %d segments", both, got, n)
		}
		if !both {
			if err := l.DeleteRecordsBefore(50, l.LEO()); err != nil {
				t.Fatal(err)
			}
			cleanNow(r)
			if l.segs[0].base > 50 || l.segs[1].base <= 50 || l.Segments() >= n {
				t.Errorf("after DeleteRecords up to 50 the first segments begin at %d and %d", l.segs[0].base, l.segs[1].base)
			}
		}
		r.close()
	}
}

// TestCleanCorrupt: a damaged log is left alone, and stops nobody.
func TestCleanCorrupt(t *testing.T) {
	for what, damage := range map[string]func(b []byte){
		"record":  func(b []byte) { b[record.HeaderLen+20] ^= 1 },
		"crc":     func(b []byte) { b[17] ^= 1 },
		"length":  func(b []byte) { binary.BigEndian.PutUint32(b[8:], 1<<30) },
		"too low": func(b []byte) { binary.BigEndian.PutUint32(b[8:], 3) },
		"magic":   func(b []byte) { b[16] = 9 },
		"zeros":   func(b []byte) { clear(b[:200]) },
	} {
		mem := vfs.NewMem()
		r := newRig(t, mem, compactConfig()).open()
		a, b := r.create(tpA), r.create(tpB)
		rewriteKeys(t, r, a, 3, 40)
		rewriteKeys(t, r, b, 3, 30)
		f, err := mem.OpenFile("/data/alpha-0/00000000000000000000.log", 2)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 400)
		if _, err := f.ReadAt(data, 0); err != nil {
			t.Fatal(err)
		}
		damage(data[record.Batch(data).Length():])
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		r.s.cleaner = newCleaners(r.s)
		r.opts.Cleaner = cleanerConfig
		r.s.opts.Cleaner = cleanerConfig
		cleanNow(r)
		if !errors.Is(a.uncleanable, ErrCorruptLog) {
			t.Errorf("%s: %v", what, a.uncleanable)
		}
		if got, want := fmt.Sprint(recordsIn(t, b)), "[87:k0 88:k1 89:k2 90:last]"; got != want {
			t.Errorf("%s: the other log: %s, want %s", what, got, want)
		}
		st, ok := r.s.CleanerStats()
		if !ok || st.Uncleanable[0].Logs != 1 || st.Uncleanable[0].Bytes == 0 || st.Cleanings != 1 {
			t.Errorf("%s: %+v", what, st)
		}
		entries, _ := mem.ReadDir("/data/alpha-0")
		for _, e := range entries {
			if strings.Contains(e.Name, suffixCleaned) {
				t.Errorf("%s: %s is left", what, e.Name)
			}
		}
		r.s.cleaner.close()
		r.close()
	}
}

// TestCleanReaders: who holds a part of the log reads on, whatever becomes of its
// segment; who stands in a gap goes on with the next record.
func TestCleanReaders(t *testing.T) {
	r := newRig(t, vfs.NewMem(), compactConfig()).open()
	defer r.close()
	l := r.create(tpA)
	rewriteKeys(t, r, l, 3, 30)
	s, err := l.Read(10, 500, l.LEO(), true)
	if err != nil {
		t.Fatal(err)
	}
	want, err := l.Read(10, 500, l.LEO(), true)
	if err != nil {
		t.Fatal(err)
	}
	data, err := want.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Clone(data)
	want.Release()
	cleanNow(r)
	got, err := s.Bytes()
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes %v, want %d", len(got), err, len(data))
	}
	if bound, err := s.UpperBound(); err != nil || bound <= 10 {
		t.Errorf("upper bound %d %v", bound, err)
	}
	s.Release()
	for _, off := range []cluster.Offset{0, 10, 86, 87} {
		s, err := l.Read(off, 1, l.LEO(), true)
		if err != nil || s.First() != 87 {
			t.Fatalf("read at %d begins at %d, %v", off, s.First(), err)
		}
		s.Release()
	}
}

// TestCleanWhileInUse: reads, appends and deletions go on during compaction, and
// no reader misses a last value.
func TestCleanWhileInUse(t *testing.T) {
	rnd := newSeed(t)
	cfg := compactConfig()
	cfg.SegmentBytes = 4000
	r := newRig(t, vfs.NewMem(), cfg).open()
	l := r.create(tpA)
	stop, failed := make(chan struct{}), make(chan error, 4)
	for i := range 2 {
		seed := rnd.Int63()
		go func() { failed <- readInUse(l, rand.New(rand.NewSource(seed)), i == 0, stop) }()
	}
	for i := range 40 {
		rewriteKeys(t, r, l, 5, 10)
		cleanNow(r)
		if i%10 == 9 {
			if err := l.DeleteRecordsBefore(l.LEO()-30, l.LEO()); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if l.uncleanable != nil {
		t.Error(l.uncleanable)
	}
	r.close()
}

// readInUse reads whole batches at random offsets, or looks timestamps up.
func readInUse(l *Log, rnd *rand.Rand, reads bool, stop chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		start, leo := int64(l.LogStart()), int64(l.LEO())
		if leo <= start {
			continue
		}
		off := start + rnd.Int63n(leo-start)
		if !reads {
			if _, ok, err := l.OffsetForTimestamp(testStartMs); err != nil || !ok && int64(l.LogStart()) < leo-40 {
				return fmt.Errorf("timestamp: %v %v", ok, err)
			}
			if _, err := l.AbortedTxns(cluster.Offset(off), cluster.Offset(leo)); err != nil {
				return err
			}
			continue
		}
		s, err := l.Read(cluster.Offset(off), 2000, 1<<62, true)
		if errors.Is(err, ErrOffsetOutOfRange) && off < int64(l.LogStart()) {
			continue
		}
		if err != nil {
			return err
		}
		b, err := s.Bytes()
		if err != nil {
			return err
		}
		if len(b) == 0 || record.Batch(b).CheckHeader() == nil && record.Batch(b).LastOffset() < cluster.Offset(off) {
			return fmt.Errorf("read at %d of %d: %d bytes", off, leo, len(b))
		}
		if _, err := s.UpperBound(); err != nil {
			return err
		}
		s.Release()
	}
}

// TestCleanThreads: they wait for the time that is configured, follow a change of
// their number, and end with the store.
func TestCleanThreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var threads atomic.Int32
		threads.Store(2)
		r := newRig(t, vfs.NewMem(), compactConfig())
		r.opts.Clock = clock.System{}
		r.opts.Cleaner = func() CleanerConfig {
			cfg := cleanerConfig()
			cfg.Threads = int(threads.Load())
			return cfg
		}
		r.open()
		workers := func() int {
			synctest.Wait()
			r.s.cleaner.mu.Lock()
			defer r.s.cleaner.mu.Unlock()
			return len(r.s.cleaner.workers)
		}
		if n := workers(); n != 2 {
			t.Errorf("%d threads, want 2", n)
		}
		l := r.create(tpA)
		rewriteKeys(t, r, l, 3, 30)
		<-time.After(15*time.Second - time.Millisecond) // of the bubble's time
		synctest.Wait()
		if st, _ := r.s.CleanerStats(); st.Cleanings != 0 {
			t.Errorf("cleaned before the time: %+v", st)
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
		st, _ := r.s.CleanerStats()
		if st.Cleanings != 1 || st.BytesRead == 0 || st.BytesWritten >= st.BytesRead || st.MaxBufferUtilization == 0 || st.DeadThreads != 0 {
			t.Errorf("%+v", st)
		}
		for _, n := range []int{1, 3} {
			threads.Store(int32(n))
			<-time.After(15 * time.Second)
			if got := workers(); got != n {
				t.Errorf("%d threads, want %d", got, n)
			}
		}
		r.close()
		if n := workers(); n != 0 {
			t.Errorf("%d threads are left", n)
		}
	})
}

// TestCleanLegacy: entries of formats 0 and 1, wrapped or not, are compacted in
// their own format.
func TestCleanLegacy(t *testing.T) {
	for _, magic := range []int8{record.MagicV0, record.MagicV1} {
		for _, codec := range []record.Codec{record.CodecNone, record.CodecGzip, record.CodecSnappy, record.CodecLZ4} {
			cfg := compactConfig()
			cfg.SegmentBytes = 4000
			r := newRig(t, vfs.NewMem(), cfg).open()
			r.fs.(*vfs.Mem).SetClock(r.clock.Now)
			l := r.create(tpA)
			for i := range 30 {
				b, err := record.NewLegacyBuilder(nil, record.LegacyOptions{Magic: magic, Codec: codec})
				if err != nil {
					t.Fatal(err)
				}
				for k := range 4 {
					key, value := fmt.Sprint("k", k), []byte(strings.Repeat("v", 50+i))
					if k == 3 {
						key = fmt.Sprint("own ", i)
					}
					if k == 2 {
						value = nil
					}
					b.Append(cluster.Offset(4*i+k), testStartMs+int64(i), []byte(key), value)
				}
				if _, err := l.AppendAsFollower(b.Build(), 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := forceRoll(l); err != nil {
				t.Fatal(err)
			}
			l.HighWatermarkMoved(l.LEO())
			cleanNow(r)
			if l.uncleanable != nil {
				t.Fatal(l.uncleanable)
			}
			var want, got []string
			for i := range 29 {
				want = append(want, fmt.Sprintf("%d:own %d", 4*i+3, i))
			}
			want = append(want, "116:k0", "117:k1", "118:k2", "119:own 29")
			for raw := readAllEntries(t, l); len(raw) > 0; {
				one, rest, err := record.Next(raw)
				if err != nil {
					t.Fatal(err)
				}
				m := record.Legacy(one)
				if m.Magic() != magic || m.Codec() != codec || m.CheckCRC() != nil {
					t.Fatalf("magic %d, codec %s: %v", m.Magic(), m.Codec(), m.CheckCRC())
				}
				for it := m.Iter(nil); it.Next(); {
					got = append(got, fmt.Sprintf("%d:%s", it.Offset(), it.Record().Key))
				}
				raw = rest
			}
			if !slices.Equal(got, want) {
				t.Errorf("magic %d, %s:\n%v\nwant\n%v", magic, codec, got, want)
			}
			r.close()
		}
	}
}

// readAllEntries reads the segments' files.
func readAllEntries(t testing.TB, l *Log) (all []byte) {
	t.Helper()
	for _, s := range l.segs {
		b, err := vfs.ReadFile(l.store.fs, s.path(extLog), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b[:s.size]...)
	}
	return all
}
