//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	topicCommand      = "org.apache.kafka.tools.TopicCommand"
	configCommand     = "kafka.admin.ConfigCommand"
	getOffsetShell    = "org.apache.kafka.tools.GetOffsetShell"
	logDirsCommand    = "org.apache.kafka.tools.LogDirsCommand"
	deleteRecords     = "org.apache.kafka.tools.DeleteRecordsCommand"
	producerPerf      = "org.apache.kafka.tools.ProducerPerformance"
	consoleProducer   = "kafka.tools.ConsoleProducer"
	brokerAPIVersions = "kafka.admin.BrokerApiVersionsCommand"
	dumpLogSegments   = "kafka.tools.DumpLogSegments"
	consoleConsumer   = "org.apache.kafka.tools.consumer.ConsoleConsumer"
)

func wantMatch(t testing.TB, what, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(got) {
		t.Errorf("%s: no match of %s in\n%s", what, pattern, got)
	}
}

func TestToolTopicCommand(t *testing.T) {
	slow(t)
	b := shared(t)
	topic := topicName(t)
	server := []string{"--bootstrap-server", b.addr()}
	cmd := func(args ...string) string { return tool(t, topicCommand, append(slices.Clone(server), args...)...) }
	wantMatch(t, "create", cmd("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=9999"), `Created topic `+regexp.QuoteMeta(topic))
	awaitTopic(t, dial(t, b), topic, 2)
	if list := lines(cmd("--list")); !slices.Contains(list, topic) {
		t.Errorf("the list lacks the topic: %q", list)
	}
	described := cmd("--describe", "--topic", topic)
	wantMatch(t, "describe", described, `Topic: \S+\tTopicId: \S{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: .*retention\.ms=9999`)
	wantMatch(t, "describe", described, `Partition: 1\tLeader: 1\tReplicas: 1\tIsr: 1`)
	cmd("--alter", "--topic", topic, "--partitions", "3")
	awaitTopic(t, dial(t, b), topic, 3)
	out, err := tryTool(t, "", topicCommand, append(slices.Clone(server), "--create", "--topic", topic)...)
	if err == nil || !strings.Contains(out, "already exists") {
		t.Errorf("create again: %v\n%s", err, out)
	}
	cmd("--create", "--if-not-exists", "--topic", topic)
	if out := cmd("--describe", "--unavailable-partitions"); strings.Contains(out, topic) {
		t.Errorf("unavailable: %s", out)
	}
	cmd("--delete", "--topic", topic)
	eventually(t, waitMetadata, "the topic is gone", func() error {
		if code := metadataOf(t, dial(t, b), topic).ErrorCode; code != errUnknownTopicOrPartition {
			return fmt.Errorf("metadata error %d", code)
		}
		return nil
	})
}

func TestToolConfigCommand(t *testing.T) {
	slow(t)
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	cmd := func(args ...string) string {
		return tool(t, configCommand, append([]string{"--bootstrap-server", b.addr(), "--entity-type", "topics", "--entity-name", topic}, args...)...)
	}
	wantMatch(t, "alter", cmd("--alter", "--add-config", "retention.ms=1234,cleanup.policy=[compact,delete]"), "Completed updating config for topic")
	awaitConfig(t, w, topic, "cleanup.policy", "compact,delete", sourceTopic)
	described := cmd("--describe")
	wantMatch(t, "describe", described, `retention\.ms=1234 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention\.ms=1234`)
	wantMatch(t, "describe all", cmd("--describe", "--all"), `segment\.bytes=1073741824 sensitive=false synonyms=\{DEFAULT_CONFIG:log\.segment\.bytes=1073741824\}`)
	cmd("--alter", "--delete-config", "retention.ms")
	awaitConfig(t, w, topic, "retention.ms", "604800000", sourceDefault)
	out, err := tryTool(t, "", configCommand, "--bootstrap-server", b.addr(), "--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", "retention.ms=soon")
	if err == nil || !strings.Contains(out, "InvalidConfigurationException") {
		t.Errorf("bad value: %v\n%s", err, out)
	}
	broker := tool(t, configCommand, "--bootstrap-server", b.addr(), "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
	wantMatch(t, "broker", broker, `num\.io\.threads=4 sensitive=false synonyms=\{STATIC_BROKER_CONFIG:num\.io\.threads=4, DEFAULT_CONFIG:num\.io\.threads=8\}`)
}

func TestToolGetOffsetShell(t *testing.T) {
	slow(t)
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 2)
	for i := range int64(5) {
		produce(t, w, topic, 1, batch{recs: values(1000*(i+1), "v")}.bytes())
	}
	for _, c := range []struct{ time, want string }{{"latest", "1:5"}, {"earliest", "1:0"}, {"max-timestamp", "1:4"}, {"2500", "1:2"}} {
		got := lines(tool(t, getOffsetShell, "--bootstrap-server", b.addr(), "--topic-partitions", topic+":1", "--time", c.time))
		if !slices.Contains(got, topic+":"+c.want) {
			t.Errorf("--time %s: %q, want %s:%s", c.time, got, topic, c.want)
		}
	}
}

