package logstore

import (
	"bytes"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/cleaner"
	"github.com/kbroker/kbroker/protocol/record"
)

// plainBatch is a batch as one would write it down.
type plainBatch struct {
	base, last       int64
	epoch            cluster.LeaderEpoch
	codec            record.Codec
	pid              cluster.ProducerID
	producerEpoch    cluster.ProducerEpoch
	seq              int32
	txn, ctl, append bool
	horizon          int64 // NoTimestamp for none
	maxTs            int64
	recs             []plainRec
}

type plainRec struct {
	off, ts         int64
	key, value      string
	keyNull, isNull bool
	headers         string
}

func (b plainBatch) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d-%d epoch %d %s pid %d/%d seq %d txn %v control %v append %v horizon %d maxTs %d", b.base, b.last, b.epoch, b.codec, b.pid, b.producerEpoch, b.seq, b.txn, b.ctl, b.append, b.horizon, b.maxTs)
	for _, r := range b.recs {
		fmt.Fprintf(&s, "\n    %+v", r)
	}
	return s.String()
}

func plainOf(t testing.TB, raw []byte) plainBatch {
	t.Helper()
	b := record.Batch(raw)
	if err := b.CheckHeader(); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckCRC(); err != nil {
		t.Fatal(err)
	}
	p := plainBatch{
		base: int64(b.BaseOffset()), last: int64(b.LastOffset()), epoch: b.LeaderEpoch(), codec: b.Codec(), pid: b.ProducerID(), producerEpoch: b.ProducerEpoch(),
		seq: b.BaseSequence(), txn: b.Transactional(), ctl: b.Control(), append: b.LogAppendTime(), horizon: record.NoTimestamp, maxTs: b.MaxTimestamp(),
	}
	if b.HasDeleteHorizon() {
		p.horizon = b.BaseTimestamp()
	}
	it := b.Iter(nil)
	defer it.Close()
	for it.Next() {
		r := it.Record()
		p.recs = append(p.recs, plainRec{int64(it.Offset()), it.Timestamp(), string(r.Key), string(r.Value), r.KeyNull, r.ValueNull, fmt.Sprint(r.HeaderCount, r.Headers)})
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	if len(p.recs) == 0 {
		p.codec, p.horizon = record.CodecNone, record.NoTimestamp
	}
	return p
}

func plainLog(t testing.TB, raw []byte) (list []plainBatch) {
	t.Helper()
	for len(raw) > 0 {
		one, rest, err := record.Next(raw)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, plainOf(t, one))
		raw = rest
	}
	return list
}

// cleanModel is compaction as its description has it, by walking lists.
type cleanModel struct {
	list []plainBatch
	// What was once said: transactions by the offsets of their batches, and
	// which of them were aborted. Never forgotten.
	txnOf   map[int64]int // by the last offset of a batch, markers included
	aborted map[int]bool
	open    map[cluster.ProducerID]int
	txns    int
}

func (m *cleanModel) add(raw []byte, t testing.TB) {
	for _, b := range plainLog(t, raw) {
		m.list = append(m.list, b)
		if !b.txn {
			continue
		}
		if _, ok := m.open[b.pid]; !ok {
			m.txns++
			m.open[b.pid] = m.txns
		}
		m.txnOf[b.last] = m.open[b.pid]
		if b.ctl {
			m.aborted[m.open[b.pid]] = b.recs[0].key[3] == byte(record.ControlAbort)
			delete(m.open, b.pid)
		}
	}
}

func (m *cleanModel) isAborted(b *plainBatch) bool { return b.txn && m.aborted[m.txnOf[b.last]] }

// superseded: the key has a later record in what was indexed.
func (m *cleanModel) superseded(r *plainRec, dirty, latest int64) bool {
	for i := range m.list {
		b := &m.list[i]
		if b.ctl || m.isAborted(b) {
			continue
		}
		for _, x := range b.recs {
			if x.off >= dirty && x.off <= latest && x.off > r.off && x.key == r.key && !x.keyNull {
				return true
			}
		}
	}
	return false
}

