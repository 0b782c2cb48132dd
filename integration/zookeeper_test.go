//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func zkBroker(t testing.TB, options ...option) *broker {
	t.Helper()
	return startBroker(t, append([]option{withZooKeeper(sharedZooKeeper(t), "/"+topicName(t))}, options...)...)
}

// wantZnode compares a znode's JSON with what Apache Kafka writes; a value of
// "*" stands for any string that is not empty. The key that kbroker adds, and
// Apache Kafka passes over, is compared where it is wanted.
func wantZnode(t testing.TB, b *broker, path, want string) {
	t.Helper()
	data, _ := b.znode(t, path)
	var gotValue, wantValue any
	if err := json.Unmarshal([]byte(want), &wantValue); err != nil {
		t.Fatal(err)
	}
	err := json.Unmarshal([]byte(data), &gotValue)
	if g, ok := gotValue.(map[string]any); ok && subject == kbroker && !strings.Contains(want, `"kbroker"`) {
		delete(g, "kbroker")
	}
	if err != nil || !matches(gotValue, wantValue) {
		t.Errorf("%s: %s, want %s", path, data, want)
	}
}

func matches(got, want any) bool {
	if want == "*" {
		s, ok := got.(string)
		return ok && s != ""
	}
	w, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(got, want)
	}
	g, ok := got.(map[string]any)
	if !ok || len(g) != len(w) {
		return false
	}
	for k := range w {
		if !matches(g[k], w[k]) {
			return false
		}
	}
	return true
}

// Registration, election, topics, states and configs stand in Kafka's znodes.
func TestZooKeeperZnodes(t *testing.T) {
	slow(t)
	b := zkBroker(t)
	w := dial(t, b)
	for _, path := range []string{
		"/admin", "/admin/delete_topics", "/brokers", "/brokers/ids", "/brokers/seqid", "/brokers/topics", "/cluster", "/cluster/id", "/config",
		"/config/brokers", "/config/changes", "/config/clients", "/config/ips", "/config/topics", "/config/users", "/consumers", "/controller",
		"/controller_epoch", "/feature", "/isr_change_notification", "/latest_producer_id_block", "/log_dir_event_notification",
	} {
		if path == "/latest_producer_id_block" {
			initProducer(t, w)
		}
		if found, _, err := b.zk.client(t).Exists(b.chroot() + path); err != nil || !found {
			t.Errorf("%s: found %v, %v", path, found, err)
		}
	}
	wantZnode(t, b, "/brokers/ids/1", fmt.Sprintf(`{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:%d"],"jmx_port":-1,"port":%d,"host":"127.0.0.1","version":5,"timestamp":"*"}`, b.port, b.port))
	wantZnode(t, b, "/controller", `{"version":2,"brokerid":1,"timestamp":"*","kraftControllerEpoch":-1}`)
	wantZnode(t, b, "/controller_epoch", `1`)
	wantZnode(t, b, "/cluster/id", `{"version":"1","id":"*"}`)
	wantZnode(t, b, "/feature", `{"features":{},"version":2,"status":1}`)
	wantZnode(t, b, "/latest_producer_id_block", `{"version":1,"broker":1,"block_start":"0","block_end":"999"}`)
	for _, path := range []string{"/brokers/ids/1", "/controller"} {
		if _, stat := b.znode(t, path); stat.EphemeralOwner == 0 {
			t.Errorf("%s is not ephemeral", path)
		}
	}

	topic := "zk"
	createTopic(t, b, topic, 2, "retention.ms", "1000000", "cleanup.policy", "compact")
	wantZnode(t, b, "/brokers/topics/zk", `{"partitions":{"0":[1],"1":[1]},"topic_id":"*","adding_replicas":{},"removing_replicas":{},"version":3}`)
	joined := ""
	if subject == kbroker { // the broker epoch in which each member of the ISR joined
		_, stat := b.znode(t, "/brokers/ids/1")
		joined = fmt.Sprintf(`,"kbroker":{"version":1,"joined":[%d]}`, stat.Czxid)
	}
	wantZnode(t, b, "/brokers/topics/zk/partitions/0/state", `{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]`+joined+`}`)
	wantZnode(t, b, "/config/topics/zk", `{"version":1,"config":{"retention.ms":"1000000","cleanup.policy":"compact"}}`)
	wantCode(t, "alter", alter(t, w, topic, set("retention.ms", "7"), unset("cleanup.policy")), errNone)
	awaitConfig(t, w, topic, "retention.ms", "7", sourceTopic)
	wantZnode(t, b, "/config/topics/zk", `{"version":1,"config":{"retention.ms":"7"}}`)
	if changes := b.children(t, "/config/changes"); len(changes) == 0 {
		t.Error("a config change was not notified")
	} else {
		wantZnode(t, b, "/config/changes/"+changes[len(changes)-1], `{"version":2,"entity_path":"topics/zk"}`)
	}
	deleteTopic(t, w, topic)
	eventually(t, waitMetadata, "the topic's znodes are gone", func() error {
		for _, path := range []string{"/brokers/topics/zk", "/config/topics/zk", "/admin/delete_topics/zk"} {
			if found, _, err := b.zk.client(t).Exists(b.chroot() + path); err != nil || found {
				return fmt.Errorf("%s: found %v, %v", path, found, err)
			}
		}
		return nil
	})
	b.stop(t)
	for _, path := range []string{"/brokers/ids/1", "/controller"} {
		if found, _, err := b.zk.client(t).Exists(b.chroot() + path); err != nil || found {
			t.Errorf("%s after the stop: found %v, %v", path, found, err)
		}
	}
	b.start(t)
	wantZnode(t, b, "/controller_epoch", `2`)
	b.stop(t)
}

