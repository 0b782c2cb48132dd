package logstore

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// CheckpointAll writes all checkpoint files of all directories now.
func (s *Store) CheckpointAll() error {
	var errs []error
	for _, d := range s.online() {
		errs = append(errs, s.checkpointRecoveryPoints(d), s.checkpointLogStarts(d))
	}
	s.checkpointHighWatermarks()
	return errors.Join(errs...)
}

// logsOf lists the logs in a directory, future ones first: where a move
// between directories of one disk has both, the current one's entry counts.
func (s *Store) logsOf(d *logDir) []*Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []*Log
	for _, m := range [...]map[cluster.TopicPartition]*Log{s.future, s.logs} {
		for _, l := range m {
			if l.dir == d {
				list = append(list, l)
			}
		}
	}
	return list
}

// checkpointRecoveryPoints writes up to where each log of a directory is
// durable. The points are read before the file is written, and only rise
// unless a truncation, which calls this itself, lowers them.
func (s *Store) checkpointRecoveryPoints(d *logDir) error {
	return s.checkpoint(d, recoveryPointCheckpoint, func(l *Log) (cluster.Offset, bool) {
		l.state.Lock()
		defer l.state.Unlock()
		return cluster.Offset(l.safePointLocked()), len(l.segs) > 0
	})
}

// checkpointLogStarts writes the start of each log that does not follow from
// its first segment.
func (s *Store) checkpointLogStarts(d *logDir) error {
	return s.checkpoint(d, logStartCheckpoint, func(l *Log) (cluster.Offset, bool) {
		l.state.Lock()
		defer l.state.Unlock()
		start := l.logStart.Load()
		return cluster.Offset(start), len(l.segs) > 0 && start > l.segs[0].base
	})
}

// checkpointCleaned writes up to where each log was compacted.
func (s *Store) checkpointCleaned(d *logDir) error {
	if !d.hasCleaned.Load() {
		return nil
	}
	return s.checkpoint(d, cleanerCheckpoint, func(l *Log) (cluster.Offset, bool) {
		l.state.Lock()
		defer l.state.Unlock()
		return cluster.Offset(l.cleanedTo), l.cleanedTo >= 0
	})
}

func (s *Store) checkpoint(d *logDir, name string, of func(*Log) (cluster.Offset, bool)) error {
	d.ckpt.Lock()
	defer d.ckpt.Unlock()
	if err := d.check(); err != nil {
		return err
	}
	m := make(offsetMap)
	for _, l := range s.logsOf(d) {
		if off, ok := of(l); ok {
			m[l.tp] = off
		}
	}
	data := encodeOffsetCheckpoint(m)
	sum := sha256.Sum256(data)
	if d.written[name] == sum {
		return nil // an idle broker writes nothing
	}
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(d.path, name), data); err != nil {
		return d.fail("writing "+name, err)
	}
	d.written[name] = sum
	return nil
}

// checkpointHighWatermarks writes the high watermarks: of the source if there
// is one, else as the logs were told, else as they were loaded.
func (s *Store) checkpointHighWatermarks() {
	for _, d := range s.online() {
		s.checkpointHighWatermarksOf(d)
	}
}

func (s *Store) checkpointHighWatermarksOf(d *logDir) {
	s.mu.RLock()
	source := s.hwSource
	s.mu.RUnlock()
	var told offsetMap
	if source != nil {
		told = source()
	}
	_ = s.checkpoint(d, highWatermarkCheckpoint, func(l *Log) (cluster.Offset, bool) { return l.highWatermark(told) })
}

func (l *Log) highWatermark(told offsetMap) (cluster.Offset, bool) {
	off, ok := told[l.tp]
	l.state.Lock()
	defer l.state.Unlock()
	if !ok && l.hwTold {
		off, ok = cluster.Offset(l.hw), true
	}
	if !ok {
		off, ok = l.dir.hws[l.tp]
	}
	return min(off, l.LEO()), ok // after a crash the log may be shorter than the checkpoint knew
}
