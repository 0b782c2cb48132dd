package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// modelLog is a log as one would write it down: a list of batches. All answers
// are found by walking it from the beginning.
type modelLog struct {
	batches []modelBatch
	start   int64
	leo     int64
	hw      int64
}

type modelBatch struct {
	raw        []byte
	base, last int64
}

func (m *modelLog) add(raw []byte) {
	for len(raw) > 0 {
		b := record.Batch(raw[:record.Batch(raw).Length()])
		m.batches = append(m.batches, modelBatch{bytes.Clone(b), int64(b.BaseOffset()), int64(b.LastOffset())})
		m.leo = int64(b.LastOffset()) + 1
		raw = raw[len(b):]
	}
}

// cut removes the batches that reach off. The log ends after the last one that
// is left, or at empty, the base of the segment that is left without a batch
// behind a gap (0 for none). Where that is not above the start the log begins
// anew, and forgets what went on from below. Otherwise what lies below the start
// still counts: a snapshot at the segment's base knows of it, in Kafka too.
func (m *modelLog) cut(off, empty int64) {
	for i, b := range m.batches {
		if b.last >= off {
			m.batches = m.batches[:i]
			break
		}
	}
	m.leo = max(m.backed(), empty)
	if m.leo <= m.start || off <= m.start {
		m.leo, m.start, m.batches = min(off, m.start), min(off, m.start), nil
	}
	m.hw = min(m.hw, m.leo)
}

// read is what may be returned at most.
func (m *modelLog) read(from int64, maxBytes int, upTo int64, minOne bool) []byte {
	var out []byte
	limit := maxBytes
	first := true
	for _, b := range m.batches {
		if b.last < from {
			continue
		}
		if b.last >= upTo && upTo < m.leo || from >= upTo {
			break
		}
		if first && minOne {
			limit = max(limit, len(b.raw))
		}
		first = false
		out = append(out, b.raw...)
	}
	return out[:min(len(out), max(limit, 0))]
}

type modelTxn struct {
	pid         cluster.ProducerID
	first, last int64
	aborted     bool
}

// txns replays markers: open and completed transactions.
func (m *modelLog) txns() (open, done []modelTxn) {
	for _, mb := range m.batches {
		b := record.Batch(mb.raw)
		if !b.Transactional() {
			continue
		}
		at := -1
		for i, t := range open {
			if t.pid == b.ProducerID() {
				at = i
			}
		}
		switch {
		case !b.Control() && at < 0:
			open = append(open, modelTxn{pid: b.ProducerID(), first: mb.base})
		case b.Control() && at >= 0:
			p, _ := controlBatch(b)
			t := open[at]
			t.last, t.aborted = mb.base, p.Marker == producers.Abort
			open = append(open[:at:at], open[at+1:]...)
			done = append(done, t)
		}
	}
	return open, done
}

func (m *modelLog) lso() int64 {
	lso := m.hw
	open, done := m.txns()
	for _, t := range open {
		lso = min(lso, max(t.first, m.start))
	}
	for _, t := range done {
		if t.last >= m.hw {
			lso = min(lso, max(t.first, m.start))
		}
	}
	return lso
}

func (m *modelLog) aborted(from, upTo int64) []AbortedTxn {
	var list []AbortedTxn
	_, done := m.txns()
	for _, t := range done {
		if t.aborted && t.last >= from && t.first < upTo {
			list = append(list, AbortedTxn{t.pid, cluster.Offset(t.first)})
		}
	}
	return list
}

// eachRecord visits the records that may be read.
func (m *modelLog) eachRecord(f func(off, ts int64, epoch cluster.LeaderEpoch)) {
	for _, mb := range m.batches {
		b := record.Batch(mb.raw)
		it := b.Iter(nil)
		for it.Next() {
			if off := int64(it.Offset()); off >= m.start {
				f(off, it.Timestamp(), b.LeaderEpoch())
			}
		}
		it.Close()
	}
}

