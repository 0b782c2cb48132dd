package logstore

import (
	"fmt"
	"os"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

// roll closes the active segment and begins another at expected, or at LEO if
// that is larger. The old one is made durable in the background. The caller
// holds append.
func (l *Log) roll(expected int64) error {
	old := l.active()
	base := max(expected, l.leo.Load())
	if base == old.base && old.size == 0 {
		return nil // an empty segment is as good as a new one
	}
	if base <= old.base {
		return l.ioError("roll", fmt.Errorf("%w: new segment at %d, the active one begins at %d", ErrCorruptLog, base, old.base))
	}
	if err := old.seal(); err != nil {
		return l.ioError("roll", err)
	}
	s, err := newSegment(l, base, l.config())
	if err != nil {
		return l.ioError("roll", err)
	}
	if err := l.takeSnapshot(base); err != nil {
		return err
	}
	l.unsynced.sealed = append(l.unsynced.sealed, old)
	l.unsynced.dir = true
	l.state.Lock()
	if l.sealedFrom < 0 {
		l.sealedFrom = old.base
	}
	l.segs = append(slices.Clone(l.segs), s)
	l.state.Unlock()
	l.store.sched.after(0, func() { l.flushInBackground(cluster.Offset(base)) })
	return nil
}

// MaybeRoll rolls the active segment if it is full, or older than segment.ms by
// the clock though nobody appends.
func (l *Log) MaybeRoll() error {
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.usable(); err != nil {
		return l.wrap(err)
	}
	s := l.active()
	if s.size == 0 {
		return nil
	}
	if err := l.makeWritable(s); err != nil {
		return l.wrap(err)
	}
	now, leo := l.store.nowMs(), l.leo.Load()
	if !s.mustRoll(l.config(), 0, now, leo-1, now) {
		return nil
	}
	return l.wrap(l.roll(leo))
}

// takeSnapshot writes the producers' state at off, if off is beyond the last
// snapshot. It becomes durable with the next flush. The caller holds append.
func (l *Log) takeSnapshot(off int64) error {
	l.state.Lock()
	l.producers.SetEnd(cluster.Offset(off))
	if off <= l.lastSnap {
		l.state.Unlock()
		return nil
	}
	data := l.producers.Snapshot(nil)
	l.state.Unlock()
	return l.writeSnapshot(off, data)
}

func (l *Log) writeSnapshot(off int64, data []byte) error {
	if err := l.writeFile(fileName(off, extSnapshot), data); err != nil {
		return l.ioError("producer snapshot write", err)
	}
	l.lastSnap = off
	l.unsynced.snapshots = append(l.unsynced.snapshots, off)
	l.unsynced.dir = true
	if i, found := slices.BinarySearch(l.snapshots, off); !found {
		l.snapshots = slices.Insert(l.snapshots, i, off)
	}
	return nil
}

func (l *Log) readSnapshot(off int64) ([]byte, error) {
	return vfs.ReadFile(l.store.fs, l.file(fileName(off, extSnapshot)), maxSmallFile)
}

// writeFile writes a small file of the partition's directory without an fsync.
func (l *Log) writeFile(name string, data []byte) error {
	f, err := l.store.openFile(l.file(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// writeEpochs writes the leader epoch checkpoint, which the next flush makes
// durable. The caller holds append.
func (l *Log) writeEpochs() error {
	if err := l.replaceEpochs(); err != nil {
		return err
	}
	l.unsynced.epochs, l.unsynced.dir = true, true
	return nil
}

func (l *Log) replaceEpochs() error {
	l.state.Lock()
	data := l.epochs.Encode()
	l.state.Unlock()
	if err := l.writeFile(leaderEpochCheckpoint+".tmp", data); err != nil {
		return l.ioError("leader epoch checkpoint write", err)
	}
	if err := l.store.fs.Rename(l.file(leaderEpochCheckpoint+".tmp"), l.file(leaderEpochCheckpoint)); err != nil {
		return l.ioError("leader epoch checkpoint write", err)
	}
	l.epochsDue = false
	return nil
}

func (l *Log) clearEpochs() error {
	l.state.Lock()
	had := l.epochs.Len() > 0
	l.epochs = emptyEpochs
	l.state.Unlock()
	if !had && !l.epochsDue {
		return nil
	}
	return l.writeEpochs()
}
