package config

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

// DescribeTopic lists every topic key, sorted by name, as Kafka describes a
// topic with these overrides on this broker with these dynamic configs.
func (b *Broker) DescribeTopic(overrides, dynBroker, dynDefault Values) []Described {
	panic("config: not built yet")
}

// DescribeBroker lists every key of this broker, sorted by name.
func (b *Broker) DescribeBroker(dynBroker, dynDefault Values) []Described {
	panic("config: not built yet")
}

// DescribeBrokerDefault lists the cluster-wide dynamic defaults: what Kafka
// answers for a broker resource with an empty name.
func (b *Broker) DescribeBrokerDefault(dynDefault Values) []Described {
	panic("config: not built yet")
}
