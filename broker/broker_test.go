package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/logstore"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// start starts a broker on free ports and on dir.
func start(t *testing.T, dir string, values config.Values) (*Broker, error) {
	t.Helper()
	v := config.Values{"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": dir}
	for k, x := range values {
		v[k] = x
	}
	c, _, err := config.NewBroker(v)
	if err != nil {
		t.Fatal(err)
	}
	return Start(t.Context(), Options{Config: c, Logger: zerolog.Nop()})
}

func mustStart(t *testing.T, dir string, values config.Values) *Broker {
	t.Helper()
	b, err := start(t, dir, values)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Stop() })
	return b
}

func dial(t *testing.T, b *Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Addr("PLAINTEXT").String()))...)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func TestStopLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	before := runtime.NumGoroutine()
	b := mustStart(t, dir, nil)
	cl := dial(t, b, kgo.AllowAutoTopicCreation(), kgo.FetchMaxWait(time.Hour),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := cl.PollFetches(t.Context()).Records(); len(got) != 1 || string(got[0].Value) != "v" {
		t.Fatalf("polled %v, want the one record", got)
	}
	// The consumer's next fetch waits an hour for more; a stop does not.
	if err := b.Stop(); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	cl.Close()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 1000 {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		<-time.After(5 * time.Millisecond)
	}
	if _, err := os.Stat(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
		t.Errorf("no mark of a clean stop: %v", err)
	}
}

func TestIdentityStays(t *testing.T) {
	dir := t.TempDir()
	b := mustStart(t, dir, nil)
	id := b.ID()
	if id != 1001 { // reserved.broker.max.id + 1, as from a fresh ZooKeeper
		t.Errorf("generated id %d, want 1001", id)
	}
	b.Stop()
	if b = mustStart(t, dir, nil); b.ID() != id {
		t.Errorf("id %d after a restart, want %d", b.ID(), id)
	}
	b.Stop()
	_, err := start(t, dir, config.Values{"broker.id": "7"})
	if err == nil || !strings.Contains(err.Error(), "meta.properties") {
		t.Errorf("another broker.id on the same directory: %v, want a refusal that names meta.properties", err)
	}
}

func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	mustStart(t, dir, nil)
	if _, err := start(t, dir, nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second broker on the directory: %v, want a refusal", err)
	}
}

func TestPortInUse(t *testing.T) {
	b := mustStart(t, t.TempDir(), nil)
	for changed := b.cache.Changed(); b.cache.Controller() == cluster.NoBroker; changed = b.cache.Changed() {
		<-changed // it has come up whole
	}
	before := runtime.NumGoroutine()
	_, err := start(t, t.TempDir(), config.Values{"listeners": "PLAINTEXT://" + b.Addr("PLAINTEXT").String()})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second broker on the port: %v, want a refusal", err)
	}
	for i := 0; runtime.NumGoroutine() > before; i++ { // what had started is undone
		if i == 1000 {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Every dynamic change of a topic's config is in force when its answer comes.
func TestTopicConfigAtOnce(t *testing.T) {
	b := mustStart(t, t.TempDir(), nil)
	cl := dial(t, b)
	defer cl.Close()
	ctx := t.Context()
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 1, 1
	create.Topics, create.TimeoutMillis = append(create.Topics, topic), 10_000
	created, err := create.RequestWith(ctx, cl)
	if err != nil || created.Topics[0].ErrorCode != 0 {
		t.Fatalf("create: %v %+v", err, created)
	}
	produce := func(n int) error {
		value := make([]byte, n)
		rand.NewChaCha8([32]byte{}).Read(value) // does not compress
		return cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: value}).FirstErr()
	}
	if err := produce(5000); err != nil {
		t.Fatal(err)
	}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "max.message.bytes", kmsg.StringPtr("1000")
	r.Configs = append(r.Configs, c)
	alter.Resources = append(alter.Resources, r)
	if got, err := alter.RequestWith(ctx, cl); err != nil || got.Resources[0].ErrorCode != 0 {
		t.Fatalf("alter: %v %+v", err, got)
	}
	if err := produce(5000); !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("produce above the new limit: %v, want MESSAGE_TOO_LARGE", err)
	}
}

// A stop and a start keep what was produced, the topic's id and its epoch.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	b := mustStart(t, dir, nil)
	cl := dial(t, b, kgo.AllowAutoTopicCreation())
	for _, v := range []string{"a", "b", "c"} {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	was, _ := b.cache.Topic("t")
	cl.Close()
	b.Stop()
	b = mustStart(t, dir, nil)
	cl = dial(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	var got []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(got) < 3 && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if strings.Join(got, "") != "abc" {
		t.Errorf("read %v after the restart, want a, b, c", got)
	}
	is, ok := b.cache.Topic("t")
	if !ok || is.ID != was.ID {
		t.Errorf("topic %v after the restart, want id %v", is, was.ID)
	}
	if p, _ := is.Partition(0); p.State.LeaderEpoch != cluster.LeaderEpoch(0) {
		t.Errorf("leader epoch %d: a lone broker keeps it", p.State.LeaderEpoch)
	}
}

func TestStopReportsWhatIsNotOfAFailedDirectory(t *testing.T) {
	disk, other := fmt.Errorf("%w: /a", logstore.ErrStorage), errors.New("other")
	for _, x := range []struct{ in, want error }{
		{nil, nil}, {disk, nil}, {other, other}, {errors.Join(disk, disk), nil}, {errors.Join(disk, other), other},
		{errors.Join(disk, errors.Join(other, disk)), other}, {fmt.Errorf("%w: %w", logstore.ErrStorage, other), nil},
	} {
		got := withoutStorage(x.in)
		if (got == nil) != (x.want == nil) || got != nil && got.Error() != x.want.Error() {
			t.Errorf("of %v: %v, want %v", x.in, got, x.want)
		}
	}
}
