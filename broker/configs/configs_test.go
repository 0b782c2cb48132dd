package configs

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/journal"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
)

type fixture struct {
	t       *testing.T
	store   zkmeta.Store
	log     journal.Journal
	changed chan string // topics whose change was told
}

func newFixture(t *testing.T) *fixture {
	return &fixture{t: t, store: embedded.NewMemory(embedded.Options{}).Connect(), changed: make(chan string, 100)}
}

func (f *fixture) session() zkmeta.Session {
	f.t.Helper()
	s, err := f.store.Wait(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// write puts raw data into a topic's config and tells of it.
func (f *fixture) write(topic, data string) {
	f.t.Helper()
	f.writeEntity(zkmeta.ConfigChange{Type: zkmeta.TopicConfigs, Name: topic}, data)
}

func (f *fixture) writeEntity(change zkmeta.ConfigChange, data string) {
	f.t.Helper()
	s, path := f.session(), change.EntityPath()
	_, err := s.Multi(f.t.Context(), zkmeta.Set(path, []byte(data), -1))
	if err != nil {
		err = zkmeta.CreateWithParents(f.t.Context(), s, path, []byte(data))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	if err := zkmeta.EnsurePaths(f.t.Context(), s, zkmeta.ConfigChangesPath); err != nil {
		f.t.Fatal(err)
	}
	if _, err := s.Multi(f.t.Context(), zkmeta.Create(zkmeta.ConfigChangeSequentialPath, change.Encode(), zkmeta.PersistentSequential, nil)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) load() *Configs {
	f.t.Helper()
	static, _, err := config.NewBroker(config.Values{"zookeeper.connect": "memory:1", "log.dirs": "/d"})
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := Load(f.t.Context(), Options{Store: f.store, Self: 1, Static: static, Clock: clock.System{}, Logger: zerolog.New(&f.log),
		OnTopic: func(topic string, _ config.Log) { f.changed <- topic }})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

// A bad value costs a topic that value: the good ones hold, and each bad one is
// told of once, by topic, key and value.
func TestBadValueAtStart(t *testing.T) {
	f := newFixture(t)
	if err := zkmeta.EnsurePersistentPaths(t.Context(), f.session()); err != nil {
		t.Fatal(err)
	}
	f.write("t", `{"version":1,"config":{"min.insync.replicas":"0","retention.ms":"abc","max.message.bytes":"1234","no.such.key":"x"}}`)
	f.write("u", `{"version":1,"config":{"min.insync.replicas":"2"}}`)
	f.write("broken", `{"version":1,"conf`)
	c := f.load()
	for range 3 {
		if l := c.Topic("t"); l.MaxMessageBytes != 1234 || l.MinInSyncReplicas != 1 || l.RetentionMs != 7*24*time.Hour {
			t.Errorf("t runs with max.message.bytes=%d min.insync.replicas=%d retention.ms=%v", l.MaxMessageBytes, l.MinInSyncReplicas, l.RetentionMs)
		}
	}
	if l := c.Topic("u"); l.MinInSyncReplicas != 2 {
		t.Errorf("u runs with min.insync.replicas=%d, want 2", l.MinInSyncReplicas)
	}
	if diff := cmp.Diff(config.Values{"max.message.bytes": "1234", "no.such.key": "x"}, c.Overrides("t")); diff != "" {
		t.Error(diff)
	}
	for _, line := range [][]string{
		{`"topic":"t"`, `"key":"min.insync.replicas"`, `"value":"0"`, `"level":"error"`},
		{`"topic":"t"`, `"key":"retention.ms"`, `"value":"abc"`, `"level":"error"`},
		{`"topic":"broken"`, "unreadable topic config, taken as empty", `"level":"error"`},
	} {
		if n := f.log.Count(line...); n != 1 {
			t.Errorf("%d lines with %v, want one:\n%s", n, line, f.log.String())
		}
	}
}

// While the broker runs, what was in force for the key of a bad value stays, and
// the whole of what was in force when nothing can be read.
func TestBadValueWhileRunning(t *testing.T) {
	f := newFixture(t)
	if err := zkmeta.EnsurePersistentPaths(t.Context(), f.session()); err != nil {
		t.Fatal(err)
	}
	f.write("t", `{"version":1,"config":{"min.insync.replicas":"2","max.message.bytes":"1000"}}`)
	c := f.load()
	check := func(after string, min, size int32) {
		t.Helper()
		if l := c.Topic("t"); l.MinInSyncReplicas != min || l.MaxMessageBytes != size {
			t.Errorf("after %s: min.insync.replicas=%d max.message.bytes=%d, want %d and %d", after, l.MinInSyncReplicas, l.MaxMessageBytes, min, size)
		}
	}
	f.write("t", `{"version":1,"config":{"min.insync.replicas":"abc","max.message.bytes":"2000"}}`)
	<-f.changed
	check("a bad value", 2, 2000)
	if n := f.log.Count(`"key":"min.insync.replicas"`, `"value":"abc"`, `"inForce":"2"`); n != 1 {
		t.Errorf("%d lines tell of it:\n%s", n, f.log.String())
	}
	f.write("t", `{`)
	f.write("other", `{"version":1,"config":{}}`) // told after it
	for topic := range f.changed {
		if topic == "other" {
			break
		}
	}
	check("what cannot be read", 2, 2000)
	f.write("t", `{"version":1,"config":{"max.message.bytes":"3000"}}`)
	<-f.changed
	check("a key that was removed", 1, 3000)
}

// Stored broker configs without effect are told of once, by entity, key, reason and,
// where it is no secret, value; again only when they change.
func TestBrokerConfigsWithoutEffect(t *testing.T) {
	f := newFixture(t)
	if err := zkmeta.EnsurePersistentPaths(t.Context(), f.session()); err != nil {
		t.Fatal(err)
	}
	def := zkmeta.ConfigChange{Type: zkmeta.BrokerConfigs, Name: zkmeta.DefaultEntity}
	own := zkmeta.ConfigChange{Type: zkmeta.BrokerConfigs, Name: "1"}
	const bad = `{"version":1,"config":{"num.io.threads":"many","bogus":"s3cret","ssl.keystore.password":"s3cret","message.max.bytes":"2000"}}`
	f.writeEntity(def, bad)
	f.writeEntity(own, `{"version":1,"config":{"background.threads":"x"}}`)
	c := f.load()
	n := 0
	again := func(data string) {
		t.Helper()
		f.writeEntity(def, data)
		n++
		last := fmt.Sprint("t", n)
		f.write(last, `{"version":1,"config":{}}`) // told after it, and not heard of before
		for topic := range f.changed {
			if topic == last {
				break
			}
		}
	}
	lines := [][]string{
		{`"entity":"brokers/<default>"`, `"key":"num.io.threads"`, `"value":"many"`, "ot a number of type INT"},
		{`"entity":"brokers/<default>"`, `"key":"bogus"`, "unknown key"},
		{`"entity":"brokers/<default>"`, `"key":"ssl.keystore.password"`, "is ignored"},
		{`"entity":"brokers/1"`, `"key":"background.threads"`, `"value":"x"`},
	}
	again(bad)
	for _, line := range lines {
		if n := f.log.Count(append(line, `"level":"warn"`)...); n != 1 {
			t.Errorf("%d lines with %v, want one:\n%s", n, line, f.log.String())
		}
	}
	if f.log.Has("s3cret") {
		t.Errorf("a secret is told:\n%s", f.log.String())
	}
	if n := c.Broker().TopicDefaults().MaxMessageBytes; n != 2000 {
		t.Errorf("the good one does not hold: %d", n)
	}
	again(`{"version":1,"config":{"num.io.threads":"lots"}}`)
	if n := f.log.Count(`"value":"lots"`); n != 1 {
		t.Errorf("another value is told of %d times:\n%s", n, f.log.String())
	}
	again(bad)
	if n := f.log.Count(lines[1]...); n != 2 {
		t.Errorf("a key that came back is told of %d times in all:\n%s", n, f.log.String())
	}
}
