package protocol

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrorResponse answers a decoded request with an error as a whole, in the
// shape of its version: the code stands at the top where there is a place for
// it, and at every topic, partition, group or resource that the request names
// where Kafka puts it there. An empty message is null. It is nil for a Produce
// with acks=0, which has no answer.
func ErrorResponse(req kmsg.Request, code int16, message string) kmsg.Response {
	e := failure{code: code}
	if message != "" {
		e.message = &message
	}
	resp := req.ResponseKind()
	if e.whole(resp) {
		return resp
	}
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		if req.Acks == 0 {
			return nil
		}
		e.produce(req, resp.(*kmsg.ProduceResponse))
	case *kmsg.FetchRequest:
		e.fetch(req, resp.(*kmsg.FetchResponse))
	case *kmsg.ListOffsetsRequest:
		e.listOffsets(req, resp.(*kmsg.ListOffsetsResponse))
	case *kmsg.MetadataRequest:
		e.metadata(req, resp.(*kmsg.MetadataResponse))
	case *kmsg.LeaderAndISRRequest:
		e.leaderAndIsr(req, resp.(*kmsg.LeaderAndISRResponse))
	case *kmsg.StopReplicaRequest:
		e.stopReplica(req, resp.(*kmsg.StopReplicaResponse))
	case *kmsg.ApiVersionsRequest:
		e.apiVersions(resp.(*kmsg.ApiVersionsResponse))
	case *kmsg.DeleteRecordsRequest:
		e.deleteRecords(req, resp.(*kmsg.DeleteRecordsResponse))
	case *kmsg.OffsetForLeaderEpochRequest:
		e.offsetForLeaderEpoch(req, resp.(*kmsg.OffsetForLeaderEpochResponse))
	case *kmsg.DescribeProducersRequest:
		e.describeProducers(req, resp.(*kmsg.DescribeProducersResponse))
	default:
		if !e.groups(req, resp) && !e.admin(req, resp) {
			panic("protocol: no error response for " + kmsg.NameForKey(req.Key()))
		}
	}
	return resp
}

// failure is the error that an answer carries.
type failure struct {
	code    int16
	message *string
}

// whole fills answers whose one error stands at the top.
func (e failure) whole(resp kmsg.Response) bool {
	switch r := resp.(type) {
	case *kmsg.UpdateMetadataResponse:
		r.ErrorCode = e.code
	case *kmsg.ControlledShutdownResponse:
		r.ErrorCode = e.code
	case *kmsg.JoinGroupResponse:
		r.ErrorCode, r.Generation = e.code, -1
		if r.Version < 7 {
			r.Protocol = new(string)
		}
	case *kmsg.HeartbeatResponse:
		r.ErrorCode = e.code
	case *kmsg.LeaveGroupResponse:
		r.ErrorCode = e.code
	case *kmsg.SyncGroupResponse:
		r.ErrorCode = e.code
	case *kmsg.ListGroupsResponse:
		r.ErrorCode = e.code
	case *kmsg.SASLHandshakeResponse:
		r.ErrorCode = e.code
	case *kmsg.SASLAuthenticateResponse:
		r.ErrorCode, r.ErrorMessage = e.code, e.message
	case *kmsg.InitProducerIDResponse:
		r.ErrorCode, r.ProducerID, r.ProducerEpoch = e.code, -1, -1
	case *kmsg.AddOffsetsToTxnResponse:
		r.ErrorCode = e.code
	case *kmsg.EndTxnResponse:
		r.ErrorCode = e.code
	case *kmsg.DescribeACLsResponse:
		r.ErrorCode, r.ErrorMessage = e.code, e.message
	case *kmsg.DescribeLogDirsResponse:
		r.ErrorCode = e.code
	case *kmsg.CreateDelegationTokenResponse:
		r.ErrorCode = e.code
		r.PrincipalType, r.PrincipalName = "User", "ANONYMOUS"
		r.TokenRequesterPrincipalType, r.TokenRequesterPrincipalName = "User", "ANONYMOUS"
		r.IssueTimestamp, r.ExpiryTimestamp, r.MaxTimestamp = -1, -1, -1
	case *kmsg.RenewDelegationTokenResponse:
		r.ErrorCode = e.code
	case *kmsg.ExpireDelegationTokenResponse:
		r.ErrorCode = e.code
	case *kmsg.DescribeDelegationTokenResponse:
		r.ErrorCode = e.code
	case *kmsg.OffsetDeleteResponse:
		r.ErrorCode = e.code
	case *kmsg.DescribeClientQuotasResponse:
		r.ErrorCode, r.ErrorMessage = e.code, e.message
	case *kmsg.AlterPartitionResponse:
		r.ErrorCode = e.code
	case *kmsg.UpdateFeaturesResponse:
		r.ErrorCode, r.ErrorMessage = e.code, e.message
	case *kmsg.EnvelopeResponse:
		r.ErrorCode = e.code
	case *kmsg.DescribeClusterResponse:
		r.ErrorCode, r.ErrorMessage = e.code, e.message
	case *kmsg.ListTransactionsResponse:
		r.ErrorCode = e.code
	case *kmsg.AllocateProducerIDsResponse:
		r.ErrorCode = e.code
	case *kmsg.ConsumerGroupHeartbeatResponse:
		r.ErrorCode, r.ErrorMessage = e.code, e.message
	default:
		return false
	}
	return true
}

