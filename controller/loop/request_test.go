package loop

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("../../protocol/testdata/frames/" + name + ".hex")
	must(t, err)
	frame, err := hex.DecodeString(strings.TrimSpace(string(text)))
	must(t, err)
	return frame
}

func brokerIDs(list []int32) []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, id := range list {
		out = append(out, cluster.BrokerID(id))
	}
	return out
}

// What a 3.9.2 controller sent, said with the pure controller's values, comes
// out byte for byte.
func TestRequestsAsKafkaSendsThem(t *testing.T) {
	for _, name := range []string{
		"leader-and-isr-v7-request-new-topic", "leader-and-isr-v7-request-new-replica", "leader-and-isr-v7-request-leader",
		"leader-and-isr-v7-request-no-leader", "leader-and-isr-v7-request-isr-shrunk",
		"update-metadata-v8-request", "update-metadata-v8-request-deleted",
		"stop-replica-v4-request-deletion", "stop-replica-v4-request-moved-away", "stop-replica-v4-request-shutdown",
	} {
		t.Run(name, func(t *testing.T) {
			want := golden(t, name)
			h, body, err := protocol.ParseHeader(want)
			must(t, err)
			req, err := protocol.DecodeRequest(h, body)
			must(t, err)
			self, epoch, j := said(req)
			got := protocol.AppendRequest(nil, h.ClientID, h.CorrelationID, request(self, epoch, j))[4:]
			if !bytes.Equal(got, want) {
				t.Errorf("\n%x, Kafka sends\n%x", got, want)
			}
		})
	}
}

// said is what a request says, in the pure controller's values.
func said(req kmsg.Request) (self cluster.BrokerID, epoch cluster.ControllerEpoch, j job) {
	switch r := req.(type) {
	case *kmsg.LeaderAndISRRequest:
		l := &controller.LeaderAndISR{}
		for _, t := range r.TopicStates {
			lt := controller.LeaderAndISRTopic{Name: t.Topic, ID: t.TopicID}
			for _, p := range t.PartitionStates {
				lt.Partitions = append(lt.Partitions, controller.LeaderAndISRPartition{
					Partition: p.Partition, IsNew: p.IsNew,
					State: cluster.LeaderAndISR{
						Leader: cluster.BrokerID(p.Leader), LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch), ISR: brokerIDs(p.ISR),
						ControllerEpoch: cluster.ControllerEpoch(p.ControllerEpoch), ZKVersion: cluster.ZKVersion(p.ZKVersion),
						Recovery: cluster.RecoveryState(p.LeaderRecoveryState),
					},
					Assignment: cluster.Assignment{Replicas: brokerIDs(p.Replicas), Adding: brokerIDs(p.AddingReplicas), Removing: brokerIDs(p.RemovingReplicas)},
				})
			}
			l.Topics = append(l.Topics, lt)
		}
		for _, n := range r.LiveLeaders {
			l.Leaders = append(l.Leaders, controller.Node{ID: cluster.BrokerID(n.BrokerID), Host: n.Host, Port: n.Port})
		}
		return cluster.BrokerID(r.ControllerID), cluster.ControllerEpoch(r.ControllerEpoch), job{send: controller.Send{Epoch: cluster.BrokerEpoch(r.BrokerEpoch), LeaderAndISR: l}}
	case *kmsg.UpdateMetadataRequest:
		u := &controller.UpdateMetadata{}
		for _, t := range r.TopicStates {
			ut := controller.UpdateMetadataTopic{Name: t.Topic, ID: t.TopicID}
			for _, p := range t.PartitionStates {
				ut.Partitions = append(ut.Partitions, controller.UpdateMetadataPartition{
					Partition: p.Partition, Replicas: brokerIDs(p.Replicas), Offline: brokerIDs(p.OfflineReplicas),
					State: cluster.LeaderAndISR{
						Leader: cluster.BrokerID(p.Leader), LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch), ISR: brokerIDs(p.ISR),
						ControllerEpoch: cluster.ControllerEpoch(p.ControllerEpoch), ZKVersion: cluster.ZKVersion(p.ZKVersion),
					},
				})
			}
			u.Topics = append(u.Topics, ut)
		}
		for _, b := range r.LiveBrokers {
			ub := controller.Broker{ID: cluster.BrokerID(b.ID), Rack: b.Rack}
			for _, e := range b.Endpoints {
				ub.Endpoints = append(ub.Endpoints, controller.Endpoint{Listener: e.ListenerName, Host: e.Host, Port: e.Port, Protocol: e.SecurityProtocol})
			}
			u.Brokers = append(u.Brokers, ub)
		}
		return cluster.BrokerID(r.ControllerID), cluster.ControllerEpoch(r.ControllerEpoch),
			job{send: controller.Send{Epoch: cluster.BrokerEpoch(r.BrokerEpoch), UpdateMetadata: u}, topics: &sharedTopics{}}
	case *kmsg.StopReplicaRequest:
		s := &controller.StopReplica{}
		for _, t := range r.Topics {
			st := controller.StopReplicaTopic{Name: t.Topic}
			for _, p := range t.PartitionStates {
				st.Partitions = append(st.Partitions, controller.StopReplicaPartition{Partition: p.Partition, LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch), Delete: p.Delete})
			}
			s.Topics = append(s.Topics, st)
		}
		return cluster.BrokerID(r.ControllerID), cluster.ControllerEpoch(r.ControllerEpoch), job{send: controller.Send{Epoch: cluster.BrokerEpoch(r.BrokerEpoch), StopReplica: s}}
	}
	panic("not a controller's request")
}

// Answers of real brokers.
func TestAnswersOfKafka(t *testing.T) {
	decode := func(name string, req kmsg.Request) kmsg.Response {
		t.Helper()
		_, resp, err := protocol.DecodeResponse(req, golden(t, name))
		must(t, err)
		return resp
	}
	lisr := &kmsg.LeaderAndISRRequest{Version: 7}
	for name, code := range map[string]int16{"leader-and-isr-v7-response": 0, "leader-and-isr-v7-response-repeated": 11} {
		resp := decode(name, lisr).(*kmsg.LeaderAndISRResponse)
		send := controller.Send{LeaderAndISR: &controller.LeaderAndISR{Topics: []controller.LeaderAndISRTopic{{Name: "x", ID: resp.Topics[0].TopicID}}}}
		a, err := answer(send, resp)
		must(t, err)
		if got := a.Partitions[tpOf("x", resp.Topics[0].Partitions[0].Partition)]; a.Error != 0 || got != code {
			t.Errorf("%s: %+v", name, a)
		}
		send.LeaderAndISR.Topics[0].ID = cluster.TopicID{1}
		if _, err := answer(send, resp); !errors.Is(err, errUnexpected) {
			t.Errorf("an answer about another topic: %v", err)
		}
	}
	stop := decode("stop-replica-v4-response", &kmsg.StopReplicaRequest{Version: 4})
	if a, err := answer(controller.Send{StopReplica: &controller.StopReplica{}}, stop); err != nil || a.Error != 0 || len(a.Partitions) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := answer(controller.Send{UpdateMetadata: &controller.UpdateMetadata{}}, stop); !errors.Is(err, errUnexpected) {
		t.Errorf("an answer to something else: %v", err)
	}
}
