package config_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/config"
)

// testdata/static.txt holds server.properties, each after its own, with what
// Kafka 3.9.2 makes of them: an error, or the values that take more than one
// key to find. (It always has zookeeper.connect=z besides.)
func TestStaticConfigsAsKafkaReadsThem(t *testing.T) {
	var block []string
	count := 0
	for _, line := range lines(t, "testdata/static.txt") {
		want, ok := strings.CutPrefix(line, "=> ")
		if !ok {
			if line != "----" {
				block = append(block, line)
			}
			continue
		}
		count++
		text := strings.Join(block, "\n")
		block = nil
		v, err := config.ParseProperties(strings.NewReader(text + "\nzookeeper.connect=z"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := "error"
		b, _, err := config.NewBroker(v)
		if err == nil {
			got = summary(b)
		}
		if got != want && !stricter[text] && !wider[text] {
			t.Errorf("%s\n got %s (%v)\nwant %s", text, got, err, want)
		}
		if stricter[text] && err == nil {
			t.Errorf("%s: accepted, contrary to what this test says", text)
		}
		if wider[text] && err != nil {
			t.Errorf("%s: refused, contrary to what this test says: %v", text, err)
		}
		if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "=")) {
			t.Errorf("%s: %q is not one line that names key and value", text, err)
		}
	}
	if count < 190 {
		t.Errorf("only %d cases", count)
	}
}

// stricter are the cases that kbroker refuses and Kafka lets pass, to fail
// later.
var stricter = map[string]bool{
	"listeners=PLAINTEXT://host:-1": true,
}

// wider are the cases that kbroker lets pass and Kafka refuses.
var wider = map[string]bool{
	"group.coordinator.rebalance.protocols=classic,consumer": true, // Kafka needs KRaft for it
}

func summary(b *config.Broker) string {
	endpoints := func(list []config.Listener) string {
		var out []string
		for _, l := range list {
			out = append(out, fmt.Sprintf("%s(%s)://%s:%d", l.Name, l.Protocol, l.Host, l.Port))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	d := map[string]string{}
	for _, e := range b.DescribeTopic(nil, nil, nil) {
		d[e.Name] = e.Value
	}
	var perIP []string
	for _, k := range slices.Sorted(maps.Keys(b.MaxConnectionsPerIPOverrides)) {
		perIP = append(perIP, fmt.Sprintf("%s=%d", k, b.MaxConnectionsPerIPOverrides[k]))
	}
	return fmt.Sprintf("ok id=%d listeners=%s advertised=%s inter=%s control=%s dirs=[%s] segment.ms=%s segment.jitter.ms=%s retention.ms=%s flush.ms=%s before=%s after=%s policy=[%s] zkConnectionMs=%d perIp={%s}",
		b.ID, endpoints(b.Listeners), endpoints(b.AdvertisedListeners), b.InterBrokerListener, b.ControlPlane, strings.Join(b.LogDirs, ", "),
		d["segment.ms"], d["segment.jitter.ms"], d["retention.ms"], d["flush.ms"], d["message.timestamp.before.max.ms"], d["message.timestamp.after.max.ms"],
		strings.ReplaceAll(d["cleanup.policy"], ",", ", "), b.ZooKeeperConnectionTimeout.Milliseconds(), strings.Join(perIP, ", "))
}
