package api

import (
	"slices"

	"github.com/kbroker/kbroker/coordinator/group"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerGroupHeartbeat (68, KIP-848).
//
//	v1  regular expressions (RE2), member ids made by clients
func init() {
	register(API{Key: protocol.ConsumerGroupHeartbeat, Handle: consumerGroupHeartbeat,
		Notes: "UNSUPPORTED_VERSION unless group.coordinator.rebalance.protocols has consumer and every live broker is a kbroker; 3.9 has no v1, and v0 not with ZooKeeper"})
}

// consumerProtocol reports whether groups may use the protocol of KIP-848: a
// coordinator of Kafka 3.9 would pass over their records, so none may be alive.
func (h *Handlers) consumerProtocol() bool {
	return slices.Contains(h.Config().RebalanceProtocols, "consumer") && h.AllKbrokers != nil && h.AllKbrokers()
}

func consumerGroupHeartbeat(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.ConsumerGroupHeartbeatRequest)
	switch {
	case !h.consumerProtocol():
		c.Fail(protocol.ErrUnsupportedVersion)
		return
	case !c.Allowed(OpRead, ResGroup, req.Group):
		c.Fail(protocol.ErrGroupAuthorizationFailed)
		return
	case !c.allowedAll(OpDescribe, ResTopic, req.SubscribedTopicNames):
		c.Fail(protocol.ErrTopicAuthorizationFailed)
		return
	}
	askGroup(c, req.Group, c.describable(req), func(resp *kmsg.ConsumerGroupHeartbeatResponse, code protocol.Code) {
		if code != protocol.None {
			c.Fail(coordinatorCode(code))
			return
		}
		c.Reply(resp)
	})
}

// describable adds to a heartbeat with a regular expression which topics it may
// match. They are asked for here: the shard does not wait for an authorizer.
func (c *Call) describable(req *kmsg.ConsumerGroupHeartbeatRequest) kmsg.Request {
	if _, all := c.h.Authorizer.(AllowAll); all || req.SubscribedTopicRegex == nil || *req.SubscribedTopicRegex == "" {
		return req
	}
	may := map[string]bool{}
	for _, t := range c.h.Metadata.Topics() {
		may[t.Name] = c.Allowed(OpDescribe, ResTopic, t.Name)
	}
	return group.ConsumerHeartbeat{ConsumerGroupHeartbeatRequest: req, MayDescribe: func(topic string) bool { return may[topic] }}
}

func (c *Call) allowedAll(op Operation, kind ResourceType, names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !c.Allowed(op, kind, n) })
}
