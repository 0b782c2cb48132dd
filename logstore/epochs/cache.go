package epochs

import (
	"fmt"
	"slices"
	"sort"

	"github.com/kbroker/kbroker/cluster"
)

// Entry says that the records of Epoch begin at Start.
type Entry struct {
	Epoch cluster.LeaderEpoch
	Start cluster.Offset
}

// String is the entry as in the checkpoint file.
func (e Entry) String() string { return fmt.Sprintf("%d %d", e.Epoch, e.Start) }

// Cache is the history of one partition, an immutable value: every change
// returns another Cache, so that one can be read without a lock and handed out
// as a view. The zero value is empty.
//
// Epochs and starts both rise strictly, and neither is negative.
type Cache struct {
	entries []Entry
}

// Len is the number of entries.
func (c Cache) Len() int { return len(c.entries) }

// Entries is a copy of the entries, oldest first.
func (c Cache) Entries() []Entry { return slices.Clone(c.entries) }

// Equal compares all entries.
func (c Cache) Equal(o Cache) bool { return slices.Equal(c.entries, o.entries) }

// Latest is the newest epoch and its start.
func (c Cache) Latest() (epoch cluster.LeaderEpoch, start cluster.Offset, ok bool) {
	if len(c.entries) == 0 {
		return cluster.NoLeaderEpoch, cluster.NoOffset, false
	}
	e := c.entries[len(c.entries)-1]
	return e.Epoch, e.Start, true
}

// Earliest is the oldest epoch and its start.
func (c Cache) Earliest() (epoch cluster.LeaderEpoch, start cluster.Offset, ok bool) {
	if len(c.entries) == 0 {
		return cluster.NoLeaderEpoch, cluster.NoOffset, false
	}
	return c.entries[0].Epoch, c.entries[0].Start, true
}

// LatestEpoch is the newest epoch, or NoLeaderEpoch.
func (c Cache) LatestEpoch() cluster.LeaderEpoch {
	e, _, _ := c.Latest()
	return e
}

// Assign notes that epoch's records begin at start, and reports whether that
// was news. What contradicts it goes: entries of this epoch and above, and those
// that begin at start or later, since no record of theirs can exist any more.
// For the newest epoch only an earlier start is news: its records go on.
// Negative arguments are no news. The common case, a batch of the newest epoch,
// allocates nothing.
func (c Cache) Assign(epoch cluster.LeaderEpoch, start cluster.Offset) (Cache, bool) {
	if epoch < 0 || start < 0 {
		return c, false
	}
	n := len(c.entries)
	if n > 0 && c.entries[n-1].Epoch == epoch && c.entries[n-1].Start <= start {
		return c, false
	}
	for n > 0 && (c.entries[n-1].Epoch >= epoch || c.entries[n-1].Start >= start) {
		n--
	}
	entries := make([]Entry, n+1)
	copy(entries, c.entries[:n])
	entries[n] = Entry{epoch, start}
	return Cache{entries}, true
}

// Saw is Assign for a scan of the log that rebuilds a lost or stale history:
// only an epoch above the newest is news.
func (c Cache) Saw(epoch cluster.LeaderEpoch, base cluster.Offset) (Cache, bool) {
	if epoch <= c.LatestEpoch() {
		return c, false
	}
	return c.Assign(epoch, base)
}

// Found brings the history in line with a batch of epoch that holds base..last,
// found in the log. Where they agree nothing changes: the history knows where an
// epoch began even if compaction took its first batches. Otherwise entries of
// newer epochs go, and those that begin after base; an epoch that began earlier
// goes on, which Assign does not assume.
func (c Cache) Found(epoch cluster.LeaderEpoch, base, last cluster.Offset) Cache {
	if e, ok := c.EpochAt(base); ok && e == epoch {
		if e, _ = c.EpochAt(last); e == epoch {
			return c
		}
	}
	n := len(c.entries)
	for n > 0 && (c.entries[n-1].Epoch > epoch || c.entries[n-1].Start > base) {
		n--
	}
	c, _ = Cache{c.entries[:n:n]}.Assign(epoch, base)
	return c
}

// EndOffsetFor answers where the requested epoch ends in a log that ends at
// leo, as OffsetForLeaderEpoch defines it: the largest known epoch not above the
// requested one, and the start of the next known epoch above it, or leo for the
// newest. An epoch older than all known ones ends where the oldest begins. An
// epoch newer than all known ones, and NoLeaderEpoch, give (-1, -1).
func (c Cache) EndOffsetFor(requested cluster.LeaderEpoch, leo cluster.Offset) (cluster.LeaderEpoch, cluster.Offset) {
	if requested < 0 {
		return cluster.NoLeaderEpoch, cluster.NoOffset
	}
	if e, _, ok := c.Latest(); ok && e == requested {
		return requested, leo
	}
	above := c.firstAbove(requested)
	switch {
	case above == len(c.entries):
		return cluster.NoLeaderEpoch, cluster.NoOffset
	case above == 0:
		return requested, c.entries[0].Start
	}
	return c.entries[above-1].Epoch, c.entries[above].Start
}

// EpochAt is the epoch of the record at offset, or false when it lies before
// the first known epoch.
func (c Cache) EpochAt(offset cluster.Offset) (cluster.LeaderEpoch, bool) {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].Start > offset })
	if i == 0 {
		return cluster.NoLeaderEpoch, false
	}
	return c.entries[i-1].Epoch, true
}

// firstAbove is the index of the first entry whose epoch is above e.
func (c Cache) firstAbove(e cluster.LeaderEpoch) int {
	return sort.Search(len(c.entries), func(i int) bool { return c.entries[i].Epoch > e })
}

// TruncateFromEnd forgets the epochs that begin at end or later, when the log
// was cut to end. It reports whether there were any.
func (c Cache) TruncateFromEnd(end cluster.Offset) (Cache, bool) {
	n := len(c.entries)
	for n > 0 && end >= 0 && c.entries[n-1].Start >= end {
		n--
	}
	if n == len(c.entries) {
		return c, false
	}
	// The shared tail is never written to: Assign copies.
	return Cache{c.entries[:n:n]}, true
}

// TruncateFromStart forgets the epochs whose records all lie below start, when
// the log's start moved there; the epoch that start lies in now begins at start.
// It reports whether anything changed.
func (c Cache) TruncateFromStart(start cluster.Offset) (Cache, bool) {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].Start > start })
	if i == 0 || (i == 1 && c.entries[0].Start == start) {
		return c, false
	}
	entries := slices.Clone(c.entries[i-1:])
	entries[0].Start = start
	return Cache{entries}, true
}

// Check returns what is wrong with the cache, nil for nothing.
func (c Cache) Check() error {
	for i, e := range c.entries {
		if e.Epoch < 0 || e.Start < 0 {
			return fmt.Errorf("leader epoch entry (%v): negative", e)
		}
		if i > 0 && (e.Epoch <= c.entries[i-1].Epoch || e.Start <= c.entries[i-1].Start) {
			return fmt.Errorf("leader epoch entry (%v) after (%v): epoch and offset must both rise", e, c.entries[i-1])
		}
	}
	return nil
}
