package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/epochs"
)

// loadDirs loads all logs. Directories are worked on side by side, each by a
// bounded number of goroutines: recoveries share the disk's speed and hold a
// window of the file in memory each.
func (s *Store) loadDirs() error {
	var wg sync.WaitGroup
	errs := make([]error, len(s.dirs))
	for i, d := range s.dirs {
		if d.check() != nil {
			continue
		}
		wg.Go(func() { errs[i] = s.loadDir(d) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// dirState is what the root of a log directory says about its logs.
type dirState struct {
	recoveryPoints, logStarts, cleaned offsetMap
}

// loadDir loads one directory's logs. Only what forbids a start is returned: a
// failing disk takes the directory offline.
func (s *Store) loadDir(d *logDir) error {
	state, names, err := s.readRoot(d)
	if err != nil {
		_ = d.fail("loading", err)
		return nil
	}
	workers := s.opts.RecoveryThreads
	if d.clean {
		workers = max(workers, runtime.GOMAXPROCS(0))
	}
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		mu    sync.Mutex
		fatal error
	)
	for range min(workers, len(names)) {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(len(names)) || d.check() != nil {
					return
				}
				if err := s.loadEntry(d, names[i], state); err != nil {
					mu.Lock()
					fatal = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	if d.lowered.Load() && fatal == nil && d.check() == nil {
		// The next crash must not find the old points: they would vouch for
		// data that is appended from now on.
		_ = s.checkpointRecoveryPoints(d)
	}
	return fatal
}

// readRoot reads the checkpoints and takes the marker of a clean stop away: if
// this start crashes, the next one recovers.
func (s *Store) readRoot(d *logDir) (st dirState, names []string, err error) {
	if d.clean, _, err = readCleanShutdown(s.fs, d.path); err != nil {
		return st, nil, err
	}
	if err := removeCleanShutdown(s.fs, d.path); err != nil {
		return st, nil, err
	}
	st.recoveryPoints = s.readCheckpoint(d, recoveryPointCheckpoint)
	st.logStarts = s.readCheckpoint(d, logStartCheckpoint)
	d.hws = s.readCheckpoint(d, highWatermarkCheckpoint)
	st.cleaned = s.readCheckpoint(d, cleanerCheckpoint)
	d.hasCleaned.Store(len(st.cleaned) > 0)
	entries, err := s.fs.ReadDir(d.path)
	if err != nil {
		return st, nil, err
	}
	for _, e := range entries {
		if e.Dir && e.Name != remoteIndexDir {
			names = append(names, e.Name)
		}
	}
	return st, names, nil
}

// readCheckpoint reads a checkpoint. One that cannot be read counts as empty:
// recovery then begins at the first segment, logs start where theirs does, and
// high watermarks at the logs' starts, all of which is safe.
func (s *Store) readCheckpoint(d *logDir, name string) offsetMap {
	m, err := readOffsetCheckpoint(s.fs, d.path, name)
	if err != nil {
		s.log.Warn().Err(err).Str("dir", d.path).Msg("checkpoint cannot be read and is taken as empty")
		return offsetMap{}
	}
	return m
}

// loadEntry loads one directory entry.
func (s *Store) loadEntry(d *logDir, name string, st dirState) error {
	tp, kind, err := parseDirName(name)
	if err != nil {
		s.log.Warn().Err(err).Str("dir", d.path).Msg("not a partition; it is left alone")
		return nil
	}
	if tp.Topic == metadataTopic {
		return nil
	}
	switch kind {
	case dirDeleted:
		s.removeDirLater(d, name)
		return nil
	case dirStrayed:
		s.mu.Lock()
		s.strays = append(s.strays, filepath.Join(d.path, name))
		s.mu.Unlock()
		return nil
	}
	l, err := s.loadLog(d, name, tp, st.recoveryPoints[tp], st.logStarts[tp])
	if err != nil {
		// Whatever it is: a log that is there but cannot be loaded must not be
		// taken for one that is not there.
		_ = d.fail("loading "+name, fmt.Errorf("%v", err))
		return nil
	}
	if off, ok := st.cleaned[tp]; ok {
		l.cleanedTo = int64(off)
	}
	return s.register(l, kind)
}

// register adds a loaded log.
func (s *Store) register(l *Log, kind dirKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	logs := s.logs
	if kind == dirMoving {
		logs = s.future
	}
	if old := logs[l.tp]; old != nil {
		return fmt.Errorf("%s lies both in %s and in %s: remove the copy in the directory that failed", l.tp, old.path(), l.path())
	}
	logs[l.tp] = l
	s.stats.Logs++
	return nil
}

// loading is what is learnt on the way to a loaded log.
type loading struct {
	point      int64 // recovery point as checkpointed
	recovered  bool
	epochs     epochs.Cache // as in the file
	epochsBad  bool         // the file could not be read
	epochsLost bool         // or holds nothing
	last       entry        // the last batch, if lastKnown
	lastKnown  bool
}

// loadLog loads one partition's directory.
func (s *Store) loadLog(d *logDir, name string, tp cluster.TopicPartition, point, start cluster.Offset) (*Log, error) {
	l := s.newLog(d, tp, name)
	files, err := l.tidy()
	if err != nil {
		return nil, err
	}
	if err := l.openSegments(files, int64(start)); err != nil {
		return nil, err
	}
	l.logStart.Store(max(int64(start), l.segs[0].base))
	l.idUnread.Store(files.metadata)
	ld := &loading{point: int64(point), epochsLost: true}
	if d.clean && l.size == 0 && l.active().base == 0 {
		l.epochsDue = files.epochs // a log without a record has no epochs, whatever the file says
	} else if files.epochs {
		if err := l.loadEpochs(ld); err != nil {
			return nil, err
		}
	}
	intact := d.clean
	if intact {
		if intact, err = l.findEnd(ld); err != nil {
			return nil, err
		}
	}
	if !intact {
		if err := l.recoverFrom(ld.point); err != nil {
			return nil, err
		}
		ld.recovered = true
	}
	return l, l.finishLoad(ld)
}

// newLog is a log without segments.
func (s *Store) newLog(d *logDir, tp cluster.TopicPartition, name string) *Log {
	l := &Log{store: s, dir: d, tp: tp, sealedFrom: -1, syncingFrom: -1, cleanedTo: int64(cluster.NoOffset)}
	if name != tp.String() {
		l.name.Store(&name)
	}
	l.cfg.Store(s.configs.of(tp.Topic, s.opts.TopicConfig))
	l.lastFlush = s.nowMs()
	return l
}

// finishLoad completes a log whose segments and end are known.
func (l *Log) finishLoad(ld *loading) error {
	if start := l.logStart.Load(); l.leo.Load() < start {
		// Segment files were lost. What is left lies below the log's start.
		l.store.log.Warn().Stringer("partition", l.tp).Int64("end", l.leo.Load()).Int64("start", start).Msg("log ends below its start; it is emptied")
		if err := l.startOver(start); err != nil {
			return err
		}
		ld.recovered, ld.lastKnown = false, false
	}
	leo, start := l.leo.Load(), l.logStart.Load()
	if err := l.settleEpochs(ld, start, leo); err != nil {
		return err
	}
	l.hw = start
	l.recoveryPoint = leo
	if ld.recovered || !l.dir.clean {
		l.recoveryPoint = max(min(ld.point, leo), start)
	}
	if ld.recovered {
		// What survived the crash may not survive the next one.
		l.unsynced.dir, l.unsynced.root, l.unsynced.epochs = true, true, true
		l.unsynced.sealed = append(l.unsynced.sealed, l.active())
	}
	if ld.recovered && ld.point > l.safePointLocked() {
		l.dir.lowered.Store(true)
	}
	if err := l.settleProducers(ld, leo); err != nil {
		return err
	}
	l.dropFiles()
	return nil
}

// settleProducers makes producer state that of the log's end. After a recovery
// it is known already.
func (l *Log) settleProducers(ld *loading, leo int64) error {
	if !ld.recovered {
		return l.loadProducers(leo)
	}
	if err := l.takeSnapshot(leo); err != nil {
		return err
	}
	return l.dropSnapshots(l.isStraySnapshot)
}

// readTopicID reads partition.metadata when the topic's id is first asked for: a
// broker of many partitions listens earlier. No lock of the log may be held.
func (l *Log) readTopicID() {
	if !l.idUnread.Load() {
		return
	}
	l.store.idReads.Lock()
	defer l.store.idReads.Unlock()
	if !l.idUnread.Load() {
		return
	}
	id, err := readPartitionMetadata(l.store.fs, l.path())
	switch {
	case isCorruptMetadata(err):
		// A power loss may leave it empty. The controller says the id again.
		l.store.log.Warn().Err(err).Msg("topic id cannot be read")
	case err != nil:
		_ = l.ioError("partition metadata read", err)
	}
	l.state.Lock()
	l.topicID = id
	l.state.Unlock()
	l.idUnread.Store(false)
}

// removeDirLater removes a directory that was renamed for deletion.
func (s *Store) removeDirLater(d *logDir, name string) {
	delay := s.opts.TopicConfig("").FileDeleteDelay
	s.sched.after(delay, func() {
		if d.check() != nil {
			return
		}
		if err := s.fs.RemoveAll(filepath.Join(d.path, name)); err != nil {
			_ = d.fail("removing "+name, err)
		}
	})
}

func isCorruptMetadata(err error) bool { return errors.Is(err, ErrCorruptPartitionMetadata) }
