package logstore

import (
	"slices"

	"github.com/kbroker/kbroker/config"
)

// DeleteOldSegments deletes what lies wholly below the log's start and, where
// cleanup.policy has delete, what is beyond retention.bytes and retention.ms. It
// returns the number of segments that went. Nothing at or above the high
// watermark is deleted.
func (l *Log) DeleteOldSegments() (int, error) {
	n, err := l.deleteWhile(l.belowStart())
	if err != nil || !l.config().Delete {
		return n, l.wrap(err)
	}
	for _, rule := range [...]func(s *segment, next *segment) (bool, error){l.beyondBytes(), l.beyondTime()} {
		more, err := l.deleteWhile(rule)
		n += more
		if err != nil {
			return n, l.wrap(err)
		}
	}
	return n, nil
}

func (l *Log) belowStart() func(s, next *segment) (bool, error) {
	start := l.logStart.Load()
	return func(_, next *segment) (bool, error) { return next != nil && next.base <= start, nil }
}

func (l *Log) beyondBytes() func(s, next *segment) (bool, error) {
	limit := l.config().RetentionBytes
	over := l.Size() - limit
	return func(s, _ *segment) (bool, error) {
		if limit < 0 || over-s.size < 0 {
			return false, nil
		}
		over -= s.size
		return true, nil
	}
}

func (l *Log) beyondTime() func(s, next *segment) (bool, error) {
	limit, now := l.config().RetentionMs, l.store.nowMs()
	return func(s, _ *segment) (bool, error) {
		if limit < 0 || limit == config.Never {
			return false, nil
		}
		ts, err := l.ageOf(s)
		return err == nil && now-ts > millis(limit), err
	}
}

// ageOf is the timestamp that a segment's age counts from: the largest in it,
// or the time of its last change when it has none. The caller holds append.
func (l *Log) ageOf(s *segment) (int64, error) {
	if !s.has(flagTimes) {
		if err := l.loadTimesOrRebuild(s); err != nil {
			return 0, err
		}
	}
	if s.maxTs >= 0 {
		return s.maxTs, nil
	}
	info, err := l.store.fs.Stat(s.path(extLog))
	if err != nil {
		return 0, l.ioError("stat", err)
	}
	return info.ModTime.UnixMilli(), nil
}

// deleteWhile deletes segments from the oldest on for as long as the rule says
// so. When all go a new one is begun first.
func (l *Log) deleteWhile(rule func(s, next *segment) (bool, error)) (int, error) {
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	n, err := l.deletable(rule)
	if n == 0 || err != nil {
		return 0, err
	}
	if n == len(l.segs) {
		if err := l.makeWritable(l.active()); err != nil {
			return 0, err
		}
		if err := l.roll(l.leo.Load()); err != nil {
			return 0, err
		}
	}
	return n, l.deleteOldest(n)
}

func (l *Log) deletable(rule func(s, next *segment) (bool, error)) (int, error) {
	l.state.Lock()
	hw := l.hw
	l.state.Unlock()
	n := 0
	for i, s := range l.segs {
		var next *segment
		end := l.leo.Load()
		if i+1 < len(l.segs) {
			next = l.segs[i+1]
			end = next.base
		}
		if hw < end || (next == nil && s.size == 0) {
			break
		}
		ok, err := rule(s, next)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		n++
	}
	return n, nil
}

// deleteOldest takes the first n segments off the log: the log's start moves
// first, then the files get their new names, and go after file.delete.delay.ms.
func (l *Log) deleteOldest(n int) error {
	gone := l.segs[:n]
	if err := l.moveStart(l.segs[n].base); err != nil {
		return err
	}
	l.state.Lock()
	l.segs = slices.Clone(l.segs[n:])
	for _, s := range gone {
		l.size -= s.size
		s.set(flagGone)
	}
	l.state.Unlock()
	for _, s := range gone {
		l.store.log.Info().Stringer("partition", l.tp).Int64("base", s.base).Int64("bytes", s.size).Msg("segment is deleted")
		if err := s.renameGone(); err != nil {
			return l.ioError("segment deletion", err)
		}
	}
	l.unsynced.dir = true
	l.unsynced.sealed = slices.DeleteFunc(l.unsynced.sealed, func(s *segment) bool { return s.has(flagGone) })
	l.store.removeLater(l, gone)
	return l.deleteSnapshotsOf(gone)
}

// deleteSnapshotsOf deletes the snapshots at the bases of deleted segments.
func (l *Log) deleteSnapshotsOf(gone []*segment) error {
	err := l.dropSnapshots(func(off int64) bool {
		return slices.ContainsFunc(gone, func(s *segment) bool { return s.base == off })
	})
	if err != nil {
		return l.ioError("producer snapshot removal", err)
	}
	return nil
}

// expireProducers forgets producers that wrote nothing for long.
func (l *Log) expireProducers(nowMs int64) {
	l.state.Lock()
	defer l.state.Unlock()
	l.producers.Expire(nowMs, l.store.opts.ProducerExpiration.Milliseconds())
}

// cool gives back the memory of a log that was not appended to since the given
// sweep. It does nothing when the log is busy.
func (l *Log) cool(before int64) {
	if !l.append.TryLock() {
		return
	}
	defer l.append.Unlock()
	if l.usable() != nil || l.lastTouched >= before || l.recent == nil && l.active().tail == nil {
		return
	}
	if err := l.active().flushTail(0); err != nil {
		_ = l.ioError("index write", err)
		return
	}
	l.state.Lock()
	l.recent = nil
	l.state.Unlock()
}
