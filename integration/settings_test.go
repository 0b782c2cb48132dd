//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Several listeners: each client is told the endpoint of its own.
func TestListeners(t *testing.T) {
	inside, outside := freePort(t), freePort(t)
	b := newBroker(t, withProps(
		"listeners", fmt.Sprintf("INSIDE://127.0.0.1:%d,OUTSIDE://127.0.0.1:%d", inside, outside),
		"advertised.listeners", fmt.Sprintf("INSIDE://127.0.0.1:%d,OUTSIDE://localhost:%d", inside, outside),
		"listener.security.protocol.map", "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
		"inter.broker.listener.name", "INSIDE"))
	b.port = inside
	b.start(t)
	for _, c := range []struct {
		port int
		host string
	}{{inside, "127.0.0.1"}, {outside, "localhost"}} {
		w, err := tryDial(fmt.Sprintf("127.0.0.1:%d", c.port))
		if err != nil {
			t.Fatal(err)
		}
		defer w.c.Close()
		got := ask[*kmsg.MetadataResponse](t, w, metadataRequest(12, false)).Brokers
		if len(got) != 1 || got[0].Host != c.host || int(got[0].Port) != c.port {
			t.Errorf("port %d is told %+v", c.port, got)
		}
		nodes := ask[*kmsg.DescribeClusterResponse](t, w, kmsg.NewPtrDescribeClusterRequest()).Brokers
		if len(nodes) != 1 || nodes[0].Host != c.host || int(nodes[0].Port) != c.port {
			t.Errorf("port %d is told of nodes %+v", c.port, nodes)
		}
	}
	topic := topicName(t)
	createTopic(t, b, topic, 1)
	b.stop(t)
}

// Idle connections are closed and the limit per address holds.
func TestConnectionLimits(t *testing.T) {
	slow(t)
	b := startBroker(t, withProps("connections.max.idle.ms", "2000", "max.connections.per.ip", "10"))
	idle := dial(t, b)
	wantCode(t, "first", ask[*kmsg.ApiVersionsResponse](t, idle, kmsg.NewPtrApiVersionsRequest()).ErrorCode, errNone)
	began := time.Now()
	idle.wantClosed(t)
	if took := time.Since(began); took < time.Second {
		t.Errorf("closed after %v, want about 2 s", took)
	}

	eventually(t, 20*time.Second, "only so many connections live", func() error {
		var open, alive []net.Conn
		for range 14 {
			c, err := net.Dial("tcp", b.addr())
			if err != nil {
				return err
			}
			defer c.Close()
			open = append(open, c)
		}
		for _, c := range open {
			_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
				alive = append(alive, c)
			}
		}
		if len(alive) == 0 || len(alive) > 10 {
			return fmt.Errorf("%d of 14 connections live", len(alive))
		}
		return nil
	})
}

func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "reset") }

// A frame above socket.request.max.bytes closes its connection.
func TestRequestCap(t *testing.T) {
	b := startBroker(t, withProps("socket.request.max.bytes", "100000"))
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: []rec{{ts: now, value: filler(90000)}}}.bytes())
	raw := frame(produceRequest(11, topic, 0, -1, batch{recs: []rec{{ts: now, value: filler(110000)}}}.bytes()), 1)
	_, _ = w.c.Write(raw) // it may be closed before all is written
	w.wantClosed(t)
	wantOffset(t, dial(t, b), topic, tsLatest, 1, -1)
}

