package api

import (
	"errors"

	"github.com/kbroker/kbroker/broker/topics"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/controller/loop"
	"github.com/kbroker/kbroker/coordinator/shards"
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
	{partition.ErrNotFollower, protocol.ErrNotLeaderOrFollower},

	{replica.ErrStaleControllerEpoch, protocol.ErrStaleControllerEpoch},
	{replica.ErrInconsistentTopicID, protocol.ErrInconsistentTopicID},
	{replica.ErrUnknownTopicOrPartition, protocol.ErrUnknownTopicOrPartition},
	{replica.ErrKept, protocol.ErrPolicyViolation},
	{replica.ErrFencedStop, protocol.ErrFencedLeaderEpoch},

	{logstore.ErrOffsetOutOfRange, protocol.ErrOffsetOutOfRange},
	{logstore.ErrStorage, protocol.ErrKafkaStorageError},
	{logstore.ErrClosed, protocol.ErrNotLeaderOrFollower},
	{logstore.ErrNotFound, protocol.ErrUnknownTopicOrPartition},
	{logstore.ErrCorruptLog, protocol.ErrKafkaStorageError},
	{logstore.ErrCorruptPartitionMetadata, protocol.ErrKafkaStorageError},
	{logstore.ErrTooLarge, protocol.ErrRecordListTooLarge},
	{logstore.ErrInconsistentTopicID, protocol.ErrInconsistentTopicID},

	{producers.ErrOutOfOrderSequence, protocol.ErrOutOfOrderSequenceNumber},
	{producers.ErrInvalidProducerEpoch, protocol.ErrInvalidProducerEpoch},
	{producers.ErrInvalidTxnState, protocol.ErrInvalidTxnState},
	{producers.ErrCoordinatorFenced, protocol.ErrTransactionCoordinatorFenced},

	{record.ErrCorrupt, protocol.ErrCorruptMessage},
	{record.ErrInvalidRecord, protocol.ErrInvalidRecord},
	{record.ErrInvalidTimestamp, protocol.ErrInvalidTimestamp},
	{record.ErrUnsupportedForMessageFormat, protocol.ErrUnsupportedForMessageFormat},
	{record.ErrUnsupportedCompression, protocol.ErrUnsupportedCompressionType},
	{record.ErrTooLarge, protocol.ErrMessageTooLarge},
	{record.ErrListTooLarge, protocol.ErrRecordListTooLarge},
	{record.ErrUnprocessable, protocol.ErrUnknownServerError},

	{topics.ErrExists, protocol.ErrTopicAlreadyExists},
	{topics.ErrUnknown, protocol.ErrUnknownTopicOrPartition},
	{topics.ErrInvalidConfig, protocol.ErrInvalidConfig},
	{config.ErrInvalid, protocol.ErrInvalidConfig},
	{topics.ErrInvalidRequest, protocol.ErrInvalidRequest},
	{topics.ErrReassigning, protocol.ErrReassignmentInProgress},
	{topics.ErrBrokerNotAvailable, protocol.ErrBrokerNotAvailable},
	{topics.ErrInvalidPartitions, protocol.ErrInvalidPartitions},
	{topics.ErrInvalidReplicationFactor, protocol.ErrInvalidReplicationFactor},
	{topics.ErrInvalidReplicaAssignment, protocol.ErrInvalidReplicaAssignment},

	{shards.ErrNotCoordinator, protocol.ErrNotCoordinator},
	{shards.ErrLoadInProgress, protocol.ErrCoordinatorLoadInProgress},
	{shards.ErrTimedOut, protocol.ErrRequestTimedOut},

	{loop.ErrNotController, protocol.ErrNotController},
	{loop.ErrStaleBrokerEpoch, protocol.ErrStaleBrokerEpoch},
	{loop.ErrUnknownBroker, protocol.ErrBrokerIDNotRegistered},
	{loop.ErrBrokerNotAvailable, protocol.ErrBrokerNotAvailable},

	{zkmeta.ErrNotConnected, protocol.ErrRequestTimedOut},
	{zkmeta.ErrSessionExpired, protocol.ErrRequestTimedOut},
	{zkmeta.ErrUnknownOutcome, protocol.ErrRequestTimedOut},
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