// batchesOf counts the batches of data that a transaction still has.
func (m *cleanModel) batchesOf(txn int) (n int) {
	for i := range m.list {
		if b := &m.list[i]; b.txn && !b.ctl && m.txnOf[b.last] == txn {
			n++
		}
	}
	return n
}

// clean compacts what lies below copied, given what was indexed.
func (m *cleanModel) clean(dirty, latest, copied, now, retention int64, last map[cluster.ProducerID]cleaner.Last) {
	var left []plainBatch
	for i := range m.list {
		b := m.list[i]
		if b.base >= copied {
			left = append(left, b)
			continue
		}
		var keep []plainRec
		tombstones := false
		switch {
		case b.ctl:
			over := m.batchesOf(m.txnOf[b.last]) == 0
			if !over || b.horizon == record.NoTimestamp || b.horizon > now {
				keep = b.recs
			}
			tombstones = over
		case !m.isAborted(&b):
			for _, r := range b.recs {
				gone := r.off <= latest && (r.keyNull || m.superseded(&r, dirty, latest) || r.isNull && b.horizon != record.NoTimestamp && b.horizon <= now)
				if !gone {
					keep = append(keep, r)
					tombstones = tombstones || r.isNull
				}
			}
		}
		if len(keep) == 0 {
			l, known := last[b.pid]
			if !known || !(l.Offset == cluster.Offset(b.last) || l.Offset == cluster.NoOffset && b.ctl && b.producerEpoch == l.Epoch) {
				continue
			}
			b.recs, b.codec, b.horizon = nil, record.CodecNone, record.NoTimestamp
			left = append(left, b)
			continue
		}
		if tombstones && b.horizon == record.NoTimestamp {
			b.horizon = now + retention
		}
		if !b.append {
			b.maxTs = record.NoTimestamp
			for _, r := range keep {
				b.maxTs = max(b.maxTs, r.ts)
			}
		}
		b.recs = keep
		left = append(left, b)
	}
	m.list = left
}

// visible is what a reader of committed records makes of a log: the last value of
// each key.
func (m *cleanModel) visible(list []plainBatch) map[string]string {
	table := map[string]string{}
	for i := range list {
		b := &list[i]
		if b.ctl || m.isAborted(b) {
			continue
		}
		for _, r := range b.recs {
			switch {
			case r.keyNull:
			case r.isNull:
				delete(table, r.key)
			default:
				table[r.key] = r.value
			}
		}
	}
	return table
}

// cleanWorld is a log that is written to, compacted, stopped and killed.
type cleanWorld struct {
	t       testing.TB
	rnd     *rand.Rand
	r       *rig
	mem     *vfs.Mem
	l       *Log
	m       cleanModel
	history []plainBatch
	seq     map[cluster.ProducerID]int32
	keys    int
	ccfg    CleanerConfig
	notes   int // of the offline check, after crashes
}

func newCleanWorld(t testing.TB, rnd *rand.Rand) *cleanWorld {
	cfg := testConfig()
	cfg.Compact, cfg.Delete = true, false
	cfg.SegmentBytes = int32(800 + rnd.Intn(6000))
	cfg.IndexIntervalBytes = int32(rnd.Intn(500))
	cfg.SegmentIndexBytes = int32(400 + rnd.Intn(4000))
	cfg.MinCleanableRatio = 0
	cfg.DeleteRetentionMs = time.Duration(rnd.Intn(3000)) * time.Millisecond
	x := &cleanWorld{
		t: t, rnd: rnd, mem: vfs.NewMem(), seq: map[cluster.ProducerID]int32{}, keys: 1 + rnd.Intn(30),
		m: cleanModel{txnOf: map[int64]int{}, aborted: map[int]bool{}, open: map[cluster.ProducerID]int{}},
	}
	x.ccfg = CleanerConfig{Threads: 1, DedupeBuffer: 1 << 20, LoadFactor: 0.9, IOBuffer: 2 * (4<<10 + rnd.Intn(8<<10)), MaxIORate: math.MaxFloat64}
	if rnd.Intn(3) == 0 {
		x.ccfg.DedupeBuffer = 24 * int64(2+rnd.Intn(12)) // a few keys at a time
	}
	x.r = newRig(t, x.mem, cfg)
	x.r.opts.MaxOpenFiles = 3
	x.r.open()
	x.mem.SetClock(x.r.clock.Now)
	x.l = x.r.create(tpA)
	return x
}

