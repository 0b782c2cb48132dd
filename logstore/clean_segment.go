package logstore

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// cleanOutput is a segment on its way: NAME.cleaned files, that nobody else
// knows.
type cleanOutput struct {
	r    *cleanRun
	base int64
	f    vfs.File
	pos  int64 // in the file; buf comes after it
	buf  []byte

	idx  *indexBuilder
	txns []abortedEntry
}

func (r *cleanRun) newOutput(base int64) (*cleanOutput, error) {
	o := &cleanOutput{r: r, base: base, buf: r.w.out[:0], idx: newIndexBuilder(base, r.j.cfg)}
	f, err := r.l.store.openFile(o.path(extLog), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, r.l.ioError("creation of a compacted segment", err)
	}
	o.f = f
	return o, nil
}

func (o *cleanOutput) path(ext string) string {
	return o.r.l.file(fileName(o.base, ext) + suffixCleaned)
}

// added enters what was appended to buf since into the indexes, and writes buf
// when it is full.
func (o *cleanOutput) added(since int) error {
	if len(o.buf) == since {
		return nil
	}
	b := o.buf[since:]
	var e entry
	if err := e.parse(b[:min(len(b), record.HeaderLen)], o.pos+int64(since), int64(len(b))); err != nil {
		return err
	}
	if e.last-o.base > math.MaxInt32 || e.pos+e.size > maxSegmentSize {
		return fmt.Errorf("%w: offset %d at position %d does not fit into the segment that begins at %d", ErrCorruptLog, e.last, e.pos, o.base)
	}
	if e.size > int64(o.r.cfg.MaxMessageBytes) && o.r.cfg.MaxMessageBytes > 0 {
		o.r.l.store.log.Debug().Stringer("partition", o.r.l.tp).Int64("offset", e.base).Int64("bytes", e.size).Msg("compacted batch is larger than message.max.bytes")
	}
	o.idx.add(&e)
	if len(o.buf) < o.r.bufferSize() {
		return nil
	}
	return o.flush()
}

func (o *cleanOutput) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	if err := o.r.pace(len(o.buf)); err != nil {
		return err
	}
	if _, err := o.f.WriteAt(o.buf, o.pos); err != nil {
		return o.r.l.ioError("write of a compacted segment", err)
	}
	o.pos += int64(len(o.buf))
	if o.buf = o.buf[:0]; cap(o.buf) > 4*o.r.bufferSize() {
		o.buf = nil
	}
	o.r.w.out = o.buf
	return nil
}

// finish completes the files and makes them durable, all but their names. The
// log keeps the time of its newest part: retention may go by it.
func (o *cleanOutput) finish(changed time.Time) error {
	if err := o.flush(); err != nil {
		return err
	}
	o.idx.close()
	if err := o.write(extIndex, o.idx.offsets); err != nil {
		return err
	}
	if err := o.write(extTimeIndex, o.idx.times); err != nil {
		return err
	}
	var txns []byte
	for _, e := range o.txns {
		txns = appendAborted(txns, e)
	}
	if len(txns) > 0 {
		if err := o.write(extTxnIndex, txns); err != nil {
			return err
		}
	}
	err := o.f.Sync()
	if err == nil {
		err = o.r.l.store.fs.SetModTime(o.path(extLog), changed)
	}
	if err != nil {
		return o.r.l.ioError("sync of a compacted segment", err)
	}
	return nil
}

func (o *cleanOutput) write(ext string, data []byte) error {
	f, err := o.r.l.store.openFile(o.path(ext), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return o.r.l.ioError("write of a compacted segment", err)
	}
	if len(data) > 0 {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return o.r.l.ioError("write of a compacted segment", err)
	}
	return nil
}

// exts are the files that there are.
func (o *cleanOutput) exts() []string {
	exts := []string{extLog, extIndex, extTimeIndex}
	if len(o.txns) > 0 {
		exts = append(exts, extTxnIndex)
	}
	return exts
}

// discard removes the files of a segment that will not be.
func (o *cleanOutput) discard() {
	_ = o.f.Close()
	if o.r.l.dir.check() == nil {
		o.remove(suffixCleaned)
	}
}

func (o *cleanOutput) remove(suffix string) {
	for _, ext := range segmentExts {
		if err := o.r.l.store.fs.Remove(o.r.l.file(fileName(o.base, ext) + suffix)); err != nil && !isMissing(err) {
			_ = o.r.l.ioError("removal of a compacted segment", err)
		}
	}
}

// rename gives all files another suffix, the log first: see finishSwap.
func (o *cleanOutput) rename(from, to string) error {
	for _, ext := range o.exts() {
		name := o.r.l.file(fileName(o.base, ext))
		if err := o.r.l.store.fs.Rename(name+from, name+to); err != nil {
			return o.r.l.ioError("renaming a compacted segment", err)
		}
	}
	return nil
}

