package config_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kbroker/kbroker/config"
)

// kafkaSubject asks a real Kafka. Changes are made on a topic or broker as it
// is: start from a fresh one.
type kafkaSubject struct {
	t  *testing.T
	cl *kgo.Client
}

func newKafkaSubject(t *testing.T, addr string) subject {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	return &kafkaSubject{t, cl}
}

func (k *kafkaSubject) close() { k.cl.Close() }

func (k *kafkaSubject) do(req kmsg.Request) kmsg.Response {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	resp, err := k.cl.SeedBrokers()[0].Request(ctx, req) // not the broker a resource names
	if err != nil {
		k.t.Fatal(err)
	}
	return resp
}

func failure(code int16, msg *string) string {
	if code == 0 {
		return ""
	}
	m := "null"
	if msg != nil {
		m = *msg
	}
	return fmt.Sprintf("%s: %s", kerr.TypedErrorForCode(code).Message, m)
}

func (k *kafkaSubject) create(topic string, validateOnly bool, v []config.Op) string {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.ValidateOnly = 10000, validateOnly
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, 1, 1
	for _, op := range v {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = op.Key, &op.Value
		rt.Configs = append(rt.Configs, c)
	}
	req.Topics = append(req.Topics, rt)
	r := k.do(req).(*kmsg.CreateTopicsResponse).Topics[0]
	return failure(r.ErrorCode, r.ErrorMessage)
}

func resource(topic bool) kmsg.ConfigResourceType {
	if topic {
		return kmsg.ConfigResourceTypeTopic
	}
	return kmsg.ConfigResourceTypeBroker
}

func (k *kafkaSubject) alter(topic bool, name string, ops []config.Op) string {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = resource(topic), name
	for _, op := range ops {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = op.Key, kmsg.IncrementalAlterConfigOp(op.Kind)
		if op.Kind != config.OpDelete {
			c.Value = &op.Value
		}
		rr.Configs = append(rr.Configs, c)
	}
	req.Resources = append(req.Resources, rr)
	r := k.do(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	k.settle(topic, r.ErrorCode)
	return failure(r.ErrorCode, r.ErrorMessage)
}

func (k *kafkaSubject) replace(topic bool, name string, ops []config.Op) string {
	req := kmsg.NewPtrAlterConfigsRequest()
	rr := kmsg.NewAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = resource(topic), name
	for _, op := range ops {
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		c.Name, c.Value = op.Key, &op.Value
		rr.Configs = append(rr.Configs, c)
	}
	req.Resources = append(req.Resources, rr)
	r := k.do(req).(*kmsg.AlterConfigsResponse).Resources[0]
	k.settle(topic, r.ErrorCode)
	return failure(r.ErrorCode, r.ErrorMessage)
}

// settle lets Kafka notice a changed znode; there is nothing to wait on.
func (k *kafkaSubject) settle(bool, int16) { time.Sleep(700 * time.Millisecond) }

func (k *kafkaSubject) describe(topic bool, name string, keys []string) ([]config.Described, string) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = resource(topic), name
	rr.ConfigNames = keys
	req.Resources = append(req.Resources, rr)
	r := k.do(req).(*kmsg.DescribeConfigsResponse).Resources[0]
	var out []config.Described
	str := func(s *string) (string, bool) {
		if s == nil {
			return "", true
		}
		return *s, false
	}
	for _, c := range r.Configs {
		e := config.Described{Name: c.Name, Source: int8(c.Source), ReadOnly: c.ReadOnly, Sensitive: c.IsSensitive, Type: int8(c.ConfigType)}
		e.Value, e.IsNull = str(c.Value)
		for _, s := range c.ConfigSynonyms {
			syn := config.Synonym{Name: s.Name, Source: int8(s.Source)}
			syn.Value, syn.IsNull = str(s.Value)
			e.Synonyms = append(e.Synonyms, syn)
		}
		out = append(out, e)
	}
	return out, failure(r.ErrorCode, r.ErrorMessage)
}