// What another broker or a tool writes into ZooKeeper is acted on: a topic, a
// config, a deletion.
func TestZooKeeperWritesOfOthers(t *testing.T) {
	slow(t)
	b := zkBroker(t)
	w, c := dial(t, b), b.zk.client(t)
	put := func(path, data string, flags int32) {
		t.Helper()
		if _, err := c.Create(b.chroot()+path, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("create %s: %v", path, err)
		}
	}
	put("/config/topics/given", `{"version":1,"config":{"max.message.bytes":"500"}}`, 0)
	put("/brokers/topics/given", `{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAIg","partitions":{"0":[1],"1":[1]},"adding_replicas":{},"removing_replicas":{}}`, 0)
	made := awaitTopic(t, w, "given", 2)
	if made.TopicID != [16]byte{15: 0x22} {
		t.Errorf("topic id %x", made.TopicID)
	}
	wantCode(t, "too large", tryProduce(t, w, "given", 1, batch{recs: []rec{{ts: now, value: filler(600)}}}.bytes()).ErrorCode, errMessageTooLarge)
	if _, err := c.Set(b.chroot()+"/config/topics/given", []byte(`{"version":1,"config":{"max.message.bytes":"5000"}}`), -1); err != nil {
		t.Fatal(err)
	}
	put("/config/changes/config_change_", `{"version":2,"entity_path":"topics/given"}`, zk.FlagSequence)
	eventually(t, waitMetadata, "the new limit holds", func() error {
		if code := tryProduce(t, w, "given", 1, batch{recs: []rec{{ts: now, value: filler(600)}}}.bytes()).ErrorCode; code != errNone {
			return fmt.Errorf("error %d", code)
		}
		return nil
	})
	put("/admin/delete_topics/given", "", 0)
	eventually(t, waitMetadata, "the topic is gone", func() error {
		if code := metadataOf(t, w, "given").ErrorCode; code != errUnknownTopicOrPartition {
			return fmt.Errorf("metadata error %d", code)
		}
		return nil
	})
	b.stop(t)
}

// The session to ZooKeeper ends: the broker registers anew, is the controller
// again and serves on.
func TestZooKeeperSessionLost(t *testing.T) {
	slow(t)
	b := zkBroker(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	_, before := b.znode(t, "/brokers/ids/1")
	// What an expired session looks like: its ephemerals are gone.
	closeSession(t, b, before.EphemeralOwner)
	eventually(t, time.Minute, "it registers anew", func() error {
		_, stat, err := b.zk.client(t).Get(b.chroot() + "/brokers/ids/1")
		if err != nil {
			return err
		}
		if stat.EphemeralOwner == before.EphemeralOwner {
			return errors.New("still the old session")
		}
		_, _, err = b.zk.client(t).Get(b.chroot() + "/controller")
		return err
	})
	b.awaitServing(t)
	awaitTopic(t, w, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(now, "a")}.bytes())
	createTopic(t, b, topicName(t), 1)
	b.stop(t)
}

// closeSession ends another's session by taking it over: a client that connects
// with its id and password could close it; without the password, a pause of the
// process beyond the time-out does the same.
func closeSession(t testing.TB, b *broker, owner int64) {
	t.Helper()
	b.proc.signal(stopSignal)
	eventually(t, time.Minute, "the session expires", func() error {
		_, stat, err := b.zk.client(t).Get(b.chroot() + "/brokers/ids/1")
		if err == nil && stat.EphemeralOwner == owner {
			return errors.New("still registered")
		}
		return nil
	})
	b.proc.signal(continueSignal)
}

// A broker that was killed and comes back within its old session waits for that
// to end. (Apache Kafka exits with NODEEXISTS.)
func TestZooKeeperBackWithinSession(t *testing.T) {
	slow(t)
	onlyKbroker(t, "Apache Kafka does not wait")
	b := zkBroker(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(now, "a")}.bytes())
	b.crash(t)
	b.start(t)
	w = dial(t, b)
	awaitTopic(t, w, topic, 1)
	wantStrings(t, "values", plain(records(t, readAll(t, w, topic, 0, 0))), []string{"a"})
	b.stop(t)
}

// ZooKeeper away: one line and exit code 1, after the connection time-out.
func TestZooKeeperAway(t *testing.T) {
	slow(t)
	onlyKbroker(t, "Apache Kafka prints a stack")
	b := newBroker(t)
	b.props["zookeeper.connect"] = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	b.props["zookeeper.connection.timeout.ms"] = "1500"
	b.writeProps(t)
	exitsAtOnce(t, strings.TrimSpace(b.props["zookeeper.connect"]), b.propsPath())
}

// The cluster id in meta.properties and the one of the store must agree.
func TestForeignDirectoryRefused(t *testing.T) {
	onlyKbroker(t, "Apache Kafka prints a stack")
	b := startBroker(t)
	createTopic(t, b, topicName(t), 1)
	resp := ask[*kmsg.DescribeClusterResponse](t, dial(t, b), kmsg.NewPtrDescribeClusterRequest())
	b.stop(t)
	b.writeProps(t)
	exitsAtOnce(t, "meta.properties", b.propsPath(), "--override", "broker.id=5")
	path := b.logDirs()[0] + "/meta.properties"
	raw := mustReadFile(t, path)
	writeFile(t, path, strings.Replace(raw, resp.ClusterID, "AAAAAAAAAAAAAAAAAAAAAA", 1))
	exitsAtOnce(t, "meta.properties", b.propsPath())
}
