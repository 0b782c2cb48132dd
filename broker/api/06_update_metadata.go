package api

import (
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/group"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// UpdateMetadata (6), from the controller: what clients are told.
//
//	v0  flat list of partitions, one endpoint per broker
//	v1  several endpoints per broker with their security protocols
//	v2  rack
//	v3  listener names
//	v4  offline replicas
//	v5  partitions by topic, broker epoch (KIP-380)
//	v6  flexible
//	v7  topic ids
//	v8  KRaft controller flag
func init() { register(API{Key: protocol.UpdateMetadata, Handle: updateMetadata}) }

func updateMetadata(h *Handlers, c *Call) {
	if !c.requireClusterAction() {
		return
	}
	req := c.Msg.(*kmsg.UpdateMetadataRequest)
	resp := req.ResponseKind().(*kmsg.UpdateMetadataResponse)
	err := h.checkBrokerEpoch(req.BrokerEpoch, c.Version() >= 5)
	if err == nil && !h.inOrder(c, req.ControllerEpoch, func() {
		if err = h.Replicas.AcceptController(cluster.ControllerEpoch(req.ControllerEpoch)); err == nil {
			h.tell(metadata.Update{Controller: cluster.BrokerID(req.ControllerID), Brokers: brokersOf(req), Topics: topicsOf(req)})
		}
	}) {
		return
	}
	if err != nil {
		resp.ErrorCode = CodeOf(err)
		c.Reply(resp)
		return
	}
	if len(req.TopicStates)+len(req.PartitionStates) > 0 || !h.HasTopics {
		h.Logs.Reckoned() // nothing of this broker's is in doubt, or it hosts nothing
	}
	c.Reply(resp)
	h.metadataWaits.Wake()
}

// tell takes over what clients are told from now on.
func (h *Handlers) tell(u metadata.Update) {
	if behind := h.Metadata.Apply(u); behind > 0 {
		h.Logger.Error().Int("partitions", behind).Msg("UpdateMetadata refused: leader epochs are behind those known, as when ZooKeeper has lost what it knew")
	}
	live := make([]cluster.BrokerID, 0, len(u.Brokers))
	for _, b := range h.Metadata.Brokers() {
		live = append(live, b.ID)
	}
	h.Replicas.LiveBrokersChanged(live)
	h.updated(len(u.Topics) > 0)
	h.forget(u.Topics)
}

// forget drops what is kept of those topics that are gone. The group coordinator
// hears of each, as the name may be in use again soon.
func (h *Handlers) forget(topics []metadata.Topic) {
	var gone []string
	for _, t := range topics {
		if _, ok := h.Metadata.Topic(t.Name); !ok {
			h.ForgetTopic(t.Name)
			h.Configs.Forget(t.Name)
			gone = append(gone, t.Name)
		}
	}
	if len(gone) > 0 && h.Groups != nil {
		h.Groups.Tell(group.TopicsDeleted{Topics: gone})
	}
}

// brokersOnlyGrace is how long clients are held back after an UpdateMetadata
// without topics in a cluster that has some.
const brokersOnlyGrace = 2 * time.Second

// updated lets clients in once there is something to tell them. A controller's
// first update may name the brokers only, with the topics to follow: a client
// that is served in between takes its topics for deleted, and some give up then.
func (h *Handlers) updated(topics bool) {
	tell := func() { h.toldOnce.Do(func() { close(h.told) }) }
	if topics || !h.HasTopics {
		tell()
		return
	}
	select {
	case <-h.told:
	default:
		h.graceOnce.Do(func() { h.Clock.AfterFunc(brokersOnlyGrace, tell) })
	}
}

func brokersOf(req *kmsg.UpdateMetadataRequest) []metadata.Broker {
	out := make([]metadata.Broker, 0, len(req.LiveBrokers))
	for _, b := range req.LiveBrokers {
		mb := metadata.Broker{ID: cluster.BrokerID(b.ID)}
		if b.Rack != nil {
			mb.Rack = *b.Rack
		}
		if req.Version == 0 {
			mb.Endpoints = []metadata.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: b.Host, Port: b.Port}}
		}
		for _, e := range b.Endpoints {
			name := e.ListenerName
			if req.Version < 3 { // the listener is named after its protocol
				name = securityProtocols[e.SecurityProtocol&3]
			}
			mb.Endpoints = append(mb.Endpoints, metadata.Endpoint{Listener: name,
				Protocol: securityProtocols[e.SecurityProtocol&3], Host: e.Host, Port: e.Port})
		}
		out = append(out, mb)
	}
	return out
}

// securityProtocols by Kafka's wire number.
var securityProtocols = [4]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

func topicsOf(req *kmsg.UpdateMetadataRequest) []metadata.Topic {
	var out []metadata.Topic
	if req.Version < 5 {
		at := map[string]int{}
		for i := range req.PartitionStates {
			p := &req.PartitionStates[i]
			n, ok := at[p.Topic]
			if !ok {
				n = len(out)
				at[p.Topic] = n
				out = append(out, metadata.Topic{Name: p.Topic})
			}
			out[n].Partitions = append(out[n].Partitions, partitionOf(p))
		}
		return out
	}
	for i := range req.TopicStates {
		t := &req.TopicStates[i]
		mt := metadata.Topic{Name: t.Topic, ID: cluster.TopicID(t.TopicID)}
		for j := range t.PartitionStates {
			mt.Partitions = append(mt.Partitions, partitionOf(&t.PartitionStates[j]))
		}
		out = append(out, mt)
	}
	return out
}

func partitionOf(p *kmsg.UpdateMetadataRequestTopicPartition) metadata.Partition {
	return metadata.Partition{Index: p.Partition,
		State: cluster.LeaderAndISR{Leader: cluster.BrokerID(p.Leader), LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch),
			ISR: brokerIDs(p.ISR), ControllerEpoch: cluster.ControllerEpoch(p.ControllerEpoch), ZKVersion: cluster.ZKVersion(p.ZKVersion)},
		Replicas: brokerIDs(p.Replicas), Offline: brokerIDs(p.OfflineReplicas)}
}
