package config_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/config"
)

var update = flag.Bool("update", false, "write docs/config.md anew")

const docsPath = "../docs/config.md"

// docs/config.md is made of the table: go test ./config -run Docs -update
func TestDocsAreFresh(t *testing.T) {
	want := docs()
	if *update {
		if err := os.WriteFile(docsPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/config.md is not what the table says; run: go test ./config -run Docs -update")
	}
}

func docs() string {
	var own, listed, unlisted []config.Key
	acted := 0
	for _, k := range config.BrokerKeys() {
		if k.Acted {
			acted++
		}
		switch {
		case strings.HasPrefix(k.Name, "kbroker."):
			own = append(own, k)
		case k.Internal:
			unlisted = append(unlisted, k)
		default:
			listed = append(listed, k)
		}
	}
	var sb strings.Builder
	fmt.Fprintf(&sb, `# Configuration

Made from the table in `+"`config/`"+` by `+"`go test ./config -run Docs -update`"+`; do not edit.

kbroker reads Kafka 3.9's `+"`server.properties`"+`: the same names, defaults and units. Of the %d broker keys it acts on %d
so far (column "acted on"). A key that it does not act on and that is set to other than its default, and a key that
nobody knows, get one warning at the start; `+"`--strict-config`"+` makes them errors. A bad value ends the start.

- Times are whole numbers in the unit of the key's name, sizes are bytes; no suffixes. Lists are separated by commas.
- "dynamic" tells whether a key can be changed while the broker runs (`+"`kafka-configs --alter --entity-type brokers`"+`):
  *no*, for one *broker* at a time, or for the *cluster* (and then for one broker, too).
- A key that several spellings share takes the first that is set: log.retention.ms, .minutes, .hours; log.roll.ms, .hours;
  log.roll.jitter.ms, .hours; log.flush.interval.ms, log.flush.scheduler.interval.ms. node.id is another name of broker.id.
- `+"`listener.name.LISTENER.KEY`"+`, LISTENER in lower case, sets max.connections, max.connection.creation.rate and the ssl.*
  and sasl.* keys for one listener; sasl.jaas.config and its like have the mechanism between, as in
  `+"`listener.name.LISTENER.plain.sasl.jaas.config`"+`.
- Without zookeeper.connect the metadata is in a store of kbroker's own, beside the data, and internal topics have one
  replica by default.
- Without a file kbroker starts with broker.id=0, listeners=PLAINTEXT://localhost:9092, a data directory of its own,
  group.initial.rebalance.delay.ms=0 and group.coordinator.rebalance.protocols=classic,consumer.
- process.roles, controller.listener.names, controller.quorum.voters, controller.quorum.bootstrap.servers and
  zookeeper.metadata.migration.enable make a KRaft node; kbroker refuses to start with them.

## kbroker's own keys

`, len(listed)+len(unlisted), acted-actedIn(own))
	table(&sb, own, true)
	sb.WriteString("\n## Topic keys\n\nSet when a topic is created or altered; the broker key gives the default.\n\n")
	topicTable(&sb)
	sb.WriteString("\n## Broker keys\n\n")
	table(&sb, listed, true)
	sb.WriteString("\n## Keys that DescribeConfigs does not list\n\n")
	table(&sb, unlisted, false)
	return sb.String()
}

func actedIn(keys []config.Key) int {
	n := 0
	for _, k := range keys {
		if k.Acted {
			n++
		}
	}
	return n
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func defaultOf(k config.Key) string {
	switch {
	case !k.HasDefault:
		return "none"
	case k.Default == "":
		return "empty"
	}
	return "`" + k.Default + "`"
}

func typeOf(k config.Key) string {
	s := strings.ToLower(k.Type.String())
	if k.Valid != "" {
		s += ": " + k.Valid
	}
	return strings.ReplaceAll(s, "|", "\\|")
}

func table(sb *strings.Builder, keys []config.Key, dynamic bool) {
	head := "| key | type | default | dynamic | acted on | what it does |\n|---|---|---|---|---|---|\n"
	if !dynamic {
		head = "| key | type | default | acted on | what it does |\n|---|---|---|---|---|\n"
	}
	sb.WriteString(head)
	for _, k := range keys {
		fmt.Fprintf(sb, "| `%s` | %s | %s | ", k.Name, typeOf(k), defaultOf(k))
		if dynamic {
			fmt.Fprintf(sb, "%s | ", map[config.Scope]string{config.ReadOnly: "no", config.PerBroker: "broker", config.ClusterWide: "cluster"}[k.Scope])
		}
		fmt.Fprintf(sb, "%s | %s |\n", yes(k.Acted), k.Doc)
	}
}

func topicTable(sb *strings.Builder) {
	sb.WriteString("| key | type | default | broker key | acted on | what it does |\n|---|---|---|---|---|---|\n")
	for _, k := range config.TopicKeys() {
		broker := ""
		if k.BrokerKey != "" {
			broker = "`" + k.BrokerKey + "`"
		}
		fmt.Fprintf(sb, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, typeOf(k), defaultOf(k), broker, yes(k.Acted), k.Doc)
	}
}