func (o *cleanOutput) syncNames() error {
	if err := o.r.l.store.fs.SyncDir(o.r.l.path()); err != nil {
		return o.r.l.ioError("renaming a compacted segment", err)
	}
	return nil
}

// segment is what the log will know of the new segment. Its indexes and
// transactions are in memory until the files have their names.
func (o *cleanOutput) segment(like *segment) *segment {
	s := blankSegment(o.r.l, o.base, o.r.j.cfg)
	s.clear(flagWritable)
	s.created, s.jitter, s.size = like.created, like.jitter, o.pos
	s.nOffset, s.nTime = int32(len(o.idx.offsets)/offsetEntry), int32(len(o.idx.times)/timeEntry)
	s.lastTs, s.maxTs, s.maxTsOff = o.idx.lastTs, o.idx.maxTs, o.idx.maxTsOff
	if n := len(o.txns); n > 0 {
		s.set(flagTxnFile)
		s.txns = &txnBox{idx: &txnIndex{
			fs: o.r.l.store.fs, path: s.path(extTxnIndex), base: cluster.Offset(o.base),
			count: int64(n), last: o.txns[n-1].Last, cache: o.txns,
		}}
	}
	if s.nOffset > 0 {
		s.keepImage(kindOffset, o.idx.offsets)
	}
	if s.nTime > 0 {
		s.keepImage(kindTime, o.idx.times)
	}
	return s
}

// replace puts the new segment in the place of the old ones. After a crash at any
// point the log has either; the order, each step durable before the next:
//
//  1. the new files are complete under .cleaned; those are removed by a start
//  2. they are renamed to .swap; while one .cleaned is left, both are removed,
//     and then a start completes what follows
//  3. the old ones are renamed to .deleted
//  4. .swap is taken off
//
// Flushes, truncations and the log's deletion wait until it is done; appends and
// reads do not.
func (r *cleanRun) replace(o *cleanOutput, old []*segment) error {
	l := r.l
	l.flushing.Lock()
	defer l.flushing.Unlock()
	if err := r.stillThere(old); err != nil {
		o.discard()
		return err
	}
	if err := o.rename(suffixCleaned, suffixSwap); err != nil {
		_ = o.f.Close()
		return err
	}
	if err := o.syncNames(); err != nil {
		_ = o.f.Close()
		return err
	}
	s := o.segment(old[len(old)-1])
	h := l.store.files.install(s, o.f) // the file is reached by this until it has its name
	defer h.release()
	if err := r.takeOver(s, old); err != nil {
		l.store.files.drop(s)
		if errors.Is(err, errCleanAborted) {
			o.remove(suffixSwap)
		}
		return err
	}
	if err := o.syncNames(); err != nil {
		return err
	}
	if err := r.settleName(o, s, old); err != nil {
		return err
	}
	return o.syncNames()
}

// stillThere is errCleanAborted when one of the segments was deleted or cut.
func (r *cleanRun) stillThere(old []*segment) error {
	if err := r.j.check(); err != nil {
		return err
	}
	if anyGone(old) {
		return fmt.Errorf("%w: a segment was deleted", errCleanAborted)
	}
	return nil
}

// takeOver makes the new segment the one that is read, and renames the old ones.
// The log's file is open, so nobody looks for it yet.
func (r *cleanRun) takeOver(s *segment, old []*segment) error {
	l := r.l
	l.append.Lock()
	defer l.append.Unlock()
	if err := r.stillThere(old); err != nil {
		return err
	}
	l.state.Lock()
	at := slices.Index(l.segs, old[0])
	segs := append(slices.Clone(l.segs[:at]), s)
	l.segs = append(segs, l.segs[at+len(old):]...)
	l.size += s.size
	for _, g := range old {
		l.size -= g.size
		g.set(flagGone)
	}
	l.state.Unlock()
	for _, g := range old {
		if err := g.renameGone(); err != nil {
			return l.ioError("segment replacement", err)
		}
	}
	l.unsynced.sealed = slices.DeleteFunc(l.unsynced.sealed, func(s *segment) bool { return s.has(flagGone) })
	l.store.removeLater(l, old)
	return l.deleteSnapshotsOf(old[1:])
}

// settleName takes the suffix off, unless the segment was deleted already.
func (r *cleanRun) settleName(o *cleanOutput, s *segment, old []*segment) error {
	l := r.l
	l.append.Lock()
	defer l.append.Unlock()
	if s.has(flagGone) {
		o.remove(suffixSwap)
		return nil
	}
	if err := o.rename(suffixSwap, ""); err != nil {
		return err
	}
	if b := s.txns; b != nil && len(o.txns) > txnCached {
		b.mu.Lock()
		b.idx.cache = nil // now it is in a file
		b.mu.Unlock()
	}
	l.store.log.Info().Stringer("partition", l.tp).Int64("base", s.base).Int("segments", len(old)).Int64("bytes", s.size).Msg("segments are replaced by a compacted one")
	return nil
}
