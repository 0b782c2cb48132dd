package api

import (
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs (33): the whole set of a resource's configs.
//
//	v2  flexible
func init() { register(API{Key: protocol.AlterConfigs, Handle: alterConfigs}) }

func alterConfigs(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	named := map[resource]int{}
	for i := range req.Resources {
		named[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		whole := config.Values{}
		var keys []string
		nulls := false
		for _, e := range r.Configs {
			keys = append(keys, e.Name)
			if e.Value == nil {
				nulls = true
				continue
			}
			whole[e.Name] = *e.Value
		}
		a := alteration{res: resource{r.ResourceType, r.ResourceName}, keys: keys, nulls: nulls, twice: named[resource{r.ResourceType, r.ResourceName}] > 1,
			apply: func(config.Values) (config.Values, error) { return whole, nil }}
		if err := c.alter(a, req.ValidateOnly); err != nil {
			out.ErrorCode, out.ErrorMessage = a.code(err), kmsg.StringPtr(a.message(err))
		}
		resp.Resources = append(resp.Resources, out)
	}
	c.Reply(resp)
}