func (m *modelLog) byTime(ts int64) (found TimestampOffset, ok bool) {
	m.eachRecord(func(off, t int64, e cluster.LeaderEpoch) {
		if !ok && t >= ts {
			found, ok = TimestampOffset{cluster.Offset(off), t, e}, true
		}
	})
	return found, ok
}

func (m *modelLog) maxTime() (found TimestampOffset, ok bool) {
	m.eachRecord(func(off, t int64, e cluster.LeaderEpoch) {
		if !ok || t > found.Timestamp {
			found, ok = TimestampOffset{cluster.Offset(off), t, e}, true
		}
	})
	return found, ok
}

// window is the last batches of a producer's newest epoch.
func (m *modelLog) window(pid cluster.ProducerID) []modelBatch {
	var list []modelBatch
	epoch := cluster.NoProducerEpoch
	for _, mb := range m.batches {
		b := record.Batch(mb.raw)
		if b.ProducerID() != pid {
			continue
		}
		if b.ProducerEpoch() != epoch {
			epoch, list = b.ProducerEpoch(), nil
		}
		if !b.Control() {
			list = append(list, mb)
		}
	}
	return list[max(0, len(list)-producers.WindowSize):]
}

// modelRun drives a log and its model with the same operations.
type modelRun struct {
	t     *testing.T
	rnd   *rand.Rand
	r     *rig
	mem   *vfs.Mem
	l     *Log
	m     modelLog
	epoch cluster.LeaderEpoch
	idle  *epochs.Entry // an epoch that this log leads without a record yet
	ts    int64
}

func TestModel(t *testing.T) {
	rnd := newSeed(t)
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		if runModel(t, rand.New(rand.NewSource(rnd.Int63())), 120); t.Failed() {
			return
		}
	}
}

func runModel(t *testing.T, rnd *rand.Rand, steps int) {
	cfg := testConfig()
	cfg.SegmentBytes = int32(4000 + rnd.Intn(20_000))
	cfg.IndexIntervalBytes = int32(rnd.Intn(1500))
	cfg.SegmentIndexBytes = int32(200 + rnd.Intn(5000))
	cfg.RetentionMs = config.Unlimited
	if rnd.Intn(2) == 0 {
		cfg.RetentionBytes = int64(10_000 + rnd.Intn(50_000))
	}
	if rnd.Intn(4) == 0 {
		cfg.FlushMessages = int64(1 + rnd.Intn(20))
	}
	cfg.Preallocate = rnd.Intn(4) == 0
	// Gaps come from a compacted leader; elsewhere they are what a crash took.
	cfg.Compact = rnd.Intn(2) == 0
	mem := vfs.NewMem()
	x := &modelRun{t: t, rnd: rnd, mem: mem, r: newRig(t, mem, cfg), ts: testStartMs}
	x.r.opts.MaxOpenFiles = 3
	x.r.open()
	x.l = x.r.create(tpA)
	for i := range steps {
		what := x.step()
		if testing.Verbose() {
			open, done := x.m.txns()
			t.Logf("%d %s: log %d..%d hw %d/%d lso %d open %v done %v | %v %v snaps %v rp %d epochs %v at %d", i, what, x.l.LogStart(), x.l.LEO(), x.l.hw, x.m.hw, x.l.LSO(cluster.Offset(x.m.hw)), open, done, x.l.producers.Open(), x.l.producers.Unreplicated(), x.l.snapshots, x.l.recoveryPoint, x.l.epochs.Entries(), x.epoch)
		}
		if x.compare(what); t.Failed() {
			t.Logf("at step %d: %s", i, what)
			return
		}
	}
	x.r.close()
	checkDir(t, x.mem)
	if n := x.mem.OpenFiles(); n != 0 {
		t.Errorf("%d files are still open", n)
	}
}

