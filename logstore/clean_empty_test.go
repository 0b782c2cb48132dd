package logstore

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// emptied writes keys in transactions of one producer each, whose records are an
// hour ahead of their markers, overwrites most of them with older times, and
// compacts: what is left of the youngest batches is that their producers wrote
// them.
func emptied(t *testing.T, r *rig, l *Log) {
	t.Helper()
	ahead := int64(time.Hour / time.Millisecond)
	for i := range 24 {
		id := cluster.ProducerID(100 + i)
		b := record.NewBuilder(record.BuilderOptions{HasProducer: true, ProducerID: id, Transactional: true})
		for k := range 3 {
			b.Append(testStartMs+ahead+int64(1000*i+k), fmt.Appendf(nil, "k%d", k), fmt.Appendf(nil, "%d %080d", i, k), nil)
		}
		mustAppend(t, l, b.Build(), 0)
		mustMark(t, l, true, id, 0)
		mustAppend(t, l, keyed(fmt.Sprint("single", i), fmt.Sprintf("%070d", i), testStartMs+int64(500*i)), 0)
	}
	rewriteKeys(t, r, l, 3, 1)
	if n := cleanNow(r); n != 1 {
		t.Fatalf("cleaned %d times", n)
	}
}

// timed is a record as the obvious way finds it.
type timed struct{ off, ts int64 }

func timesIn(t *testing.T, l *Log) (list []timed, empties int) {
	t.Helper()
	for _, b := range entriesOf(t, readAll(t, l, l.LogStart())) {
		if record.Batch(b).Count() == 0 {
			empties++
		}
		it := recordsOf(b)
		for it.Next() {
			list = append(list, timed{int64(it.Offset()), it.Timestamp()})
		}
		it.Close()
	}
	return list, empties
}

func entriesOf(t *testing.T, raw []byte) (list [][]byte) {
	t.Helper()
	for len(raw) > 0 {
		one, more, err := record.Next(raw)
		if err != nil {
			t.Fatal(err)
		}
		list, raw = append(list, one), more
	}
	return list
}

// wantTimes compares what a log says of times with its records, one by one.
func wantTimes(t *testing.T, what string, l *Log) {
	t.Helper()
	list, empties := timesIn(t, l)
	if empties < 10 {
		t.Fatalf("%s: %d batches without records: the test has no subject", what, empties)
	}
	latest := timed{-1, record.NoTimestamp}
	for _, r := range list {
		if r.ts > latest.ts {
			latest = r
		}
	}
	got, ok, err := l.MaxTimestampOffset()
	if err != nil || !ok || int64(got.Offset) != latest.off || got.Timestamp != latest.ts {
		t.Errorf("%s: the largest timestamp: %+v %v %v, want %+v", what, got, ok, err, latest)
	}
	for ts := int64(testStartMs - 100); ts < testStartMs+3_700_000; ts += 137 {
		if ts == testStartMs-100+137*200 { // on to the times of what was overwritten
			ts = testStartMs + 3_590_000
		}
		first := timed{-1, -1}
		for _, r := range list {
			if r.ts >= ts {
				first = r
				break
			}
		}
		got, ok, err := l.OffsetForTimestamp(ts)
		if err != nil || ok != (first.off >= 0) || ok && (int64(got.Offset) != first.off || got.Timestamp != first.ts) {
			t.Fatalf("%s: timestamp %d: %+v %v %v, want %+v", what, ts, got, ok, err, first)
		}
	}
}

// wantAges compares the time that retention goes by, segment by segment.
func wantAges(t *testing.T, what string, l *Log) {
	t.Helper()
	for _, s := range l.segs {
		want := int64(record.NoTimestamp)
		for _, r := range recordsOfSegment(t, l, s) {
			want = max(want, r.ts)
		}
		l.append.Lock()
		got, err := l.ageOf(s)
		l.append.Unlock()
		if want >= 0 && (err != nil || got != want) {
			t.Errorf("%s: segment %d is as old as %d, %v; its youngest record is of %d", what, s.base, got, err, want)
		}
	}
}

func recordsOfSegment(t *testing.T, l *Log, s *segment) (in []timed) {
	t.Helper()
	list, _ := timesIn(t, l)
	for _, r := range list {
		if r.off >= s.base && r.off < l.endOf(s) {
			in = append(in, r)
		}
	}
	return in
}

// wantEntries judges the time index files as Kafka's dump tool does: an entry
// names a batch by its last offset, and its youngest record.
func wantEntries(t *testing.T, what string, f vfs.FS, l *Log) {
	t.Helper()
	youngest := map[int64]int64{}
	for _, b := range entriesOf(t, readAll(t, l, l.LogStart())) {
		last := int64(record.Batch(b).LastOffset())
		youngest[last] = record.NoTimestamp
		for it := recordsOf(b); it.Next(); {
			youngest[last] = max(youngest[last], it.Timestamp())
		}
	}
	total := 0
	for _, s := range l.segs {
		if s == l.active() {
			continue
		}
		data := getFile(t, f, s.path(extTimeIndex))
		for i := range len(data) / timeEntry {
			ts, rel := timeAt(data, i)
			if got, ok := youngest[s.base+rel]; !ok || got != ts {
				t.Errorf("%s: segment %d: entry %d at offset %d; the batch that ends there: %v, youngest record %d", what, s.base, ts, s.base+rel, ok, got)
			}
			total++
		}
	}
	if total < 8 {
		t.Errorf("%s: %d entries", what, total)
	}
}

