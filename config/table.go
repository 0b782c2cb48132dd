package config

import (
	"slices"
	"strings"
)

// flag says something about a row of the table.
type flag uint8

const (
	acts        flag = 1 << iota // kbroker acts on it
	internal                     // accepted, but not listed by DescribeConfigs
	perListener                  // dynamic only with a listener's prefix
	onlyDynamic                  // never in server.properties
)

// null is a default that is no value at all.
const null = "\x00"

// row is a broker key of the table.
type row struct {
	name       string
	typ        Type
	def        string
	check      *check
	scope      Scope
	importance Importance
	flags      flag
	doc        string
}

// topicRow is a topic key of the table.
type topicRow struct {
	name       string
	typ        Type
	def        string
	check      *check
	brokerKey  string // the broker key with the highest precedence, or ""
	importance Importance
	flags      flag
	doc        string
}

// key is what a row becomes: the exported Key, the check and the flags.
type key struct {
	Key
	check *check
	flags flag
	def   value // the parsed default
}

func (k *key) is(f flag) bool { return k.flags&f != 0 }

// parse reads and checks a raw value.
func (k *key) parse(raw string) (value, *InvalidError) {
	v, problem := parseType(k.Type, raw)
	if problem != "" {
		return v, k.invalid(raw, problem)
	}
	if k.check != nil {
		if blame, problem := k.check.ok(k.Type, v); problem != "" {
			return v, k.invalid(blame, strings.Replace(problem, "%s", k.Name, 1))
		}
	}
	return v, nil
}

func (k *key) invalid(blame, problem string) *InvalidError {
	if k.Sensitive {
		blame = hidden
	}
	return &InvalidError{Key: k.Name, Value: blame, Problem: problem, kind: badValue,
		text: "Invalid value " + blame + " for configuration " + k.Name + ": " + problem}
}

const hidden = "[hidden]"

var (
	brokerTable = map[string]*key{}
	brokerNames []string // sorted
	topicTable  = map[string]*key{}
	topicOrder  []*key // as Kafka checks them
)

func init() {
	for _, rows := range [][]row{generalKeys, networkKeys, logKeys, replicationKeys, coordinatorKeys, securityKeys,
		zookeeperKeys, kraftKeys, remoteKeys, metricsKeys, ownKeys} {
		for _, r := range rows {
			addBrokerKey(r)
		}
	}
	slices.Sort(brokerNames)
	for _, r := range topicRows {
		k := newKey(Key{Name: r.name, Type: r.typ, Importance: r.importance, Doc: r.doc, BrokerKey: r.brokerKey, Scope: ClusterWide}, r.def, r.check, r.flags)
		topicTable[r.name] = k
		topicOrder = append(topicOrder, k)
	}
}

func addBrokerKey(r row) {
	if brokerTable[r.name] != nil {
		panic("config: " + r.name + " is in the table twice")
	}
	brokerTable[r.name] = newKey(Key{Name: r.name, Type: r.typ, Scope: r.scope, Importance: r.importance, Doc: r.doc}, r.def, r.check, r.flags)
	brokerNames = append(brokerNames, r.name)
}

func newKey(out Key, def string, c *check, f flag) *key {
	k := &key{Key: out, check: c, flags: f}
	k.Sensitive = k.Type == Password
	k.Acted, k.Internal = k.is(acts), k.is(internal)
	k.def = value{null: true}
	if def != null {
		k.HasDefault, k.Default = true, def
		v, problem := parseType(k.Type, def)
		if problem != "" {
			panic("config: default of " + k.Name + ": " + problem)
		}
		k.def = v
	}
	if c != nil {
		k.Valid = c.valid
	}
	k.Validate = func(raw string) error {
		if _, err := k.parse(raw); err != nil {
			return err
		}
		return nil
	}
	return k
}

// BrokerKeys lists the table of broker keys, sorted by name.
func BrokerKeys() []Key {
	out := make([]Key, 0, len(brokerNames))
	for _, n := range brokerNames {
		out = append(out, brokerTable[n].Key)
	}
	return out
}

// BrokerKey finds a broker key.
func BrokerKey(name string) (Key, bool) {
	if k := brokerTable[name]; k != nil {
		return k.Key, true
	}
	return Key{}, false
}

// TopicKeys lists the table of topic keys, sorted by name.
func TopicKeys() []Key {
	out := make([]Key, 0, len(topicOrder))
	for _, k := range topicOrder {
		out = append(out, k.Key)
	}
	slices.SortFunc(out, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// TopicKey finds a topic key.
func TopicKey(name string) (Key, bool) {
	if k := topicTable[name]; k != nil {
		return k.Key, true
	}
	return Key{}, false
}

// chains are keys that stand for one setting, the first that is set counting.
var chains = map[string][]string{
	"log.roll.ms":           {"log.roll.ms", "log.roll.hours"},
	"log.roll.hours":        {"log.roll.ms", "log.roll.hours"},
	"log.roll.jitter.ms":    {"log.roll.jitter.ms", "log.roll.jitter.hours"},
	"log.roll.jitter.hours": {"log.roll.jitter.ms", "log.roll.jitter.hours"},
	"log.retention.ms":      {"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
	"log.retention.minutes": {"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
	"log.retention.hours":   {"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
	"log.flush.interval.ms": {"log.flush.interval.ms", "log.flush.scheduler.interval.ms"},
}

// synonyms lists the keys that may hold the value of name, itself included,
// in order of precedence. A listener's key gives way to the base key.
func synonyms(name string) []string {
	if c := chains[name]; c != nil {
		return c
	}
	if _, base, ok := splitListenerKey(name); ok {
		return []string{name, base}
	}
	return []string{name}
}

// mechanismKeys may have a SASL mechanism between the listener and the key.
var mechanismKeys = []string{"sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class",
	"sasl.server.callback.handler.class", "connections.max.reauth.ms"}

// splitListenerKey takes listener.name.LISTENER.[MECHANISM.]KEY apart.
func splitListenerKey(name string) (listener, base string, ok bool) {
	rest, ok := strings.CutPrefix(name, "listener.name.")
	if !ok {
		return "", "", false
	}
	listener, base, ok = strings.Cut(rest, ".")
	if !ok {
		return "", "", false
	}
	for _, m := range mechanismKeys {
		if strings.HasSuffix(base, m) {
			return listener, m, true
		}
	}
	return listener, base, true
}

// keyOf finds the broker key that gives a name its type: itself or, for a
// listener's key, the base.
func keyOf(name string) *key {
	if k := brokerTable[name]; k != nil {
		return k
	}
	for _, n := range synonyms(name) {
		if k := brokerTable[n]; k != nil {
			return k
		}
	}
	return nil
}
