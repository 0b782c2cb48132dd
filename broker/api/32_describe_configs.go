package api

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs (32).
//
//	v1  sources and synonyms (KIP-226)
//	v3  types and documentation (KIP-569)
//	v4  flexible
func init() {
	register(API{Key: protocol.DescribeConfigs, Handle: describeConfigs,
		Notes: "topics and brokers; broker loggers and client metrics are INVALID_REQUEST. Documentation is kbroker's own"})
}

func describeConfigs(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		entries, err := c.describeResource(r.ResourceType, r.ResourceName)
		if err != nil {
			out.ErrorCode, out.ErrorMessage = CodeOf(err), kmsg.StringPtr(err.Error())
		}
		for _, d := range entries {
			// As Kafka: an empty list of names means all, as null does.
			if len(r.ConfigNames) > 0 && !slices.Contains(r.ConfigNames, d.Name) {
				continue
			}
			out.Configs = append(out.Configs, describedEntry(req, d))
		}
		resp.Resources = append(resp.Resources, out)
	}
	c.Reply(resp)
}

func (c *Call) describeResource(kind kmsg.ConfigResourceType, name string) ([]config.Described, error) {
	h := c.h
	per, def := h.Configs.Dynamic()
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if !c.Allowed(OpDescribeConfigs, ResTopic, name) {
			return nil, protocol.ErrTopicAuthorizationFailed
		}
		if err := cluster.ValidateTopicName(name); err != nil {
			return nil, err
		}
		if _, ok := h.Metadata.Topic(name); !ok {
			return nil, protocol.ErrUnknownTopicOrPartition
		}
		return h.Config().DescribeTopic(h.Configs.Overrides(name), per, def), nil
	case kmsg.ConfigResourceTypeBroker:
		if !c.Allowed(OpDescribeConfigs, ResCluster, ClusterName) {
			return nil, protocol.ErrClusterAuthorizationFailed
		}
		if name == "" {
			return h.Config().DescribeBrokerDefault(def), nil
		}
		if err := h.isThisBroker(name); err != nil {
			return nil, err
		}
		return h.Config().DescribeBroker(per, def), nil
	}
	return nil, fmt.Errorf("%w: resources of type %d have no configs here", protocol.ErrInvalidRequest, kind)
}

// isThisBroker refuses a broker resource of another broker.
func (h *Handlers) isThisBroker(name string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return fmt.Errorf("%w: %q is not a broker id", protocol.ErrInvalidRequest, name)
	}
	if cluster.BrokerID(id) != h.Self {
		return fmt.Errorf("%w: this is broker %d, ask broker %d itself", protocol.ErrInvalidRequest, h.Self, id)
	}
	return nil
}

func describedEntry(req *kmsg.DescribeConfigsRequest, d config.Described) kmsg.DescribeConfigsResponseResourceConfig {
	e := kmsg.NewDescribeConfigsResponseResourceConfig()
	e.Name, e.ReadOnly, e.IsSensitive = d.Name, d.ReadOnly, d.Sensitive
	e.Source, e.ConfigType = kmsg.ConfigSource(d.Source), kmsg.ConfigType(d.Type)
	if !d.IsNull {
		e.Value = kmsg.StringPtr(d.Value)
	}
	if req.IncludeSynonyms {
		for _, s := range d.Synonyms {
			es := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			es.Name, es.Source = s.Name, kmsg.ConfigSource(s.Source)
			if !s.IsNull {
				es.Value = kmsg.StringPtr(s.Value)
			}
			e.ConfigSynonyms = append(e.ConfigSynonyms, es)
		}
	}
	if req.IncludeDocumentation && d.Doc != "" {
		e.Documentation = kmsg.StringPtr(d.Doc)
	}
	return e
}
