package config

import (
	"maps"
	"slices"
	"strings"
)

// Where a value comes from: the wire enum of DescribeConfigs.
const (
	SourceUnknown              int8 = 0
	SourceTopic                int8 = 1
	SourceDynamicBroker        int8 = 2
	SourceDynamicDefaultBroker int8 = 3
	SourceStaticBroker         int8 = 4
	SourceDefault              int8 = 5
	SourceDynamicBrokerLogger  int8 = 6
	SourceClientMetrics        int8 = 7
)

// Described is one config entry as DescribeConfigs answers it. Value is empty
// when IsNull, and always null for a sensitive key.
type Described struct {
	Name      string
	Value     string
	IsNull    bool
	Source    int8
	ReadOnly  bool
	Sensitive bool
	Synonyms  []Synonym
	Type      int8
	Doc       string
}

// Synonym is one place that a value may come from, in order of precedence.
type Synonym struct {
	Name   string
	Value  string
	IsNull bool
	Source int8
}

// layers are the places that a broker key's value may come from.
type layers struct {
	broker, cluster, static, defaults Values
}

func (b *Broker) layers(dynBroker, dynDefault Values) layers {
	d := make(Values, len(brokerTable))
	for name, k := range brokerTable {
		if k.HasDefault && !k.is(onlyDynamic) {
			d[name] = k.def.text(k.Type)
		}
	}
	for name, raw := range b.defaults {
		if k := brokerTable[name]; k != nil {
			if v, err := k.parse(raw); err == nil {
				d[name] = v.text(k.Type)
			}
		}
	}
	return layers{broker: dynBroker, cluster: dynDefault, static: b.static, defaults: d}
}

// synonymsOf lists where the value of name may come from, best first, from
// the first place that is under name itself on: what comes before belongs to
// another key.
func (l layers) synonymsOf(name string, sensitive bool) []Synonym {
	names := synonyms(name)
	var out []Synonym
	add := func(v Values, source int8) {
		for _, n := range names {
			if raw, ok := v[n]; ok && (len(out) > 0 || n == name) {
				s := Synonym{Name: n, Value: raw, Source: source}
				if sensitive {
					s.Value, s.IsNull = "", true
				}
				out = append(out, s)
			}
		}
	}
	add(l.broker, SourceDynamicBroker)
	add(l.cluster, SourceDynamicDefaultBroker)
	add(l.static, SourceStaticBroker)
	add(l.defaults, SourceDefault)
	return out
}

// current is the settings with these dynamic configs, or without any when they
// do not go together.
func (b *Broker) current(dynBroker, dynDefault Values) *settings {
	if maps.Equal(dynBroker, b.perBroker) && maps.Equal(dynDefault, b.clusterDefault) {
		return b.set
	}
	s, err := readSettings(overlay(overlay(b.static, dynDefault), dynBroker), b.defaults)
	if err != nil {
		return b.set
	}
	return s
}

// DescribeTopic lists every topic key, sorted by name, as Kafka describes a
// topic with these overrides on this broker with these dynamic configs. An
// override that is unknown or bad is shown as it is.
func (b *Broker) DescribeTopic(overrides, dynBroker, dynDefault Values) []Described {
	s, l := b.current(dynBroker, dynDefault), b.layers(dynBroker, dynDefault)
	var out []Described
	for _, k := range topicOrder {
		v := s.topicValue(k)
		d := Described{Name: k.Name, Value: v.text(k.Type), Source: SourceDefault, Type: int8(k.Type), Doc: k.Doc}
		if k.BrokerKey != "" {
			d.Synonyms = l.synonymsOf(k.BrokerKey, false)
		}
		if raw, ok := overrides[k.Name]; ok {
			d.Value = raw
			if v, err := k.parse(raw); err == nil {
				d.Value = v.text(k.Type)
			}
			d.Synonyms = append([]Synonym{{Name: k.Name, Value: d.Value, Source: SourceTopic}}, d.Synonyms...)
		}
		if len(d.Synonyms) > 0 {
			d.Source = d.Synonyms[0].Source
		}
		out = append(out, d)
	}
	for name := range overrides {
		if topicTable[name] == nil { // cannot be told from a secret
			out = append(out, Described{Name: name, IsNull: true, Sensitive: true, Source: SourceTopic,
				Synonyms: []Synonym{{Name: name, IsNull: true, Source: SourceTopic}}})
		}
	}
	sortDescribed(out)
	return out
}

// DescribeBroker lists every key of this broker, sorted by name: the table's
// but the internal ones, and whatever else was set.
func (b *Broker) DescribeBroker(dynBroker, dynDefault Values) []Described {
	s, l := b.current(dynBroker, dynDefault), b.layers(dynBroker, dynDefault)
	var out []Described
	for _, name := range brokerNames {
		k := brokerTable[name]
		if k.is(internal) || k.is(onlyDynamic) {
			continue
		}
		d := brokerEntry(name, l)
		if v := s.parsed[name]; v.null {
			d.IsNull = true
		} else if !d.Sensitive {
			d.Value = v.text(k.Type)
		}
		out = append(out, d)
	}
	for name, raw := range s.raw {
		if k := brokerTable[name]; k != nil && !k.is(internal) && !k.is(onlyDynamic) {
			continue
		}
		out = append(out, withRaw(brokerEntry(name, l), raw))
	}
	sortDescribed(out)
	return out
}

// DescribeBrokerDefault lists the cluster-wide dynamic defaults: what Kafka
// answers for a broker resource with an empty name.
func (b *Broker) DescribeBrokerDefault(dynDefault Values) []Described {
	var out []Described
	for name, raw := range dynDefault {
		out = append(out, withRaw(brokerEntry(name, layers{cluster: dynDefault}), raw))
	}
	sortDescribed(out)
	return out
}

// brokerEntry is all of an entry but its value; a secret's is null already.
func brokerEntry(name string, l layers) Described {
	d := Described{Name: name, Source: SourceDefault, ReadOnly: true, Sensitive: true}
	if k := keyOf(name); k != nil {
		d.Type, d.Sensitive = int8(k.Type), k.Sensitive
	}
	if k := brokerTable[name]; k != nil {
		d.ReadOnly = k.Scope == ReadOnly || k.is(onlyDynamic)
		d.Doc = k.Doc
	}
	d.IsNull = d.Sensitive
	d.Synonyms = l.synonymsOf(name, d.Sensitive)
	if len(d.Synonyms) > 0 {
		d.Source = d.Synonyms[0].Source
	}
	return d
}

func withRaw(d Described, raw string) Described {
	if !d.Sensitive {
		d.Value = raw
	}
	return d
}

func sortDescribed(d []Described) {
	slices.SortFunc(d, func(a, b Described) int { return strings.Compare(a.Name, b.Name) })
}
