//go:build integration

package integration

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Sources and resource types of configs as the wire has them.
const (
	sourceTopic   = 1
	sourceStatic  = 4
	sourceDefault = 5

	resourceTopic  = kmsg.ConfigResourceTypeTopic
	resourceBroker = kmsg.ConfigResourceTypeBroker
)

func describeRequest(kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	return req
}

// described asks for configs and gives them by name.
func described(t testing.TB, w *wire, kind kmsg.ConfigResourceType, name string, keys ...string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	t.Helper()
	got := ask[*kmsg.DescribeConfigsResponse](t, w, describeRequest(kind, name, keys...)).Resources[0]
	if got.ErrorCode != errNone {
		t.Fatalf("describe %s: error %d: %s", name, got.ErrorCode, deref(got.ErrorMessage))
	}
	out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range got.Configs {
		out[c.Name] = c
	}
	return out
}

// alteration is one change: operation -1 stands for the old AlterConfigs.
type alteration struct {
	op    kmsg.IncrementalAlterConfigOp
	key   string
	value *string
}

func set(key, value string) alteration {
	return alteration{kmsg.IncrementalAlterConfigOpSet, key, &value}
}
func unset(key string) alteration {
	return alteration{op: kmsg.IncrementalAlterConfigOpDelete, key: key}
}

func incrementalRequest(topic string, changes ...alteration) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = resourceTopic, topic
	for _, c := range changes {
		r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: c.key, Op: c.op, Value: c.value})
	}
	req.Resources = append(req.Resources, r)
	return req
}

func alter(t testing.TB, w *wire, topic string, changes ...alteration) int16 {
	t.Helper()
	return ask[*kmsg.IncrementalAlterConfigsResponse](t, w, incrementalRequest(topic, changes...)).Resources[0].ErrorCode
}

// awaitConfig waits until a topic's config is seen: a change goes through the
// metadata store.
func awaitConfig(t testing.TB, w *wire, topic, key, value string, source int8) {
	t.Helper()
	eventually(t, 20*time.Second, key+" becomes "+value, func() error {
		got := described(t, w, resourceTopic, topic, key)[key]
		if deref(got.Value) != value || int8(got.Source) != source {
			return fmt.Errorf("is %s from source %d", deref(got.Value), got.Source)
		}
		return nil
	})
}

// A topic's configs: every key, value, type, source, synonyms; those asked for.
func TestDescribeTopicConfigs(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "retention.ms", "100000", "cleanup.policy", "compact,delete")
	all := described(t, w, resourceTopic, topic)
	if len(described(t, w, resourceTopic, topic, []string{}...)) != len(all) {
		t.Error("an empty list of keys does not mean all")
	}
	for key, want := range stockTopicConfigs(t) {
		got, ok := all[key]
		if !ok {
			t.Errorf("%s is not described", key)
			continue
		}
		if got.ConfigType.String() != want.kind {
			t.Errorf("%s: type %v, want %s", key, got.ConfigType, want.kind)
		}
		if key == "retention.ms" || key == "cleanup.policy" {
			continue
		}
		if deref(got.Value) != want.value || int8(got.Source) != sourceDefault {
			t.Errorf("%s: %q from source %d, want %q from %d", key, deref(got.Value), got.Source, want.value, sourceDefault)
		}
		if n := len(got.ConfigSynonyms); n > 0 && got.ConfigSynonyms[n-1].Name != want.broker {
			t.Errorf("%s: last synonym %s, want %s", key, got.ConfigSynonyms[n-1].Name, want.broker)
		}
		if got.Documentation == nil || *got.Documentation == "" {
			t.Errorf("%s has no documentation", key)
		}
	}
	if len(all) != len(stockTopicConfigs(t)) {
		t.Errorf("%d keys, want %d", len(all), len(stockTopicConfigs(t)))
	}
	got := all["retention.ms"]
	if deref(got.Value) != "100000" || int8(got.Source) != sourceTopic || got.IsSensitive || got.ReadOnly {
		t.Errorf("retention.ms: %s from source %d, sensitive %v, read-only %v", deref(got.Value), got.Source, got.IsSensitive, got.ReadOnly)
	}
	if len(got.ConfigSynonyms) == 0 || got.ConfigSynonyms[0].Name != "retention.ms" || deref(got.ConfigSynonyms[0].Value) != "100000" {
		t.Errorf("retention.ms: synonyms %+v", got.ConfigSynonyms)
	}
	two := described(t, w, resourceTopic, topic, "cleanup.policy", "no.such.key")
	if len(two) != 1 || deref(two["cleanup.policy"].Value) != "compact,delete" {
		t.Errorf("two keys asked, one unknown: %+v", two)
	}
	resp := ask[*kmsg.DescribeConfigsResponse](t, w, describeRequest(resourceTopic, topic+".no"))
	wantCode(t, "unknown topic", resp.Resources[0].ErrorCode, errUnknownTopicOrPartition)
	resp = ask[*kmsg.DescribeConfigsResponse](t, w, describeRequest(resourceTopic, "a/b"))
	wantCode(t, "bad name", resp.Resources[0].ErrorCode, errInvalidTopic)
}

