package logstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/cleaner"
	"github.com/kbroker/kbroker/protocol/record"
)

// minCleanBuffer is the least that is read at once, whatever
// log.cleaner.io.buffer.size says.
const minCleanBuffer = 4 << 10

// cleanRun is one cleaning of one log: first the dirty part is read to learn the
// last offset of each key, then everything below is copied without what was
// superseded, some segments at a time.
type cleanRun struct {
	w   *cleanWorker
	cfg CleanerConfig
	j   *cleanJob
	l   *Log
	f   *cleaner.Filter
	now int64
}

// clean compacts a log as far as one map of keys reaches.
func (w *cleanWorker) clean(j *cleanJob, cfg CleanerConfig) error {
	r := &cleanRun{w: w, cfg: cfg, j: j, l: j.log, f: &w.filter}
	began := w.c.store.clock.Now()
	r.now = began.UnixMilli()
	r.f.Stats = cleaner.Stats{}
	r.f.NowMs, r.f.DeleteRetentionMs = r.now, millis(j.cfg.DeleteRetentionMs)
	if err := r.settle(); err != nil {
		return err
	}
	if err := r.index(); err != nil {
		return err
	}
	end := r.f.Map.Latest() + 1
	if err := r.copyAll(end); err != nil {
		return err
	}
	if err := j.cleanedUpTo(end); err != nil {
		return err
	}
	w.done(j, end, r.f.Map.Utilization(r.mapMemory()), began)
	return nil
}

// settle makes what is cleaned durable first, and has the disk know it: a
// recovery must not come upon a segment from which batches are missing, which it
// could take for a loss, and replaced segments need no flush any more.
func (r *cleanRun) settle() error {
	if int64(r.l.RecoveryPoint()) < r.j.end {
		if err := r.l.flushTo(r.j.end); err != nil {
			return err
		}
	}
	return r.l.store.checkpointRecoveryPoints(r.l.dir)
}

func (r *cleanRun) mapMemory() int64 {
	return min(r.cfg.DedupeBuffer/int64(max(r.cfg.Threads, 1)), 1<<31-1)
}

func (r *cleanRun) bufferSize() int {
	return max(r.cfg.IOBuffer/max(r.cfg.Threads, 1)/2, minCleanBuffer)
}

// pace waits as the throttle says, and stops the run when it should stop.
func (r *cleanRun) pace(bytes int) error {
	c := r.w.c
	if wait := c.rate.owes(c.store.clock.Now(), bytes, r.cfg.MaxIORate); wait > 0 && !c.sleep(wait) {
		return errCleanAborted
	}
	if c.stopped() {
		return errCleanAborted
	}
	return r.j.check()
}

// index fills the map with the keys from the dirty point on, until it is full.
func (r *cleanRun) index() error {
	j, m := r.j, r.f.Map
	m.Reset(j.end-j.dirty, r.mapMemory(), r.cfg.LoadFactor)
	txns, err := r.txns(j.dirty, j.end)
	if err != nil {
		return err
	}
	r.f.Txns = txns
	for i := floorSegment(j.segs, j.dirty); i < len(j.segs); i++ {
		full := false
		from, err := r.positionOf(i, j.dirty)
		if err != nil {
			return err
		}
		err = r.each(i, from, func(entry []byte) (bool, error) {
			var err error
			full, err = r.f.Index(entry, j.dirty)
			return !full, err
		})
		if err != nil || full {
			return err
		}
		// What is missing up to the next segment was cleaned before, or never was.
		m.Saw(j.endOf(i) - 1)
	}
	return nil
}

// endOf is where the i-th segment ends.
func (j *cleanJob) endOf(i int) int64 {
	if i+1 < len(j.segs) {
		return j.segs[i+1].base
	}
	return j.end
}

// txns are the aborted transactions that have records from..upTo, by their
// beginning.
func (r *cleanRun) txns(from, upTo int64) (*cleaner.Txns, error) {
	entries, err := r.l.aborted(cluster.Offset(from), cluster.Offset(upTo))
	if err != nil {
		return nil, err
	}
	list := make([]cleaner.Aborted, len(entries))
	for i, e := range entries {
		list[i] = cleaner.Aborted(e)
	}
	slices.SortStableFunc(list, func(a, b cleaner.Aborted) int { return cmp.Compare(a.First, b.First) })
	return cleaner.NewTxns(list), nil
}

