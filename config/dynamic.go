package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// clusterListenerKeys may be set for a listener in the cluster's default; a
// listener's other keys are for one broker at a time.
var clusterListenerKeys = []string{"max.connections", "max.connection.creation.rate", "num.network.threads"}

// ValidateDynamic checks a whole set of dynamic broker configs before it is
// stored: those of this broker, or those of the cluster's default. b is what is
// in force now. Keys that nobody knows are a plugin's, and accepted.
func (b *Broker) ValidateDynamic(v Values, perBroker bool) error {
	names := slices.Sorted(maps.Keys(v))
	for _, name := range names {
		if problem := dynamicProblem(name, perBroker); problem != "" {
			return invalidf(name, v[name], problem)
		}
	}
	for _, name := range names {
		if err := checkDynamicValue(name, v[name]); err != nil {
			return err
		}
	}
	next := overlay(overlay(b.static, b.clusterDefault), v)
	if !perBroker {
		next = overlay(overlay(b.static, v), b.perBroker)
	}
	n := &Broker{defaults: b.defaults, static: b.static}
	if err := n.fill(next); err != nil {
		return err
	}
	if err := b.checkChange(n); err != nil {
		return err
	}
	return nil
}

// dynamicProblem says why a key cannot be set dynamically at this level.
func dynamicProblem(name string, perBroker bool) string {
	k := brokerTable[name]
	_, base, listener := splitListenerKey(name)
	switch {
	case k != nil && k.Scope == ReadOnly:
		return "cannot be changed while the broker runs; set it in server.properties and restart"
	case k != nil && k.is(perListener):
		return "can be changed for one listener at a time only; write listener.name.LISTENER." + name
	case isPassword(name):
		return "kbroker stores no passwords in dynamic configs; set it in server.properties and restart"
	case perBroker:
		return ""
	case k != nil && k.Scope == PerBroker, listener && !contains(clusterListenerKeys, base):
		return "can be changed for one broker at a time only; name a broker id"
	}
	return ""
}

func isPassword(name string) bool {
	k := keyOf(name)
	return k != nil && k.Type == Password
}

func checkDynamicValue(name, raw string) *InvalidError {
	k := keyOf(name)
	if k == nil {
		return nil
	}
	_, err := k.parse(raw)
	return err
}

// FilterDynamic takes out of stored dynamic configs what cannot be applied, as
// Kafka does when it reads them: each with a warning, the rest counts.
func FilterDynamic(v Values, perBroker bool) (Values, []Warning) {
	out := make(Values, len(v))
	var warnings []Warning
	for _, name := range slices.Sorted(maps.Keys(v)) {
		problem := dynamicProblem(name, perBroker)
		if err := checkDynamicValue(name, v[name]); problem == "" && err != nil {
			problem = err.Problem
		}
		if problem == "" {
			out[name] = v[name]
			continue
		}
		warnings = append(warnings, Warning{name, "stored dynamic config is ignored: " + problem})
	}
	return out, warnings
}

// pools are sizes that may at most double or halve in one change.
var pools = []string{"num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads",
	"log.cleaner.threads", "num.network.threads"}

// checkChange refuses steps that Kafka refuses although both ends are valid.
func (b *Broker) checkChange(n *Broker) *InvalidError {
	for _, name := range pools {
		was, is := b.set.int(name), n.set.int(name)
		switch {
		case was == is:
		case is < 1:
			return n.set.bad(name, "must be 1 or more")
		case is < was/2:
			return n.set.bad(name, fmt.Sprintf("is less than half of the current %d; go down in steps", was))
		case is > was*2:
			return n.set.bad(name, fmt.Sprintf("is more than twice the current %d; go up in steps", was))
		}
	}
	for _, name := range []string{"max.connections", "max.connection.creation.rate"} {
		for _, full := range append([]string{name}, n.listenerSpellings(name)...) {
			if raw, ok := n.Raw[full]; ok && b.Raw[full] != raw {
				if v, _ := parseType(Int, raw); v.n <= 0 {
					return invalidf(full, raw, "must be 1 or more")
				}
			}
		}
	}
	if err := n.set.checkLocalRetention(); err != nil {
		return err
	}
	return b.checkListenerChange(n)
}

func (b *Broker) listenerSpellings(name string) []string {
	var out []string
	for _, l := range b.Listeners {
		out = append(out, listenerPrefix(l.Name)+name)
	}
	return out
}

// checkLocalRetention compares the local retention of tiered topics with the
// whole retention; -2 stands for the same.
func (s *settings) checkLocalRetention() *InvalidError {
	for _, c := range []struct {
		name  string
		whole int64
		of    string
	}{
		{"log.local.retention.ms", s.retentionMs(), "log.retention.ms"},
		{"log.local.retention.bytes", s.int("log.retention.bytes"), "log.retention.bytes"},
	} {
		local := s.int(c.name)
		if c.whole < 0 || local == -2 {
			continue
		}
		if local == -1 || local > c.whole {
			return s.bad(c.name, fmt.Sprintf("is above %s=%d", c.of, c.whole))
		}
	}
	return nil
}

// checkListenerChange keeps the listeners that stay as they are but for what
// may change while they are open.
func (b *Broker) checkListenerChange(n *Broker) *InvalidError {
	for _, is := range n.Listeners {
		i := slices.IndexFunc(b.Listeners, func(l Listener) bool { return l.Name == is.Name })
		if i < 0 {
			continue
		}
		if b.Listeners[i].Protocol != is.Protocol {
			return n.set.bad("listener.security.protocol.map", "the protocol of listener "+is.Name+" cannot change while it is open; add another listener")
		}
		prefix := listenerPrefix(is.Name)
		for _, name := range slices.Sorted(maps.Keys(union(b.Raw, n.Raw))) {
			base, ok := strings.CutPrefix(name, prefix)
			if !ok || b.Raw[name] == n.Raw[name] || contains(clusterListenerKeys, base) {
				continue
			}
			if k := brokerTable[base]; k == nil || !k.is(perListener) {
				return n.set.bad(name, "cannot change while listener "+is.Name+" is open; add another listener, or restart")
			}
		}
	}
	return nil
}

func union(a, b Values) Values {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
