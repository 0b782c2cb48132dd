package logstore

import (
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
)

// cleanJob is one log as the cleaner judges it, and what is to be done with it.
//
// Only whole segments are cleaned, and never the active one. The log is clean
// below dirty: no key has two records there. What lies from dirty to end is
// looked at for keys whose earlier records may go. dirty <= end <= LSO, but for
// a log that was cleaned further than is allowed now.
type cleanJob struct {
	log  *Log
	cfg  *config.Log
	gen  uint64
	segs []*segment // all but the active one and those from end on; sizes are of the same time
	size []int64

	dirty, end            int64
	cleanBytes, dirtBytes int64
	delayMs               int64 // by how long max.compaction.lag.ms is exceeded
}

func (j *cleanJob) ratio() float64 {
	return float64(j.dirtBytes) / float64(max(j.cleanBytes+j.dirtBytes, 1))
}

// due tells whether the log is worth cleaning, or has to be cleaned.
func (j *cleanJob) due() bool {
	return j.delayMs > 0 && j.dirtBytes > 0 || j.ratio() > j.cfg.MinCleanableRatio
}

// cleanJobOf judges a log now.
func (l *Log) cleanJobOf(nowMs int64) (*cleanJob, error) {
	j := &cleanJob{log: l, cfg: l.config()}
	l.state.Lock()
	if err := l.usableLocked(); err != nil {
		l.state.Unlock()
		return nil, err
	}
	j.gen = l.gen.Load()
	j.dirty = l.dirtyFromLocked()
	active := l.active()
	end := min(active.base, int64(l.producers.LSO(l.LogStart(), cluster.Offset(l.hw))))
	sealed := l.segs[:len(l.segs)-1]
	for _, s := range sealed {
		j.size = append(j.size, s.size)
	}
	l.state.Unlock()

	var dirtySegs []*segment
	if j.dirty < active.base {
		dirtySegs = sealed[floorSegment(sealed, j.dirty):]
	}
	end, err := l.endOfAged(dirtySegs, end, nowMs)
	if err != nil {
		return nil, err
	}
	if j.delayMs, err = l.compactionDelay(dirtySegs, nowMs); err != nil {
		return nil, err
	}
	j.limit(sealed, active.base, max(end, j.dirty))
	return j, nil
}

// dirtyFromLocked is where the last cleaning ended. A point that the log does not
// have, after a loss or the deletion of records, starts it from the beginning.
func (l *Log) dirtyFromLocked() int64 {
	start, leo, at := l.logStart.Load(), l.leo.Load(), l.cleanedTo
	if at >= start && at <= leo {
		return at
	}
	if at > leo {
		l.store.log.Warn().Stringer("partition", l.tp).Int64("cleaned", at).Int64("end", leo).Msg("log was compacted beyond its end; compaction begins anew")
	}
	if at >= 0 {
		l.cleanedTo = start
	}
	return start
}

// limit settles what is cleaned, given the first offset that may not be: it ends
// with the segment before that one's.
func (j *cleanJob) limit(sealed []*segment, activeBase, end int64) {
	n := len(sealed)
	if end < activeBase {
		n = floorSegment(sealed, end)
	}
	j.end = activeBase
	if n < len(sealed) {
		j.end = sealed[n].base
	}
	for i, s := range sealed {
		if s.base < j.dirty {
			j.cleanBytes += j.size[i]
		}
		next := activeBase
		if i+1 < len(sealed) {
			next = sealed[i+1].base
		}
		if i < n && next > j.dirty {
			j.dirtBytes += j.size[i]
		}
	}
	j.segs, j.size = sealed[:n], j.size[:n]
}

// endOfAged lowers end to the first segment that has a record younger than
// min.compaction.lag.ms.
func (l *Log) endOfAged(dirty []*segment, end, nowMs int64) (int64, error) {
	lag := l.config().MinCompactionLag
	if lag <= 0 {
		return end, nil
	}
	for _, s := range dirty {
		ts, _, err := l.largestTimestamp(s)
		if err != nil {
			return 0, l.ioError("time index read", err)
		}
		if ts > nowMs-millis(lag) {
			return min(end, s.base), nil
		}
	}
	return end, nil
}

// compactionDelay is by how much the oldest dirty record is older than
// max.compaction.lag.ms, going by the segments' first batches; 0 if it is not.
func (l *Log) compactionDelay(dirty []*segment, nowMs int64) (int64, error) {
	lag := l.config().MaxCompactionLag
	if lag == config.Never {
		return 0, nil
	}
	delay := int64(0)
	for _, s := range dirty {
		ts, err := l.firstTimestamp(s)
		if err != nil {
			return 0, err
		}
		if ts > 0 {
			delay = max(delay, nowMs-millis(lag)-ts)
		}
	}
	return delay, nil
}

func (l *Log) firstTimestamp(s *segment) (int64, error) {
	l.append.Lock()
	defer l.append.Unlock()
	if s.has(flagGone) {
		return 0, errCleanAborted
	}
	if err := l.loadRollTime(s); err != nil {
		return 0, l.readError(err)
	}
	if !s.has(flagRoll) {
		return 0, nil // it is empty
	}
	return s.rollTs, nil
}

// markUncleanable has the cleaner leave the log alone until the next start.
func (l *Log) markUncleanable(err error) {
	l.state.Lock()
	l.uncleanable = err
	l.state.Unlock()
	l.store.log.Warn().Err(err).Stringer("partition", l.tp).Msg("log cannot be compacted; it is left as it is until the next start")
}

// beginCleaning claims the log for one cleaner thread.
func (l *Log) beginCleaning() bool {
	l.state.Lock()
	defer l.state.Unlock()
	if l.cleaning || l.uncleanable != nil || l.usableLocked() != nil {
		return false
	}
	l.cleaning = true
	return true
}

func (l *Log) endCleaning() {
	l.state.Lock()
	defer l.state.Unlock()
	l.cleaning = false
}

// cleanedUpTo notes that a cleaning is complete, unless the log was truncated
// meanwhile.
func (j *cleanJob) cleanedUpTo(end int64) error {
	l := j.log
	l.state.Lock()
	if l.gen.Load() == j.gen {
		l.cleanedTo = end
	}
	l.state.Unlock()
	l.dir.hasCleaned.Store(true)
	return l.store.checkpointCleaned(l.dir)
}

// check is errCleanAborted when the log is not what it was at the beginning, or
// nobody wants it cleaned any more.
func (j *cleanJob) check() error {
	if j.log.gen.Load() != j.gen {
		return fmt.Errorf("%w: it was truncated", errCleanAborted)
	}
	j.log.state.Lock()
	defer j.log.state.Unlock()
	return j.log.usableLocked()
}