// positionOf is where the batch that holds an offset begins in the i-th segment,
// or an earlier one.
func (r *cleanRun) positionOf(i int, off int64) (int64, error) {
	s := r.j.segs[i]
	if off <= s.base || r.j.size[i] == 0 {
		return 0, nil
	}
	h, err := r.l.store.files.acquire(s)
	if err != nil {
		return 0, r.judge(s, err)
	}
	defer h.release()
	pos, err := s.verified(reader, h.f, func() (hint, error) { return s.startFor(reader, off) })
	if err != nil {
		return 0, r.judge(s, err)
	}
	return pos, nil
}

// judge tells a segment that was taken away from a failing disk.
func (r *cleanRun) judge(s *segment, err error) error {
	if s.has(flagGone) || r.l.gen.Load() != r.j.gen {
		return fmt.Errorf("%w: segment %d changed", errCleanAborted, s.base)
	}
	return r.l.readError(asCorrupt(err))
}

// each calls f with the whole entries of the i-th segment from a position on,
// until it says that it wants no more.
func (r *cleanRun) each(i int, pos int64, f func(entry []byte) (more bool, err error)) error {
	s, size := r.j.segs[i], r.j.size[i]
	if pos >= size {
		return nil
	}
	h, err := r.l.store.files.acquire(s)
	if err != nil {
		return r.judge(s, err)
	}
	defer h.release()
	buf := slices.Grow(r.w.in[:0], r.bufferSize())[:r.bufferSize()]
	r.w.in = buf
	for pos < size {
		want := int(min(int64(len(buf)), size-pos))
		if err := r.pace(want); err != nil {
			return err
		}
		if n, err := h.f.ReadAt(buf[:want], pos); n < want {
			return r.judge(s, shortRead(cmp.Or(err, errShortFile)))
		}
		used, more, err := r.entries(s, pos, size, buf[:want], f)
		if err != nil || !more {
			return err
		}
		if used == 0 {
			// One entry is larger than the buffer; it lies within the segment.
			buf = make([]byte, record.Batch(buf).Length())
			continue
		}
		pos += int64(used)
		buf = r.w.in
	}
	return nil
}

var errShortFile = errors.New("file ends early")

// entries calls f with the whole entries in buf, which was read at pos.
func (r *cleanRun) entries(s *segment, pos, size int64, buf []byte, f func([]byte) (bool, error)) (used int, more bool, err error) {
	for len(buf)-used >= record.LogOverhead+5 {
		rest, left := buf[used:], size-pos-int64(used)
		if int64(len(rest)) < min(record.HeaderLen, left) {
			break // the header is not all there
		}
		var e entry
		if err := e.parse(rest[:min(len(rest), record.HeaderLen)], pos+int64(used), left); err != nil {
			return used, false, r.corrupt(s, pos+int64(used), err)
		}
		if e.size > int64(len(rest)) {
			break
		}
		more, err := f(rest[:e.size])
		if err != nil {
			return used, false, r.corrupt(s, pos+int64(used), err)
		}
		used += int(e.size)
		if !more {
			return used, false, nil
		}
	}
	if used == 0 && len(buf) < record.LogOverhead+5 {
		return 0, false, r.corrupt(s, pos, fmt.Errorf("%w: %d bytes at the end", errTail, len(buf)))
	}
	return used, true, nil
}

// corrupt says where what was stored cannot be read. Errors of the log itself
// pass.
func (r *cleanRun) corrupt(s *segment, pos int64, err error) error {
	if s.has(flagGone) || r.l.gen.Load() != r.j.gen {
		return fmt.Errorf("%w: segment %d changed", errCleanAborted, s.base)
	}
	if errors.Is(err, errCleanAborted) || errors.Is(err, ErrStorage) || errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %s at position %d: %v", ErrCorruptLog, s.path(extLog), pos, err)
}

