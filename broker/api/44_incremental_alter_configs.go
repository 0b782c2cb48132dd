package api

import (
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs (44): single configs of a resource (KIP-339).
//
//	v1  flexible
func init() { register(API{Key: protocol.IncrementalAlterConfigs, Handle: incrementalAlterConfigs}) }

func incrementalAlterConfigs(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	named := map[resource]int{}
	for i := range req.Resources {
		named[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		var ops []config.Op
		var keys []string
		nulls := false
		for _, e := range r.Configs {
			op := config.Op{Kind: config.OpKind(e.Op), Key: e.Name}
			if e.Value != nil {
				op.Value = *e.Value
			} else if op.Kind != config.OpDelete {
				nulls = true
			}
			keys = append(keys, e.Name)
			ops = append(ops, op)
		}
		apply := config.ApplyTopicOps
		if r.ResourceType == kmsg.ConfigResourceTypeBroker {
			apply = config.ApplyBrokerOps
		}
		a := alteration{res: resource{r.ResourceType, r.ResourceName}, keys: keys, nulls: nulls, twice: named[resource{r.ResourceType, r.ResourceName}] > 1,
			apply: func(old config.Values) (config.Values, error) { return apply(old, ops) }}
		if err := c.alter(a, req.ValidateOnly); err != nil {
			out.ErrorCode, out.ErrorMessage = a.code(err), kmsg.StringPtr(a.message(err))
		}
		resp.Resources = append(resp.Resources, out)
	}
	c.Reply(resp)
}
