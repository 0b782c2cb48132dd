package config_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbroker/kbroker/config"
)

func newBroker(t *testing.T, v config.Values, opts ...config.Option) (*config.Broker, []config.Warning) {
	t.Helper()
	b, w, err := config.NewBroker(v, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return b, w
}

func warningLines(w []config.Warning) []string {
	var out []string
	for _, x := range w {
		out = append(out, x.String())
	}
	return out
}

func TestShippedServerProperties(t *testing.T) {
	b, w := newBroker(t, readProperties(t, "testdata/server.properties"))
	if b.ID != 0 || b.ZooKeeperConnect != "localhost:2181" || b.ZooKeeperConnectionTimeout != 18*time.Second || b.ZooKeeperSessionTimeout != 18*time.Second {
		t.Errorf("broker and ZooKeeper: %+v", b)
	}
	if diff := cmp.Diff([]config.Listener{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Port: 9092}}, b.Listeners); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/tmp/kafka-logs"}, b.LogDirs); diff != "" {
		t.Error(diff)
	}
	if b.SocketRequestMaxBytes != 100<<20 || b.NumPartitions != 1 || b.RetentionCheckInterval != 5*time.Minute || b.MaxConnections != math.MaxInt32 {
		t.Errorf("sizes and times: %+v", b)
	}
	if len(w) != 0 {
		t.Errorf("kbroker acts on all of it: %v", warningLines(w))
	}
	if b.GroupInitialRebalanceDelay != 0 || b.OffsetsCommitTimeout != 5*time.Second || b.OffsetsRetentionMinutes != 7*24*60 || b.GroupMaxSessionTimeout != 30*time.Minute {
		t.Errorf("groups: %+v", b)
	}
}

func TestWithoutAFile(t *testing.T) {
	b, w := newBroker(t, nil, config.WithDefaults(config.Standalone("/data")))
	want := []config.Listener{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "localhost", Port: 9092}}
	if diff := cmp.Diff(want, b.AdvertisedListeners); diff != "" {
		t.Error(diff)
	}
	if len(w) > 0 || b.ID != 0 || !cmp.Equal(b.LogDirs, []string{"/data"}) || b.ZooKeeperConnect != "" || !b.ControllerEligible {
		t.Errorf("%v %+v", w, b)
	}
	for _, d := range b.DescribeBroker(nil, nil) {
		if d.Name == "log.dirs" && (d.Value != "/data" || d.Source != config.SourceDefault || len(d.Synonyms) != 1) {
			t.Errorf("the caller's default does not count as one: %+v", d)
		}
	}
}

func TestCallersDefaultGivesWay(t *testing.T) {
	opt := config.WithDefaults(config.Standalone("/data"))
	for _, c := range []struct {
		set  config.Values
		dirs []string
		id   int
	}{
		{config.Values{}, []string{"/data"}, 0},
		{config.Values{"log.dir": "/one"}, []string{"/one"}, 0},
		{config.Values{"log.dirs": "/one,/two"}, []string{"/one", "/two"}, 0},
		{config.Values{"node.id": "7"}, []string{"/data"}, 7},
		{config.Values{"broker.id": "7"}, []string{"/data"}, 7},
	} {
		b, _ := newBroker(t, c.set, opt)
		if !cmp.Equal(b.LogDirs, c.dirs) || int(b.ID) != c.id {
			t.Errorf("%v: dirs %v id %d", c.set, b.LogDirs, b.ID)
		}
	}
	if config.Standalone("/data")["log.dirs"] != "/data" {
		t.Error("the caller's map was changed")
	}
}