func TestToolLogDirsCommand(t *testing.T) {
	slow(t)
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	raw := batch{recs: []rec{{ts: now, value: filler(3000)}}}.bytes()
	produce(t, w, topic, 0, raw)
	out := tool(t, logDirsCommand, "--bootstrap-server", b.addr(), "--describe", "--topic-list", topic)
	var got struct {
		Brokers []struct {
			Broker  int
			LogDirs []struct {
				LogDir     string
				Error      *string
				Partitions []struct {
					Partition       string
					Size, OffsetLag int64
					IsFuture        bool
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(jsonLine(out)), &got); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	d := got.Brokers[0].LogDirs[0]
	if got.Brokers[0].Broker != 1 || d.LogDir != b.logDirs()[0] || d.Error != nil || len(d.Partitions) != 1 {
		t.Fatalf("described as %+v", got)
	}
	if p := d.Partitions[0]; p.Partition != topic+"-0" || p.Size != int64(len(raw)) || p.OffsetLag != 0 || p.IsFuture {
		t.Errorf("partition %+v, want size %d", p, len(raw))
	}
}

// jsonLine is the line of a tool's output that is an object.
func jsonLine(out string) string {
	for _, line := range lines(out) {
		if strings.HasPrefix(line, "{") {
			return line
		}
	}
	return ""
}

func TestToolDeleteRecords(t *testing.T) {
	slow(t)
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for range 5 {
		produce(t, w, topic, 0, batch{recs: values(now, "v")}.bytes())
	}
	path := filepath.Join(tempDir(t, "delete"), "offsets.json")
	text := fmt.Sprintf(`{"partitions":[{"topic":%q,"partition":0,"offset":3}],"version":1}`, topic)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out := tool(t, deleteRecords, "--bootstrap-server", b.addr(), "--offset-json-file", path)
	wantMatch(t, "delete records", out, `partition: `+regexp.QuoteMeta(topic)+`-0\s+low_watermark: 3`)
	wantOffset(t, w, topic, tsEarliest, 3, -1)
}

func TestToolProducerPerformance(t *testing.T) {
	slow(t)
	b := shared(t)
	topic := topicName(t)
	createTopic(t, b, topic, 3)
	out := tool(t, producerPerf, "--topic", topic, "--num-records", "20000", "--record-size", "500", "--throughput", "-1",
		"--producer-props", "bootstrap.servers="+b.addr(), "acks=all", "compression.type=lz4")
	wantMatch(t, "producer performance", out, `(?m)^20000 records sent, [0-9.,]+ records/sec`)
	var total int64
	for p := range int32(3) {
		total += listOffsets(t, dial(t, b), topic, p, tsLatest).Offset
	}
	if total != 20000 {
		t.Errorf("%d records in the log, want 20000", total)
	}
}

func TestToolConsole(t *testing.T) {
	slow(t)
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	out, err := tryTool(t, "h:1\tk1\tone\nh:2\tk2\ttwo\n", consoleProducer, "--bootstrap-server", b.addr(), "--topic", topic,
		"--property", "parse.key=true", "--property", "parse.headers=true")
	if err != nil {
		t.Fatalf("console producer: %v\n%s", err, out)
	}
	recs := records(t, readAll(t, w, topic, 0, 0))
	wantStrings(t, "values", plain(recs), []string{"one", "two"})
	if string(recs[1].key) != "k2" || len(recs[1].headers) != 1 || string(recs[1].headers[0].Value) != "2" {
		t.Errorf("second record %+v", recs[1])
	}
	// With a partition named the console consumer assigns and needs no group.
	out = tool(t, consoleConsumer, "--bootstrap-server", b.addr(), "--topic", topic, "--partition", "0", "--offset", "earliest",
		"--max-messages", "2", "--property", "print.key=true", "--property", "print.offset=true", "--timeout-ms", "20000")
	wantMatch(t, "console consumer", out, `(?m)^Offset:0\tk1\tone$`)
	wantMatch(t, "console consumer", out, `(?m)^Offset:1\tk2\ttwo$`)
}

func TestToolBrokerAPIVersions(t *testing.T) {
	slow(t)
	b := shared(t)
	out := tool(t, brokerAPIVersions, "--bootstrap-server", b.addr())
	wantMatch(t, "first line", out, regexp.QuoteMeta(b.addr())+` \(id: 1 rack: null\) -> \(`)
	stock := stockVersions(t)
	for _, key := range issueAPIs {
		r := stock[key]
		versions := strconv.Itoa(int(r.max))
		if r.min != r.max {
			versions = fmt.Sprintf("%d to %d", r.min, r.max)
		}
		wantMatch(t, fmt.Sprint("key ", key), out, fmt.Sprintf(`\(%d\): %s \[usable: \d+\]`, key, versions))
	}
}
