package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
)

// Create makes the log of a new partition, in the directory that has the fewest,
// or returns the one that is there. Its topic id, if one is given, must be the
// log's.
func (s *Store) Create(tp cluster.TopicPartition, id cluster.TopicID, cfg config.Log) (*Log, error) {
	s.topology.Lock()
	defer s.topology.Unlock()
	l, err := s.createLocked(tp, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tp, err)
	}
	if err := l.SetTopicID(id); err != nil {
		return nil, err
	}
	if l.metadataDue.Load() {
		s.metadataLater(l)
	}
	return l, nil
}

// CreateKnown is Create for a partition that the cluster knows to have been on
// this broker: it is refused with ErrStorage while a directory is offline,
// since the log may lie in that one.
func (s *Store) CreateKnown(tp cluster.TopicPartition, id cluster.TopicID, cfg config.Log) (*Log, error) {
	if _, ok := s.Log(tp); !ok && len(s.online()) < len(s.dirs) {
		return nil, fmt.Errorf("%s: %w: the log may lie in a directory that is", tp, ErrStorage)
	}
	return s.Create(tp, id, cfg)
}

func (s *Store) createLocked(tp cluster.TopicPartition, cfg config.Log) (*Log, error) {
	s.mu.RLock()
	l, closed := s.logs[tp], s.closed
	s.mu.RUnlock()
	if closed {
		return nil, ErrClosed
	}
	if l != nil {
		return l, l.Offline()
	}
	if tp.Partition < 0 {
		return nil, fmt.Errorf("partition %d is negative", tp.Partition)
	}
	if err := cluster.ValidateTopicName(tp.Topic); err != nil {
		return nil, err
	}
	err := error(ErrStorage)
	for _, d := range s.byLoad() {
		if l, err = s.createIn(d, tp, cfg); err == nil {
			s.mu.Lock()
			s.logs[tp] = l
			s.mu.Unlock()
			return l, nil
		}
	}
	return nil, err
}

// byLoad lists the usable directories, the one with the fewest logs first.
func (s *Store) byLoad() []*logDir {
	dirs := s.online()
	if len(dirs) < 2 {
		return dirs
	}
	count := make(map[*logDir]int, len(dirs))
	for _, l := range s.all() {
		count[l.dir]++
	}
	slices.SortStableFunc(dirs, func(a, b *logDir) int { return count[a] - count[b] })
	return dirs
}

func (s *Store) createIn(d *logDir, tp cluster.TopicPartition, cfg config.Log) (*Log, error) {
	s.configs.intern(tp.Topic, cfg)
	l, err := s.makeLog(d, tp)
	if err != nil {
		return nil, d.fail("creating "+tp.String(), err)
	}
	return l, nil
}

func (s *Store) makeLog(d *logDir, tp cluster.TopicPartition) (*Log, error) {
	name := tp.String()
	path := filepath.Join(d.path, name)
	if _, err := s.fs.Stat(path); err == nil {
		// A creation that was interrupted, or a directory that somebody put
		// back: whatever is there is not trusted.
		return s.adopt(d, name, tp)
	}
	if err := s.fs.MkdirAll(path); err != nil {
		return nil, err
	}
	l := s.newLog(d, tp, name)
	seg, err := newSegment(l, 0, l.config())
	if err != nil {
		return nil, err
	}
	l.segs = []*segment{seg}
	l.unsynced = unsynced{dir: true, root: true}
	return l, nil
}

// adopt loads a directory that appeared after the start, as after a crash.
func (s *Store) adopt(d *logDir, name string, tp cluster.TopicPartition) (*Log, error) {
	l := s.newLog(d, tp, name)
	files, err := l.tidy()
	if err != nil {
		return nil, err
	}
	if err := l.openSegments(files, 0); err != nil {
		return nil, err
	}
	l.logStart.Store(l.segs[0].base)
	l.idUnread.Store(files.metadata)
	ld := &loading{recovered: true}
	if err := l.loadEpochs(ld); err != nil {
		return nil, err
	}
	if err := l.recoverFrom(0); err != nil {
		return nil, err
	}
	return l, l.finishLoad(ld)
}

// metadataLater has the topic ids of new logs written soon, many at once: each
// costs two fsyncs, which overlap well.
func (s *Store) metadataLater(l *Log) {
	s.mu.Lock()
	first := len(s.newIDs) == 0
	s.newIDs = append(s.newIDs, l)
	s.mu.Unlock()
	if first {
		s.sched.after(0, s.writeNewIDs)
	}
}

// sideBySide is how many fsyncs are under way at once where order is of no
// matter: the file system commits them together.
const sideBySide = 32

func (s *Store) writeNewIDs() {
	s.mu.Lock()
	logs := s.newIDs
	s.newIDs = nil
	s.mu.Unlock()
	inParallel(logs, func(l *Log) {
		if l.metadataDue.Load() {
			_ = l.flushMetadata() // a failure has taken the directory offline, or the log is gone
		}
	})
}

// inParallel calls f for each log from a few goroutines and waits for all.
func inParallel(logs []*Log, f func(*Log)) {
	var wg sync.WaitGroup
	work := make(chan *Log)
	for range min(sideBySide, len(logs)) {
		wg.Go(func() {
			for l := range work {
				f(l)
			}
		})
	}
	for _, l := range logs {
		work <- l
	}
	close(work)
	wg.Wait()
}