// copyAll copies the segments that begin below end, in groups.
func (r *cleanRun) copyAll(end int64) error {
	j := r.j
	n := 0
	for n < len(j.segs) && j.segs[n].base < end {
		n++
	}
	if n == 0 {
		return nil
	}
	txns, err := r.txns(j.segs[0].base, j.endOf(n-1))
	if err != nil {
		return err
	}
	r.f.Txns = txns
	r.f.Last = r.l.lastOfProducers()
	horizon, err := r.legacyHorizon()
	if err != nil {
		return err
	}
	groups, err := r.group(n)
	if err != nil {
		return err
	}
	at := 0
	for _, size := range groups {
		if err := r.copyGroup(at, size, horizon); err != nil {
			return err
		}
		at += size
	}
	return nil
}

// lastOfProducers is the last batch of each producer that is still known.
func (l *Log) lastOfProducers() map[cluster.ProducerID]cleaner.Last {
	l.state.Lock()
	active := l.producers.Active()
	l.state.Unlock()
	m := make(map[cluster.ProducerID]cleaner.Last, len(active))
	for _, p := range active {
		m[p.ProducerID] = cleaner.Last{Offset: p.LastOffset, Epoch: p.Epoch}
	}
	return m
}

// legacyHorizon is the time of the last change before which a segment must lie
// for tombstones of old formats to go: delete.retention.ms before that of the
// newest clean segment.
func (r *cleanRun) legacyHorizon() (int64, error) {
	at := -1
	for at+1 < len(r.j.segs) && r.j.segs[at+1].base < r.j.dirty {
		at++
	}
	if at < 0 {
		return 0, nil
	}
	t, err := r.changed(r.j.segs[at])
	return t.UnixMilli() - millis(r.j.cfg.DeleteRetentionMs), err
}

func (r *cleanRun) changed(s *segment) (time.Time, error) {
	info, err := r.l.store.fs.Stat(s.path(extLog))
	if err != nil {
		return time.Time{}, r.judge(s, err)
	}
	return info.ModTime, nil
}

// group says how many of the first n segments are copied into one each time.
func (r *cleanRun) group(n int) ([]int, error) {
	j := r.j
	list := make([]cleaner.Segment, n)
	for i, s := range j.segs[:n] {
		list[i] = cleaner.Segment{Base: s.base, Size: j.size[i]}
		for ext, size := range map[string]*int64{extIndex: &list[i].Index, extTimeIndex: &list[i].TimeIndex} {
			info, err := r.l.store.fs.Stat(s.path(ext))
			if err != nil && !isMissing(err) {
				return nil, r.judge(s, err)
			}
			*size = info.Size
		}
	}
	return cleaner.Groups(list, int64(j.cfg.SegmentBytes), int64(j.cfg.SegmentIndexBytes), j.end), nil
}

// copyGroup makes one segment of some and puts it in their place.
func (r *cleanRun) copyGroup(at, n int, legacyHorizon int64) error {
	old := r.j.segs[at : at+n]
	out, err := r.newOutput(old[0].base)
	if err != nil {
		return err
	}
	if err := r.fill(out, at, n, legacyHorizon); err != nil {
		out.discard()
		return err
	}
	return r.replace(out, old)
}

func (r *cleanRun) fill(out *cleanOutput, at, n int, legacyHorizon int64) error {
	var changed time.Time
	for i := at; i < at+n; i++ {
		var err error
		if changed, err = r.changed(r.j.segs[i]); err != nil {
			return err
		}
		r.f.KeepLegacyTombstones = changed.UnixMilli() > legacyHorizon
		err = r.each(i, 0, func(entry []byte) (bool, error) {
			before := len(out.buf)
			buf, aborted, err := r.f.Append(out.buf, entry)
			if err != nil {
				return false, err
			}
			out.buf = buf
			if aborted != nil {
				out.txns = append(out.txns, abortedEntry(*aborted))
			}
			return true, out.added(before)
		})
		if err != nil {
			return err
		}
	}
	return out.finish(changed)
}