// Each error is one line that names key, value and, where it helps, the remedy.
func TestErrorLines(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"log.segment.bytes=13", "log.segment.bytes=13: value must be at least 14; write a whole number without a unit (at least 14)"},
		{"log.retention.ms=7d", "log.retention.ms=7d: not a number of type LONG; write a whole number without a unit"},
		{"num.partitions=3000000000", "num.partitions=3000000000: not a number of type INT; write a whole number without a unit (at least 1)"},
		{"delete.topic.enable=on", "delete.topic.enable=on: expected value to be either true or false; write true or false"},
		{"log.cleaner.min.cleanable.ratio=half", "log.cleaner.min.cleanable.ratio=half: not a number of type DOUBLE; write a number (0 to 1)"},
		{"compression.type=brotli", "compression.type=brotli: string must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"log.message.format.version=latest", "log.message.format.version=latest: version latest is not a valid version"},
		{"listeners=PLAINTEXT:9092", `listeners=PLAINTEXT:9092: "PLAINTEXT:9092" is no endpoint; write NAME://HOST:PORT, an IPv6 host as [::1]`},
		{"listeners=PLAINTEXT://h:70000", "listeners=PLAINTEXT://h:70000: port 70000 of PLAINTEXT://h:70000 is not one of 0 to 65535"},
		{"kbroker.http.listener=8080", `kbroker.http.listener=8080: "8080" is no HOST:PORT; write localhost:8080, :8080 for loopback, 0.0.0.0:8080 for every interface, an IPv6 host as [::1]:8080`},
		{"kbroker.http.listener=h:70000", `kbroker.http.listener=h:70000: "h:70000" is no HOST:PORT; write localhost:8080, :8080 for loopback, 0.0.0.0:8080 for every interface, an IPv6 host as [::1]:8080`},
		{"listeners=SSL://:9093", "listeners=SSL://:9093: listener SSL wants SSL, which kbroker does not speak yet; use PLAINTEXT"},
		{"listeners=A://:9093", "listeners=A://:9093: listener A has no security protocol; add A:PLAINTEXT to listener.security.protocol.map"},
		{"listeners=PLAINTEXT://[::1::]:9092", "listeners=PLAINTEXT://[::1::]:9092: host ::1:: of PLAINTEXT://[::1::]:9092 is no IPv6 address"},
		{"advertised.listeners=SSL://h:1", "advertised.listeners=SSL://h:1: SSL is not among listeners, which has PLAINTEXT"},
		{"listeners=PLAINTEXT://0.0.0.0:9092", "listeners=PLAINTEXT://0.0.0.0:9092: clients cannot connect to 0.0.0.0; set advertised.listeners to an address that they can reach"},
		{"inter.broker.listener.name=NOWHERE", "inter.broker.listener.name=NOWHERE: is not one of the advertised listeners, which are PLAINTEXT"},
		{"inter.broker.listener.name=PLAINTEXT,security.inter.broker.protocol=PLAINTEXT", "inter.broker.listener.name=PLAINTEXT: security.inter.broker.protocol is set too; keep only one of the two"},
		{"process.roles=broker", "process.roles=broker: kbroker works with ZooKeeper (or its embedded store) only, not with KRaft; remove this key"},
		{"controller.quorum.voters=1@h:9093", "controller.quorum.voters=1@h:9093: kbroker works with ZooKeeper (or its embedded store) only, not with KRaft; remove this key"},
		{"broker.id=1,node.id=2", "node.id=2: differs from broker.id=1; set only one of them"},
		{"zookeeper.session.timeout.ms=-1", "zookeeper.session.timeout.ms=-1: must be 1 or more"},
		{"zookeeper.session.timeout.ms=0,zookeeper.connection.timeout.ms=5000", "zookeeper.session.timeout.ms=0: must be 1 or more"},
		{"zookeeper.connection.timeout.ms=0", "zookeeper.connection.timeout.ms=0: must be 1 or more"},
		{"broker.id=5000", "broker.id=5000: is above reserved.broker.max.id=1000, where generated ids begin; choose a smaller id, raise that key, or set broker.id.generation.enable=false"},
		{"group.min.session.timeout.ms=99999999", "group.min.session.timeout.ms=99999999: is above group.max.session.timeout.ms=1800000"},
		{"replica.lag.time.max.ms=100", "replica.lag.time.max.ms=100: is below replica.fetch.wait.max.ms=500"},
		{"log.retention.hours=0", "log.retention.hours=0: must be 1 or more, or -1 to keep records for ever"},
		{"log.cleaner.threads=0", "log.cleaner.threads=0: must be 1 or more; log.cleaner.enable=false switches compaction off"},
		{"kbroker.controller.eligible=maybe", "kbroker.controller.eligible=maybe: expected value to be either true or false; write true or false"},
		{"kbroker.zookeeper.fencing=on", "kbroker.zookeeper.fencing=on: string must be one of: auto, off"},
		{"listener.name.plaintext.max.connections=-4", "listener.name.plaintext.max.connections=-4: value must be at least 0; write a whole number without a unit (at least 0)"},
		{"ssl.keystore.password=${file:/etc/secret:key},config.providers=file", "ssl.keystore.password=[hidden]: kbroker has no config providers to fill this in; write the value itself"},
	} {
		v := config.Values{}
		for _, p := range strings.Split(c.set, ",") {
			k, val, _ := strings.Cut(p, "=")
			v[k] = val
		}
		_, _, err := config.NewBroker(v)
		if err == nil {
			t.Errorf("%s: accepted", c.set)
			continue
		}
		if err.Error() != c.want || !errors.Is(err, config.ErrInvalid) {
			t.Errorf("%s:\n got %s\nwant %s", c.set, err, c.want)
		}
	}
	// Two data directories that are one.
	if _, _, err := config.NewBroker(config.Values{"log.dirs": "/a,/b,/a/"}); err == nil || err.Error() != "log.dirs=/a,/b,/a/: /a/ is listed twice" {
		t.Error(err)
	}
}

