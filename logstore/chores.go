package logstore

import (
	"errors"
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// idleSweep is how often files and memory of idle logs are given back.
const idleSweep = time.Minute

// schedule begins the periodic work.
func (s *Store) schedule() {
	o := s.opts
	s.sched.every(o.InitialTaskDelay, o.RetentionCheckInterval, s.checkRetention)
	s.sched.every(o.InitialTaskDelay, o.FlushScheduler, s.flushOld)
	s.sched.every(o.InitialTaskDelay, o.FlushOffsetCheckpointInterval, s.eachDir(s.checkpointRecoveryPoints))
	s.sched.every(o.InitialTaskDelay, o.FlushStartOffsetCheckpointInterval, s.eachDir(s.checkpointLogStarts))
	s.sched.every(o.HighWatermarkCheckpointInterval, o.HighWatermarkCheckpointInterval, s.checkpointHighWatermarks)
	s.sched.every(o.ProducerExpirationCheck, o.ProducerExpirationCheck, s.expireProducers)
	s.sched.every(idleSweep, idleSweep, s.sweepIdle)
}

func (s *Store) eachDir(f func(*logDir) error) func() {
	return func() {
		for _, d := range s.online() {
			_ = f(d) // a failure has taken the directory offline
		}
	}
}

// eachLog calls f with every log whose directory serves.
func (s *Store) eachLog(f func(*Log)) {
	for _, l := range s.all() {
		if l.dir.check() == nil {
			f(l)
		}
	}
}

// all lists current and future logs.
func (s *Store) all() []*Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]*Log, 0, len(s.logs)+len(s.future))
	for _, m := range [...]map[cluster.TopicPartition]*Log{s.logs, s.future} {
		for _, l := range m {
			list = append(list, l)
		}
	}
	return list
}

func (s *Store) checkRetention() {
	s.eachLog(func(l *Log) {
		if s.cleaner.keeps(l) {
			return
		}
		if _, err := l.DeleteOldSegments(); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrStorage) {
			s.log.Error().Err(err).Msg("retention check")
		}
	})
}

func (s *Store) flushOld() {
	now := s.nowMs()
	s.eachLog(func(l *Log) { l.flushIfOld(now) })
}

func (s *Store) expireProducers() {
	now := s.nowMs()
	s.eachLog(func(l *Log) { l.expireProducers(now) })
}

// sweepIdle closes files that nobody used for a sweep and gives the memory of
// idle logs back. New topic ids reach their files here at the latest.
func (s *Store) sweepIdle() {
	n := s.sweeps.Add(1)
	s.files.closeIdle()
	s.eachLog(func(l *Log) {
		l.cool(n - 1)
		if l.metadataDue.Load() {
			_ = l.flushMetadata()
		}
	})
}

// removeLater removes the files of segments that were renamed for deletion,
// after file.delete.delay.ms.
func (s *Store) removeLater(l *Log, gone []*segment) {
	if len(gone) == 0 {
		return
	}
	bases := make([]int64, len(gone))
	for i, g := range gone {
		bases[i] = g.base
	}
	s.sched.after(l.config().FileDeleteDelay, func() { l.removeDeleted(bases) })
}

func (l *Log) removeDeleted(bases []int64) {
	if l.dir.check() != nil {
		return
	}
	for _, base := range bases {
		for _, ext := range segmentExts {
			err := l.store.fs.Remove(l.file(fileName(base, ext) + suffixDeleted))
			if err != nil && !isMissing(err) {
				_ = l.ioError("segment deletion", err)
				return
			}
		}
	}
}

// flushMetadata writes the topic id to its file, durably: before any data, so
// that data is never found without it.
func (l *Log) flushMetadata() error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.state.Lock()
	id, err := l.topicID, l.usableLocked()
	l.state.Unlock()
	if err != nil || !l.metadataDue.Load() {
		return err
	}
	if err := writePartitionMetadata(l.store.fs, l.path(), id); err != nil {
		return l.ioError("partition metadata write", err)
	}
	l.metadataDue.Store(false)
	return nil
}
