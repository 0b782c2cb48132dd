package protocol

// Kafka's error codes, as its protocol page lists them for 3.9. Each constant
// is a sentinel error too.
const (
	ErrUnknownServerError Code = -1
	// None is success; CodeOf(nil) gives it and it is never returned as an error.
	None                                  Code = 0
	ErrOffsetOutOfRange                   Code = 1
	ErrCorruptMessage                     Code = 2
	ErrUnknownTopicOrPartition            Code = 3
	ErrInvalidFetchSize                   Code = 4
	ErrLeaderNotAvailable                 Code = 5
	ErrNotLeaderOrFollower                Code = 6
	ErrRequestTimedOut                    Code = 7
	ErrBrokerNotAvailable                 Code = 8
	ErrReplicaNotAvailable                Code = 9
	ErrMessageTooLarge                    Code = 10
	ErrStaleControllerEpoch               Code = 11
	ErrOffsetMetadataTooLarge             Code = 12
	ErrNetworkException                   Code = 13
	ErrCoordinatorLoadInProgress          Code = 14
	ErrCoordinatorNotAvailable            Code = 15
	ErrNotCoordinator                     Code = 16
	ErrInvalidTopicException              Code = 17
	ErrRecordListTooLarge                 Code = 18
	ErrNotEnoughReplicas                  Code = 19
	ErrNotEnoughReplicasAfterAppend       Code = 20
	ErrInvalidRequiredAcks                Code = 21
	ErrIllegalGeneration                  Code = 22
	ErrInconsistentGroupProtocol          Code = 23
	ErrInvalidGroupID                     Code = 24
	ErrUnknownMemberID                    Code = 25
	ErrInvalidSessionTimeout              Code = 26
	ErrRebalanceInProgress                Code = 27
	ErrInvalidCommitOffsetSize            Code = 28
	ErrTopicAuthorizationFailed           Code = 29
	ErrGroupAuthorizationFailed           Code = 30
	ErrClusterAuthorizationFailed         Code = 31
	ErrInvalidTimestamp                   Code = 32
	ErrUnsupportedSASLMechanism           Code = 33
	ErrIllegalSASLState                   Code = 34
	ErrUnsupportedVersion                 Code = 35
	ErrTopicAlreadyExists                 Code = 36
	ErrInvalidPartitions                  Code = 37
	ErrInvalidReplicationFactor           Code = 38
	ErrInvalidReplicaAssignment           Code = 39
	ErrInvalidConfig                      Code = 40
	ErrNotController                      Code = 41
	ErrInvalidRequest                     Code = 42
	ErrUnsupportedForMessageFormat        Code = 43
	ErrPolicyViolation                    Code = 44
	ErrOutOfOrderSequenceNumber           Code = 45
	ErrDuplicateSequenceNumber            Code = 46
	ErrInvalidProducerEpoch               Code = 47
	ErrInvalidTxnState                    Code = 48
	ErrInvalidProducerIDMapping           Code = 49
	ErrInvalidTransactionTimeout          Code = 50
	ErrConcurrentTransactions             Code = 51
	ErrTransactionCoordinatorFenced       Code = 52
	ErrTransactionalIDAuthorizationFailed Code = 53
	ErrSecurityDisabled                   Code = 54
	ErrOperationNotAttempted              Code = 55
	ErrKafkaStorageError                  Code = 56
	ErrLogDirNotFound                     Code = 57
	ErrSASLAuthenticationFailed           Code = 58
	ErrUnknownProducerID                  Code = 59
	ErrReassignmentInProgress             Code = 60
	ErrDelegationTokenAuthDisabled        Code = 61
	ErrDelegationTokenNotFound            Code = 62
	ErrDelegationTokenOwnerMismatch       Code = 63
	ErrDelegationTokenRequestNotAllowed   Code = 64
	ErrDelegationTokenAuthorizationFailed Code = 65
	ErrDelegationTokenExpired             Code = 66
	ErrInvalidPrincipalType               Code = 67
	ErrNonEmptyGroup                      Code = 68
	ErrGroupIDNotFound                    Code = 69
	ErrFetchSessionIDNotFound             Code = 70
	ErrInvalidFetchSessionEpoch           Code = 71
	ErrListenerNotFound                   Code = 72
	ErrTopicDeletionDisabled              Code = 73
	ErrFencedLeaderEpoch                  Code = 74
	ErrUnknownLeaderEpoch                 Code = 75
	ErrUnsupportedCompressionType         Code = 76
	ErrStaleBrokerEpoch                   Code = 77
	ErrOffsetNotAvailable                 Code = 78
	ErrMemberIDRequired                   Code = 79
	ErrPreferredLeaderNotAvailable        Code = 80
	ErrGroupMaxSizeReached                Code = 81
	ErrFencedInstanceID                   Code = 82
	ErrEligibleLeadersNotAvailable        Code = 83
	ErrElectionNotNeeded                  Code = 84
	ErrNoReassignmentInProgress           Code = 85
	ErrGroupSubscribedToTopic             Code = 86
	ErrInvalidRecord                      Code = 87
	ErrUnstableOffsetCommit               Code = 88
	ErrThrottlingQuotaExceeded            Code = 89
	ErrProducerFenced                     Code = 90
	ErrResourceNotFound                   Code = 91
	ErrDuplicateResource                  Code = 92
	ErrUnacceptableCredential             Code = 93
	ErrInconsistentVoterSet               Code = 94
	ErrInvalidUpdateVersion               Code = 95
	ErrFeatureUpdateFailed                Code = 96
	ErrPrincipalDeserializationFailure    Code = 97
	ErrSnapshotNotFound                   Code = 98
	ErrPositionOutOfRange                 Code = 99
	ErrUnknownTopicID                     Code = 100
	ErrDuplicateBrokerRegistration        Code = 101
	ErrBrokerIDNotRegistered              Code = 102
	ErrInconsistentTopicID                Code = 103
	ErrInconsistentClusterID              Code = 104
	ErrTransactionalIDNotFound            Code = 105
	ErrFetchSessionTopicIDError           Code = 106
	ErrIneligibleReplica                  Code = 107
	ErrNewLeaderElected                   Code = 108
	ErrOffsetMovedToTieredStorage         Code = 109
	ErrFencedMemberEpoch                  Code = 110
	ErrUnreleasedInstanceID               Code = 111
	ErrUnsupportedAssignor                Code = 112
	ErrStaleMemberEpoch                   Code = 113
	ErrMismatchedEndpointType             Code = 114
	ErrUnsupportedEndpointType            Code = 115
	ErrUnknownControllerID                Code = 116
	ErrUnknownSubscriptionID              Code = 117
	ErrTelemetryTooLarge                  Code = 118
	ErrInvalidRegistration                Code = 119
	ErrTransactionAbortable               Code = 120
	ErrInvalidRecordState                 Code = 121
	ErrShareSessionNotFound               Code = 122
	ErrInvalidShareSessionEpoch           Code = 123
	ErrFencedStateEpoch                   Code = 124
	ErrInvalidVoterKey                    Code = 125
	ErrDuplicateVoter                     Code = 126
	ErrVoterNotFound                      Code = 127
)