func TestWarnings(t *testing.T) {
	_, w := newBroker(t, config.Values{
		"log.retenton.ms":                                "5",
		"zookeper.connect":                               "x",
		"completely.different.thing.of.a.plugin":         "x",
		"retention.ms":                                   "5",
		"remote.storage.enable":                          "true",
		"port":                                           "9092",
		"super.users":                                    "User:a",
		"confluent.metrics.reporter.foo":                 "x",
		"num.io.threads":                                 "16",
		"num.network.threads":                            "03",
		"authorizer.class.name":                          "kafka.security.authorizer.AclAuthorizer",
		"log.message.format.version":                     "2.8",
		"inter.broker.protocol.version":                  "3.9-IV0",
		"leader.replication.throttled.rate":              "5",
		"replica.selector.class":                         "com.example.Nearest",
		"metric.reporters":                               "",
		"log.segment.bytes":                              "1000",
		"listener.name.plaintext.max.connections":        "5",
		"listener.name.PLAINTEXT.max.connections":        "5",
		"listener.name.plaintext.log.dirs":               "/x",
		"listener.name.plaintext.ssl.client.auth":        "required",
		"listener.name.plaintext.plain.sasl.jaas.config": "secret",
	})
	want := []string{
		"authorizer.class.name: kbroker does not authorize yet: every client may do everything",
		"completely.different.thing.of.a.plugin: unknown key, it is ignored",
		"confluent.metrics.reporter.foo: kbroker loads no plugins, it is ignored",
		"leader.replication.throttled.rate: is set dynamically only, it is ignored",
		"listener.name.PLAINTEXT.max.connections: there is no listener PLAINTEXT, it is ignored; listener names in keys are in lower case",
		"listener.name.plaintext.log.dirs: there is no log.dirs for a single listener, it is ignored",
		"listener.name.plaintext.plain.sasl.jaas.config: kbroker does not act on it yet",
		"listener.name.plaintext.ssl.client.auth: kbroker does not act on it yet",
		"log.message.format.version: records are stored in format v2, as by Kafka 3, it is ignored",
		"log.retenton.ms: unknown key, it is ignored; did you mean log.retention.ms?",
		"num.io.threads: kbroker does not act on it yet",
		"port: Kafka has no such key any more, it is ignored; use listeners",
		"remote.storage.enable: is a topic's key, it is ignored",
		"replica.selector.class: kbroker knows org.apache.kafka.common.replica.RackAwareReplicaSelector only and loads no plugins, it is ignored",
		"retention.ms: is a topic's key, it is ignored; the broker's is log.retention.ms",
		"super.users: kbroker loads no plugins, it is ignored",
		"zookeper.connect: unknown key, it is ignored; did you mean zookeeper.connect?",
	}
	if diff := cmp.Diff(want, warningLines(w)); diff != "" {
		t.Error(diff)
	}
}

