package logstore

import (
	"errors"
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// pending is one append on its way: batches with their offsets, and what the
// index is told of them.
type pending struct {
	buf         []byte
	first, last int64 // offsets; first of the first batch
	firstPlace  place // of the first batch; pos is set when it is written
	maxTs       int64
	epoch       cluster.LeaderEpoch
}

// AppendAsLeader gives validated batches their offsets and the leader's epoch,
// in place, and writes them with one write. When it returns without an error
// the batches are in the log, and durable if flush.messages says so.
func (l *Log) AppendAsLeader(v *record.Validated, epoch cluster.LeaderEpoch, o AppendOptions) (AppendInfo, error) {
	if l.metadataDue.Load() {
		if err := l.flushMetadata(); err != nil {
			return AppendInfo{}, l.wrap(err)
		}
	}
	l.append.Lock()
	info, err := l.appendLeaderLocked(v, epoch, o)
	due := err == nil && l.flushDue()
	l.append.Unlock()
	if err != nil {
		return info, l.wrap(err)
	}
	if due {
		err = l.Flush(l.LEO())
	}
	return info, err
}

func (l *Log) appendLeaderLocked(v *record.Validated, epoch cluster.LeaderEpoch, o AppendOptions) (AppendInfo, error) {
	if err := l.usable(); err != nil {
		return AppendInfo{}, err
	}
	leo := l.leo.Load()
	info := AppendInfo{First: cluster.Offset(leo), Last: cluster.Offset(leo) - 1, LogStart: l.LogStart(), LogAppendTimeMs: record.NoTimestamp, LeaderEpoch: epoch}
	if v.Batches == 0 || len(v.Buf) == 0 {
		return info, nil
	}
	p, err := assignOffsets(v, leo, epoch)
	if err != nil {
		return AppendInfo{}, err
	}
	cfg := l.config()
	if err := l.noteEpochs(p.buf); err != nil {
		return AppendInfo{}, err
	}
	if len(p.buf) > int(cfg.SegmentBytes) {
		return AppendInfo{}, fmt.Errorf("%w: %d bytes, segment.bytes is %d", ErrTooLarge, len(p.buf), cfg.SegmentBytes)
	}
	if err := l.makeRoom(cfg, &p); err != nil {
		return AppendInfo{}, err
	}
	dup, duplicate, err := l.checkProducers(p.buf, o)
	if err != nil {
		return AppendInfo{}, err
	}
	if duplicate {
		info.First, info.Last, info.LogAppendTimeMs, info.Duplicate = dup.First, dup.Last, dup.Timestamp, true
		return info, nil
	}
	if err := l.write(cfg, &p); err != nil {
		return AppendInfo{}, err
	}
	info.Last, info.Bytes = cluster.Offset(p.last), len(p.buf)
	if cfg.LogAppendTime {
		info.LogAppendTimeMs = v.MaxTimestamp
	}
	return info, nil
}

// usable is usableLocked for a caller that holds append only.
func (l *Log) usable() error {
	l.state.Lock()
	defer l.state.Unlock()
	return l.usableLocked()
}

// assignOffsets writes offsets and epoch into the batches.
func assignOffsets(v *record.Validated, leo int64, epoch cluster.LeaderEpoch) (pending, error) {
	p := pending{buf: v.Buf, first: leo, maxTs: record.NoTimestamp, epoch: epoch}
	next := leo
	for at := 0; at < len(v.Buf); {
		b := record.Batch(v.Buf[at:])
		if len(b) < record.HeaderLen || b.Length() < record.HeaderLen || b.Length() > len(b) || b.LastOffsetDelta() < 0 {
			return p, fmt.Errorf("%w: not a whole batch at byte %d", record.ErrCorrupt, at)
		}
		b.SetBaseOffset(cluster.Offset(next))
		b.SetLeaderEpoch(epoch)
		last := next + int64(b.LastOffsetDelta())
		p.add(b, next, last)
		next = last + 1
		at += b.Length()
	}
	return p, nil
}

// add accounts for a batch.
func (p *pending) add(b record.Batch, base, last int64) {
	if p.firstPlace.size == 0 {
		p.firstPlace = place{size: int64(b.Length()), base: base, last: last}
	}
	p.last = last
	p.maxTs = max(p.maxTs, b.MaxTimestamp())
}

// noteEpochs keeps the history of leader epochs in step with batches that are
// about to be written; the checkpoint goes first, so that it never lacks an
// epoch that the log has.
func (l *Log) noteEpochs(buf []byte) error {
	l.state.Lock()
	changed := false
	for at := 0; at < len(buf); {
		b := record.Batch(buf[at:])
		if b.Magic() == record.MagicV2 {
			var news bool
			l.epochs, news = l.epochs.Assign(b.LeaderEpoch(), b.BaseOffset())
			changed = changed || news
		}
		at += b.Length()
	}
	l.state.Unlock()
	if l.epochsLazy {
		l.epochsLazy, l.unsynced.epochs, l.unsynced.dir = false, true, true
	}
	if !changed && !l.epochsDue {
		return nil
	}
	return l.writeEpochs()
}

// makeRoom makes the active segment ready for the append, rolling it if the
// batches do not belong into it.
func (l *Log) makeRoom(cfg *config.Log, p *pending) error {
	s := l.active()
	if err := l.makeWritable(s); err != nil {
		return err
	}
	if s.mustRoll(cfg, int64(len(p.buf)), p.maxTs, p.last, l.store.nowMs()) {
		return l.roll(p.first)
	}
	return nil
}

// checkProducers asks producer state about each batch that has a producer. A
// duplicate stands for the whole append, as in Kafka: a client's has one batch.
func (l *Log) checkProducers(buf []byte, o AppendOptions) (dup producers.Written, duplicate bool, err error) {
	opts := producers.CheckOptions{
		Origin: o.Origin, Guard: o.Guard,
		Verify:   l.store.opts.TxnVerification && o.Origin != producers.Replication,
		FromZero: o.RequireSequenceStart,
	}
	for at := 0; at < len(buf); {
		b := record.Batch(buf[at:])
		n := b.Length()
		if b.HasProducerID() {
			pb, err := producerBatch(b[:n])
			if err != nil {
				return dup, false, err
			}
			l.state.Lock()
			dup, duplicate, err = l.producers.Check(&pb, opts)
			l.state.Unlock()
			if err != nil || duplicate {
				return dup, duplicate, err
			}
		}
		at += n
	}
	return dup, false, nil
}

func producerBatch(b record.Batch) (producers.Batch, error) {
	if b.Control() {
		return controlBatch(b)
	}
	return dataBatch(b), nil
}

// write writes the batches with one system call and then makes them visible.
// When the write fails the log stays as it was and its directory goes offline.
func (l *Log) write(cfg *config.Log, p *pending) error {
	s := l.active()
	h, err := l.store.files.acquire(s)
	if err != nil {
		return l.ioError("open", err)
	}
	n, err := h.f.WriteAt(p.buf, s.size)
	if err == nil && n < len(p.buf) {
		err = errors.New("short write")
	}
	if err != nil {
		_ = h.f.Truncate(s.size) // so that nobody finds half a batch; recovery would cut it off, too
	}
	h.release()
	if err != nil {
		return l.ioError("append", err)
	}
	if err := l.commit(cfg, s, p); err != nil {
		return err
	}
	if s.tail != nil && len(s.tail.offsets) >= tailFlush*offsetEntry {
		if err := s.flushTail(tailKeep); err != nil {
			return l.ioError("index write", err)
		}
	}
	l.lastTouched = l.store.sweeps.Load()
	return nil
}

// commit makes written batches visible: producer state, aborted transactions,
// index, sizes, and LEO last. Readers see all of it or nothing. The
// transactions that a batch completes are entered into the index file before,
// so that who may read past them finds them there.
func (l *Log) commit(cfg *config.Log, s *segment, p *pending) error {
	l.state.Lock()
	for at := 0; at < len(p.buf); {
		b := record.Batch(p.buf[at:])
		n := b.Length()
		if b.Magic() == record.MagicV2 && b.HasProducerID() {
			done, ok, err := l.applyLocked(b[:n])
			if err == nil && ok && done.Aborted {
				l.state.Unlock()
				err = s.addAborted(done)
				l.state.Lock()
			}
			if err != nil {
				l.state.Unlock()
				return l.ioError("transaction index write", err)
			}
			if ok {
				l.producers.Complete(done)
			}
		}
		at += n
	}
	l.producers.SetEnd(cluster.Offset(p.last) + 1)
	p.firstPlace.pos = s.size
	l.rememberLocked(s, l.leo.Load(), p.firstPlace)
	for at := 0; at < len(p.buf); {
		var e entry
		_ = e.parse(p.buf[at:min(len(p.buf), at+record.HeaderLen)], 0, int64(len(p.buf)-at)) // checked before
		s.appendedLocked(cfg, &e)
		at += int(e.size)
	}
	l.size += int64(len(p.buf))
	l.leo.Store(p.last + 1)
	l.state.Unlock()
	return nil
}

func (l *Log) applyLocked(b record.Batch) (producers.Completed, bool, error) {
	pb, err := producerBatch(b)
	if err != nil {
		return producers.Completed{}, false, err
	}
	done, ok := l.producers.Apply(&pb)
	return done, ok, nil
}

// AppendAsFollower writes batches as the leader has them. It checks their
// checksums and that their offsets rise, and stops before a batch that is not
// whole or whose leader epoch is above ownEpoch: what a truncated and refilled
// log of a newer leader sends is not this epoch's (AppendInfo.Bytes tells).
// Records that begin below LEO are refused with *UnexpectedOffset.
func (l *Log) AppendAsFollower(buf []byte, ownEpoch cluster.LeaderEpoch) (AppendInfo, error) {
	if l.metadataDue.Load() {
		if err := l.flushMetadata(); err != nil {
			return AppendInfo{}, l.wrap(err)
		}
	}
	buf, err := acceptable(buf, ownEpoch)
	if err != nil {
		return AppendInfo{}, l.wrap(err)
	}
	l.append.Lock()
	info, err := l.appendFollowerLocked(buf)
	due := err == nil && l.flushDue()
	l.append.Unlock()
	if err != nil {
		return info, l.wrap(err)
	}
	if due {
		err = l.Flush(l.LEO())
	}
	return info, err
}

// acceptable is the part of a leader's answer that a follower may append.
func acceptable(buf []byte, ownEpoch cluster.LeaderEpoch) ([]byte, error) {
	last := cluster.Offset(-1)
	at := 0
	for at < len(buf) {
		one, _, err := record.Next(buf[at:])
		if errors.Is(err, record.ErrShort) {
			break
		}
		if err != nil {
			return nil, err
		}
		base, end, epoch, err := checkEntry(one)
		if err != nil {
			return nil, err
		}
		if base <= last {
			return nil, fmt.Errorf("%w: %d after %d", ErrOffsetsOutOfOrder, base, last)
		}
		if epoch > ownEpoch {
			break
		}
		last = end
		at += len(one)
	}
	return buf[:at], nil
}

// checkEntry verifies one whole entry of any format.
func checkEntry(b []byte) (base, last cluster.Offset, epoch cluster.LeaderEpoch, err error) {
	if m, _ := record.PeekMagic(b); m < record.MagicV2 {
		var e entry
		if err := e.parse(b, 0, int64(len(b))); err != nil {
			return 0, 0, 0, fmt.Errorf("%w: %v", record.ErrCorrupt, err)
		}
		return cluster.Offset(e.base), cluster.Offset(e.last), e.epoch, record.Legacy(b).CheckCRC()
	}
	batch := record.Batch(b)
	if err := batch.CheckHeader(); err != nil {
		return 0, 0, 0, err
	}
	if batch.BaseOffset() < 0 {
		return 0, 0, 0, fmt.Errorf("%w: base offset %d", record.ErrCorrupt, batch.BaseOffset())
	}
	if err := batch.CheckCRC(); err != nil {
		return 0, 0, 0, err
	}
	if batch.Control() && batch.HasProducerID() {
		_, err = controlBatch(batch) // once it is written it must be understood
	}
	return batch.BaseOffset(), batch.LastOffset(), batch.LeaderEpoch(), err
}

func (l *Log) appendFollowerLocked(buf []byte) (AppendInfo, error) {
	if err := l.usable(); err != nil {
		return AppendInfo{}, err
	}
	leo := l.leo.Load()
	info := AppendInfo{First: cluster.Offset(leo), Last: cluster.Offset(leo) - 1, LogStart: l.LogStart(), LogAppendTimeMs: record.NoTimestamp, LeaderEpoch: cluster.NoLeaderEpoch}
	if len(buf) == 0 {
		return info, nil
	}
	cfg := l.config()
	all := describe(buf)
	if all.first < leo {
		return AppendInfo{}, &UnexpectedOffset{First: cluster.Offset(all.first), Last: cluster.Offset(all.last), LEO: cluster.Offset(leo)}
	}
	if err := l.noteFollowerEpochs(buf); err != nil {
		return AppendInfo{}, err
	}
	info.First = cluster.Offset(all.first)
	for len(buf) > 0 {
		p := describe(buf[:wholeWithin(buf, int(cfg.SegmentBytes))])
		if err := l.makeRoom(cfg, &p); err != nil {
			return info, err
		}
		if err := l.write(cfg, &p); err != nil {
			return info, err
		}
		info.Last, info.LeaderEpoch = cluster.Offset(p.last), p.epoch
		info.Bytes += len(p.buf)
		buf = buf[len(p.buf):]
	}
	return info, nil
}

// noteFollowerEpochs is noteEpochs, but old formats clear the history: without
// epochs in the batches it could not be kept true.
func (l *Log) noteFollowerEpochs(buf []byte) error {
	for at := 0; at < len(buf); {
		b := record.Batch(buf[at:])
		if b.Magic() < record.MagicV2 {
			l.store.log.Warn().Stringer("partition", l.tp).Msg("records of an old format: leader epochs are forgotten")
			return l.clearEpochs()
		}
		at += b.Length()
	}
	return l.noteEpochs(buf)
}

// describe collects what the log needs to know of whole entries with offsets.
func describe(buf []byte) pending {
	p := pending{buf: buf, first: -1, maxTs: record.NoTimestamp, epoch: cluster.NoLeaderEpoch}
	for at := 0; at < len(buf); {
		var e entry
		rest := buf[at:]
		_ = e.parse(rest[:min(len(rest), record.HeaderLen)], 0, int64(len(rest))) // checked by acceptable
		if p.first < 0 {
			p.first = e.base
			p.firstPlace = place{size: e.size, base: e.base, last: e.last}
		}
		p.last, p.epoch = e.last, e.epoch
		p.maxTs = max(p.maxTs, e.headTs)
		at += int(e.size)
	}
	return p
}

// wholeWithin is the length of the entries that fit into limit bytes, or of the
// first one if that alone does not: a follower does not refuse what its leader,
// under another configuration, has in one segment.
func wholeWithin(buf []byte, limit int) int {
	n := 0
	for n < len(buf) {
		size := record.Batch(buf[n:]).Length()
		if n > 0 && n+size > limit {
			break
		}
		n += size
	}
	return n
}

// flushDue tells whether flush.messages demands an fsync now. The caller holds
// append.
func (l *Log) flushDue() bool {
	l.state.Lock()
	defer l.state.Unlock()
	return l.leo.Load()-l.recoveryPoint >= l.config().FlushMessages
}