// The broker's own: static values, defaults, what cannot be changed.
func TestDescribeBrokerConfigs(t *testing.T) {
	b := shared(t)
	w := dial(t, b)
	all := described(t, w, resourceBroker, strconv.Itoa(b.id))
	for key, want := range stockBrokerConfigs(t) {
		got, ok := all[key]
		if !ok {
			t.Errorf("%s is not described", key)
			continue
		}
		if got.ConfigType.String() != want.kind {
			t.Errorf("%s: type %v, want %s", key, got.ConfigType, want.kind)
		}
		if got.ReadOnly != (want.scope == "read-only") {
			t.Errorf("%s: read-only %v, want %s", key, got.ReadOnly, want.scope)
		}
		if got.IsSensitive != want.sensitive {
			t.Errorf("%s: sensitive %v, want %v", key, got.IsSensitive, want.sensitive)
		}
		if _, set := b.props[key]; int8(got.Source) == sourceDefault && set {
			t.Errorf("%s is set in server.properties and described as a default", key)
		} else if int8(got.Source) == sourceDefault && deref(got.Value) != want.value {
			t.Errorf("%s: %q, want the default %q", key, deref(got.Value), want.value)
		}
	}
	for key, value := range map[string]string{"broker.id": "1", "log.dirs": b.props["log.dirs"], "num.io.threads": "4"} {
		if got := all[key]; deref(got.Value) != value || int8(got.Source) != sourceStatic {
			t.Errorf("%s: %s from source %d, want %s from %d", key, deref(got.Value), got.Source, value, sourceStatic)
		}
	}
	resp := ask[*kmsg.DescribeConfigsResponse](t, w, describeRequest(resourceBroker, "99"))
	wantCode(t, "another broker", resp.Resources[0].ErrorCode, errInvalidRequest)
}