func TestTopicDefaultsFromBrokerKeys(t *testing.T) {
	b, _ := newBroker(t, config.Values{
		"log.segment.bytes": "1000", "log.roll.hours": "2", "log.roll.jitter.ms": "5", "log.index.size.max.bytes": "64", "log.index.interval.bytes": "9",
		"log.flush.interval.messages": "10", "log.flush.interval.ms": "1000", "log.retention.bytes": "-7", "log.retention.minutes": "3", "message.max.bytes": "500",
		"log.segment.delete.delay.ms": "0", "log.preallocate": "true", "log.cleanup.policy": "compact", "log.cleaner.delete.retention.ms": "1", "log.cleaner.min.compaction.lag.ms": "2",
		"log.cleaner.max.compaction.lag.ms": "3", "log.cleaner.min.cleanable.ratio": "0.25", "compression.type": "zstd", "compression.gzip.level": "5", "compression.lz4.level": "6",
		"compression.zstd.level": "7", "log.message.timestamp.type": "LogAppendTime", "log.message.timestamp.before.max.ms": "11", "log.message.timestamp.difference.max.ms": "12",
		"log.message.downconversion.enable": "false", "min.insync.replicas": "2", "unclean.leader.election.enable": "true",
	})
	want := config.Log{
		SegmentBytes: 1000, SegmentMs: 2 * time.Hour, SegmentJitterMs: 5 * time.Millisecond, SegmentIndexBytes: 64, IndexIntervalBytes: 9,
		FlushMessages: 10, FlushMs: time.Second, RetentionBytes: config.Unlimited, RetentionMs: 3 * time.Minute, MaxMessageBytes: 500,
		FileDeleteDelay: 0, Preallocate: true, Compact: true, DeleteRetentionMs: time.Millisecond, MinCompactionLag: 2 * time.Millisecond,
		MaxCompactionLag: 3 * time.Millisecond, MinCleanableRatio: 0.25, CompressionType: "zstd", GzipLevel: 5, LZ4Level: 6, ZstdLevel: 7,
		LogAppendTime: true, TimestampBeforeMaxMs: 11, TimestampAfterMaxMs: 12, MinInSyncReplicas: 2, UncleanElection: true,
	}
	got := b.TopicDefaults()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.MaxSegmentMs() != 3*time.Millisecond {
		t.Error(got.MaxSegmentMs())
	}
}

