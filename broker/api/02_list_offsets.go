package api

import (
	"errors"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListOffsets (2).
//
//	v0  up to max_num_offsets starts of segments, newest first
//	v1  one offset and its timestamp
//	v2  isolation level
//	v4  leader epochs
//	v5  OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before)
//	v6  flexible
//	v7  -3: the record with the largest timestamp (KIP-734)
//	v8  -4: the earliest offset on local disk (KIP-405)
//	v9  -5: the latest offset in remote storage (KIP-1005), which is never any
func init() { register(API{Key: protocol.ListOffsets, Handle: listOffsets}) }

// Timestamps with a meaning of their own.
const (
	latestTimestamp        = -1
	earliestTimestamp      = -2
	maxTimestamp           = -3
	earliestLocalTimestamp = -4
	latestTieredTimestamp  = -5
)

// sinceVersion is the first version in which a negative timestamp has its
// meaning.
var sinceVersion = map[int64]int16{latestTimestamp: 0, earliestTimestamp: 0, maxTimestamp: 7, earliestLocalTimestamp: 8, latestTieredTimestamp: 9}

func listOffsets(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	named := map[cluster.TopicPartition]int{}
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			named[cluster.TopicPartition{Topic: req.Topics[i].Topic, Partition: p.Partition}]++
		}
	}
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		out := &resp.Topics[i]
		out.Default()
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(t.Partitions))
		allowed := c.Allowed(OpDescribe, ResTopic, t.Topic)
		for j := range t.Partitions {
			p, a := &t.Partitions[j], &out.Partitions[j]
			a.Default()
			a.Partition, a.Offset, a.Timestamp, a.LeaderEpoch = p.Partition, -1, -1, -1
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			var err error
			switch since, known := sinceVersion[p.Timestamp]; {
			case !allowed:
				err = protocol.ErrTopicAuthorizationFailed
			case named[tp] > 1 && c.Version() > 0:
				err = protocol.ErrInvalidRequest
			case p.Timestamp < 0 && (!known || c.Version() < since):
				err = protocol.ErrUnsupportedVersion
			default:
				err = c.listOffset(req, tp, p, a)
			}
			if a.ErrorCode = CodeOf(err); errors.Is(err, partition.ErrOffsetNotAvailable) && c.Version() < 5 {
				a.ErrorCode = int16(protocol.ErrLeaderNotAvailable)
			}
		}
	}
	c.Reply(resp)
}

func (c *Call) listOffset(req *kmsg.ListOffsetsRequest, tp cluster.TopicPartition, p *kmsg.ListOffsetsRequestTopicPartition, out *kmsg.ListOffsetsResponseTopicPartition) error {
	r, err := c.h.hosted(tp)
	if err != nil {
		return err
	}
	iso := replica.ToHW
	switch {
	case req.ReplicaID != consumerReplica:
		iso = replica.ToLEO
	case req.IsolationLevel == 1:
		iso = replica.ToLSO
	}
	if c.Version() == 0 {
		found, err := r.OffsetsBefore(p.Timestamp, int(p.MaxNumOffsets), iso)
		out.OldStyleOffsets = make([]int64, len(found))
		for i, o := range found {
			out.OldStyleOffsets[i] = int64(o)
		}
		return err
	}
	found, err := r.FindOffset(p.Timestamp, iso, cluster.LeaderEpoch(p.CurrentLeaderEpoch), req.ReplicaID != debuggingReplica)
	if err != nil {
		return err
	}
	out.Offset, out.Timestamp, out.LeaderEpoch = int64(found.Offset), found.Timestamp, int32(found.LeaderEpoch)
	return nil
}
