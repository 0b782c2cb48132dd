package protocol

// API is one row of the table of APIs.
type API struct {
	Key  int16
	Name string // Kafka's spelling, as its request metrics have it
	// Min and Max bound the versions that are spoken: those of Kafka 3.9, and of
	// the consumer protocol (KIP-848) those of Kafka 4.
	Min, Max int16
	// FlexibleFrom is the first version with compact lengths and tagged fields
	// (KIP-482); neverFlexible where there is none.
	FlexibleFrom int16
	// InterBroker marks what only brokers send.
	InterBroker bool
}

const neverFlexible = 1<<15 - 1

// Keys of the APIs of a ZooKeeper-mode 3.9 broker.
const (
	Produce                      int16 = 0
	Fetch                        int16 = 1
	ListOffsets                  int16 = 2
	Metadata                     int16 = 3
	LeaderAndIsr                 int16 = 4
	StopReplica                  int16 = 5
	UpdateMetadata               int16 = 6
	ControlledShutdown           int16 = 7
	OffsetCommit                 int16 = 8
	OffsetFetch                  int16 = 9
	FindCoordinator              int16 = 10
	JoinGroup                    int16 = 11
	Heartbeat                    int16 = 12
	LeaveGroup                   int16 = 13
	SyncGroup                    int16 = 14
	DescribeGroups               int16 = 15
	ListGroups                   int16 = 16
	SaslHandshake                int16 = 17
	ApiVersions                  int16 = 18
	CreateTopics                 int16 = 19
	DeleteTopics                 int16 = 20
	DeleteRecords                int16 = 21
	InitProducerID               int16 = 22
	OffsetForLeaderEpoch         int16 = 23
	AddPartitionsToTxn           int16 = 24
	AddOffsetsToTxn              int16 = 25
	EndTxn                       int16 = 26
	WriteTxnMarkers              int16 = 27
	TxnOffsetCommit              int16 = 28
	DescribeAcls                 int16 = 29
	CreateAcls                   int16 = 30
	DeleteAcls                   int16 = 31
	DescribeConfigs              int16 = 32
	AlterConfigs                 int16 = 33
	AlterReplicaLogDirs          int16 = 34
	DescribeLogDirs              int16 = 35
	SaslAuthenticate             int16 = 36
	CreatePartitions             int16 = 37
	CreateDelegationToken        int16 = 38
	RenewDelegationToken         int16 = 39
	ExpireDelegationToken        int16 = 40
	DescribeDelegationToken      int16 = 41
	DeleteGroups                 int16 = 42
	ElectLeaders                 int16 = 43
	IncrementalAlterConfigs      int16 = 44
	AlterPartitionReassignments  int16 = 45
	ListPartitionReassignments   int16 = 46
	OffsetDelete                 int16 = 47
	DescribeClientQuotas         int16 = 48
	AlterClientQuotas            int16 = 49
	DescribeUserScramCredentials int16 = 50
	AlterUserScramCredentials    int16 = 51
	AlterPartition               int16 = 56
	UpdateFeatures               int16 = 57
	Envelope                     int16 = 58
	DescribeCluster              int16 = 60
	DescribeProducers            int16 = 61
	DescribeTransactions         int16 = 65
	ListTransactions             int16 = 66
	AllocateProducerIDs          int16 = 67
	ConsumerGroupHeartbeat       int16 = 68
	ConsumerGroupDescribe        int16 = 69

	maxKey = 69
)