func TestForTopic(t *testing.T) {
	b, _ := newBroker(t, nil)
	plain := config.Log{
		SegmentBytes: 1 << 30, SegmentMs: 7 * 24 * time.Hour, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		FlushMessages: math.MaxInt64, FlushMs: config.Never, RetentionBytes: config.Unlimited, RetentionMs: 7 * 24 * time.Hour, MaxMessageBytes: 1048588,
		FileDeleteDelay: time.Minute, Delete: true, DeleteRetentionMs: 24 * time.Hour, MaxCompactionLag: config.Never, MinCleanableRatio: 0.5,
		CompressionType: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3, TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: math.MaxInt64,
		DownConversion: true, MinInSyncReplicas: 1,
	}
	if diff := cmp.Diff(plain, b.TopicDefaults()); diff != "" {
		t.Error(diff)
	}
	got, err := b.ForTopic(config.Values{
		"retention.ms": "-1", "segment.ms": "9223372036854775807", "cleanup.policy": "", "message.timestamp.difference.max.ms": "3", "message.timestamp.after.max.ms": "4",
		"leader.replication.throttled.replicas": "0:1,3:2", "follower.replication.throttled.replicas": "*", "left.over.key": "x", "message.format.version": "0.10.0",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := plain
	want.RetentionMs, want.SegmentMs, want.Delete = config.Unlimited, config.Never, false
	want.TimestampBeforeMaxMs, want.TimestampAfterMaxMs = 3, 4
	want.LeaderThrottled.Replicas = []config.ThrottledReplica{{Partition: 0, Broker: 1}, {Partition: 3, Broker: 2}}
	want.FollowerThrottled.All = true
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !got.LeaderThrottled.Contains(3, 2) || got.LeaderThrottled.Contains(3, 1) || !got.FollowerThrottled.Contains(9, 9) {
		t.Error("throttled replicas")
	}
	_, err = b.ForTopic(config.Values{"segment.ms": "0"})
	if err == nil || err.Error() != "Invalid value 0 for configuration segment.ms: Value must be at least 1" {
		t.Error(err)
	}
	w := config.TopicWarnings(config.Values{"message.format.version": "2.0", "segment.ms": "1"})
	if len(w) != 1 || w[0].Key != "message.format.version" {
		t.Error(w)
	}
}

func TestSpansThatDoNotFit(t *testing.T) {
	b, _ := newBroker(t, config.Values{"connections.max.idle.ms": "-9223372036854775808", "replica.lag.time.max.ms": "9223372036854775807",
		"log.retention.check.interval.ms": "9223372036854", "log.roll.hours": "2147483647"})
	if b.ConnectionsMaxIdle != -config.Never || b.ReplicaLagTimeMax != config.Never || b.RetentionCheckInterval != 9223372036854*time.Millisecond || b.TopicDefaults().SegmentMs != config.Never {
		t.Errorf("%d %d %d %d", b.ConnectionsMaxIdle, b.ReplicaLagTimeMax, b.RetentionCheckInterval, b.TopicDefaults().SegmentMs)
	}
}

func TestWithDynamicMakesAnotherBroker(t *testing.T) {
	b, _ := newBroker(t, config.Values{"log.retention.hours": "2", "listener.name.plaintext.max.connections": "7"})
	before := fmt.Sprint(*b)
	per, def := config.Values{"log.retention.ms": "5"}, config.Values{"log.retention.ms": "6", "message.max.bytes": "77", "plugin.key": "x"}
	n, err := b.WithDynamic(per, def)
	if err != nil {
		t.Fatal(err)
	}
	if l := n.TopicDefaults(); l.RetentionMs != 5*time.Millisecond || l.MaxMessageBytes != 77 {
		t.Errorf("%+v", l)
	}
	per["log.retention.ms"] = "8" // the caller's maps stay the caller's
	if d := n.DescribeTopic(nil, config.Values{"log.retention.ms": "5"}, def); !reflect.DeepEqual(d, n.DescribeTopic(nil, config.Values{"log.retention.ms": "5"}, def)) {
		t.Error("unstable")
	}
	if fmt.Sprint(*b) != before {
		t.Error("the broker it came from has changed")
	}
	again, err := n.WithDynamic(nil, nil)
	if err != nil || again.TopicDefaults().RetentionMs != 2*time.Hour {
		t.Errorf("dynamic configs are added up: %v %v", again, err)
	}
	if c, r := n.ListenerLimits("PLAINTEXT"); c != 7 || r != math.MaxInt32 {
		t.Errorf("limits %d %d", c, r)
	}
	if _, err := b.WithDynamic(config.Values{"log.retention.ms": "0"}, nil); err == nil {
		t.Error("accepted")
	}
}

func TestFilterDynamic(t *testing.T) {
	v := config.Values{"log.segment.bytes": "1", "log.roll.ms": "50", "num.partitions": "3", "ssl.keystore.type": "JKS", "listeners": "PLAINTEXT://:1",
		"plugin": "x", "listener.name.a.ssl.keystore.password": "enc"}
	got, w := config.FilterDynamic(v, false)
	if diff := cmp.Diff(config.Values{"log.roll.ms": "50", "plugin": "x"}, got); diff != "" {
		t.Error(diff)
	}
	var keys []string
	for _, x := range w {
		keys = append(keys, x.Key)
	}
	if diff := cmp.Diff([]string{"listener.name.a.ssl.keystore.password", "listeners", "log.segment.bytes", "num.partitions", "ssl.keystore.type"}, keys); diff != "" {
		t.Error(diff)
	}
	got, _ = config.FilterDynamic(v, true)
	if got["listeners"] == "" {
		t.Error("listeners are for a broker to set")
	}
}

func TestListenerStrings(t *testing.T) {
	l := config.Listener{Name: "A", Protocol: "PLAINTEXT", Host: "::1", Port: 5}
	if l.String() != "A://[::1]:5" || l.Address() != "[::1]:5" {
		t.Error(l.String(), l.Address())
	}
}

func TestParseOverride(t *testing.T) {
	if k, v, err := config.ParseOverride(" a.b = c=d "); k != "a.b" || v != "c=d" || err != nil {
		t.Error(k, v, err)
	}
	for _, s := range []string{"a", "=x", ""} {
		if _, _, err := config.ParseOverride(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}

func TestAssignors(t *testing.T) {
	_, w := newBroker(t, config.Values{"zookeeper.connect": "zk:2181", "group.consumer.assignors": "range,org.apache.kafka.coordinator.group.assignor.UniformAssignor,com.example.Mine"})
	want := []string{"group.consumer.assignors: kbroker knows the uniform and the range assignor only and loads no plugins; com.example.Mine is passed over"}
	if diff := cmp.Diff(want, warningLines(w)); diff != "" {
		t.Error(diff)
	}
	for class, want := range map[string]string{"uniform": "uniform", "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range", "Mine": ""} {
		if got, _ := config.AssignorName(class); got != want {
			t.Errorf("%s: %q", class, got)
		}
	}
}

// A broker without ZooKeeper has no others to put replicas on.
func TestAloneNeedsOneReplica(t *testing.T) {
	for _, c := range []struct {
		set  config.Values
		want int32
	}{
		{config.Values{}, 1},
		{config.Values{"offsets.topic.replication.factor": "2"}, 2},
		{config.Values{"zookeeper.connect": "zk:2181"}, 3},
		{config.Values{"zookeeper.connect": "zk:2181", "offsets.topic.replication.factor": "2"}, 2},
	} {
		if b, _ := newBroker(t, c.set); b.OffsetsTopicReplicationFactor != c.want {
			t.Errorf("%v: offsets.topic.replication.factor is %d, want %d", c.set, b.OffsetsTopicReplicationFactor, c.want)
		}
	}
}