func (e failure) produce(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
	for _, t := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition, part.ErrorCode, part.ErrorMessage = p.Partition, e.code, e.message
			part.BaseOffset, part.LogAppendTime, part.LogStartOffset = -1, -1, -1
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

// fetch: from v13 on the top code is enough; before v7 there is none, so every
// partition carries it.
func (e failure) fetch(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) {
	resp.ErrorCode, resp.SessionID = e.code, req.SessionID
	if req.Version >= 13 {
		return
	}
	for _, t := range req.Topics {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, FetchPartitionError(p.Partition, e.code))
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

// FetchPartitionError is a partition of a Fetch answer that holds nothing but
// an error. Its records are empty, not null: librdkafka cannot
// read null.
func FetchPartitionError(partition int32, code int16) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, code
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica = -1, -1, -1, -1
	p.AbortedTransactions, p.RecordBatches = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}, []byte{}
	return p
}

func (e failure) listOffsets(req *kmsg.ListOffsetsRequest, resp *kmsg.ListOffsetsResponse) {
	for _, t := range req.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewListOffsetsResponseTopicPartition()
			part.Partition, part.ErrorCode, part.Offset, part.Timestamp = p.Partition, e.code, -1, -1
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) metadata(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	resp.ErrorCode = e.code
	for _, t := range req.Topics {
		topic := kmsg.NewMetadataResponseTopic()
		topic.ErrorCode, topic.Topic, topic.TopicID = e.code, t.Topic, t.TopicID
		if topic.Topic == nil {
			topic.Topic = new(string)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) leaderAndIsr(req *kmsg.LeaderAndISRRequest, resp *kmsg.LeaderAndISRResponse) {
	resp.ErrorCode = e.code
	part := func(topic string, partition int32) kmsg.LeaderAndISRResponseTopicPartition {
		p := kmsg.NewLeaderAndISRResponseTopicPartition()
		p.Topic, p.Partition, p.ErrorCode = topic, partition, e.code
		return p
	}
	for _, p := range req.PartitionStates {
		resp.Partitions = append(resp.Partitions, part(p.Topic, p.Partition))
	}
	for _, t := range req.TopicStates {
		topic := kmsg.NewLeaderAndISRResponseTopic()
		topic.TopicID = t.TopicID
		for _, p := range t.PartitionStates {
			topic.Partitions = append(topic.Partitions, part("", p.Partition))
			resp.Partitions = append(resp.Partitions, part(t.Topic, p.Partition)) // written before v5 only
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) stopReplica(req *kmsg.StopReplicaRequest, resp *kmsg.StopReplicaResponse) {
	resp.ErrorCode = e.code
	add := func(topic string, partition int32) {
		p := kmsg.NewStopReplicaResponsePartition()
		p.Topic, p.Partition, p.ErrorCode = topic, partition, e.code
		resp.Partitions = append(resp.Partitions, p)
	}
	for _, t := range req.Topics {
		if req.Version == 0 {
			add(t.Topic, t.Partition)
		}
		for _, p := range t.Partitions {
			add(t.Topic, p)
		}
		for _, p := range t.PartitionStates {
			add(t.Topic, p.Partition)
		}
	}
}

// apiVersions names the versions of ApiVersions itself when it is the version
// that is at fault (KIP-511), so that the client can try again.
func (e failure) apiVersions(resp *kmsg.ApiVersionsResponse) {
	resp.ErrorCode = e.code
	if e.code != int16(ErrUnsupportedVersion) {
		return
	}
	own, key := lookup(ApiVersions), kmsg.NewApiVersionsResponseApiKey()
	key.ApiKey, key.MinVersion, key.MaxVersion = own.Key, own.Min, own.Max
	resp.ApiKeys = append(resp.ApiKeys, key)
}

func (e failure) deleteRecords(req *kmsg.DeleteRecordsRequest, resp *kmsg.DeleteRecordsResponse) {
	for _, t := range req.Topics {
		topic := kmsg.NewDeleteRecordsResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewDeleteRecordsResponseTopicPartition()
			part.Partition, part.ErrorCode, part.LowWatermark = p.Partition, e.code, -1
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) offsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest, resp *kmsg.OffsetForLeaderEpochResponse) {
	for _, t := range req.Topics {
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			part.Partition, part.ErrorCode, part.LeaderEpoch, part.EndOffset = p.Partition, e.code, -1, -1
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) describeProducers(req *kmsg.DescribeProducersRequest, resp *kmsg.DescribeProducersResponse) {
	for _, t := range req.Topics {
		topic := kmsg.NewDescribeProducersResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewDescribeProducersResponseTopicPartition()
			part.Partition, part.ErrorCode, part.ErrorMessage = p, e.code, e.message
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

// users are the users that an AlterUserScramCredentials names, each once.
func users(req *kmsg.AlterUserSCRAMCredentialsRequest) []string {
	names := map[string]bool{}
	for _, d := range req.Deletions {
		names[d.Name] = true
	}
	for _, u := range req.Upsertions {
		names[u.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}