// names has every code that Kafka 3.9 defines.
var names = map[Code]string{
	ErrUnknownServerError:                 "UNKNOWN_SERVER_ERROR",
	None:                                  "NONE",
	ErrOffsetOutOfRange:                   "OFFSET_OUT_OF_RANGE",
	ErrCorruptMessage:                     "CORRUPT_MESSAGE",
	ErrUnknownTopicOrPartition:            "UNKNOWN_TOPIC_OR_PARTITION",
	ErrInvalidFetchSize:                   "INVALID_FETCH_SIZE",
	ErrLeaderNotAvailable:                 "LEADER_NOT_AVAILABLE",
	ErrNotLeaderOrFollower:                "NOT_LEADER_OR_FOLLOWER",
	ErrRequestTimedOut:                    "REQUEST_TIMED_OUT",
	ErrBrokerNotAvailable:                 "BROKER_NOT_AVAILABLE",
	ErrReplicaNotAvailable:                "REPLICA_NOT_AVAILABLE",
	ErrMessageTooLarge:                    "MESSAGE_TOO_LARGE",
	ErrStaleControllerEpoch:               "STALE_CONTROLLER_EPOCH",
	ErrOffsetMetadataTooLarge:             "OFFSET_METADATA_TOO_LARGE",
	ErrNetworkException:                   "NETWORK_EXCEPTION",
	ErrCoordinatorLoadInProgress:          "COORDINATOR_LOAD_IN_PROGRESS",
	ErrCoordinatorNotAvailable:            "COORDINATOR_NOT_AVAILABLE",
	ErrNotCoordinator:                     "NOT_COORDINATOR",
	ErrInvalidTopicException:              "INVALID_TOPIC_EXCEPTION",
	ErrRecordListTooLarge:                 "RECORD_LIST_TOO_LARGE",
	ErrNotEnoughReplicas:                  "NOT_ENOUGH_REPLICAS",
	ErrNotEnoughReplicasAfterAppend:       "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
	ErrInvalidRequiredAcks:                "INVALID_REQUIRED_ACKS",
	ErrIllegalGeneration:                  "ILLEGAL_GENERATION",
	ErrInconsistentGroupProtocol:          "INCONSISTENT_GROUP_PROTOCOL",
	ErrInvalidGroupID:                     "INVALID_GROUP_ID",
	ErrUnknownMemberID:                    "UNKNOWN_MEMBER_ID",
	ErrInvalidSessionTimeout:              "INVALID_SESSION_TIMEOUT",
	ErrRebalanceInProgress:                "REBALANCE_IN_PROGRESS",
	ErrInvalidCommitOffsetSize:            "INVALID_COMMIT_OFFSET_SIZE",
	ErrTopicAuthorizationFailed:           "TOPIC_AUTHORIZATION_FAILED",
	ErrGroupAuthorizationFailed:           "GROUP_AUTHORIZATION_FAILED",
	ErrClusterAuthorizationFailed:         "CLUSTER_AUTHORIZATION_FAILED",
	ErrInvalidTimestamp:                   "INVALID_TIMESTAMP",
	ErrUnsupportedSASLMechanism:           "UNSUPPORTED_SASL_MECHANISM",
	ErrIllegalSASLState:                   "ILLEGAL_SASL_STATE",
	ErrUnsupportedVersion:                 "UNSUPPORTED_VERSION",
	ErrTopicAlreadyExists:                 "TOPIC_ALREADY_EXISTS",
	ErrInvalidPartitions:                  "INVALID_PARTITIONS",
	ErrInvalidReplicationFactor:           "INVALID_REPLICATION_FACTOR",
	ErrInvalidReplicaAssignment:           "INVALID_REPLICA_ASSIGNMENT",
	ErrInvalidConfig:                      "INVALID_CONFIG",
	ErrNotController:                      "NOT_CONTROLLER",
	ErrInvalidRequest:                     "INVALID_REQUEST",
	ErrUnsupportedForMessageFormat:        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
	ErrPolicyViolation:                    "POLICY_VIOLATION",
	ErrOutOfOrderSequenceNumber:           "OUT_OF_ORDER_SEQUENCE_NUMBER",
	ErrDuplicateSequenceNumber:            "DUPLICATE_SEQUENCE_NUMBER",
	ErrInvalidProducerEpoch:               "INVALID_PRODUCER_EPOCH",
	ErrInvalidTxnState:                    "INVALID_TXN_STATE",
	ErrInvalidProducerIDMapping:           "INVALID_PRODUCER_ID_MAPPING",
	ErrInvalidTransactionTimeout:          "INVALID_TRANSACTION_TIMEOUT",
	ErrConcurrentTransactions:             "CONCURRENT_TRANSACTIONS",
	ErrTransactionCoordinatorFenced:       "TRANSACTION_COORDINATOR_FENCED",
	ErrTransactionalIDAuthorizationFailed: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
	ErrSecurityDisabled:                   "SECURITY_DISABLED",
	ErrOperationNotAttempted:              "OPERATION_NOT_ATTEMPTED",
	ErrKafkaStorageError:                  "KAFKA_STORAGE_ERROR",
	ErrLogDirNotFound:                     "LOG_DIR_NOT_FOUND",
	ErrSASLAuthenticationFailed:           "SASL_AUTHENTICATION_FAILED",
	ErrUnknownProducerID:                  "UNKNOWN_PRODUCER_ID",
	ErrReassignmentInProgress:             "REASSIGNMENT_IN_PROGRESS",
	ErrDelegationTokenAuthDisabled:        "DELEGATION_TOKEN_AUTH_DISABLED",
	ErrDelegationTokenNotFound:            "DELEGATION_TOKEN_NOT_FOUND",
	ErrDelegationTokenOwnerMismatch:       "DELEGATION_TOKEN_OWNER_MISMATCH",
	ErrDelegationTokenRequestNotAllowed:   "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
	ErrDelegationTokenAuthorizationFailed: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
	ErrDelegationTokenExpired:             "DELEGATION_TOKEN_EXPIRED",
	ErrInvalidPrincipalType:               "INVALID_PRINCIPAL_TYPE",
	ErrNonEmptyGroup:                      "NON_EMPTY_GROUP",
	ErrGroupIDNotFound:                    "GROUP_ID_NOT_FOUND",
	ErrFetchSessionIDNotFound:             "FETCH_SESSION_ID_NOT_FOUND",
	ErrInvalidFetchSessionEpoch:           "INVALID_FETCH_SESSION_EPOCH",
	ErrListenerNotFound:                   "LISTENER_NOT_FOUND",
	ErrTopicDeletionDisabled:              "TOPIC_DELETION_DISABLED",
	ErrFencedLeaderEpoch:                  "FENCED_LEADER_EPOCH",
	ErrUnknownLeaderEpoch:                 "UNKNOWN_LEADER_EPOCH",
	ErrUnsupportedCompressionType:         "UNSUPPORTED_COMPRESSION_TYPE",
	ErrStaleBrokerEpoch:                   "STALE_BROKER_EPOCH",
	ErrOffsetNotAvailable:                 "OFFSET_NOT_AVAILABLE",
	ErrMemberIDRequired:                   "MEMBER_ID_REQUIRED",
	ErrPreferredLeaderNotAvailable:        "PREFERRED_LEADER_NOT_AVAILABLE",
	ErrGroupMaxSizeReached:                "GROUP_MAX_SIZE_REACHED",
	ErrFencedInstanceID:                   "FENCED_INSTANCE_ID",
	ErrEligibleLeadersNotAvailable:        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
	ErrElectionNotNeeded:                  "ELECTION_NOT_NEEDED",
	ErrNoReassignmentInProgress:           "NO_REASSIGNMENT_IN_PROGRESS",
	ErrGroupSubscribedToTopic:             "GROUP_SUBSCRIBED_TO_TOPIC",
	ErrInvalidRecord:                      "INVALID_RECORD",
	ErrUnstableOffsetCommit:               "UNSTABLE_OFFSET_COMMIT",
	ErrThrottlingQuotaExceeded:            "THROTTLING_QUOTA_EXCEEDED",
	ErrProducerFenced:                     "PRODUCER_FENCED",
	ErrResourceNotFound:                   "RESOURCE_NOT_FOUND",
	ErrDuplicateResource:                  "DUPLICATE_RESOURCE",
	ErrUnacceptableCredential:             "UNACCEPTABLE_CREDENTIAL",
	ErrInconsistentVoterSet:               "INCONSISTENT_VOTER_SET",
	ErrInvalidUpdateVersion:               "INVALID_UPDATE_VERSION",
	ErrFeatureUpdateFailed:                "FEATURE_UPDATE_FAILED",
	ErrPrincipalDeserializationFailure:    "PRINCIPAL_DESERIALIZATION_FAILURE",
	ErrSnapshotNotFound:                   "SNAPSHOT_NOT_FOUND",
	ErrPositionOutOfRange:                 "POSITION_OUT_OF_RANGE",
	ErrUnknownTopicID:                     "UNKNOWN_TOPIC_ID",
	ErrDuplicateBrokerRegistration:        "DUPLICATE_BROKER_REGISTRATION",
	ErrBrokerIDNotRegistered:              "BROKER_ID_NOT_REGISTERED",
	ErrInconsistentTopicID:                "INCONSISTENT_TOPIC_ID",
	ErrInconsistentClusterID:              "INCONSISTENT_CLUSTER_ID",
	ErrTransactionalIDNotFound:            "TRANSACTIONAL_ID_NOT_FOUND",
	ErrFetchSessionTopicIDError:           "FETCH_SESSION_TOPIC_ID_ERROR",
	ErrIneligibleReplica:                  "INELIGIBLE_REPLICA",
	ErrNewLeaderElected:                   "NEW_LEADER_ELECTED",
	ErrOffsetMovedToTieredStorage:         "OFFSET_MOVED_TO_TIERED_STORAGE",
	ErrFencedMemberEpoch:                  "FENCED_MEMBER_EPOCH",
	ErrUnreleasedInstanceID:               "UNRELEASED_INSTANCE_ID",
	ErrUnsupportedAssignor:                "UNSUPPORTED_ASSIGNOR",
	ErrStaleMemberEpoch:                   "STALE_MEMBER_EPOCH",
	ErrMismatchedEndpointType:             "MISMATCHED_ENDPOINT_TYPE",
	ErrUnsupportedEndpointType:            "UNSUPPORTED_ENDPOINT_TYPE",
	ErrUnknownControllerID:                "UNKNOWN_CONTROLLER_ID",
	ErrUnknownSubscriptionID:              "UNKNOWN_SUBSCRIPTION_ID",
	ErrTelemetryTooLarge:                  "TELEMETRY_TOO_LARGE",
	ErrInvalidRegistration:                "INVALID_REGISTRATION",
	ErrTransactionAbortable:               "TRANSACTION_ABORTABLE",
	ErrInvalidRecordState:                 "INVALID_RECORD_STATE",
	ErrShareSessionNotFound:               "SHARE_SESSION_NOT_FOUND",
	ErrInvalidShareSessionEpoch:           "INVALID_SHARE_SESSION_EPOCH",
	ErrFencedStateEpoch:                   "FENCED_STATE_EPOCH",
	ErrInvalidVoterKey:                    "INVALID_VOTER_KEY",
	ErrDuplicateVoter:                     "DUPLICATE_VOTER",
	ErrVoterNotFound:                      "VOTER_NOT_FOUND",
}
