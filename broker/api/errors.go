package api

import (
	"errors"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/kbroker/kbroker/zkmeta"
)

// codes turns the sentinels of the packages below into Kafka's error codes. An
// error that wraps none of them has the code that it carries itself
// (protocol.Coded), or UNKNOWN_SERVER_ERROR.
var codes = []struct {
	err  error
	code protocol.Code
}{
	{cluster.ErrInvalidTopic, protocol.ErrInvalidTopicException},

	{partition.ErrNotLeader, protocol.ErrNotLeaderOrFollower},
	{partition.ErrFencedLeaderEpoch, protocol.ErrFencedLeaderEpoch},
	{partition.ErrUnknownLeaderEpoch, protocol.ErrUnknownLeaderEpoch},
	{partition.ErrStaleEpoch, protocol.ErrStaleControllerEpoch},
	{partition.ErrStorage, protocol.ErrKafkaStorageError},
	{partition.ErrOffsetNotAvailable, protocol.ErrOffsetNotAvailable},
	{partition.ErrNotEnoughReplicas, protocol.ErrNotEnoughReplicas},

	{replica.ErrStaleControllerEpoch, protocol.ErrStaleControllerEpoch},
	{replica.ErrInconsistentTopicID, protocol.ErrInconsistentTopicID},
	{replica.ErrUnknownTopicOrPartition, protocol.ErrUnknownTopicOrPartition},
	{replica.ErrFencedStop, protocol.ErrFencedLeaderEpoch},

	{logstore.ErrOffsetOutOfRange, protocol.ErrOffsetOutOfRange},
	{logstore.ErrStorage, protocol.ErrKafkaStorageError},
	{logstore.ErrClosed, protocol.ErrNotLeaderOrFollower},
	{logstore.ErrNotFound, protocol.ErrUnknownTopicOrPartition},
	{logstore.ErrCorruptLog, protocol.ErrKafkaStorageError},
	{logstore.ErrTooLarge, protocol.ErrRecordListTooLarge},
	{logstore.ErrInconsistentTopicID, protocol.ErrInconsistentTopicID},
}

// CodeOf is the error code that an error becomes on the wire, 0 for nil.
func CodeOf(err error) int16 {
	if err == nil {
		return 0
	}
	for _, row := range codes {
		if errors.Is(err, row.err) {
			return int16(row.code)
		}
	}
	return protocol.CodeOf(err)
}

var _ = producers.ErrOutOfOrderSequence
var _ = record.ErrCorrupt
var _ = zkmeta.ErrNoNode
