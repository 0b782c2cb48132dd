package api

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeProducers (61): v0 only. Every replica answers, the leader or not, for
// transactions that hang in one log alone are looked for broker by broker.
func init() { register(API{Key: protocol.DescribeProducers, Handle: describeProducers}) }

func describeProducers(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		err := c.mayDescribeProducers(t.Topic)
		for _, p := range t.Partitions {
			a := kmsg.NewDescribeProducersResponseTopicPartition()
			a.Partition = p
			perr := err
			if perr == nil {
				perr = h.describeProducers(cluster.TopicPartition{Topic: t.Topic, Partition: p}, &a)
			}
			if a.ErrorCode = CodeOf(perr); perr != nil {
				a.ErrorMessage = kmsg.StringPtr(perr.Error())
			}
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	c.Reply(resp)
}

func (c *Call) mayDescribeProducers(topic string) error {
	if err := cluster.ValidateTopicName(topic); err != nil {
		return err
	}
	if !c.Allowed(OpRead, ResTopic, topic) {
		return protocol.ErrTopicAuthorizationFailed
	}
	if _, ok := c.h.Metadata.Topic(topic); !ok {
		return protocol.ErrUnknownTopicOrPartition
	}
	return nil
}

func (h *Handlers) describeProducers(tp cluster.TopicPartition, out *kmsg.DescribeProducersResponseTopicPartition) error {
	r, err := h.hosted(tp)
	if err != nil {
		return err
	}
	if r.View().Role == partition.Offline {
		return partition.ErrStorage
	}
	for _, p := range r.Log().ActiveProducers() {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch = int64(p.ID), int32(p.Epoch)
		a.LastSequence, a.LastTimestamp = p.LastSequence, p.LastTimestamp
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = p.CoordinatorEpoch, int64(p.TxnStart)
		out.ActiveProducers = append(out.ActiveProducers, a)
	}
	return nil
}