func (x *modelRun) step() string {
	switch n := x.rnd.Intn(100); {
	case n < 30:
		return x.append()
	case n < 48:
		return x.appendProducer()
	case n < 56:
		return x.mark()
	case n < 62:
		return x.follow()
	case n < 65:
		return x.lead()
	case n < 70:
		x.m.hw = max(x.m.hw, x.m.start, x.m.leo-int64(x.rnd.Intn(8)))
		x.l.HighWatermarkMoved(cluster.Offset(x.m.hw))
		return "hw"
	case n < 74:
		return x.flush()
	case n < 78:
		return x.deleteRecords()
	case n < 82:
		return x.truncate()
	case n < 83:
		return x.startOver()
	case n < 88:
		x.r.clock.Advance(time.Duration(x.rnd.Intn(400)) * time.Second)
		x.followStart()
		return "chores"
	case n < 92:
		return x.reopen()
	case n < 96:
		return x.kill()
	default:
		return x.powerLoss()
	}
}

func (x *modelRun) time() int64 {
	x.ts += int64(x.rnd.Intn(400)) - 100
	return x.ts
}

func (x *modelRun) leader(b record.Batch, o AppendOptions) (AppendInfo, error) {
	v := validated(b)
	info, err := x.l.AppendAsLeader(v, x.epoch, o)
	if err == nil && !info.Duplicate {
		if int64(info.First) != x.m.leo {
			x.t.Errorf("appended at %d, the log ended at %d", info.First, x.m.leo)
		}
		x.m.add(v.Buf)
	} else {
		x.leads() // the epoch is noted first
	}
	return info, err
}

func (x *modelRun) append() string {
	b := record.NewBuilder(record.BuilderOptions{Codec: record.Codec(x.rnd.Intn(5) * x.rnd.Intn(2))})
	for range 1 + x.rnd.Intn(4) {
		b.Append(x.time(), nil, bytes.Repeat([]byte{byte(x.rnd.Intn(9))}, x.rnd.Intn(700)), nil)
	}
	if _, err := x.leader(b.Build(), AppendOptions{}); err != nil {
		x.t.Error(err)
	}
	return "append"
}

// appendProducer sends the next batch of a producer, or repeats one of its last.
func (x *modelRun) appendProducer() string {
	pid := cluster.ProducerID(1 + x.rnd.Intn(4))
	var known *ProducerInfo
	for _, p := range x.l.ActiveProducers() {
		if p.ID == pid {
			known = &p
		}
	}
	w := x.m.window(pid)
	if known != nil && len(w) > 0 && x.rnd.Intn(3) == 0 {
		old := w[x.rnd.Intn(len(w))]
		// What lies below the log's start cannot be known after a load.
		if record.Batch(old.raw).ProducerEpoch() == known.Epoch && old.base >= x.m.start {
			b := record.Batch(bytes.Clone(old.raw))
			b.SetBaseOffset(0)
			info, err := x.leader(b, AppendOptions{})
			if err != nil || !info.Duplicate || int64(info.First) != old.base || int64(info.Last) != old.last {
				x.t.Errorf("repeat of producer %d's batch at %d: %+v %v", pid, old.base, info, err)
			}
			return "repeat"
		}
	}
	seq, epoch := int32(0), cluster.ProducerEpoch(0)
	if known != nil {
		epoch = known.Epoch
		if seq = known.LastSequence + 1; known.LastSequence < 0 && len(w) > 0 {
			epoch++ // its batches are forgotten, not its epoch
		}
	}
	if _, err := x.leader(producerBatchOf(pid, epoch, seq, 1+x.rnd.Intn(3), pid > 2, x.time()), AppendOptions{}); err != nil {
		x.t.Errorf("producer %d, epoch %d, sequence %d, known %+v: %v", pid, epoch, seq, known, err)
	}
	if _, err := x.leader(producerBatchOf(pid, epoch, seq+1000, 1, pid > 2, x.time()), AppendOptions{}); !errors.Is(err, producers.ErrOutOfOrderSequence) {
		x.t.Errorf("a gap in producer %d's sequence: %v", pid, err)
	}
	return "producer"
}

func (x *modelRun) mark() string {
	for _, p := range x.l.ActiveProducers() {
		if p.TxnStart >= 0 && x.rnd.Intn(2) == 0 {
			if _, err := x.leader(record.EndTxnMarker(x.rnd.Intn(2) == 0, p.ID, p.Epoch, 0, x.time()), AppendOptions{Origin: Coordinator}); err != nil {
				x.t.Error(err)
			}
			return "mark"
		}
	}
	return "nothing to mark"
}

