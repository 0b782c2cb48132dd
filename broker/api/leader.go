package api

import "github.com/kbroker/kbroker/cluster"

// node is a broker as one listener's clients reach it.
type node struct {
	Host string
	Port int32
	Rack *string
}

// currentLeader is who leads a partition, and where the caller's listener
// reaches it (nil where it does not).
func (c *Call) currentLeader(topic string, index int32) (cluster.BrokerID, cluster.LeaderEpoch, *node, bool) {
	t, ok := c.h.Metadata.Topic(topic)
	if !ok {
		return 0, 0, nil, false
	}
	p, ok := t.Partition(index)
	if !ok {
		return 0, 0, nil, false
	}
	return p.State.Leader, p.State.LeaderEpoch, c.node(p.State.Leader), true
}

// node is where the caller's listener reaches a broker, nil for nowhere.
func (c *Call) node(id cluster.BrokerID) *node {
	b, ok := c.h.Metadata.Broker(id)
	if !ok {
		return nil
	}
	e, ok := b.Endpoint(c.Conn.ListenerName)
	if !ok {
		return nil
	}
	n := &node{Host: e.Host, Port: e.Port}
	if b.Rack != "" {
		n.Rack = &b.Rack
	}
	return n
}