// Broker-wide defaults of topics, and no topic out of thin air.
func TestBrokerDefaults(t *testing.T) {
	b := startBroker(t, withProps("auto.create.topics.enable", "false", "num.partitions", "3", "message.max.bytes", "2000",
		"compression.type", "lz4", "log.retention.hours", "2", "delete.topic.enable", "false"))
	w, topic := dial(t, b), topicName(t)
	wantCode(t, "auto-creation", ask[*kmsg.MetadataResponse](t, w, metadataRequest(12, true, topic)).Topics[0].ErrorCode, errUnknownTopicOrPartition)
	wantCode(t, "still not there", metadataOf(t, w, topic).ErrorCode, errUnknownTopicOrPartition)
	got := ask[*kmsg.CreateTopicsResponse](t, w, createRequest(7, newTopic{name: topic, partitions: -1, replicas: -1})).Topics[0]
	if got.ErrorCode != errNone || got.NumPartitions != 3 {
		t.Fatalf("create: error %d, %d partitions", got.ErrorCode, got.NumPartitions)
	}
	awaitTopic(t, w, topic, 3)
	wantCode(t, "too large", tryProduce(t, w, topic, 0, batch{recs: []rec{{ts: now, value: filler(3000)}}}.bytes()).ErrorCode, errMessageTooLarge)
	produce(t, w, topic, 0, batch{recs: values(now, "a")}.bytes())
	if stored := readAll(t, w, topic, 0, 0)[0]; stored.codec() != codecLZ4 {
		t.Errorf("stored with codec %s, want lz4", codecNames[stored.codec()])
	}
	configs := described(t, w, resourceTopic, topic)
	for _, want := range []struct {
		key, value string
		source     int8
	}{
		{"max.message.bytes", "2000", sourceStatic},
		{"compression.type", "lz4", sourceStatic},
		{"retention.ms", "7200000", sourceDefault}, // hours are no synonym of its own
	} {
		if c := configs[want.key]; deref(c.Value) != want.value || int8(c.Source) != want.source {
			t.Errorf("%s is %s from source %d, want %s from %d", want.key, deref(c.Value), c.Source, want.value, want.source)
		}
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis, req.TopicNames = 5, 5000, []string{topic}
	wantCode(t, "delete", ask[*kmsg.DeleteTopicsResponse](t, w, req).Topics[0].ErrorCode, errTopicDeletionDisabled)
}

// Retention by size and by time takes whole segments from the front.
func TestRetention(t *testing.T) {
	slow(t)
	b := startBroker(t, withProps("log.initial.task.delay.ms", "500", "log.retention.check.interval.ms", "500"))
	w, bySize, byTime := dial(t, b), topicName(t), topicName(t)
	createTopic(t, b, bySize, 1, "segment.bytes", "1100", "retention.bytes", "2500", "file.delete.delay.ms", "100")
	createTopic(t, b, byTime, 1, "segment.bytes", "1100", "retention.ms", "3600000", "file.delete.delay.ms", "100")
	for i := range 10 {
		ts := now
		if i < 7 {
			ts -= 2 * 3600 * 1000
		}
		raw := batch{recs: []rec{{ts: ts, value: filler(900)}}}.bytes()
		produce(t, w, byTime, 0, raw)
		produce(t, w, bySize, 0, batch{recs: []rec{{ts: now, value: filler(900)}}}.bytes())
	}
	start := func(topic string, want int64) {
		eventually(t, 30*time.Second, fmt.Sprintf("%s starts at %d", topic, want), func() error {
			if got := listOffsets(t, w, topic, 0, tsEarliest).Offset; got != want {
				return fmt.Errorf("starts at %d", got)
			}
			return nil
		})
	}
	start(byTime, 7)
	start(bySize, 7) // a segment goes only while what is left is still at or above the limit
	if got := len(readAll(t, w, bySize, 0, 7)); got != 3 {
		t.Errorf("%d batches left", got)
	}
	eventually(t, 20*time.Second, "the files are gone", func() error {
		left, err := filepath.Glob(filepath.Join(b.partitionDir(byTime, 0), "*.log*"))
		if err == nil && len(left) != 3 {
			err = fmt.Errorf("%d files: %v", len(left), left)
		}
		return err
	})
}

// Two log directories share the partitions.
func TestLogDirs(t *testing.T) {
	b := newBroker(t)
	b.props["log.dirs"] = filepath.Join(b.dir, "one") + "," + filepath.Join(b.dir, "two")
	b.start(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 6)
	for p := range int32(6) {
		produce(t, w, topic, p, batch{recs: values(now, fmt.Sprint(p))}.bytes())
	}
	counts := map[string]int{}
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 4
	for _, d := range ask[*kmsg.DescribeLogDirsResponse](t, w, req).Dirs {
		counts[d.Dir] = 0
		for _, tp := range d.Topics {
			counts[d.Dir] += len(tp.Partitions)
		}
	}
	for _, dir := range b.logDirs() {
		if counts[dir] != 3 {
			t.Errorf("partitions by directory: %v, want three in each", counts)
		}
		if _, err := os.Stat(filepath.Join(dir, "meta.properties")); err != nil {
			t.Error(err)
		}
	}
	b.stop(t)
	b.start(t)
	w = dial(t, b)
	awaitTopic(t, w, topic, 6)
	for p := range int32(6) {
		wantStrings(t, "after a restart", plain(records(t, readAll(t, w, topic, p, 0))), []string{fmt.Sprint(p)})
	}
	b.stop(t)
}

// Far more partitions than file descriptors: every one takes and gives.
func TestFewFileDescriptors(t *testing.T) {
	onlyKbroker(t, "Apache Kafka keeps every file open")
	b := newBroker(t)
	b.wrap = []string{"sh", "-c", `ulimit -n 150; exec "$@"`, "sh"}
	b.start(t)
	w, topic := dial(t, b), topicName(t)
	const partitions = 300
	createTopic(t, b, topic, partitions, "segment.bytes", "1000")
	for round := range 3 {
		for p := range int32(partitions) {
			if got := produce(t, w, topic, p, batch{recs: []rec{{ts: now, key: fmt.Append(nil, p), value: filler(800)}}}.bytes()); got != int64(round) {
				t.Fatalf("partition %d: offset %d, want %d", p, got, round)
			}
		}
	}
	for p := range int32(partitions) {
		recs := records(t, readAll(t, w, topic, p, 0))
		if len(recs) != 3 || string(recs[0].key) != fmt.Sprint(p) || string(recs[2].key) != fmt.Sprint(p) {
			t.Fatalf("partition %d: %q", p, showRecs(recs))
		}
	}
	b.stop(t)
	b.start(t)
	w = dial(t, b)
	awaitTopic(t, w, topic, partitions)
	for _, p := range []int32{0, 7, partitions - 1} {
		if n := len(readAll(t, w, topic, p, 0)); n != 3 {
			t.Errorf("partition %d after a restart: %d batches", p, n)
		}
	}
	b.stop(t)
}
