package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kbroker/kbroker/broker/topics"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopics (19).
//
//	v1  validate only, error messages
//	v2  throttle time
//	v4  -1 for the broker's default numbers (KIP-464)
//	v5  flexible; what was made: partitions, replicas, configs (KIP-525)
//	v6  strict controller mutation quota (KIP-599)
//	v7  topic ids
func init() { register(API{Key: protocol.CreateTopics, Handle: createTopics}) }

// clusterMetadataTopic is KRaft's, and may not be made.
const clusterMetadataTopic = "__cluster_metadata"

func createTopics(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	if !h.isController() {
		c.Fail(protocol.ErrNotController)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout(req.TimeoutMillis))
	defer cancel()
	named := map[string]int{}
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	var made []pendingTopic
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic = t.Topic
		if n := named[t.Topic]; n > 1 && t.Topic != clusterMetadataTopic {
			fillError(&out, fmt.Errorf("%w: topic named %d times", topics.ErrInvalidRequest, n))
		} else if m, err := c.createTopic(ctx, req, t); err != nil {
			fillError(&out, err)
		} else {
			c.fillMade(&out, m)
			if !req.ValidateOnly {
				made = append(made, pendingTopic{name: t.Topic, partitions: m.Partitions, at: len(resp.Topics)})
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	h.awaitTopics(made, req.TimeoutMillis, func(late []pendingTopic) {
		for _, p := range late {
			t := &resp.Topics[p.at]
			*t = kmsg.NewCreateTopicsResponseTopic()
			t.Topic, t.ErrorCode = p.name, int16(protocol.ErrRequestTimedOut)
		}
		c.Reply(resp)
	})
}

func fillError(out *kmsg.CreateTopicsResponseTopic, err error) {
	out.ErrorCode, out.ErrorMessage = CodeOf(err), kmsg.StringPtr(err.Error())
	out.NumPartitions, out.ReplicationFactor = -1, -1
	out.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
}

func (c *Call) createTopic(ctx context.Context, req *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) (topics.Made, error) {
	if t.Topic == clusterMetadataTopic {
		return topics.Made{}, fmt.Errorf("%w: %s is reserved", topics.ErrInvalidRequest, t.Topic)
	}
	if !c.Allowed(OpCreate, ResCluster, ClusterName) && !c.Allowed(OpCreate, ResTopic, t.Topic) {
		return topics.Made{}, protocol.ErrTopicAuthorizationFailed
	}
	spec := topics.Spec{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor, Configs: config.Values{}}
	var nulls []string
	for _, e := range t.Configs {
		if e.Value == nil {
			nulls = append(nulls, e.Name)
			continue
		}
		spec.Configs[e.Name] = *e.Value
	}
	if len(nulls) > 0 {
		return topics.Made{}, fmt.Errorf("%w: null is no value for %s", topics.ErrInvalidConfig, strings.Join(nulls, ","))
	}
	if len(t.ReplicaAssignment) > 0 {
		spec.Assignment = map[int32][]cluster.BrokerID{}
		for _, a := range t.ReplicaAssignment {
			spec.Assignment[a.Partition] = brokerIDs(a.Replicas)
		}
	}
	return c.h.Topics.Create(ctx, spec, req.ValidateOnly)
}

// fillMade tells what was made, from v5 on; its configs to those who may see
// them.
func (c *Call) fillMade(out *kmsg.CreateTopicsResponseTopic, m topics.Made) {
	out.TopicID = m.ID
	if !c.Allowed(OpDescribeConfigs, ResTopic, out.Topic) {
		out.NumPartitions, out.ReplicationFactor = -1, -1
		out.ConfigErrorCode = int16(protocol.ErrTopicAuthorizationFailed)
		return
	}
	out.NumPartitions, out.ReplicationFactor = m.Partitions, m.ReplicationFactor
	per, def := c.h.Configs.Dynamic()
	for _, d := range c.h.Config().DescribeTopic(m.Configs, per, def) {
		e := kmsg.NewCreateTopicsResponseTopicConfig()
		e.Name, e.ReadOnly, e.Source, e.IsSensitive = d.Name, d.ReadOnly, d.Source, d.Sensitive
		if !d.IsNull {
			e.Value = kmsg.StringPtr(d.Value)
		}
		out.Configs = append(out.Configs, e)
	}
}

// adminTimeout bounds the writes of an admin request by the time-out that the
// client gave, within reason.
func adminTimeout(ms int32) time.Duration {
	return min(max(time.Duration(ms)*time.Millisecond, 5*time.Second), time.Minute)
}

// isController reports whether this broker is the controller.
func (h *Handlers) isController() bool {
	ctl := h.Controller()
	return ctl != nil && ctl.Active()
}
