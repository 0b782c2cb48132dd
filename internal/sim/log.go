package sim

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/epochs"
)

// Record is one record of a log: who it is, and the epoch of the leader that
// wrote it.
type Record struct {
	ID    int32
	Epoch cluster.LeaderEpoch
}

// Log is a log in memory that begins at 0: its records, the history of their
// epochs, and how much of it would survive a crash.
//
// 0 <= synced <= LEO.
type Log struct {
	records []Record
	epochs  epochs.Cache
	synced  cluster.Offset
}

// LEO is the offset of the next record.
func (l *Log) LEO() cluster.Offset { return cluster.Offset(len(l.records)) }

// At is the record at an offset within the log.
func (l *Log) At(o cluster.Offset) Record { return l.records[o] }

// Epochs is the history of leader epochs.
func (l *Log) Epochs() epochs.Cache { return l.epochs }

// EndOffsetForEpoch implements partition.Epochs.
func (l *Log) EndOffsetForEpoch(e cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset) {
	return l.epochs.EndOffsetFor(e, l.LEO())
}

// LatestEpoch implements partition.Epochs.
func (l *Log) LatestEpoch() cluster.LeaderEpoch { return l.epochs.LatestEpoch() }

// append writes one record.
func (l *Log) append(r Record) {
	l.epochs, _ = l.epochs.Assign(r.Epoch, l.LEO())
	l.records = append(l.records, r)
}

// begin notes that a leader's epoch begins at the log's end.
func (l *Log) begin(e cluster.LeaderEpoch) { l.epochs, _ = l.epochs.Assign(e, l.LEO()) }

// truncate cuts the log and syncs what is left, as logstore does. An epoch that
// has no record left is forgotten also where nothing is cut.
func (l *Log) truncate(to cluster.Offset) {
	if to >= l.LEO() {
		l.epochs, _ = l.epochs.TruncateFromEnd(l.LEO())
		return
	}
	l.records = l.records[:to]
	l.epochs, _ = l.epochs.TruncateFromEnd(to)
	l.synced = to
}

// Sync makes everything durable.
func (l *Log) Sync() { l.synced = l.LEO() }

// Synced is how much of the log survives every crash.
func (l *Log) Synced() cluster.Offset { return l.synced }

// Crashed is the log as it is found after a loss of power that left it up to
// keep: what was synced survives anyhow. Its history is what a recovery makes of
// it.
func (l *Log) Crashed(keep cluster.Offset) Log {
	keep = min(max(keep, l.synced), l.LEO())
	c := Log{records: append([]Record(nil), l.records[:keep]...), epochs: l.epochs, synced: keep}
	c.epochs, _ = c.epochs.TruncateFromEnd(keep)
	return c
}