// timesAsKafka writes the time indexes of all but the active segment as 3.9.2
// does, which counts the headers of batches without records.
func timesAsKafka(t *testing.T, f vfs.FS, l *Log) (named int) {
	t.Helper()
	for _, s := range l.segs {
		if s == l.active() {
			continue
		}
		b := newIndexBuilder(s.base, l.config())
		pos := int64(0)
		for _, raw := range entriesOf(t, getFile(t, f, s.path(extLog))) {
			var e entry
			if err := e.parse(raw[:min(len(raw), record.HeaderLen)], pos, int64(len(raw))); err != nil {
				t.Fatal(err)
			}
			if e.headTs > e.maxTs && e.headTs > b.maxTs {
				named++
			}
			e.maxTs = e.headTs
			b.add(&e)
			pos += e.size
		}
		b.close()
		putFile(t, f, s.path(extTimeIndex), b.times)
		putFile(t, f, s.path(extIndex), b.offsets)
	}
	return named
}

// TestCleanEmptyTimes: a batch that was kept without its records has no say in
// what a log answers by time, whether its indexes come from the cleaner, from
// before a stop, from a rebuild, from a recovery, or from Kafka, which counts it.
func TestCleanEmptyTimes(t *testing.T) {
	mem := vfs.NewMem()
	r := newRig(t, mem, compactConfig()).open()
	l := r.create(tpA)
	emptied(t, r, l)
	see := func(what string) {
		t.Helper()
		wantTimes(t, what, l)
		wantAges(t, what, l)
		wantEntries(t, what, mem, l)
	}
	reopen := func(change func()) {
		t.Helper()
		r.close()
		if got := checked(t, mem, "/data"); got != "" {
			t.Errorf("check: %s", got)
		}
		change()
		r.open()
		l = r.log(tpA)
	}
	see("cleaned")
	reopen(func() {})
	see("after a stop")
	reopen(func() {
		for _, s := range l.segs {
			if err := mem.Remove(s.path(extTimeIndex)); err != nil {
				t.Fatal(err)
			}
		}
	})
	see("rebuilt")
	reopen(func() {
		for _, name := range []string{cleanShutdownFile, recoveryPointCheckpoint} {
			if err := mem.Remove(filepath.Join("/data", name)); err != nil {
				t.Fatal(err)
			}
		}
	})
	see("recovered")
	// More is written, and all of it compacted again.
	rewriteKeys(t, r, l, 3, 5)
	cleanNow(r)
	see("cleaned again")

	reopen(func() {
		if n := timesAsKafka(t, mem, l); n < 5 {
			t.Fatalf("%d times of batches without records", n)
		}
		if got := checked(t, mem, "/data"); got != "" {
			t.Errorf("check of Kafka's indexes: %s", got)
		}
	})
	wantTimes(t, "Kafka's indexes", l)
	rewriteKeys(t, r, l, 3, 1)
	wantTimes(t, "Kafka's indexes, and more", l)
	r.close()
}

// TestFollowEmptyTimes: a follower is sent the batches without records as well.
func TestFollowEmptyTimes(t *testing.T) {
	mem := vfs.NewMem()
	r := newRig(t, mem, compactConfig()).open()
	l := r.create(tpA)
	emptied(t, r, l)
	f := r.create(tpB)
	for _, b := range entriesOf(t, readAll(t, l, l.LogStart())) {
		if _, err := f.AppendAsFollower(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	f.HighWatermarkMoved(f.LEO())
	wantTimes(t, "a follower", f)
	wantAges(t, "a follower", f)
	wantEntries(t, "a follower", mem, f)
	if err := f.TruncateTo(90); err != nil {
		t.Fatal(err)
	}
	wantTimes(t, "a follower that was cut", f)
	wantAges(t, "a follower that was cut", f)
	r.close()
	if got := checked(t, mem, "/data"); got != "" {
		t.Errorf("check: %s", got)
	}
	r.open()
	wantTimes(t, "a follower after a stop", r.log(tpB))
	r.close()
}

// TestCheckTimesBeside: an index entry that is neither the records' time nor the
// headers' is still a problem.
func TestCheckTimesBeside(t *testing.T) {
	for _, x := range []struct {
		ts int64
		ok bool
	}{{9, false}, {10, true}, {15, true}, {20, true}, {21, false}} {
		l := largestTimes{records: 10, headers: 20}
		if got := l.mismatch(x.ts, 5); (got == "") != x.ok {
			t.Errorf("%d: %q", x.ts, got)
		}
	}
}
