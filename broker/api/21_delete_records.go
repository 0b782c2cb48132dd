package api

import (
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteRecords (21).
//
//	v2  flexible
func init() { register(API{Key: protocol.DeleteRecords, Handle: deleteRecords}) }

func deleteRecords(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	w := &deleteWait{c: c, resp: resp}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		allowed := c.Allowed(OpDelete, ResTopic, t.Topic)
		for j, p := range t.Partitions {
			a := kmsg.NewDeleteRecordsResponseTopicPartition()
			a.Partition, a.LowWatermark = p.Partition, -1
			err := error(protocol.ErrTopicAuthorizationFailed)
			if allowed {
				var r *replica.Replica
				var low cluster.Offset
				r, low, err = h.deleteRecords(cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}, cluster.Offset(p.Offset))
				if err == nil {
					w.parts = append(w.parts, pendingDelete{r, low, i, j})
				}
			}
			a.ErrorCode = CodeOf(err)
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	queues := make([]*delay.Waiters, len(w.parts))
	for i := range w.parts {
		queues[i] = &w.parts[i].replica.Deleted
	}
	h.Waits.Wait(w, time.Duration(req.TimeoutMillis)*time.Millisecond, queues...)
}

func (h *Handlers) deleteRecords(tp cluster.TopicPartition, before cluster.Offset) (*replica.Replica, cluster.Offset, error) {
	if cluster.IsInternalTopic(tp.Topic) {
		return nil, -1, protocol.ErrInvalidTopicException
	}
	r, err := h.hosted(tp)
	if err != nil {
		return nil, -1, err
	}
	low, err := r.DeleteRecordsBefore(before)
	return r, low, err
}

// pendingDelete is a partition whose records are gone on the leader; its answer
// is at topic, partition of the response.
type pendingDelete struct {
	replica          *replica.Replica
	before           cluster.Offset
	topic, partition int
}

// deleteWait waits until the records are gone on every live replica.
type deleteWait struct {
	c     *Call
	resp  *kmsg.DeleteRecordsResponse
	parts []pendingDelete
}

// Ready implements delay.Task.
func (w *deleteWait) Ready() bool {
	for _, p := range w.parts {
		if low, err := p.replica.LowWatermark(); err == nil && low < p.before {
			return false
		}
	}
	return true
}

// Complete implements delay.Task.
func (w *deleteWait) Complete(bool) {
	for _, p := range w.parts {
		a := &w.resp.Topics[p.topic].Partitions[p.partition]
		low, err := p.replica.LowWatermark()
		if err == nil && low < p.before {
			err = protocol.ErrRequestTimedOut
		}
		if a.ErrorCode = CodeOf(err); err == nil {
			a.LowWatermark = int64(low)
		}
	}
	w.c.Reply(w.resp)
}
