package api

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaderAndIsr (4), from the controller: the roles of this broker's replicas.
//
//	v0  flat list of partitions
//	v1  isNew
//	v2  partitions by topic, broker epoch (KIP-380)
//	v3  adding and removing replicas (KIP-455)
//	v4  flexible
//	v5  topic ids and the kind of request; the answer goes by topic id
//	v6  leader recovery state
//	v7  KRaft controller flag
func init() { register(API{Key: protocol.LeaderAndIsr, Handle: leaderAndISR}) }

func leaderAndISR(h *Handlers, c *Call) {
	if !c.requireClusterAction() {
		return
	}
	req := c.Msg.(*kmsg.LeaderAndISRRequest)
	resp := req.ResponseKind().(*kmsg.LeaderAndISRResponse)
	if err := h.checkBrokerEpoch(req.BrokerEpoch, c.Version() >= 2); err != nil {
		resp.ErrorCode = CodeOf(err)
		c.Reply(resp)
		return
	}
	var changes []replica.RoleChange
	if c.Version() < 2 {
		for i := range req.PartitionStates {
			p := &req.PartitionStates[i]
			changes = append(changes, roleChange(p.Topic, cluster.TopicID{}, p))
		}
	} else {
		for i := range req.TopicStates {
			t := &req.TopicStates[i]
			for j := range t.PartitionStates {
				changes = append(changes, roleChange(t.Topic, cluster.TopicID(t.TopicID), &t.PartitionStates[j]))
			}
		}
	}
	var errs []error
	var err error
	carryOut := func() {
		errs, err = h.Replicas.ApplyLeaderAndISR(cluster.ControllerEpoch(req.ControllerEpoch), changes)
	}
	if !h.inOrder(c, req.ControllerEpoch, carryOut) {
		return
	}
	if err != nil {
		resp.ErrorCode = CodeOf(err)
		c.Reply(resp)
		return
	}
	h.Logs.Reckoned()
	answerRoles(c, resp, changes, errs)
	c.Reply(resp)
}

func roleChange(topic string, id cluster.TopicID, p *kmsg.LeaderAndISRRequestTopicPartition) replica.RoleChange {
	return replica.RoleChange{
		TP: cluster.TopicPartition{Topic: topic, Partition: p.Partition}, TopicID: id,
		State: cluster.LeaderAndISR{Leader: cluster.BrokerID(p.Leader), LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch),
			ISR: brokerIDs(p.ISR), Recovery: cluster.RecoveryState(p.LeaderRecoveryState),
			ControllerEpoch: cluster.ControllerEpoch(p.ControllerEpoch), ZKVersion: cluster.ZKVersion(p.ZKVersion)},
		Assignment: cluster.Assignment{Replicas: brokerIDs(p.Replicas), Adding: brokerIDs(p.AddingReplicas), Removing: brokerIDs(p.RemovingReplicas)},
		IsNew:      p.IsNew,
	}
}

func brokerIDs(in []int32) []cluster.BrokerID {
	out := make([]cluster.BrokerID, len(in))
	for i, id := range in {
		out[i] = cluster.BrokerID(id)
	}
	return out
}

func wireIDs(in []cluster.BrokerID) []int32 {
	out := make([]int32, len(in))
	for i, id := range in {
		out[i] = int32(id)
	}
	return out
}

// answerRoles groups the errors as the version has them: by name, or by id.
func answerRoles(c *Call, resp *kmsg.LeaderAndISRResponse, changes []replica.RoleChange, errs []error) {
	byTopic := map[string]int{}
	for i, ch := range changes {
		p := kmsg.NewLeaderAndISRResponseTopicPartition()
		p.Topic, p.Partition, p.ErrorCode = ch.TP.Topic, ch.TP.Partition, CodeOf(errs[i])
		if c.Version() < 5 {
			resp.Partitions = append(resp.Partitions, p)
			continue
		}
		at, ok := byTopic[ch.TP.Topic]
		if !ok {
			at = len(resp.Topics)
			byTopic[ch.TP.Topic] = at
			t := kmsg.NewLeaderAndISRResponseTopic()
			t.TopicID = ch.TopicID
			resp.Topics = append(resp.Topics, t)
		}
		resp.Topics[at].Partitions = append(resp.Topics[at].Partitions, p)
	}
}

// checkBrokerEpoch fences orders that were meant for an earlier incarnation of
// this broker (KIP-380). A newer epoch is accepted: the controller may know of
// a registration before this broker does.
func (h *Handlers) checkBrokerEpoch(epoch int64, carried bool) error {
	if !carried || epoch == int64(cluster.NoBrokerEpoch) || cluster.BrokerEpoch(epoch) >= h.BrokerEpoch() {
		return nil
	}
	return protocol.ErrStaleBrokerEpoch
}