// batch is a random one; producers with even numbers are transactional.
func (x *cleanWorld) batch() record.Batch {
	o := record.BuilderOptions{Codec: record.Codec(x.rnd.Intn(5))}
	n := 1 + x.rnd.Intn(6)
	if x.rnd.Intn(2) == 0 {
		pid := cluster.ProducerID(1 + x.rnd.Intn(6))
		o.HasProducer, o.ProducerID, o.BaseSequence, o.Transactional = true, pid, x.seq[pid], pid%2 == 0
		x.seq[pid] += int32(n)
	}
	now := x.r.clock.Now().UnixMilli()
	if x.rnd.Intn(6) == 0 {
		o.LogAppendTime, o.AppendTimeMs = true, now
	}
	b := record.NewBuilder(o)
	for range n {
		key := fmt.Appendf(nil, "key-%d", x.rnd.Intn(x.keys))
		if x.rnd.Intn(40) == 0 {
			key = nil
		}
		var value []byte
		if x.rnd.Intn(5) > 0 {
			value = bytes.Repeat([]byte{byte('a' + x.rnd.Intn(26))}, x.rnd.Intn(100))
		}
		var headers []record.Header
		for range x.rnd.Intn(3) {
			headers = append(headers, record.Header{Key: "h", Value: []byte{byte(x.rnd.Intn(256))}})
		}
		b.Append(now-int64(x.rnd.Intn(1000)), key, value, headers)
	}
	return b.Build()
}

func (x *cleanWorld) append(b record.Batch) {
	v := validated(b)
	o := AppendOptions{}
	if b.Control() {
		o.Origin = Coordinator
	}
	if _, err := x.l.AppendAsLeader(v, cluster.LeaderEpoch(x.l.LEO()/50), o); err != nil {
		x.t.Fatal(err)
	}
	n := len(x.m.list)
	x.m.add(v.Buf, x.t)
	x.history = append(x.history, x.m.list[n:]...)
	x.l.HighWatermarkMoved(x.l.LEO())
}

func (x *cleanWorld) write(n int) {
	for range n {
		x.r.clock.Advance(time.Duration(x.rnd.Intn(100)) * time.Millisecond)
		x.append(x.batch())
		for _, pid := range []cluster.ProducerID{2, 4, 6} {
			if _, open := x.m.open[pid]; open && x.rnd.Intn(8) == 0 {
				x.append(record.EndTxnMarker(x.rnd.Intn(2) == 0, pid, 0, 0, x.r.clock.Now().UnixMilli()))
			}
		}
	}
}

// clean runs one cleaning, and the model's.
func (x *cleanWorld) clean() {
	w := newCleaners(x.r.s).newWorker(0)
	now := x.r.clock.Now().UnixMilli()
	j, err := x.l.cleanJobOf(now)
	if err != nil {
		x.t.Fatal(err)
	}
	last := x.l.lastOfProducers()
	if !w.round(x.ccfg) {
		if j.dirtBytes > 0 {
			x.t.Fatalf("not cleaned: %+v", j)
		}
		return
	}
	if x.l.uncleanable != nil {
		x.t.Fatal(x.l.uncleanable)
	}
	latest := x.l.cleanedTo - 1
	if latest < j.dirty || latest >= j.end {
		x.t.Fatalf("cleaned up to %d of %d..%d", latest, j.dirty, j.end)
	}
	copied := j.end
	for i, s := range j.segs {
		if s.base <= latest {
			copied = j.endOf(i)
		}
	}
	x.m.clean(j.dirty, latest, copied, now, x.l.config().DeleteRetentionMs.Milliseconds(), last)
}

