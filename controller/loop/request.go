package loop

import (
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions that a controller of inter.broker.protocol.version 3.4 and later
// sends. They are not negotiated.
const (
	leaderAndIsrVersion   = 7
	stopReplicaVersion    = 4
	updateMetadataVersion = 8
)

// Error codes that the loop acts on.
const (
	codeStaleControllerEpoch = 11
	codeStaleBrokerEpoch     = 77
)

func sendName(s controller.Send) string {
	switch {
	case s.LeaderAndISR != nil:
		return "LeaderAndIsr"
	case s.UpdateMetadata != nil:
		return "UpdateMetadata"
	}
	return "StopReplica"
}

// request puts a send on the wire's terms.
func request(self cluster.BrokerID, epoch cluster.ControllerEpoch, j job) kmsg.Request {
	switch s := j.send; {
	case s.LeaderAndISR != nil:
		return leaderAndIsrRequest(self, epoch, s.Epoch, s.LeaderAndISR)
	case s.UpdateMetadata != nil:
		return updateMetadataRequest(self, epoch, s.Epoch, j)
	default:
		return stopReplicaRequest(self, epoch, s.Epoch, s.StopReplica)
	}
}

// numbers turns ids into the wire's int32, nil into an empty array.
func numbers(ids []cluster.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

func leaderAndIsrRequest(self cluster.BrokerID, epoch cluster.ControllerEpoch, broker cluster.BrokerEpoch, l *controller.LeaderAndISR) *kmsg.LeaderAndISRRequest {
	r := kmsg.NewPtrLeaderAndISRRequest()
	r.Version = leaderAndIsrVersion
	r.ControllerID, r.ControllerEpoch, r.BrokerEpoch = int32(self), int32(epoch), int64(broker)
	r.TopicStates = make([]kmsg.LeaderAndISRRequestTopicState, len(l.Topics))
	for i, t := range l.Topics {
		ts := &r.TopicStates[i]
		ts.Topic, ts.TopicID = t.Name, t.ID
		ts.PartitionStates = make([]kmsg.LeaderAndISRRequestTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			ts.PartitionStates[j] = kmsg.LeaderAndISRRequestTopicPartition{
				Partition:           p.Partition,
				ControllerEpoch:     int32(p.State.ControllerEpoch),
				Leader:              int32(p.State.Leader),
				LeaderEpoch:         int32(p.State.LeaderEpoch),
				ISR:                 numbers(p.State.ISR),
				ZKVersion:           int32(p.State.ZKVersion),
				Replicas:            numbers(p.Assignment.Replicas),
				AddingReplicas:      numbers(p.Assignment.Adding),
				RemovingReplicas:    numbers(p.Assignment.Removing),
				IsNew:               p.IsNew,
				LeaderRecoveryState: int8(p.State.Recovery),
			}
		}
	}
	r.LiveLeaders = make([]kmsg.LeaderAndISRRequestLiveLeader, len(l.Leaders))
	for i, n := range l.Leaders {
		r.LiveLeaders[i] = kmsg.LeaderAndISRRequestLiveLeader{BrokerID: int32(n.ID), Host: n.Host, Port: n.Port}
	}
	return r
}

func updateMetadataRequest(self cluster.BrokerID, epoch cluster.ControllerEpoch, broker cluster.BrokerEpoch, j job) *kmsg.UpdateMetadataRequest {
	u := j.send.UpdateMetadata
	r := kmsg.NewPtrUpdateMetadataRequest()
	r.Version = updateMetadataVersion
	r.ControllerID, r.ControllerEpoch, r.BrokerEpoch = int32(self), int32(epoch), int64(broker)
	r.TopicStates = j.topics.of(u)
	r.LiveBrokers = make([]kmsg.UpdateMetadataRequestLiveBroker, len(u.Brokers))
	for i, b := range u.Brokers {
		lb := &r.LiveBrokers[i]
		lb.ID, lb.Rack = int32(b.ID), b.Rack
		for _, e := range b.Endpoints {
			lb.Endpoints = append(lb.Endpoints, kmsg.UpdateMetadataRequestLiveBrokerEndpoint{
				Host: e.Host, Port: e.Port, ListenerName: e.Listener, SecurityProtocol: e.Protocol,
			})
		}
	}
	return r
}

func topicStates(u *controller.UpdateMetadata) []kmsg.UpdateMetadataRequestTopicState {
	states := make([]kmsg.UpdateMetadataRequestTopicState, len(u.Topics))
	for i, t := range u.Topics {
		ts := &states[i]
		ts.Topic, ts.TopicID = t.Name, t.ID
		ts.PartitionStates = make([]kmsg.UpdateMetadataRequestTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			ts.PartitionStates[j] = kmsg.UpdateMetadataRequestTopicPartition{
				Partition:       p.Partition,
				ControllerEpoch: int32(p.State.ControllerEpoch),
				Leader:          int32(p.State.Leader),
				LeaderEpoch:     int32(p.State.LeaderEpoch),
				ISR:             numbers(p.State.ISR),
				ZKVersion:       int32(p.State.ZKVersion),
				Replicas:        numbers(p.Replicas),
				OfflineReplicas: numbers(p.Offline),
			}
		}
	}
	return states
}

func stopReplicaRequest(self cluster.BrokerID, epoch cluster.ControllerEpoch, broker cluster.BrokerEpoch, s *controller.StopReplica) *kmsg.StopReplicaRequest {
	r := kmsg.NewPtrStopReplicaRequest()
	r.Version = stopReplicaVersion
	r.ControllerID, r.ControllerEpoch, r.BrokerEpoch = int32(self), int32(epoch), int64(broker)
	r.Topics = make([]kmsg.StopReplicaRequestTopic, len(s.Topics))
	for i, t := range s.Topics {
		r.Topics[i].Topic = t.Name
		r.Topics[i].PartitionStates = make([]kmsg.StopReplicaRequestTopicPartitionState, len(t.Partitions))
		for j, p := range t.Partitions {
			r.Topics[i].PartitionStates[j] = kmsg.StopReplicaRequestTopicPartitionState{
				Partition: p.Partition, LeaderEpoch: int32(p.LeaderEpoch), Delete: p.Delete,
			}
		}
	}
	return r
}

// answer reads what a broker said to a send.
func answer(s controller.Send, resp kmsg.Response) (controller.Answer, error) {
	switch r := resp.(type) {
	case *kmsg.LeaderAndISRResponse:
		if s.LeaderAndISR == nil {
			break
		}
		a := controller.Answer{Error: r.ErrorCode}
		names := make(map[[16]byte]string, len(s.LeaderAndISR.Topics))
		for _, t := range s.LeaderAndISR.Topics {
			names[t.ID] = t.Name
		}
		for _, t := range r.Topics {
			name, ok := names[t.TopicID]
			if !ok {
				return controller.Answer{}, fmt.Errorf("%w: LeaderAndIsr names topic id %s", errUnexpected, cluster.TopicID(t.TopicID))
			}
			for _, p := range t.Partitions {
				note(&a, name, p.Partition, p.ErrorCode)
			}
		}
		return a, nil
	case *kmsg.UpdateMetadataResponse:
		if s.UpdateMetadata != nil {
			return controller.Answer{Error: r.ErrorCode}, nil
		}
	case *kmsg.StopReplicaResponse:
		if s.StopReplica == nil {
			break
		}
		a := controller.Answer{Error: r.ErrorCode}
		for _, p := range r.Partitions {
			note(&a, p.Topic, p.Partition, p.ErrorCode)
		}
		return a, nil
	}
	return controller.Answer{}, fmt.Errorf("%w: %T to %s", errUnexpected, resp, sendName(s))
}

func note(a *controller.Answer, topic string, partition int32, code int16) {
	if code == 0 {
		return
	}
	if a.Partitions == nil {
		a.Partitions = map[cluster.TopicPartition]int16{}
	}
	a.Partitions[cluster.TopicPartition{Topic: topic, Partition: partition}] = code
}
