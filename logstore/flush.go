package logstore

import (
	"errors"
	"io/fs"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
)

// Flush makes the log durable up to an offset, exclusive. Concurrent callers
// share the work: who waited finds it done. No lock that an append or a read
// takes is held across the fsync.
//
// The order: the segments' logs and, of sealed ones, indexes; the leader epoch
// checkpoint and producer snapshots; the directory, for their names, and for a
// new log the directory above. Only then the recovery point moves.
func (l *Log) Flush(upTo cluster.Offset) error {
	return l.wrap(l.flushTo(int64(upTo)))
}

func (l *Log) flushTo(upTo int64) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	w, err := l.flushWork(upTo)
	if err != nil || !w.due {
		return err
	}
	if err := w.do(); err != nil {
		// What the disk has of the unsynced data is unknown from now on.
		return l.ioError("flush", err)
	}
	l.state.Lock()
	defer l.state.Unlock()
	l.syncingFrom = -1
	if l.gen.Load() == w.gen && w.upTo > l.recoveryPoint {
		l.recoveryPoint = w.upTo
	}
	return nil
}

// flushWork is what one flush has to sync.
type flushWork struct {
	l       *Log
	gen     uint64
	upTo    int64
	due     bool // there is something to sync
	sealed  []*segment
	active  *segment
	pending unsynced
}

func (u *unsynced) empty() bool {
	return !u.epochs && !u.dir && !u.root && len(u.snapshots) == 0 && len(u.sealed) == 0
}

func (l *Log) flushWork(upTo int64) (*flushWork, error) {
	l.append.Lock()
	defer l.append.Unlock()
	l.state.Lock()
	defer l.state.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if err := l.dir.check(); err != nil {
		return nil, err
	}
	w := &flushWork{l: l, gen: l.gen.Load(), upTo: min(upTo, l.leo.Load())}
	l.lastFlush = l.store.nowMs()
	if w.upTo <= l.recoveryPoint && l.unsynced.empty() {
		return w, nil
	}
	if w.upTo > l.active().base {
		w.upTo = l.leo.Load() // the same fsync covers what was written since
	}
	w.due = true
	w.pending, l.unsynced = l.unsynced, unsynced{}
	l.syncingFrom, l.sealedFrom = l.sealedFrom, -1
	w.sealed = w.pending.sealed
	for i := floorSegment(l.segs, l.recoveryPoint); i < len(l.segs) && w.upTo > l.recoveryPoint; i++ {
		s := l.segs[i]
		switch {
		case s.base >= w.upTo:
			return w, nil
		case i == len(l.segs)-1:
			if !contains(w.sealed, s) {
				w.active = s
			}
		case !contains(w.sealed, s) && l.segs[i+1].base > l.recoveryPoint:
			w.sealed = append(w.sealed, s)
		}
	}
	return w, nil
}

func contains(list []*segment, s *segment) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (w *flushWork) do() error {
	for _, s := range w.sealed {
		if err := s.sync(true); err != nil {
			return err
		}
	}
	if w.active != nil {
		if err := w.active.sync(false); err != nil {
			return err
		}
	}
	if w.pending.epochs {
		if err := w.l.syncIfThere(leaderEpochCheckpoint); err != nil {
			return err
		}
	}
	for _, off := range w.pending.snapshots {
		if err := w.l.syncIfThere(fileName(off, extSnapshot)); err != nil {
			return err
		}
	}
	if w.pending.dir {
		if err := w.l.store.fs.SyncDir(w.l.path()); err != nil {
			return err
		}
	}
	if w.pending.root {
		return w.l.store.fs.SyncDir(w.l.dir.path)
	}
	return nil
}

// syncIfThere syncs a small file; one that was deleted meanwhile needs none.
func (l *Log) syncIfThere(name string) error {
	err := l.store.syncFile(l.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// flushInBackground is Flush where nobody waits for the result: a failure has
// taken the directory offline.
func (l *Log) flushInBackground(upTo cluster.Offset) {
	if err := l.Flush(upTo); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrStorage) {
		l.store.log.Error().Err(err).Msg("flush in the background")
	}
}

// flushIfOld flushes a log whose unflushed data is older than flush.ms.
func (l *Log) flushIfOld(nowMs int64) {
	l.append.Lock()
	every, age := l.config().FlushMs, nowMs-l.lastFlush
	due := age >= millis(every) || age < 0 && every != config.Never // the clock has stepped back
	l.append.Unlock()
	if due {
		l.flushInBackground(l.LEO())
	}
}
