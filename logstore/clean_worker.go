package logstore

import (
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kbroker/kbroker/logstore/cleaner"
)

// errCleanAborted ends a cleaning whose log changed under it. It will be tried
// again.
var errCleanAborted = errors.New("cleaning is aborted")

// CleanerConfig says what compaction may use. Buffers are shared evenly by the
// threads.
type CleanerConfig struct {
	Threads         int           // log.cleaner.threads
	DedupeBuffer    int64         // log.cleaner.dedupe.buffer.size
	LoadFactor      float64       // log.cleaner.io.buffer.load.factor
	IOBuffer        int           // log.cleaner.io.buffer.size
	MaxIORate       float64       // log.cleaner.io.max.bytes.per.second, read and written together; 0 forbids both, below 0 is no limit
	Backoff         time.Duration // log.cleaner.backoff.ms
	MaxMessageBytes int           // message.max.bytes; larger batches are said in the log
}

// CleanerStats is what compaction did last.
type CleanerStats struct {
	DeadThreads               int
	MaxBufferUtilization      float64 // share of a thread's map that was in use
	BytesRead, BytesWritten   int64   // by the last cleaning of each thread
	MaxCleanTime              time.Duration
	MaxCompactionDelay        time.Duration
	MaxDirtyRatio             float64   // of the log that was the dirtiest
	LastRun                   time.Time // when logs were last looked at
	Uncleanable               []UncleanableDir
	Cleanings, SegmentsBefore int64 // since the start
}

// UncleanableDir counts the logs of a directory that cannot be compacted.
type UncleanableDir struct {
	Path  string
	Logs  int
	Bytes int64 // that they would have cleaned
}

// cleaners compact the store's logs. Each is a goroutine that cleans the dirtiest
// log over and over, and waits when none is dirty enough. The first one sees to
// it that there are as many as the configuration says.
type cleaners struct {
	store *Store
	key   cleaner.Key
	stop  chan struct{}
	wg    sync.WaitGroup

	rate throttle

	choosing sync.Mutex // held while a log is chosen; see doc.go

	mu       sync.Mutex
	closed   bool
	workers  map[int]*cleanWorker // that run, by their number
	dirtiest float64
	lastRun  time.Time
	// forbidden: the rate was 0 when it was last asked for.
	forbidden bool
	total     struct{ cleanings, segments int64 }
}

type cleanWorker struct {
	c      *cleaners
	id     int
	filter cleaner.Filter
	in     []byte
	out    []byte

	// Of the last cleaning; guarded by cleaners.mu.
	stats   cleaner.Stats
	util    float64
	took    time.Duration
	delayMs int64
}

func newCleaners(s *Store) *cleaners {
	c := &cleaners{store: s, stop: make(chan struct{}), workers: map[int]*cleanWorker{}, lastRun: s.clock.Now()}
	rand.Read(c.key[:]) // never fails
	return c
}

func (c *cleaners) newWorker(id int) *cleanWorker {
	return &cleanWorker{c: c, id: id, filter: cleaner.Filter{Map: cleaner.NewOffsetMap(c.key)}}
}

// start starts the first worker, which starts the others.
func (c *cleaners) start() { c.employ(1) }

// employ starts the workers that lack up to n.
func (c *cleaners) employ(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := 0; id < n && !c.closed; id++ {
		if c.workers[id] == nil {
			w := c.newWorker(id)
			c.workers[id] = w
			c.wg.Go(w.run)
		}
	}
}

// close stops all workers and waits for them. What one was at is given up.
func (c *cleaners) close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.stop)
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *cleaners) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// sleep waits, and reports whether there is anything to do after that.
func (c *cleaners) sleep(d time.Duration) bool {
	over := make(chan struct{})
	cancel := c.store.clock.AfterFunc(max(d, time.Millisecond), func() { close(over) })
	select {
	case <-over:
		return !c.stopped()
	case <-c.stop:
		cancel()
		return false
	}
}

