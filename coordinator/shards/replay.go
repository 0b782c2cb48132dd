package shards

import (
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol/record"
)

// entry replays one batch, or an entry of an old format, and answers the offset
// after it. What cannot be read is told and passed over, as long as its header
// says where it ends: better a few commits lost than all groups of the partition.
func (l *loader) entry(e []byte, at cluster.Offset) (cluster.Offset, error) {
	magic, _ := record.PeekMagic(e)
	if magic < record.MagicV2 {
		return l.legacy(record.Legacy(e), at)
	}
	b := record.Batch(e)
	if err := b.CheckHeader(); err != nil {
		return 0, fmt.Errorf("at offset %d: %w", at, err)
	}
	next := b.LastOffset() + 1
	if next <= at {
		return 0, fmt.Errorf("%w: a batch that ends at %d where %d was to follow", record.ErrCorrupt, next, at)
	}
	err := b.CheckCRC()
	switch {
	case err != nil:
	case b.Control():
		err = l.control(b)
	default:
		err = l.data(b)
	}
	if err != nil {
		l.passOver(b.BaseOffset(), err)
	}
	return next, nil
}

func (l *loader) passOver(at cluster.Offset, err error) {
	l.s.set.counters.unread.Add(1)
	l.s.log().Error().Err(err).Int64("offset", int64(at)).Msg("a batch of the coordinator's log cannot be read and is passed over")
}

func (l *loader) data(b record.Batch) error {
	e := coordinator.Entry{Producer: cluster.NoProducerID, ProducerEpoch: cluster.NoProducerEpoch}
	if b.Transactional() { // whether it comes to pass, its marker says
		e.Producer, e.ProducerEpoch = b.ProducerID(), b.ProducerEpoch()
	}
	it := b.Iter(l.d)
	defer it.Close()
	for it.Next() {
		if e.Offset = it.Offset(); e.Offset < l.start {
			continue
		}
		e.Record, e.TimestampMs = recordOf(it.Record()), it.Timestamp()
		l.apply(&e)
	}
	return it.Err()
}

// recordOf keeps null apart from empty.
func recordOf(r *record.Rec) coordinator.Record {
	out := coordinator.Record{Key: r.Key, Value: r.Value}
	if r.KeyNull {
		out.Key = nil
	}
	if r.ValueNull {
		out.Value = nil
	}
	return out
}

func (l *loader) apply(e *coordinator.Entry) {
	l.records++
	l.s.applyLocked(*e)
}

func (l *loader) control(b record.Batch) error {
	it := b.Iter(l.d)
	defer it.Close()
	if !it.Next() {
		return it.Err() // the marker was compacted away, and so was what it ended
	}
	t, _, err := record.ParseControl(it.Record())
	if err == nil && (t == record.ControlCommit || t == record.ControlAbort) {
		l.s.machine.ApplyMarker(b.ProducerID(), b.ProducerEpoch(), t == record.ControlCommit)
	}
	return err
}

// legacy replays a message, or a wrapper of messages, of format 0 or 1.
func (l *loader) legacy(m record.Legacy, at cluster.Offset) (cluster.Offset, error) {
	next := m.Offset() + 1
	if next <= at {
		return 0, fmt.Errorf("%w: a message at %d where %d was to follow", record.ErrCorrupt, next-1, at)
	}
	if err := m.CheckCRC(); err != nil {
		l.passOver(at, err)
		return next, nil
	}
	e := coordinator.Entry{Producer: cluster.NoProducerID, ProducerEpoch: cluster.NoProducerEpoch}
	it := m.Iter(l.d)
	defer it.Close()
	for it.Next() {
		if e.Offset = it.Offset(); e.Offset < l.start {
			continue
		}
		e.Record, e.TimestampMs = recordOf(it.Record()), it.Timestamp()
		l.apply(&e)
	}
	if err := it.Err(); err != nil {
		l.passOver(at, err)
	}
	return next, nil
}