// Delete takes a log away. Its directory gets another name at once and goes
// after file.delete.delay.ms; readers finish what they hold.
func (s *Store) Delete(tp cluster.TopicPartition) error {
	return s.setAside(tp, dirDelete)
}

// SetAside takes a log away that does not belong to this broker any more, and
// keeps its files under another name.
func (s *Store) SetAside(tp cluster.TopicPartition) error {
	return s.setAside(tp, dirStray)
}

func (s *Store) setAside(tp cluster.TopicPartition, suffix string) error {
	s.topology.Lock()
	defer s.topology.Unlock()
	s.mu.RLock()
	l := s.logs[tp]
	s.mu.RUnlock()
	if l == nil {
		if len(s.online()) < len(s.dirs) {
			return fmt.Errorf("%s: %w: the log may lie in a directory that is", tp, ErrStorage)
		}
		return fmt.Errorf("%s: %w", tp, ErrNotFound)
	}
	if err := l.dir.check(); err != nil {
		return l.wrap(err)
	}
	name, err := l.retire(suffix)
	if err != nil {
		return l.wrap(err)
	}
	s.mu.Lock()
	delete(s.logs, tp)
	if suffix == dirStray {
		s.strays = append(s.strays, filepath.Join(l.dir.path, name))
	}
	s.mu.Unlock()
	if suffix == dirDelete {
		s.removeDirLater(l.dir, name)
	}
	// The checkpoints no longer speak of it: another log of this name may come.
	return errors.Join(s.checkpointRecoveryPoints(l.dir), s.checkpointLogStarts(l.dir), s.checkpointCleaned(l.dir))
}

// retire ends a log's life under its name. Nothing is written to it afterwards.
func (l *Log) retire(suffix string) (name string, err error) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.append.Lock()
	defer l.append.Unlock()
	name = suffixedDirName(l.tp, suffix)
	from := l.path()
	l.state.Lock()
	l.closed = true
	l.state.Unlock()
	if err := l.store.fs.Rename(from, filepath.Join(l.dir.path, name)); err != nil {
		return "", l.dir.fail("renaming "+l.tp.String(), err)
	}
	l.name.Store(&name)
	l.dropFiles()
	l.dropImages()
	return name, nil
}

func (l *Log) dropImages() {
	var all []*image
	l.state.Lock()
	for _, g := range l.segs {
		all = append(all, g.offsets, g.times)
		g.offsets, g.times = nil, nil
	}
	l.state.Unlock()
	for _, i := range all {
		l.store.images.remove(i)
	}
}

// Close stops the background work, makes every log durable and closes it, and
// marks the directories for which that worked as cleanly stopped. No append is
// accepted from its beginning on. It must not be called from OnDirFailure.
func (s *Store) Close() error {
	s.topology.Lock()
	defer s.topology.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if s.cleaner != nil {
		s.cleaner.close()
	}
	s.sched.close()
	s.writeNewIDs()
	var mu sync.Mutex
	var errs []error
	inParallel(s.all(), func(l *Log) {
		if err := l.close(); err != nil {
			mu.Lock()
			errs = append(errs, l.wrap(err))
			mu.Unlock()
		}
	})
	for _, d := range s.dirs {
		errs = append(errs, s.closeDir(d))
	}
	s.files.closeAll()
	s.unlock()
	s.calls.Wait()
	return errors.Join(errs...)
}

// closeDir writes the checkpoints, and then the marker that lets the next start
// trust them.
func (s *Store) closeDir(d *logDir) error {
	if err := d.check(); err != nil {
		return nil // said when it failed
	}
	if err := errors.Join(s.checkpointRecoveryPoints(d), s.checkpointLogStarts(d)); err != nil {
		return err
	}
	s.checkpointHighWatermarksOf(d)
	if err := d.check(); err != nil {
		return err
	}
	if err := writeCleanShutdown(s.fs, d.path, cluster.BrokerEpoch(s.brokerEpoch.Load())); err != nil {
		return d.fail("writing the marker of a clean stop", err)
	}
	return nil
}

// close makes the log what a clean stop leaves: a snapshot at LEO, sealed
// indexes, everything durable.
func (l *Log) close() error {
	if l.metadataDue.Load() {
		_ = l.flushMetadata()
	}
	var err error
	if l.dir.check() == nil { // else it was said, and the directory is not marked
		if err = l.finish(); err == nil {
			err = l.flushTo(l.leo.Load())
		}
	}
	l.state.Lock()
	l.closed = true
	l.state.Unlock()
	l.dropFiles()
	l.dropImages()
	return err
}

// finish ends appends: whoever comes later is refused, so that what is written
// here is the last word.
func (l *Log) finish() error {
	l.append.Lock()
	defer l.append.Unlock()
	l.state.Lock()
	err := l.usableLocked()
	l.closing = true
	l.state.Unlock()
	if err != nil {
		return err
	}
	if err := l.takeSnapshot(l.leo.Load()); err != nil {
		return err
	}
	s := l.active()
	if !s.has(flagWritable | flagUntrimmed) {
		return nil // not appended to since the start
	}
	if err := s.seal(); err != nil {
		return l.ioError("close", err)
	}
	l.unsynced.sealed = append(l.unsynced.sealed, s)
	return nil
}
