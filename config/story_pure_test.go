package config_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/config"
)

// pureSubject is the package with the little that the broker adds to it.
type pureSubject struct {
	t          *testing.T
	static     *config.Broker
	per, def   config.Values
	topics     map[string]config.Values
	brokerName string
}

func readProperties(t *testing.T, path string) config.Values {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, err := config.ParseProperties(f)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func newPureSubject(t *testing.T) subject {
	b, _, err := config.NewBroker(readProperties(t, "testdata/real.properties"))
	if err != nil {
		t.Fatal(err)
	}
	return &pureSubject{t: t, static: b, per: config.Values{}, def: config.Values{}, topics: map[string]config.Values{}, brokerName: "12"}
}

func (p *pureSubject) close() {}

func (p *pureSubject) broker() *config.Broker {
	b, err := p.static.WithDynamic(p.per, p.def)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func invalidConfig(err error) string { return "INVALID_CONFIG: " + err.Error() }

func (p *pureSubject) create(topic string, validateOnly bool, ops []config.Op) string {
	v, err := config.ApplyTopicOps(nil, ops)
	if err == nil {
		err = config.ValidateTopicConfig(p.broker(), v)
	}
	if err != nil {
		return invalidConfig(err)
	}
	if !validateOnly {
		p.topics[topic] = v
	}
	return ""
}

func (p *pureSubject) alter(topic bool, name string, ops []config.Op) string {
	seen := map[string]bool{} // the request handler's work, not the package's
	for _, op := range ops {
		if seen[op.Key] {
			return "INVALID_REQUEST: Error due to duplicate config keys"
		}
		seen[op.Key] = true
	}
	if topic {
		v, err := config.ApplyTopicOps(p.topics[name], ops)
		if err != nil {
			return invalidConfig(err)
		}
		return p.storeTopic(name, v)
	}
	current := p.per
	if name == "" {
		current = p.def
	}
	v, err := config.ApplyBrokerOps(current, ops)
	if err != nil {
		return invalidConfig(err)
	}
	return p.storeBroker(name, v)
}

func (p *pureSubject) replace(topic bool, name string, ops []config.Op) string {
	v := config.Values{}
	for _, op := range ops {
		v[op.Key] = op.Value
	}
	if topic {
		return p.storeTopic(name, v)
	}
	return p.storeBroker(name, v)
}

func (p *pureSubject) storeTopic(name string, v config.Values) string {
	if p.topics[name] == nil {
		return "UNKNOWN_TOPIC_OR_PARTITION: The topic '" + name + "' does not exist."
	}
	if err := config.ValidateTopicConfig(p.broker(), v); err != nil {
		var invalid *config.InvalidError
		if !errors.As(err, &invalid) {
			p.t.Fatalf("not an InvalidError: %v", err)
		}
		return "INVALID_CONFIG: " + invalid.ForResource("TOPIC", name)
	}
	p.topics[name] = v
	return ""
}

func (p *pureSubject) storeBroker(name string, v config.Values) string {
	if name != "" && name != p.brokerName {
		if _, err := strconv.Atoi(name); err != nil {
			return "INVALID_REQUEST: Node id must be an integer, but it is: " + name
		}
		return "INVALID_REQUEST: Unexpected broker id, expected 12, but received " + name
	}
	if err := p.broker().ValidateDynamic(v, name != ""); err != nil {
		return "INVALID_REQUEST: " + err.Error()
	}
	if name == "" {
		p.def = v
	} else {
		p.per = v
	}
	return ""
}

func (p *pureSubject) describe(topic bool, name string, keys []string) ([]config.Described, string) {
	var all []config.Described
	switch {
	case topic && p.topics[name] == nil:
		return nil, "UNKNOWN_TOPIC_OR_PARTITION: "
	case topic:
		all = p.broker().DescribeTopic(p.topics[name], p.per, p.def)
	case name == "":
		all = p.broker().DescribeBrokerDefault(p.def)
	case name == p.brokerName:
		all = p.broker().DescribeBroker(p.per, p.def)
	default:
		if _, err := strconv.Atoi(name); err != nil {
			return nil, "INVALID_REQUEST: Broker id must be an integer, but it is: " + name
		}
		return nil, "INVALID_REQUEST: Unexpected broker id, expected 12 or empty string, but received " + name
	}
	return slices.DeleteFunc(all, func(d config.Described) bool {
		return strings.HasPrefix(d.Name, "kbroker.") || len(keys) > 0 && !slices.Contains(keys, d.Name)
	}), ""
}