func (w *cleanWorker) run() {
	c := w.c
	for !c.stopped() {
		cfg := c.store.opts.Cleaner()
		if w.id > 0 && w.id >= cfg.Threads {
			break
		}
		if w.id == 0 {
			c.employ(cfg.Threads)
		}
		if w.round(cfg) {
			continue
		}
		w.filter.Map.Release()
		w.filter.Release()
		w.in, w.out = nil, nil
		if !c.sleep(cfg.Backoff) {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.workers, w.id)
}

// round cleans the dirtiest log, if one is dirty enough, and reports whether
// there was one.
func (w *cleanWorker) round(cfg CleanerConfig) bool {
	c := w.c
	var j *cleanJob
	if c.mayRead(cfg.MaxIORate) {
		j = w.choose()
	}
	if j != nil {
		err := w.clean(j, cfg)
		j.log.endCleaning()
		c.judge(j.log, err)
	}
	c.deleteOld()
	return j != nil
}

// mayRead is false while the rate is 0, which says that nothing may be read. 3.9.2
// accepts it as well, and its cleaner sleeps over the first log; here it is said
// once, retention goes on, and another rate is followed with the next round.
func (c *cleaners) mayRead(rate float64) bool {
	c.mu.Lock()
	said := c.forbidden
	c.forbidden = rate == 0
	c.mu.Unlock()
	if rate == 0 && !said {
		c.store.log.Warn().Float64("log.cleaner.io.max.bytes.per.second", rate).
			Msg("nothing is compacted: log.cleaner.io.max.bytes.per.second is 0; set a rate above 0, or take the key out for no limit")
	}
	return rate != 0
}

// judge tells an abortion and the failure of a directory, which say nothing about
// the log, from what makes it uncleanable.
func (c *cleaners) judge(l *Log, err error) {
	switch {
	case err == nil, errors.Is(err, errCleanAborted), errors.Is(err, errGone), errors.Is(err, ErrClosed), errors.Is(err, ErrStorage):
	default:
		l.markUncleanable(err)
	}
}

// choose finds the dirtiest log of those that are dirty enough, and claims it.
func (w *cleanWorker) choose() *cleanJob {
	c := w.c
	c.choosing.Lock()
	defer c.choosing.Unlock()
	now := c.store.clock.Now()
	var best *cleanJob
	dirtiest, delay := 0.0, int64(0)
	for _, l := range c.store.Logs() {
		if !l.config().Compact || l.dir.check() != nil || !l.beginCleaning() {
			continue
		}
		j, err := l.cleanJobOf(now.UnixMilli())
		l.endCleaning()
		if err != nil {
			c.judge(l, err)
			continue
		}
		dirtiest, delay = max(dirtiest, j.ratio()), max(delay, j.delayMs)
		if j.due() && (best == nil || j.ratio() > best.ratio()) {
			best = j
		}
	}
	c.mu.Lock()
	c.dirtiest, c.lastRun, w.delayMs = dirtiest, now, delay
	c.mu.Unlock()
	if best != nil && !best.log.beginCleaning() {
		return nil
	}
	return best
}

// keeps reports whether the cleaner sees to a log's retention: it must not take
// segments away that are being compacted.
func (c *cleaners) keeps(l *Log) bool {
	if c == nil || !l.config().Compact {
		return false
	}
	l.state.Lock()
	defer l.state.Unlock()
	return l.uncleanable == nil
}

// deleteOld deletes what lies below the starts of compacted logs, and what their
// retention lets go.
func (c *cleaners) deleteOld() {
	c.store.eachLog(func(l *Log) {
		if !l.config().Compact || c.stopped() || !l.beginCleaning() {
			return
		}
		_, err := l.DeleteOldSegments()
		l.endCleaning()
		c.judge(l, err)
	})
}

// done notes what a cleaning did.
func (w *cleanWorker) done(j *cleanJob, end int64, util float64, began time.Time) {
	c := w.c
	st := w.filter.Stats
	took := c.store.clock.Now().Sub(began)
	c.mu.Lock()
	w.stats, w.util, w.took = st, util, took
	c.total.cleanings++
	c.total.segments += int64(len(j.segs))
	c.mu.Unlock()
	e := c.store.log.Info().Stringer("partition", j.log.tp).Int("thread", w.id).Int64("from", j.dirty).Int64("to", end).
		Int64("bytes_read", st.BytesRead).Int64("bytes_kept", st.BytesWritten).Int64("records_read", st.RecordsRead).
		Int64("records_kept", st.RecordsWritten).Dur("took", took).Float64("buffer_used", util)
	if st.Invalid > 0 {
		e = e.Int64("records_without_key", st.Invalid)
	}
	e.Msg("log is compacted")
}

// CleanerStats tells what compaction did; false when there is none.
func (s *Store) CleanerStats() (CleanerStats, bool) {
	c := s.cleaner
	if c == nil {
		return CleanerStats{}, false
	}
	threads := max(s.opts.Cleaner().Threads, 1)
	c.mu.Lock()
	st := CleanerStats{MaxDirtyRatio: c.dirtiest, LastRun: c.lastRun, Cleanings: c.total.cleanings, SegmentsBefore: c.total.segments}
	if len(c.workers) > 0 { // else they are about to start
		st.DeadThreads = max(threads-len(c.workers), 0)
	}
	for _, w := range c.workers {
		st.MaxBufferUtilization = max(st.MaxBufferUtilization, w.util)
		st.BytesRead += w.stats.BytesRead
		st.BytesWritten += w.stats.BytesWritten
		st.MaxCleanTime = max(st.MaxCleanTime, w.took)
		st.MaxCompactionDelay = max(st.MaxCompactionDelay, time.Duration(min(w.delayMs, 1<<40))*time.Millisecond)
	}
	c.mu.Unlock()
	st.Uncleanable = s.uncleanable()
	return st, true
}

// uncleanable counts the logs that cannot be compacted, by directory.
func (s *Store) uncleanable() []UncleanableDir {
	list := make([]UncleanableDir, len(s.dirs))
	for i, d := range s.dirs {
		list[i].Path = d.path
	}
	for _, l := range s.Logs() {
		l.state.Lock()
		bad := l.uncleanable != nil
		l.state.Unlock()
		i := slices.Index(s.dirs, l.dir)
		if !bad || i < 0 {
			continue
		}
		list[i].Logs++
		if j, err := l.cleanJobOf(s.nowMs()); err == nil {
			list[i].Bytes += j.dirtBytes
		}
	}
	return list
}

// throttle spreads reads and writes of all workers over time.
type throttle struct {
	mu   sync.Mutex
	free time.Time // when what was done so far is paid for
}

// breath is the shortest pause that is worth it.
const breath = 20 * time.Millisecond

// owes accounts for n bytes and returns how long to wait.
func (t *throttle) owes(now time.Time, n int, rate float64) time.Duration {
	cost := float64(n) / rate * float64(time.Second)
	if !(cost >= 1) { // no limit to speak of
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free.Before(now) {
		t.free = now
	}
	t.free = t.free.Add(time.Duration(min(cost, float64(time.Hour))))
	if wait := t.free.Sub(now); wait >= breath {
		return wait
	}
	return 0
}