// Set, append, subtract, delete; what is refused; validate only.
func TestIncrementalAlterConfigs(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	text := func(s string) *string { return &s }
	wantCode(t, "set", alter(t, w, topic, set("retention.ms", "5000"), set("cleanup.policy", "compact")), errNone)
	awaitConfig(t, w, topic, "retention.ms", "5000", sourceTopic)
	wantCode(t, "append", alter(t, w, topic, alteration{kmsg.IncrementalAlterConfigOpAppend, "cleanup.policy", text("delete")}), errNone)
	awaitConfig(t, w, topic, "cleanup.policy", "compact,delete", sourceTopic)
	wantCode(t, "subtract", alter(t, w, topic, alteration{kmsg.IncrementalAlterConfigOpSubtract, "cleanup.policy", text("compact")}), errNone)
	awaitConfig(t, w, topic, "cleanup.policy", "delete", sourceTopic)
	wantCode(t, "delete", alter(t, w, topic, unset("retention.ms")), errNone)
	awaitConfig(t, w, topic, "retention.ms", "604800000", sourceDefault)

	wantCode(t, "unknown key", alter(t, w, topic, set("no.such.key", "1")), errInvalidConfig)
	wantCode(t, "bad value", alter(t, w, topic, set("retention.ms", "soon")), errInvalidConfig)
	wantCode(t, "append to what is no list", alter(t, w, topic, alteration{kmsg.IncrementalAlterConfigOpAppend, "retention.ms", text("1")}), errInvalidConfig)
	wantCode(t, "null value", alter(t, w, topic, alteration{kmsg.IncrementalAlterConfigOpSet, "retention.ms", nil}), errInvalidRequest)
	wantCode(t, "one key twice", alter(t, w, topic, set("retention.ms", "1"), set("retention.ms", "2")), errInvalidRequest)
	wantCode(t, "unknown topic", alter(t, w, topic+".no", set("retention.ms", "1")), errUnknownTopicOrPartition)
	wantCode(t, "one good and one bad", alter(t, w, topic, set("segment.ms", "77"), set("retention.ms", "soon")), errInvalidConfig)

	req := incrementalRequest(topic, set("segment.ms", "88"))
	req.ValidateOnly = true
	wantCode(t, "validate only", ask[*kmsg.IncrementalAlterConfigsResponse](t, w, req).Resources[0].ErrorCode, errNone)
	awaitConfig(t, w, topic, "segment.ms", "604800000", sourceDefault)
}

// The old AlterConfigs replaces everything; what describe gives can be put back.
func TestAlterConfigs(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "retention.ms", "1000", "segment.ms", "2000")
	put := func(configs ...kmsg.AlterConfigsRequestResourceConfig) int16 {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Version = 2
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.Configs = resourceTopic, topic, configs
		req.Resources = append(req.Resources, r)
		return ask[*kmsg.AlterConfigsResponse](t, w, req).Resources[0].ErrorCode
	}
	value := "3000"
	wantCode(t, "alter", put(kmsg.AlterConfigsRequestResourceConfig{Name: "retention.ms", Value: &value}), errNone)
	awaitConfig(t, w, topic, "retention.ms", "3000", sourceTopic)
	awaitConfig(t, w, topic, "segment.ms", "604800000", sourceDefault)
	var back []kmsg.AlterConfigsRequestResourceConfig
	for name, c := range described(t, w, resourceTopic, topic) {
		back = append(back, kmsg.AlterConfigsRequestResourceConfig{Name: name, Value: c.Value})
	}
	wantCode(t, "what was described", put(back...), errNone)
	awaitConfig(t, w, topic, "segment.ms", "604800000", sourceTopic)
	wantCode(t, "null value", put(kmsg.AlterConfigsRequestResourceConfig{Name: "retention.ms"}), errInvalidRequest)
}

// A topic's config takes effect at once.
func TestTopicConfigTakesEffect(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	big := batch{recs: []rec{{ts: now, value: filler(2000)}}}.bytes()
	produce(t, w, topic, 0, big)
	wantCode(t, "alter", alter(t, w, topic, set("max.message.bytes", "1000"), set("compression.type", "gzip"), set("message.timestamp.type", "LogAppendTime")), errNone)
	eventually(t, 20*time.Second, "a large batch is refused", func() error {
		if code := tryProduce(t, w, topic, 0, big).ErrorCode; code != errMessageTooLarge {
			return fmt.Errorf("error %d", code)
		}
		return nil
	})
	end := listOffsets(t, w, topic, 0, tsLatest).Offset
	if got := tryProduce(t, w, topic, 0, batch{recs: values(7, "a")}.bytes()); got.ErrorCode != errNone || got.LogAppendTime < now {
		t.Errorf("small batch: error %d, log append time %d", got.ErrorCode, got.LogAppendTime)
	}
	if got := readAll(t, w, topic, 0, end)[0]; got.codec() != codecGzip {
		t.Errorf("codec %s, want gzip", codecNames[got.codec()])
	}
}
