package api

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WriteTxnMarkers (27), from a transaction coordinator: commits or aborts in
// the logs of a transaction's partitions.
//
//	v1  flexible
func init() { register(API{Key: protocol.WriteTxnMarkers, Handle: writeTxnMarkers}) }

// markersCall is a WriteTxnMarkers on its way; every marker is answered once HW
// has passed all of them.
type markersCall struct {
	c    *Call
	resp *kmsg.WriteTxnMarkersResponse
	wait []pendingMarker
}

type pendingMarker struct {
	replica *replica.Replica
	last    cluster.Offset
	code    *int16
	in      *kmsg.WriteTxnMarkersRequestMarker
}

func writeTxnMarkers(h *Handlers, c *Call) {
	if !c.Allowed(OpAlter, ResCluster, ClusterName) && !c.Allowed(OpClusterAction, ResCluster, ClusterName) {
		c.Fail(protocol.ErrClusterAuthorizationFailed)
		return
	}
	req := c.Msg.(*kmsg.WriteTxnMarkersRequest)
	if slices.ContainsFunc(req.Markers, anonymousMarker) {
		c.Fail(protocol.ErrUnknownServerError)
		return
	}
	m := &markersCall{c: c, resp: req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)}
	m.resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, len(req.Markers))
	for i := range req.Markers {
		m.write(&req.Markers[i], &m.resp.Markers[i])
	}
	queues := make([]*delay.Waiters, len(m.wait))
	for i := range m.wait {
		queues[i] = &m.wait[i].replica.Committed
	}
	h.Waits.Wait(m, h.Config().RequestTimeout, queues...)
}

// anonymousMarker tells of a marker without a producer, which no log may hold.
// In Kafka, too, it fails the whole request, after the markers before it were
// written.
func anonymousMarker(m kmsg.WriteTxnMarkersRequestMarker) bool {
	return m.ProducerID < 0 || m.ProducerEpoch == -1
}

func (m *markersCall) write(in *kmsg.WriteTxnMarkersRequestMarker, out *kmsg.WriteTxnMarkersResponseMarker) {
	out.Default()
	out.ProducerID = in.ProducerID
	out.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, len(in.Topics))
	for i := range in.Topics {
		t, ot := &in.Topics[i], &out.Topics[i]
		ot.Default()
		ot.Topic = t.Topic
		ot.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			ot.Partitions[j].Default()
			ot.Partitions[j].Partition = p
			code := &ot.Partitions[j].ErrorCode
			*code = CodeOf(m.append(cluster.TopicPartition{Topic: t.Topic, Partition: p}, in, code))
		}
	}
}

// append writes one marker. What a coordinator is told of a partition that is
// not hosted here is UNKNOWN_TOPIC_OR_PARTITION, as by Kafka.
func (m *markersCall) append(tp cluster.TopicPartition, in *kmsg.WriteTxnMarkersRequestMarker, code *int16) error {
	r, ok := m.c.h.Replicas.Replica(tp)
	if !ok {
		return replica.ErrUnknownTopicOrPartition
	}
	now := m.c.h.Clock.Now().UnixMilli()
	b := record.EndTxnMarker(in.Committed, cluster.ProducerID(in.ProducerID), cluster.ProducerEpoch(in.ProducerEpoch), in.CoordinatorEpoch, now)
	rules := rulesFor(r.Log().Config(), now, 3)
	rules.AllowControl = true
	v, err := record.ValidateProduce(b, rules)
	if err != nil {
		return err
	}
	done, err := r.AppendAsLeader(&v, true, logstore.AppendOptions{Origin: logstore.Coordinator})
	if err != nil {
		return err
	}
	if !done.HWPassed {
		m.wait = append(m.wait, pendingMarker{r, done.Last, code, in})
	} else {
		m.committed(tp, in)
	}
	return nil
}

// committed tells the group coordinator of the end of a transaction that it may
// hold offsets of.
func (m *markersCall) committed(tp cluster.TopicPartition, in *kmsg.WriteTxnMarkersRequestMarker) {
	if tp.Topic == cluster.GroupMetadataTopic && m.c.h.Groups != nil {
		m.c.h.Groups.Markers(tp.Partition, cluster.ProducerID(in.ProducerID), cluster.ProducerEpoch(in.ProducerEpoch), in.Committed)
	}
}

// Ready implements delay.Task.
func (m *markersCall) Ready() bool {
	for i := range m.wait {
		if c, err := m.wait[i].replica.CommitStateOf(m.wait[i].last); c == replica.NotCommitted && err == nil {
			return false
		}
	}
	return true
}

// Complete implements delay.Task.
func (m *markersCall) Complete(bool) {
	for _, w := range m.wait {
		committed, err := w.replica.CommitStateOf(w.last)
		switch {
		case err != nil:
			*w.code = CodeOf(err)
		case committed == replica.NotCommitted:
			*w.code = int16(protocol.ErrRequestTimedOut)
		case committed == replica.CommittedBelowMinISR:
			*w.code = int16(protocol.ErrNotEnoughReplicasAfterAppend)
		default:
			m.committed(w.replica.TopicPartition(), w.in)
		}
	}
	m.c.Reply(m.resp)
}