func (x *modelRun) follow() string {
	next := x.m.leo
	if x.r.cfg.Compact {
		next += int64(x.rnd.Intn(2) * x.rnd.Intn(30))
	}
	epoch := x.followed()
	var buf []byte
	for range 1 + x.rnd.Intn(6) {
		b := batchOf(1+x.rnd.Intn(3), x.rnd.Intn(500), x.time())
		b.SetBaseOffset(cluster.Offset(next))
		b.SetLeaderEpoch(epoch)
		next = int64(b.LastOffset()) + 1
		buf = append(buf, b...)
	}
	want := len(buf)
	bad := batchOf(1, 10, x.ts)
	bad.SetBaseOffset(cluster.Offset(next))
	bad.SetLeaderEpoch(x.epoch + 1) // a newer leader's
	sent := append(bytes.Clone(buf), bad...)
	if x.rnd.Intn(2) == 0 {
		sent = append(bytes.Clone(buf), bad[:len(bad)-1]...) // cut by size
	}
	info, err := x.l.AppendAsFollower(sent, x.epoch)
	if err != nil || info.Bytes != want {
		x.t.Errorf("follower append: %+v %v, want %d bytes", info, err, want)
		return "follow"
	}
	x.m.add(buf)
	return "follow"
}

func (x *modelRun) flush() string {
	if err := x.l.Flush(x.l.LEO()); err != nil {
		x.t.Error(err)
	}
	if x.l.RecoveryPoint() != x.l.LEO() {
		x.t.Errorf("recovery point %d after a flush up to %d", x.l.RecoveryPoint(), x.l.LEO())
	}
	return "flush"
}

func (x *modelRun) deleteRecords() string {
	off := x.m.start + (x.m.hw-x.m.start)/3
	if err := x.l.DeleteRecordsBefore(cluster.Offset(off), cluster.Offset(x.m.hw)); err != nil {
		x.t.Error(err)
	}
	x.m.start = max(x.m.start, off)
	return fmt.Sprint("delete records before ", off)
}

func (x *modelRun) truncate() string {
	off := max(x.m.leo-int64(x.rnd.Intn(20)), x.m.start)
	if err := x.l.TruncateTo(cluster.Offset(off)); err != nil {
		x.t.Error(err)
	}
	x.idle = nil
	if off < x.m.leo {
		empty := int64(0)
		if s := x.l.active(); s.size == 0 {
			empty = s.base
		}
		x.m.cut(off, empty)
	}
	return fmt.Sprint("truncate to ", off)
}

func (x *modelRun) startOver() string {
	off := x.m.leo + int64(x.rnd.Intn(50))
	if err := x.l.TruncateFullyAndStartAt(cluster.Offset(off)); err != nil {
		x.t.Error(err)
	}
	x.m, x.idle = modelLog{start: off, leo: off, hw: off}, nil
	return fmt.Sprint("start over at ", off)
}

// followStart takes over a start that retention moved, which only rises and
// stays below the high watermark.
func (x *modelRun) followStart() {
	start := int64(x.l.LogStart())
	if start < x.m.start || start > max(x.m.hw, x.m.start) {
		x.t.Errorf("retention moved the start from %d to %d, the high watermark is %d", x.m.start, start, x.m.hw)
	}
	x.m.start = start
	x.m.dropBelowStart()
}

func (m *modelLog) dropBelowStart() {
	// Batches of deleted segments are gone for good; those that merely lie
	// below the start do no harm here: reads begin above.
	m.hw = max(m.hw, m.start)
}

func (x *modelRun) reopen() string {
	left := x.l.Epochs()
	x.r.close()
	if x.rnd.Intn(2) == 0 { // Kafka leaves epochs without records in the file
		writeWhole(x.t, x.mem, "/data/alpha-0/"+leaderEpochCheckpoint, left.Encode())
	}
	x.r.open()
	x.l = x.r.log(tpA)
	x.shrunk()
	x.opened()
	return "reopen"
}

