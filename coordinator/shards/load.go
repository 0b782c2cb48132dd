package shards

import (
	"errors"
	"fmt"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/rs/zerolog"
)

const (
	// loadChunk is read at a time, where offsets.load.buffer.size allows it: what
	// is decoded is still in the processor's cache then.
	loadChunk = 1 << 20
	// reloadPause is how long a log that could not be read is left alone.
	reloadPause = 5 * time.Second
)

// errCancelled ends a load whose shard was dropped.
var errCancelled = errors.New("the leadership is over")

func (s *shard) log() *zerolog.Logger {
	l := s.set.o.Logger.With().Stringer("partition", s.replica.TopicPartition()).Logger()
	return &l
}

// loader replays a log into a machine. It alone uses the machine.
type loader struct {
	s       *shard
	d       *record.Decompressor
	start   cluster.Offset // of the log: a batch that holds it may begin before
	records int64
	bytes   int64
}

// load replays the log and makes the shard active. What the log gets meanwhile
// is markers only, which are in the queue, too.
func (s *shard) load() {
	l := loader{s: s, d: record.NewDecompressor(0)}
	start := time.Now()
	end, err := l.run()
	c := &s.set.counters
	switch {
	case errors.Is(err, errCancelled):
		return
	case err != nil:
		c.failedLoads.Add(1)
		s.log().Error().Err(err).Msg("the coordinator's partition could not be loaded")
		s.set.o.Timer.Wait(&again{s, s.set.o.Clock.Now().Add(reloadPause)}, reloadPause)
		return
	}
	c.loads.Add(1)
	c.loadedRecords.Add(l.records)
	c.loadedBytes.Add(l.bytes)
	took := s.set.o.Clock.Now().Sub(s.elected)
	if f := s.set.o.LoadTime; f != nil {
		f(took)
	}
	level := zerolog.InfoLevel
	if l.records == 0 { // as most of them are in a new cluster
		level = zerolog.DebugLevel
	}
	s.log().WithLevel(level).Int64("records", l.records).Int64("bytes", l.bytes).Dur("read", time.Since(start)).Dur("since_election", took).
		Msg("coordinator's partition loaded")
	s.activate(end)
}

// activate begins to serve. The end of the replay goes before what was queued
// while it went on.
func (s *shard) activate(end cluster.Offset) {
	s.work.Lock()
	s.applied = end
	s.work.Unlock()
	s.mu.Lock()
	if s.gone.Load() {
		s.mu.Unlock()
		return
	}
	s.queue = append([]event{{loaded: true}}, s.queue...)
	s.loaded, s.running = true, true
	s.mu.Unlock()
	s.run()
}

// again loads a shard anew after a pause.
type again struct {
	s  *shard
	at time.Time
}

// Ready implements delay.Task.
func (a *again) Ready() bool { return a.s.gone.Load() }

// Complete implements delay.Task. It comes early when the timer is closed.
func (a *again) Complete(bool) {
	if !a.s.gone.Load() && !a.s.set.o.Clock.Now().Before(a.at) {
		a.s.set.replace(a.s)
	}
}

// run reads from the log's start to its end, and answers where that is.
func (l *loader) run() (cluster.Offset, error) {
	log := l.s.replica.Log()
	l.start = log.LogStart()
	at := l.start
	for {
		end := log.LEO()
		switch {
		case l.s.gone.Load():
			return 0, errCancelled
		case at >= end:
			return at, nil
		}
		next, err := l.chunk(log, at, end)
		switch {
		case err == nil:
			at = next
		case errors.Is(err, logstore.ErrOffsetOutOfRange) && at < log.LogStart():
			at = log.LogStart() // the log's start has moved on
		case l.s.gone.Load():
			return 0, errCancelled
		default:
			return 0, err
		}
	}
}

// chunk replays the batches of one read, and answers the offset after them.
func (l *loader) chunk(log *logstore.Log, at, end cluster.Offset) (cluster.Offset, error) {
	slice, err := log.Read(at, min(max(l.s.set.o.LoadBuffer, 1), loadChunk), end, true)
	if err != nil {
		return 0, err
	}
	defer slice.Release()
	buf, err := slice.Bytes()
	if err != nil {
		return 0, err
	}
	l.bytes += int64(len(buf))
	next := at
	for len(buf) > 0 {
		entry, rest, err := record.Next(buf)
		if errors.Is(err, record.ErrShort) {
			break // goes on in the next read
		}
		if err != nil {
			return 0, err
		}
		buf = rest
		if next, err = l.entry(entry, next); err != nil {
			return 0, err
		}
	}
	switch {
	case next > at:
		return next, nil
	case slice.Len() > 0:
		return 0, fmt.Errorf("%w: no whole batch at offset %d", record.ErrCorrupt, at)
	}
	return end, nil // what was left has been compacted away
}