var apis = []API{
	{Produce, "Produce", 0, 11, 9, false},
	{Fetch, "Fetch", 0, 17, 12, false},
	{ListOffsets, "ListOffsets", 0, 9, 6, false},
	{Metadata, "Metadata", 0, 12, 9, false},
	{LeaderAndIsr, "LeaderAndIsr", 0, 7, 4, true},
	{StopReplica, "StopReplica", 0, 4, 2, true},
	{UpdateMetadata, "UpdateMetadata", 0, 8, 6, true},
	{ControlledShutdown, "ControlledShutdown", 0, 3, 3, true},
	{OffsetCommit, "OffsetCommit", 0, 9, 8, false},
	{OffsetFetch, "OffsetFetch", 0, 9, 6, false},
	{FindCoordinator, "FindCoordinator", 0, 6, 3, false},
	{JoinGroup, "JoinGroup", 0, 9, 6, false},
	{Heartbeat, "Heartbeat", 0, 4, 4, false},
	{LeaveGroup, "LeaveGroup", 0, 5, 4, false},
	{SyncGroup, "SyncGroup", 0, 5, 4, false},
	{DescribeGroups, "DescribeGroups", 0, 5, 5, false},
	{ListGroups, "ListGroups", 0, 5, 3, false},
	{SaslHandshake, "SaslHandshake", 0, 1, neverFlexible, false},
	{ApiVersions, "ApiVersions", 0, 4, 3, false},
	{CreateTopics, "CreateTopics", 0, 7, 5, false},
	{DeleteTopics, "DeleteTopics", 0, 6, 4, false},
	{DeleteRecords, "DeleteRecords", 0, 2, 2, false},
	{InitProducerID, "InitProducerId", 0, 5, 2, false},
	{OffsetForLeaderEpoch, "OffsetForLeaderEpoch", 0, 4, 4, false},
	{AddPartitionsToTxn, "AddPartitionsToTxn", 0, 5, 3, false},
	{AddOffsetsToTxn, "AddOffsetsToTxn", 0, 4, 3, false},
	{EndTxn, "EndTxn", 0, 4, 3, false},
	{WriteTxnMarkers, "WriteTxnMarkers", 0, 1, 1, true},
	{TxnOffsetCommit, "TxnOffsetCommit", 0, 4, 3, false},
	{DescribeAcls, "DescribeAcls", 0, 3, 2, false},
	{CreateAcls, "CreateAcls", 0, 3, 2, false},
	{DeleteAcls, "DeleteAcls", 0, 3, 2, false},
	{DescribeConfigs, "DescribeConfigs", 0, 4, 4, false},
	{AlterConfigs, "AlterConfigs", 0, 2, 2, false},
	{AlterReplicaLogDirs, "AlterReplicaLogDirs", 0, 2, 2, false},
	{DescribeLogDirs, "DescribeLogDirs", 0, 4, 2, false},
	{SaslAuthenticate, "SaslAuthenticate", 0, 2, 2, false},
	{CreatePartitions, "CreatePartitions", 0, 3, 2, false},
	{CreateDelegationToken, "CreateDelegationToken", 0, 3, 2, false},
	{RenewDelegationToken, "RenewDelegationToken", 0, 2, 2, false},
	{ExpireDelegationToken, "ExpireDelegationToken", 0, 2, 2, false},
	{DescribeDelegationToken, "DescribeDelegationToken", 0, 3, 2, false},
	{DeleteGroups, "DeleteGroups", 0, 2, 2, false},
	{ElectLeaders, "ElectLeaders", 0, 2, 2, false},
	{IncrementalAlterConfigs, "IncrementalAlterConfigs", 0, 1, 1, false},
	{AlterPartitionReassignments, "AlterPartitionReassignments", 0, 0, 0, false},
	{ListPartitionReassignments, "ListPartitionReassignments", 0, 0, 0, false},
	{OffsetDelete, "OffsetDelete", 0, 0, neverFlexible, false},
	{DescribeClientQuotas, "DescribeClientQuotas", 0, 1, 1, false},
	{AlterClientQuotas, "AlterClientQuotas", 0, 1, 1, false},
	{DescribeUserScramCredentials, "DescribeUserScramCredentials", 0, 0, 0, false},
	{AlterUserScramCredentials, "AlterUserScramCredentials", 0, 0, 0, false},
	{AlterPartition, "AlterPartition", 0, 3, 0, true},
	{UpdateFeatures, "UpdateFeatures", 0, 1, 0, false},
	{Envelope, "Envelope", 0, 0, 0, true},
	{DescribeCluster, "DescribeCluster", 0, 1, 0, false},
	{DescribeProducers, "DescribeProducers", 0, 0, 0, false},
	{DescribeTransactions, "DescribeTransactions", 0, 0, 0, false},
	{ListTransactions, "ListTransactions", 0, 1, 0, false},
	{AllocateProducerIDs, "AllocateProducerIds", 0, 0, 0, true},
	{ConsumerGroupHeartbeat, "ConsumerGroupHeartbeat", 0, 1, 0, false},
	{ConsumerGroupDescribe, "ConsumerGroupDescribe", 0, 1, 0, false},
}

// byKey finds a row by key; nil where 3.9 has no such API in ZooKeeper mode.
var byKey = func() (rows [maxKey + 1]*API) {
	for i := range apis {
		rows[apis[i].Key] = &apis[i]
	}
	return rows
}()

// APIs is the table, by rising key.
func APIs() []API { return append([]API(nil), apis...) }

// LookupAPI finds the row of a key.
func LookupAPI(key int16) (API, bool) {
	if a := lookup(key); a != nil {
		return *a, true
	}
	return API{}, false
}

func lookup(key int16) *API {
	if key < 0 || key > maxKey {
		return nil
	}
	return byKey[key]
}

// Speaks reports whether the version is within the row's range.
func (a API) Speaks(version int16) bool { return a.Min <= version && version <= a.Max }

// Flexible reports whether the version has compact lengths and tagged fields.
func (a API) Flexible(version int16) bool { return version >= a.FlexibleFrom }

// Supported reports whether Kafka 3.9 speaks this version of this API.
func Supported(key, version int16) bool {
	a := lookup(key)
	return a != nil && a.Speaks(version)
}