func (x *modelRun) opened() {
	x.l, x.idle = x.r.log(tpA), nil
	if start := int64(x.l.LogStart()); start > x.m.start {
		x.t.Errorf("log starts at %d after a load, %d before", start, x.m.start)
	} else {
		x.m.start = start // the checkpoint may be older
	}
	x.m.hw = x.m.leo
	x.l.HighWatermarkMoved(cluster.Offset(x.m.hw))
}

func (x *modelRun) kill() string {
	point := x.durable()
	x.r.crash()
	x.r.open()
	x.l = x.r.log(tpA)
	if int64(x.l.LEO()) < point {
		x.t.Errorf("recovery point %d, after a kill the log ends at %d", point, x.l.LEO())
	}
	// A log that ended in a gap of compaction, or above its last batch, ends
	// at its last batch now.
	x.shrunk()
	x.opened()
	return "kill"
}

// durable is up to where the log must survive a power loss: the recovery point,
// unless it only follows the log's start or an end without a batch.
func (x *modelRun) durable() int64 {
	point := int64(0)
	for _, b := range x.m.batches {
		if b.last < int64(x.l.RecoveryPoint()) {
			point = b.last + 1
		}
	}
	if point <= x.m.start {
		return 0
	}
	return point
}

// shrunk takes over an end that was not backed by a batch, or lay below the
// start.
func (x *modelRun) shrunk() {
	if got := int64(x.l.LEO()); got < x.m.leo && got >= x.m.backed() {
		x.m.leo = got
	}
	if x.l.Size() == 0 {
		x.m.batches = nil
	}
	x.m.start = min(x.m.start, x.m.leo)
}

// backed is the end that batches stand for.
func (m *modelLog) backed() int64 {
	if n := len(m.batches); n > 0 {
		return max(m.batches[n-1].last+1, 0)
	}
	return 0
}

// powerLoss goes on with what a disk may hold after one: a prefix of the log
// that has all that was flushed.
func (x *modelRun) powerLoss() string {
	if x.r.cfg.Compact {
		return "no power loss" // it may leave holes, which look like compaction's gaps
	}
	point := x.durable()
	x.r.crash()
	crash := vfs.Crash{UnsyncedPercent: x.rnd.Intn(101), Block: 512 << x.rnd.Intn(4), Rand: randv2.New(randv2.NewPCG(uint64(x.rnd.Int63()), 1))}
	if testing.Verbose() {
		for _, s := range x.l.segs {
			x.t.Logf("before: %d size %d", s.base, s.size)
		}
	}
	x.mem = x.mem.CrashClone(crash)
	if testing.Verbose() {
		es, _ := x.mem.ReadDir("/data/alpha-0")
		for _, e := range es {
			i, _ := x.mem.Stat("/data/alpha-0/" + e.Name)
			x.t.Logf("after: %s %d", e.Name, i.Size)
		}
		b, _ := vfs.ReadFile(x.mem, "/data/recovery-point-offset-checkpoint", 1000)
		x.t.Logf("%q", b)
	}
	x.r.fs, x.r.opts.FS = x.mem, x.mem
	x.r.open()
	l, ok := x.r.s.Log(tpA)
	if !ok {
		if point > 0 {
			x.t.Errorf("the log is gone, its recovery point was %d", point)
		}
		l = x.r.create(tpA)
	}
	x.l = l
	leo := int64(l.LEO())
	if leo < point || leo > x.m.leo {
		x.t.Errorf("recovery point %d, log end %d; after a power loss it ends at %d", point, x.m.leo, leo)
		return "power loss"
	}
	for i, b := range x.m.batches {
		if b.last >= leo {
			x.m.batches = x.m.batches[:i]
			break
		}
	}
	x.m.leo = leo
	x.shrunk()
	x.opened()
	x.m.hw = leo
	return fmt.Sprintf("power loss, %d%% survive", crash.UnsyncedPercent)
}

