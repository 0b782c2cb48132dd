package protocol

import "github.com/twmb/franz-go/pkg/kmsg"

// groups fills the answers of the group and transaction coordinators.
func (e failure) groups(req kmsg.Request, resp kmsg.Response) bool {
	switch req := req.(type) {
	case *kmsg.OffsetCommitRequest:
		e.offsetCommit(req, resp.(*kmsg.OffsetCommitResponse))
	case *kmsg.OffsetFetchRequest:
		e.offsetFetch(req, resp.(*kmsg.OffsetFetchResponse))
	case *kmsg.FindCoordinatorRequest:
		e.findCoordinator(req, resp.(*kmsg.FindCoordinatorResponse))
	case *kmsg.DescribeGroupsRequest:
		r := resp.(*kmsg.DescribeGroupsResponse)
		for _, g := range req.Groups {
			group := kmsg.NewDescribeGroupsResponseGroup()
			group.Group, group.ErrorCode = g, e.code
			r.Groups = append(r.Groups, group)
		}
	case *kmsg.DeleteGroupsRequest:
		r := resp.(*kmsg.DeleteGroupsResponse)
		for _, g := range req.Groups {
			group := kmsg.NewDeleteGroupsResponseGroup()
			group.Group, group.ErrorCode = g, e.code
			r.Groups = append(r.Groups, group)
		}
	case *kmsg.ConsumerGroupDescribeRequest:
		r := resp.(*kmsg.ConsumerGroupDescribeResponse)
		for _, g := range req.Groups {
			group := kmsg.NewConsumerGroupDescribeResponseGroup()
			group.Group, group.ErrorCode = g, e.code
			r.Groups = append(r.Groups, group)
		}
	case *kmsg.AddPartitionsToTxnRequest:
		e.addPartitionsToTxn(req, resp.(*kmsg.AddPartitionsToTxnResponse))
	case *kmsg.WriteTxnMarkersRequest:
		e.writeTxnMarkers(req, resp.(*kmsg.WriteTxnMarkersResponse))
	case *kmsg.TxnOffsetCommitRequest:
		e.txnOffsetCommit(req, resp.(*kmsg.TxnOffsetCommitResponse))
	case *kmsg.DescribeTransactionsRequest:
		r := resp.(*kmsg.DescribeTransactionsResponse)
		for _, id := range req.TransactionalIDs {
			state := kmsg.NewDescribeTransactionsResponseTransactionState()
			state.TransactionalID, state.ErrorCode = id, e.code
			r.TransactionStates = append(r.TransactionStates, state)
		}
	default:
		return false
	}
	return true
}

func (e failure) offsetCommit(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) {
	for _, t := range req.Topics {
		topic := kmsg.NewOffsetCommitResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewOffsetCommitResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, e.code
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

// offsetFetch: v0 and v1 have the code at each partition only, v2 to v7 at the
// top, later ones at each group. An answer that is merely empty would send
// consumers back to the start.
func (e failure) offsetFetch(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	resp.ErrorCode = e.code
	for _, g := range req.Groups {
		group := kmsg.NewOffsetFetchResponseGroup()
		group.Group, group.ErrorCode = g.Group, e.code
		resp.Groups = append(resp.Groups, group)
	}
	if req.Version >= 2 {
		return
	}
	for _, t := range req.Topics {
		topic := kmsg.NewOffsetFetchResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewOffsetFetchResponseTopicPartition()
			part.Partition, part.ErrorCode, part.Offset, part.Metadata = p, e.code, -1, new(string)
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) findCoordinator(req *kmsg.FindCoordinatorRequest, resp *kmsg.FindCoordinatorResponse) {
	resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Port = e.code, e.message, -1, -1
	for _, key := range req.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.ErrorCode, c.ErrorMessage, c.NodeID, c.Port = key, e.code, e.message, -1, -1
		resp.Coordinators = append(resp.Coordinators, c)
	}
}

func (e failure) addPartitionsToTxn(req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse) {
	resp.ErrorCode = e.code
	for _, t := range req.Topics {
		topic := kmsg.NewAddPartitionsToTxnResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			part.Partition, part.ErrorCode = p, e.code
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) writeTxnMarkers(req *kmsg.WriteTxnMarkersRequest, resp *kmsg.WriteTxnMarkersResponse) {
	for _, m := range req.Markers {
		marker := kmsg.NewWriteTxnMarkersResponseMarker()
		marker.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				part := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				part.Partition, part.ErrorCode = p, e.code
				topic.Partitions = append(topic.Partitions, part)
			}
			marker.Topics = append(marker.Topics, topic)
		}
		resp.Markers = append(resp.Markers, marker)
	}
}

func (e failure) txnOffsetCommit(req *kmsg.TxnOffsetCommitRequest, resp *kmsg.TxnOffsetCommitResponse) {
	for _, t := range req.Topics {
		topic := kmsg.NewTxnOffsetCommitResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, e.code
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}
