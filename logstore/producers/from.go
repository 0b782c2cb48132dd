package producers

import (
	"fmt"

	"github.com/kbroker/kbroker/protocol/record"
)

// From reads what State needs of a stored batch, whose header was checked. ok is
// false for a batch without a producer id. Only control batches have their
// record looked at; the error wraps record.ErrInvalidRecord when it is none that
// ends a transaction. A data batch allocates nothing.
func From(b record.Batch) (p Batch, ok bool, err error) {
	if !b.HasProducerID() {
		return Batch{}, false, nil
	}
	p = Batch{
		ProducerID: b.ProducerID(), Epoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), LastSequence: b.LastSequence(),
		First: b.BaseOffset(), Last: b.LastOffset(), MaxTimestamp: b.MaxTimestamp(),
		Transactional: b.Transactional(), Control: b.Control(),
	}
	if p.Control {
		err = p.readMarker(b)
	}
	return p, true, err
}

func (p *Batch) readMarker(b record.Batch) error {
	it := b.Iter(nil)
	defer it.Close()
	if !it.Next() {
		return it.Err() // nil for what compaction left of the marker
	}
	kind, coordinatorEpoch, err := record.ParseControl(it.Record())
	if err != nil {
		return err
	}
	p.CoordinatorEpoch, p.MaxTimestamp = coordinatorEpoch, it.Timestamp()
	switch kind {
	case record.ControlCommit:
		p.Marker = Commit
	case record.ControlAbort:
		p.Marker = Abort
	default:
		return fmt.Errorf("%w: control record of type %d from producer %d", record.ErrInvalidRecord, kind, p.ProducerID)
	}
	return nil
}
