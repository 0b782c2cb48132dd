package api

import (
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster (60).
//
//	v1  endpoint type, which only KRaft controllers do not answer as brokers
func init() { register(API{Key: protocol.DescribeCluster, Handle: describeCluster}) }

const brokerEndpoints = 1

func describeCluster(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	if c.Version() >= 1 && req.EndpointType != brokerEndpoints {
		resp.ErrorCode = int16(protocol.ErrMismatchedEndpointType)
		resp.ErrorMessage = kmsg.StringPtr("this is a broker's endpoint, ask for endpoint type 1")
		c.Reply(resp)
		return
	}
	resp.ClusterID, resp.ControllerID = h.ClusterID, int32(h.Metadata.Controller())
	resp.EndpointType = brokerEndpoints
	for _, b := range h.Metadata.Brokers() {
		if n := c.node(b.ID); n != nil {
			rb := kmsg.NewDescribeClusterResponseBroker()
			rb.NodeID, rb.Host, rb.Port, rb.Rack = int32(b.ID), n.Host, n.Port, n.Rack
			resp.Brokers = append(resp.Brokers, rb)
		}
	}
	resp.ClusterAuthorizedOperations = operationsUnknown
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = 0
		if c.Allowed(OpDescribe, ResCluster, ClusterName) {
			resp.ClusterAuthorizedOperations = c.operations(ResCluster, ClusterName)
		}
	}
	c.Reply(resp)
}
