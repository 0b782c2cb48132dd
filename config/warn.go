package config

import (
	"maps"
	"slices"
	"strings"
)

// retired are keys of older Kafkas, with what to do instead.
var retired = map[string]string{
	"host.name":                      "use listeners",
	"port":                           "use listeners",
	"advertised.host.name":           "use advertised.listeners",
	"advertised.port":                "use advertised.listeners",
	"quota.producer.default":         "set a default client quota (kafka-configs --entity-default)",
	"quota.consumer.default":         "set a default client quota (kafka-configs --entity-default)",
	"replica.lag.max.messages":       "use replica.lag.time.max.ms",
	"zookeeper.sync.time.ms":         "it has no effect since Kafka 0.9",
	"log.cleanup.interval.mins":      "use log.retention.check.interval.ms",
	"log.cleaner.enabled":            "use log.cleaner.enable",
	"offsets.storage":                "offsets are kept in __consumer_offsets",
	"dual.commit.enabled":            "offsets are kept in __consumer_offsets",
	"replica.fetch.max.wait.ms":      "use replica.fetch.wait.max.ms",
	"inter.broker.security.protocol": "use security.inter.broker.protocol",
}

// pluginPrefixes and pluginKeys belong to classes that Kafka loads; kbroker
// knows them, so that they are not taken for typing errors.
var (
	pluginPrefixes = []string{"config.providers", "rlmm.config.", "rsm.config.", "metrics.context.", "metrics.jmx.",
		"kafka.csv.metrics.", "kafka.graphite.metrics.", "confluent.", "authorizer.zookeeper."}
	pluginKeys = []string{"super.users", "allow.everyone.if.no.acl.found"}
)

// warnings tells of each key that does nothing: unknown, a plugin's, or one
// that kbroker does not act on and that was set to other than its default.
func warnings(s *settings) []Warning {
	var out []Warning
	for _, name := range slices.Sorted(maps.Keys(s.raw)) {
		if text := s.warning(name); text != "" {
			out = append(out, Warning{name, text})
		}
	}
	return out
}

func (s *settings) warning(name string) string {
	if k := brokerTable[name]; k != nil {
		switch {
		case k.is(onlyDynamic):
			return "is set dynamically only" + ignored
		case name == "replica.selector.class" && s.str(name) != "" && s.str(name) != RackAwareSelector:
			return "kbroker knows " + RackAwareSelector + " only and loads no plugins" + ignored
		case name == "group.consumer.assignors":
			return assignorsWarning(s.parsed[name].list)
		case k.is(acts):
			return ""
		case s.parsed[name].text(k.Type) == k.def.text(k.Type) && !k.def.null:
			return ""
		case s.parsed[name].text(k.Type) == "" && (k.def.null || k.Type == List):
			return ""
		}
		return notActed(name)
	}
	if listener, base, ok := splitListenerKey(name); ok {
		return s.listenerWarning(listener, base)
	}
	if hint := retired[name]; hint != "" {
		return "Kafka has no such key any more" + ignored + "; " + hint
	}
	if k := topicTable[name]; k != nil {
		if k.BrokerKey == "" {
			return "is a topic's key" + ignored
		}
		return "is a topic's key" + ignored + "; the broker's is " + k.BrokerKey
	}
	if strings.HasPrefix(name, "zookeeper.sasl.") || name == "java.security.auth.login.config" {
		return "SASL to ZooKeeper is not supported" + ignored + "; use kbroker.zookeeper.digest or a certificate in zookeeper.ssl.keystore.location"
	}
	if contains(pluginKeys, name) || hasPrefix(pluginPrefixes, name) {
		return "kbroker loads no plugins" + ignored
	}
	if name == "" {
		return "a value without a key" + ignored
	}
	return "unknown key" + ignored + didYouMean(name)
}

func assignorsWarning(classes []string) string {
	for _, c := range classes {
		if _, ok := AssignorName(c); !ok {
			return "kbroker knows the uniform and the range assignor only and loads no plugins; " + c + " is passed over"
		}
	}
	return ""
}

func notActed(name string) string {
	switch name {
	case "authorizer.class.name":
		return "kbroker does not authorize yet: every client may do everything"
	case "inter.broker.protocol.version":
		return "kbroker speaks the inter-broker protocol of 3.9 only" + ignored
	case "log.message.format.version":
		return "records are stored in format v2, as by Kafka 3" + ignored
	}
	return "kbroker does not act on it yet"
}

// listenerKeys are the keys, beside ssl.* and sasl.*, that Kafka reads with a
// listener's prefix.
var listenerKeys = []string{"max.connections", "max.connection.creation.rate", "num.network.threads", "principal.builder.class", "connections.max.reauth.ms"}

func (s *settings) listenerWarning(listener, base string) string {
	found := false
	for _, l := range splitCSV(s.str("listeners")) {
		name, _, _ := strings.Cut(l, "://")
		found = found || strings.ToLower(name) == listener
	}
	k := brokerTable[base]
	switch {
	case k == nil || !contains(listenerKeys, base) && !strings.HasPrefix(base, "ssl.") && !strings.HasPrefix(base, "sasl."):
		return "there is no " + base + " for a single listener" + ignored + didYouMean(base)
	case !found:
		return "there is no listener " + listener + ignored + "; listener names in keys are in lower case"
	case k.is(acts):
		return ""
	}
	return "kbroker does not act on it yet"
}

func hasPrefix(prefixes []string, s string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// unresolved refuses values that a config provider would have to fill in: the
// placeholder would be taken literally, a password's too.
func unresolved(v Values) *InvalidError {
	if v["config.providers"] == "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if _, rest, ok := strings.Cut(v[name], "${"); ok && strings.Contains(rest, ":") && strings.Contains(rest, "}") {
			return invalidf(name, v[name], "kbroker has no config providers to fill this in; write the value itself")
		}
	}
	return nil
}

// didYouMean names the nearest key, if one is near.
func didYouMean(name string) string {
	best, distance := "", max(3, len(name)/3)+1
	for _, n := range brokerNames {
		if d := editDistance(name, n, distance); d < distance {
			best, distance = n, d
		}
	}
	if best == "" || best == name {
		return ""
	}
	return "; did you mean " + best + "?"
}

// editDistance counts insertions, deletions, changes and swaps of neighbours
// that turn a into b, or returns limit when there are that many or more.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
