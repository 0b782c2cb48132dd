package logstore

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/epochs"
	"github.com/kbroker/kbroker/protocol/record"
)

// lead begins a new epoch, which may stay without a record.
func (x *modelRun) lead() string {
	x.epoch++
	if err := x.l.BecomeLeaderEpoch(x.epoch, x.l.LEO()); err != nil {
		x.t.Error(err)
	}
	x.leads()
	return "become leader"
}

func (x *modelRun) leads() {
	if x.lastEpoch() != x.epoch {
		x.idle = &epochs.Entry{Epoch: x.epoch, Start: x.l.LEO()}
	}
}

// lastEpoch is the epoch of the last batch.
func (x *modelRun) lastEpoch() cluster.LeaderEpoch {
	if n := len(x.m.batches); n > 0 {
		return record.Batch(x.m.batches[n-1].raw).LeaderEpoch()
	}
	return cluster.NoLeaderEpoch
}

// followed is the epoch of the batches that a leader sends: they may be older
// than an epoch in which this log led without a record. As that leader's answer
// to a fetch makes a follower do, such an epoch is cut off first.
func (x *modelRun) followed() cluster.LeaderEpoch {
	e := max(x.lastEpoch(), 0)
	if e < x.epoch && x.rnd.Intn(2) == 0 {
		e += cluster.LeaderEpoch(x.rnd.Intn(int(x.epoch - e)))
	} else {
		e = x.epoch
	}
	if e < x.l.LatestEpoch() {
		if err := x.l.TruncateTo(x.l.LEO()); err != nil {
			x.t.Error(err)
		}
		x.idle = nil
	}
	return e
}

func (x *modelRun) compareEpochs(after string) {
	c := x.l.Epochs()
	if err := c.Check(); err != nil {
		x.t.Errorf("after %s: %v", after, err)
	}
	for _, mb := range x.m.batches {
		if mb.last < x.m.start {
			continue
		}
		for _, off := range [...]int64{max(mb.base, x.m.start), mb.last} {
			if e, ok := c.EpochAt(cluster.Offset(off)); !ok || e != record.Batch(mb.raw).LeaderEpoch() {
				x.t.Errorf("after %s: epoch of offset %d is %d %v, want %d", after, off, e, ok, record.Batch(mb.raw).LeaderEpoch())
				return
			}
		}
	}
	if x.idle != nil && int64(x.idle.Start) != x.m.leo {
		x.idle = nil // it has records now, or was cut off
	}
	if e, start, ok := c.Latest(); ok && x.idle == nil && int64(start) >= x.m.backed() && x.m.backed() < x.m.leo {
		x.idle = &epochs.Entry{Epoch: e, Start: start} // its records behind a gap were cut off; the gap is its own
	}
	for e := range x.epoch + 2 {
		x.compareEpochEnd(after, e)
	}
}

// compareEpochEnd asks what a follower asks to find where its log parts from this one.
func (x *modelRun) compareEpochEnd(after string, asked cluster.LeaderEpoch) {
	// The newest epoch up to the one that is asked for, and between which
	// offsets the next one begins: after a gap, anywhere within it.
	known, from, upTo, newest := cluster.NoLeaderEpoch, x.m.start, int64(-1), cluster.NoLeaderEpoch
	for _, mb := range x.m.batches {
		e := record.Batch(mb.raw).LeaderEpoch()
		if mb.last < x.m.start {
			continue
		}
		if newest = e; e <= asked {
			known, from = e, mb.last+1
		} else if upTo < 0 {
			upTo = max(mb.base, x.m.start)
		}
	}
	if x.idle != nil {
		if newest = x.idle.Epoch; newest <= asked {
			known = newest
		} else if upTo < 0 {
			from, upTo = int64(x.idle.Start), int64(x.idle.Start)
		}
	}
	if newest == cluster.NoLeaderEpoch {
		return // what is known of epochs below the start is nobody's business
	}
	switch {
	case asked == newest:
		from, upTo = x.m.leo, x.m.leo
	case asked > newest:
		from, upTo = -1, -1
		known = cluster.NoLeaderEpoch
	}
	e, end := x.l.EndOffsetForEpoch(asked)
	if known == cluster.NoLeaderEpoch && asked < newest {
		known = e // older than all records: the answer may name the epoch below the start
	}
	if e != known || int64(end) < from || int64(end) > upTo {
		x.t.Errorf("after %s: epoch %d ends as (%d, %d), want %d, within %d..%d; %v", after, asked, e, end, known, from, upTo, x.l.Epochs().Entries())
	}
}
