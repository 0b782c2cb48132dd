package record

import (
	"encoding/binary"

	"github.com/kbroker/kbroker/cluster"
)

// ControlType is the kind of a control record.
type ControlType int16

// The control records that a log of topic data may carry.
const (
	ControlAbort  ControlType = 0
	ControlCommit ControlType = 1
)

// String is the name Kafka's tools print.
func (t ControlType) String() string {
	switch t {
	case ControlAbort:
		return "ABORT"
	case ControlCommit:
		return "COMMIT"
	}
	return "UNKNOWN"
}

// Both the key and the value of a control record begin with a version, and
// readers take versions they do not know for the ones they do.
const (
	controlVersion  = 0
	controlKeyLen   = 4 // version, type
	controlValueLen = 6 // version, coordinator epoch
)

// EndTxnMarker is the control batch that ends a transaction in one partition.
func EndTxnMarker(commit bool, pid cluster.ProducerID, epoch cluster.ProducerEpoch, coordinatorEpoch int32, nowMs int64) Batch {
	t := ControlAbort
	if commit {
		t = ControlCommit
	}
	key := binary.BigEndian.AppendUint16(nil, controlVersion)
	key = binary.BigEndian.AppendUint16(key, uint16(t))
	value := binary.BigEndian.AppendUint16(nil, controlVersion)
	value = binary.BigEndian.AppendUint32(value, uint32(coordinatorEpoch))
	b := NewBuilder(BuilderOptions{
		HasProducer: true, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: NoSequence,
		Transactional: true, Control: true,
	})
	b.Append(nowMs, key, value, nil)
	return b.Build()
}

// ParseControl reads a control record. A type that is neither ControlAbort nor
// ControlCommit is returned without a coordinator epoch: it ends no transaction.
func ParseControl(r *Rec) (t ControlType, coordinatorEpoch int32, err error) {
	if len(r.Key) < controlKeyLen {
		return 0, 0, rejectf(ErrInvalidRecord, FaultNone, "a control record's key has %d bytes", len(r.Key))
	}
	if v := int16(binary.BigEndian.Uint16(r.Key)); v < 0 {
		return 0, 0, rejectf(ErrInvalidRecord, FaultNone, "a control record's version is %d", v)
	}
	t = ControlType(binary.BigEndian.Uint16(r.Key[2:]))
	if t != ControlAbort && t != ControlCommit {
		return t, 0, nil
	}
	if len(r.Value) < controlValueLen {
		return t, 0, rejectf(ErrInvalidRecord, FaultNone, "an end marker's value has %d bytes", len(r.Value))
	}
	if v := int16(binary.BigEndian.Uint16(r.Value)); v < 0 {
		return t, 0, rejectf(ErrInvalidRecord, FaultNone, "an end marker's version is %d", v)
	}
	return t, int32(binary.BigEndian.Uint32(r.Value[2:])), nil
}
