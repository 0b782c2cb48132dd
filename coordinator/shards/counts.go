package shards

import "sync/atomic"

type counters struct {
	requests, appends, records, bytes   atomic.Int64
	loads, loadedRecords, loadedBytes   atomic.Int64
	failedLoads, lost, unread, timedOut atomic.Int64
}

// Counts are what a set did since it was made, and what it holds.
type Counts struct {
	Loading, Active int // shards
	Waiting         int // requests that a machine has not replied to

	Requests                          int64 // submitted to a shard
	Appends, Records, Bytes           int64 // batches written, and what was in them
	Loads, LoadedRecords, LoadedBytes int64
	FailedLoads                       int64 // that could not read their log and begin again
	Lost                              int64 // shards that a failed append ended
	Unread                            int64 // records and batches that could not be read
	TimedOut                          int64 // replies that were not committed in time
}

// Counts reads them.
func (s *Set) Counts() Counts {
	c := &s.counters
	out := Counts{Requests: c.requests.Load(), Appends: c.appends.Load(), Records: c.records.Load(), Bytes: c.bytes.Load(),
		Loads: c.loads.Load(), LoadedRecords: c.loadedRecords.Load(), LoadedBytes: c.loadedBytes.Load(),
		FailedLoads: c.failedLoads.Load(), Lost: c.lost.Load(), Unread: c.unread.Load(), TimedOut: c.timedOut.Load()}
	for _, sh := range s.sorted() {
		sh.mu.Lock()
		loaded := sh.loaded
		sh.mu.Unlock()
		if !loaded {
			out.Loading++
			continue
		}
		out.Active++
		sh.work.Lock()
		out.Waiting += len(sh.waiting)
		sh.work.Unlock()
	}
	return out
}