func (x *modelRun) compare(after string) {
	m, l := &x.m, x.l
	if int64(l.LEO()) != m.leo || int64(l.LogStart()) != m.start {
		x.t.Errorf("after %s: log %d..%d, model %d..%d", after, l.LogStart(), l.LEO(), m.start, m.leo)
		return
	}
	if got := int64(l.LSO(cluster.Offset(m.hw))); got != m.lso() {
		x.t.Errorf("after %s: LSO %d, model %d (high watermark %d)", after, got, m.lso(), m.hw)
	}
	for range 3 {
		x.compareRead(after)
	}
	x.compareTxns(after)
	x.compareTimes(after)
	x.compareEpochs(after)
}

func (x *modelRun) offset() int64 { return x.m.start + x.rnd.Int63n(x.m.leo-x.m.start+1) }

func (x *modelRun) compareRead(after string) {
	from, upTo := x.offset(), x.m.leo
	if x.rnd.Intn(2) == 0 {
		upTo = x.offset()
	}
	maxBytes, minOne := x.rnd.Intn(5000), x.rnd.Intn(2) == 0
	s, err := x.l.Read(cluster.Offset(from), maxBytes, cluster.Offset(upTo), minOne)
	if err != nil {
		x.t.Errorf("after %s: read from %d: %v", after, from, err)
		return
	}
	defer s.Release()
	got, err := s.Bytes()
	if err != nil {
		x.t.Errorf("after %s: %v", after, err)
		return
	}
	want := x.m.read(from, maxBytes, upTo, minOne)
	if !bytes.HasPrefix(want, got) || (len(got) == 0 && len(want) > 0) {
		x.t.Errorf("after %s: read from %d up to %d, %d bytes: got %d bytes, want %d", after, from, upTo, maxBytes, len(got), len(want))
		return
	}
	if len(got) < len(want) && !x.endsSegment(s, len(got)) {
		x.t.Errorf("after %s: read from %d up to %d, %d bytes: %d bytes of %d", after, from, upTo, maxBytes, len(got), len(want))
	}
	if len(got) >= 8 && s.First() != record.Batch(want).BaseOffset() {
		x.t.Errorf("after %s: first offset %d, want %d", after, s.First(), record.Batch(want).BaseOffset())
	}
	x.compareBound(s, got)
}

// endsSegment tells whether a short read is explained by its segment's end.
func (x *modelRun) endsSegment(s *Slice, n int) bool {
	return s.seg != nil && s.pos+int64(n) == s.seg.size
}

func (x *modelRun) compareBound(s *Slice, got []byte) {
	bound, err := s.UpperBound()
	if err != nil {
		x.t.Error(err)
	}
	for rest := got; len(rest) >= record.HeaderLen; {
		b := record.Batch(rest)
		if b.Length() > len(rest) {
			break
		}
		if b.LastOffset() >= bound {
			x.t.Errorf("upper bound %d, but the slice holds offset %d", bound, b.LastOffset())
		}
		rest = rest[b.Length():]
	}
}

func (x *modelRun) compareTxns(after string) {
	from, upTo := x.offset(), x.offset()
	got, err := x.l.AbortedTxns(cluster.Offset(from), cluster.Offset(upTo))
	if want := x.m.aborted(from, upTo); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Errorf("after %s: aborted within %d..%d: %v %v, want %v", after, from, upTo, got, err, want)
	}
}

func (x *modelRun) compareTimes(after string) {
	ts := testStartMs + x.rnd.Int63n(max(1, x.ts-testStartMs)+50)
	got, ok, err := x.l.OffsetForTimestamp(ts)
	if want, there := x.m.byTime(ts); err != nil || ok != there || got != want {
		x.t.Errorf("after %s: offset for %d: %+v %v %v, want %+v %v", after, ts, got, ok, err, want, there)
	}
	got, ok, err = x.l.MaxTimestampOffset()
	if want, there := x.m.maxTime(); err != nil || ok != there || got != want {
		x.t.Errorf("after %s: largest timestamp: %+v %v %v, want %+v %v", after, got, ok, err, want, there)
	}
}