// compare holds the log against the model, and what is left of it against what
// was ever written.
func (x *cleanWorld) compare(after string) {
	x.t.Helper()
	raw := readAll(x.t, x.l, x.l.LogStart())
	x.same(after, plainLog(x.t, raw), x.m.list)
	if got, want := fmt.Sprint(x.m.visible(x.m.list)), fmt.Sprint(x.m.visible(x.history)); got != want {
		x.t.Fatalf("after %s: the last values are\n%s\nwant\n%s", after, got, want)
	}
	t, ok := x.t.(*testing.T)
	if !ok {
		return
	}
	v := &modelRun{t: t, rnd: x.rnd, r: x.r, l: x.l, ts: x.r.clock.Now().UnixMilli()}
	v.m.add(raw)
	v.m.start, v.m.leo, v.m.hw = int64(x.l.LogStart()), int64(x.l.LEO()), int64(x.l.LEO())
	for range 5 {
		v.compareRead(after)
		v.compareTimes(after)
	}
	x.gap(after)
	if t.Failed() {
		t.FailNow()
	}
}

// gap: who stands at an offset whose record is gone reads on from the next one.
func (x *cleanWorld) gap(after string) {
	off := x.rnd.Int63n(int64(x.l.LEO()) + 1)
	s, err := x.l.Read(cluster.Offset(off), 1, x.l.LEO(), true)
	if err != nil {
		x.t.Fatal(err)
	}
	defer s.Release()
	i := slices.IndexFunc(x.m.list, func(b plainBatch) bool { return b.last >= off })
	switch {
	case i < 0 && s.Len() != 0:
		x.t.Errorf("after %s: read at %d begins at %d, there is nothing", after, off, s.First())
	case i >= 0 && (s.Len() == 0 || int64(s.First()) != x.m.list[i].base):
		x.t.Errorf("after %s: read at %d begins at %d, want %d", after, off, s.First(), x.m.list[i].base)
	}
}

func (x *cleanWorld) same(after string, got, want []plainBatch) {
	x.t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			x.t.Fatalf("after %s: batch %d is missing:\n%v", after, i, want[i])
		case i >= len(want):
			x.t.Fatalf("after %s: batch %d should not be there:\n%v", after, i, got[i])
		case got[i].String() != want[i].String():
			x.t.Fatalf("after %s: batch %d is\n%v\nwant\n%v", after, i, got[i], want[i])
		}
	}
}

func (x *cleanWorld) reopen() {
	x.r.close()
	if got := checked(x.t.(*testing.T), x.mem, "/data"); got != "" {
		x.t.Fatalf("the offline check finds:\n%s", got)
	}
	x.r.open()
	x.attach()
}

func (x *cleanWorld) attach() {
	x.l = x.r.log(tpA)
	x.l.HighWatermarkMoved(x.l.LEO())
}

func (x *cleanWorld) kill() {
	x.r.crash()
	x.r.open()
	x.attach()
}

func TestCleanModel(t *testing.T) {
	rnd := newSeed(t)
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for range rounds {
		x := newCleanWorld(t, rand.New(rand.NewSource(rnd.Int63())))
		for step := range 25 {
			what := "writing"
			switch n := x.rnd.Intn(10); {
			case n < 5:
				x.write(1 + x.rnd.Intn(15))
			case n < 8:
				what = "cleaning"
				x.r.clock.Advance(time.Duration(x.rnd.Intn(2000)) * time.Millisecond)
				x.clean()
			case n < 9:
				what = "a stop"
				x.reopen()
			default:
				what = "a kill"
				x.kill()
			}
			x.compare(fmt.Sprintf("step %d: %s", step, what))
		}
		x.r.close()
		if n := x.mem.OpenFiles(); n != 0 {
			t.Fatalf("%d files are still open", n)
		}
	}
}
