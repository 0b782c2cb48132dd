package config

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every key that kbroker acts on reaches a field, and every field's key is
// marked so: docs/config.md cannot promise what nothing reads.
func TestActedKeysHaveFields(t *testing.T) {
	has := map[string]bool{}
	for _, f := range (&Broker{}).bindings() {
		if has[f.key] {
			t.Errorf("%s is bound twice", f.key)
		}
		has[f.key] = true
		if k := brokerTable[f.key]; k == nil || !k.is(acts) {
			t.Errorf("%s has a field and is not marked as acted on", f.key)
		}
	}
	for _, name := range []string{"broker.id", "node.id", "listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name",
		"security.inter.broker.protocol", "control.plane.listener.name", "log.dir", "log.dirs", "max.connections.per.ip.overrides",
		"group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms",
		"group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"} {
		has[name] = true // taken together with others
	}
	for _, k := range topicOrder {
		if k.BrokerKey == "" {
			continue
		}
		for _, n := range synonyms(k.BrokerKey) {
			has[n] = true
		}
		if b := brokerTable[k.BrokerKey]; b.is(acts) != k.is(acts) {
			t.Errorf("%s and %s differ in being acted on", k.Name, k.BrokerKey)
		}
	}
	for name, k := range brokerTable {
		if k.is(acts) && !has[name] {
			t.Errorf("%s is marked as acted on and reaches no field", name)
		}
	}
}

func TestTable(t *testing.T) {
	check := func(k *key) {
		if k.Doc == "" || strings.Contains(k.Doc, "\n") || strings.Contains(k.Doc, "|") || !strings.HasSuffix(k.Doc, ".") {
			t.Errorf("%s: doc %q", k.Name, k.Doc)
		}
		if k.HasDefault && k.Validate(k.Default) != nil && k.Type != Class {
			t.Errorf("%s: its default is refused: %v", k.Name, k.Validate(k.Default))
		}
		if k.HasDefault && k.def.text(k.Type) != k.Default {
			t.Errorf("%s: default %q prints as %q", k.Name, k.Default, k.def.text(k.Type))
		}
	}
	for _, k := range brokerTable {
		check(k)
	}
	for _, k := range topicOrder {
		check(k)
		if k.BrokerKey != "" && brokerTable[k.BrokerKey] == nil {
			t.Errorf("%s: no broker key %s", k.Name, k.BrokerKey)
		}
	}
	for name, chain := range chains {
		for _, c := range chain {
			if brokerTable[c] == nil {
				t.Errorf("chain of %s: no key %s", name, c)
			}
		}
	}
	for name := range retired {
		if brokerTable[name] != nil {
			t.Errorf("%s is retired and in the table", name)
		}
	}
	if !slices.IsSortedFunc(BrokerKeys(), func(a, b Key) int { return strings.Compare(a.Name, b.Name) }) || len(BrokerKeys()) != len(brokerTable) {
		t.Error("BrokerKeys")
	}
	if !slices.IsSortedFunc(TopicKeys(), func(a, b Key) int { return strings.Compare(a.Name, b.Name) }) || len(TopicKeys()) != 36 {
		t.Error("TopicKeys")
	}
}

// distanceModel is the definition of the distance (optimal string alignment),
// by recursion.
func distanceModel(a, b string) int {
	switch {
	case a == "":
		return len(b)
	case b == "":
		return len(a)
	}
	d := distanceModel(a[1:], b[1:])
	if a[0] != b[0] {
		d = 1 + min(d, distanceModel(a[1:], b), distanceModel(a, b[1:]))
	}
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		d = min(d, 1+distanceModel(a[2:], b[2:]))
	}
	return d
}

func TestEditDistance(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	word := func() string {
		b := make([]byte, r.IntN(7))
		for i := range b {
			b[i] = "abc"[r.IntN(3)]
		}
		return string(b)
	}
	for range 2000 {
		a, b, limit := word(), word(), 1+r.IntN(8)
		if got, want := editDistance(a, b, limit), min(limit, distanceModel(a, b)); got != want {
			t.Fatalf("%q %q limit %d: got %d, want %d", a, b, limit, got, want)
		}
	}
}

// Whatever a file or a request says, the answer is a value or an error.
func FuzzParseProperties(f *testing.F) {
	f.Add("listeners=PLAINTEXT://[::1]:9092\nlog.dirs=/a\\\n,/b\n")
	f.Add("a\\u00zz=1")
	f.Add("log.cleanup.policy=,,\nmax.connections.per.ip.overrides=:::1\nlistener.name.=x\nlistener.name.a.b.sasl.jaas.config=\n")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseProperties(strings.NewReader(s))
		if err != nil {
			return
		}
		b, _, err := NewBroker(v)
		if err != nil {
			if strings.Contains(s, "\n") == false && strings.Contains(err.Error(), "\n") {
				t.Fatalf("error of several lines: %q", err)
			}
			return
		}
		b.DescribeBroker(v, v)
		_, _ = b.ForTopic(v)
		_ = ValidateTopicConfig(b, v)
		_ = b.ValidateDynamic(v, len(s)%2 == 0)
	})
}
