//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// kraftVersion is the version of the subject that has the consumer protocol.
var kraftVersion = env("KBROKER_KRAFT_VERSION", newestJavaVersion)

// kraftClusterID is what its storage is formatted with; every one is alone.
const kraftClusterID = "MDEyMzQ1Njc4OWFiY2RlZg"

// kraftJars is the directory of the jars of a Kafka 4.x and its tools.
func kraftJars(version string) (string, error) {
	kraftJarsMu.Lock()
	defer kraftJarsMu.Unlock()
	return cached("kafka-"+version, version+mustRead("integration/java/kraft/pom.xml"), copyJars("kraft/pom.xml", "-Dkafka.version="+version))
}

var kraftJarsMu sync.Mutex

// kraftCommand is javaCommand for Kafka 4.x, which logs by log4j 2.
func kraftCommand(heapMB int, classpath string, args ...string) []string {
	return jvm(heapMB, "-Dlog4j2.configurationFile=file:"+filepath.Join(repoRoot, "integration", "java", "log4j2.properties"), classpath, args...)
}

// layOutKRaft makes the broker its own controller and formats its storage, which
// Kafka 4.x wants done before its first start.
func (b *broker) layOutKRaft(t testing.TB) {
	t.Helper()
	delete(b.props, "zookeeper.session.timeout.ms")
	controller := "127.0.0.1:" + strconv.Itoa(freePort(t))
	for key, value := range map[string]string{
		"process.roles":             "broker,controller",
		"node.id":                   strconv.Itoa(b.id),
		"controller.quorum.voters":  fmt.Sprintf("%d@%s", b.id, controller),
		"controller.listener.names": "CONTROLLER",
		"listeners":                 fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://%s", b.addr(), controller),
		"log.dirs":                  filepath.Join(b.dir, "data"),
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
	} {
		b.setDefault(key, value)
	}
	b.writeProps(t)
	jars, err := kraftJars(kraftVersion)
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, time.Minute, "", kraftCommand(128, jars+"/*", "kafka.tools.StorageTool", "format", "-t", kraftClusterID, "-c", b.propsPath())...)
	if err != nil {
		t.Fatalf("format the storage of Kafka %s: %v\n%s", kraftVersion, err, out)
	}
}

// newestTool runs a command-line tool of the newest Kafka.
func newestTool(t testing.TB, class string, args ...string) string {
	t.Helper()
	jars, err := kraftJars(newestJavaVersion)
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, 2*time.Minute, "", kraftCommand(256, jars+"/*", append([]string{class}, args...)...)...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", class, strings.Join(args, " "), err, out)
	}
	return out
}

var (
	kraftShared sharedSlot
	kraftReady  sync.Once
)

// sharedConsumerGroups is the broker of the cases of the consumer protocol
// (KIP-848). Kafka 3.9.2 does not have it with ZooKeeper: where that is the
// subject, Kafka 4.x stands for it.
func sharedConsumerGroups(t testing.TB) *broker {
	t.Helper()
	if subject == kbroker {
		return sharedGroups(t)
	}
	slow(t)
	b := kraftShared.get(t, withKind(kraft), withGroups())
	kraftReady.Do(func() { awaitCoordinator(t, b, "ready") })
	return b
}
