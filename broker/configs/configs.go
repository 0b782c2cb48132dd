package configs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
)

// purgeAfter is the age at which any broker removes a change notification, as
// Kafka does.
const purgeAfter = 15 * time.Minute

// Options say what Configs keep up to date.
type Options struct {
	Store  zkmeta.Store
	Self   cluster.BrokerID
	Static *config.Broker // from the file and the command line
	// OnTopic and OnBroker hear of each change, in one goroutine at a time.
	OnTopic  func(topic string, c config.Log)
	OnBroker func(*config.Broker)
	Clock    clock.Clock
	Logger   zerolog.Logger
}

// Configs are the effective configurations of the broker and of its topics.
type Configs struct {
	o      Options
	events <-chan zkmeta.Event
	stop   func()
	done   chan struct{}

	applying sync.Mutex // one change at a time, so that the last read is the last applied
	// What is warned of in the brokers' entities, guarded by applying: each once, for
	// as long as it is there.
	warned map[string]map[string]bool

	mu         sync.RWMutex // guards what follows
	broker     *config.Broker
	perBroker  config.Values
	forCluster config.Values
	topics     map[string]config.Values // valid overrides; a missing topic has not been asked for
	seen       int64                    // number of the last notification acted on
}

// Load reads every topic's and broker's configs and begins to follow changes.
func Load(ctx context.Context, o Options) (*Configs, error) {
	c := &Configs{o: o, broker: o.Static, topics: map[string]config.Values{}, warned: map[string]map[string]bool{}, seen: -1, done: make(chan struct{})}
	c.events, c.stop = o.Store.Subscribe()
	s, err := o.Store.Wait(ctx)
	if err == nil {
		err = c.loadAll(ctx, s)
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("loading dynamic configs: %w", err)
	}
	go c.follow()
	return c, nil
}

// Close stops following changes.
func (c *Configs) Close() {
	c.stop()
	<-c.done
}

func (c *Configs) loadAll(ctx context.Context, s zkmeta.Session) error {
	// The notifications first: what changes while the rest is read is read again.
	pending, err := zkmeta.ReadNotifications(ctx, s, zkmeta.ConfigChangesPath, -1, true)
	if err != nil {
		return err
	}
	topics, err := zkmeta.ReadEntityConfigs(ctx, s, zkmeta.TopicConfigs)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if t.Err != nil {
			c.o.Logger.Error().Err(t.Err).Str("topic", t.Name).Msg("unreadable topic config, taken as empty: the broker's defaults hold for the topic, min.insync.replicas among them")
			c.setTopic(t.Name, nil)
			continue
		}
		c.setTopic(t.Name, c.valid(t.Name, t.Config))
	}
	for _, name := range []string{zkmeta.DefaultEntity, c.selfName()} {
		if err := c.refresh(ctx, s, zkmeta.ConfigChange{Type: zkmeta.BrokerConfigs, Name: name}); err != nil {
			return err
		}
	}
	if n := len(pending); n > 0 {
		c.mu.Lock()
		c.seen = max(c.seen, pending[n-1].Sequence)
		c.mu.Unlock()
	}
	return nil
}

func (c *Configs) selfName() string { return strconv.Itoa(int(c.o.Self)) }

// Broker is the effective configuration of this broker.
func (c *Configs) Broker() *config.Broker {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.broker
}

// Dynamic are the dynamic broker configs in force: this broker's own, and the
// cluster's defaults. Not to be changed.
func (c *Configs) Dynamic() (perBroker, clusterDefault config.Values) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.perBroker, c.forCluster
}

// Overrides are a topic's own configs; not to be changed.
func (c *Configs) Overrides(topic string) config.Values {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.topics[topic]
}

// Topic is a topic's effective configuration. A topic not heard of yet is
// looked up, as its configs are written before the topic is. The empty name
// stands for a topic without overrides.
func (c *Configs) Topic(topic string) config.Log {
	if topic == "" {
		return c.Broker().TopicDefaults()
	}
	c.mu.RLock()
	overrides, known := c.topics[topic]
	broker := c.broker
	c.mu.RUnlock()
	if !known {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		overrides = c.lookUp(ctx, topic)
	}
	l, err := broker.ForTopic(overrides)
	if err != nil { // they were looked through, and depend on nothing else
		c.o.Logger.Error().Err(err).Str("topic", topic).Msg("invalid topic config, the broker's defaults hold")
		return broker.TopicDefaults()
	}
	return l
}

func (c *Configs) lookUp(ctx context.Context, topic string) config.Values {
	s, err := c.o.Store.Wait(ctx)
	if err == nil {
		var read map[string]string
		if read, _, _, err = zkmeta.GetEntityConfig(ctx, s, zkmeta.ConfigEntityPath(zkmeta.TopicConfigs, topic)); err == nil {
			good := c.valid(topic, read)
			c.setTopic(topic, good)
			return good
		}
	}
	c.o.Logger.Error().Err(err).Str("topic", topic).Msg("topic config not read, defaults are used until it is")
	return nil
}

// valid is a topic's overrides less those that are not valid, which 3.9 would not
// have written. In the place of such a one, what was in force for its key stays;
// 3.9 keeps the whole of what was in force then, and does not start on it.
func (c *Configs) valid(topic string, read config.Values) config.Values {
	b, before := c.Broker(), c.Overrides(topic)
	if _, err := b.ForTopic(read); err == nil {
		return read
	}
	good := make(config.Values, len(read))
	for _, k := range slices.Sorted(maps.Keys(read)) {
		_, err := b.ForTopic(config.Values{k: read[k]})
		if err == nil {
			good[k] = read[k]
			continue
		}
		in := "the broker's default"
		if v, ok := before[k]; ok {
			good[k], in = v, v
		}
		c.o.Logger.Error().Err(err).Str("topic", topic).Str("key", k).Str("value", read[k]).Str("inForce", in).
			Msg("invalid value in a topic's config is left out, the others hold")
	}
	return good
}

// Forget drops a deleted topic.
func (c *Configs) Forget(topic string) {
	c.mu.Lock()
	delete(c.topics, topic)
	c.mu.Unlock()
}

func (c *Configs) setTopic(topic string, v config.Values) {
	if v == nil {
		v = config.Values{}
	}
	c.mu.Lock()
	c.topics[topic] = v
	c.mu.Unlock()
}

// Update changes an entity's configs in the store by update, which gets a copy
// of what they are; it starts over when another broker was faster. The change
// is in force here when Update returns, elsewhere once they are notified.
func (c *Configs) Update(ctx context.Context, e zkmeta.ConfigChange, update func(map[string]string) (map[string]string, error)) error {
	s, err := c.o.Store.Wait(ctx)
	if err != nil {
		return err
	}
	if err := zkmeta.UpdateEntityConfig(ctx, s, e, update); err != nil {
		return err
	}
	return c.refresh(ctx, s, e)
}

// refresh reads one entity's configs again and makes them take effect.
func (c *Configs) refresh(ctx context.Context, s zkmeta.Session, e zkmeta.ConfigChange) error {
	c.applying.Lock()
	defer c.applying.Unlock()
	read, _, _, err := zkmeta.GetEntityConfig(ctx, s, e.EntityPath())
	if errors.Is(err, zkmeta.ErrBadZnode) {
		c.o.Logger.Error().Err(err).Msg("unreadable config, what was in force stays")
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case e.Type == zkmeta.TopicConfigs:
		c.applyTopic(e.Name, read)
	case e.Type == zkmeta.BrokerConfigs && (e.Name == c.selfName() || e.Name == zkmeta.DefaultEntity):
		c.applyBroker(e.Name == zkmeta.DefaultEntity, read)
	}
	return nil
}

func (c *Configs) applyTopic(topic string, v config.Values) {
	c.setTopic(topic, c.valid(topic, v))
	if c.o.OnTopic != nil {
		c.o.OnTopic(topic, c.Topic(topic))
	}
}

func (c *Configs) applyBroker(isDefault bool, v config.Values) {
	stored := v
	v, warnings := config.FilterDynamic(stored, !isDefault)
	c.warn(isDefault, stored, warnings)
	c.mu.Lock()
	per, def := c.perBroker, c.forCluster
	if isDefault {
		def = v
	} else {
		per = v
	}
	if maps.Equal(per, c.perBroker) && maps.Equal(def, c.forCluster) {
		c.mu.Unlock()
		return
	}
	b, err := c.o.Static.WithDynamic(per, def)
	if err != nil {
		c.mu.Unlock()
		c.o.Logger.Error().Err(err).Msg("invalid dynamic broker config, what was in force stays")
		return
	}
	c.broker, c.perBroker, c.forCluster = b, per, def
	topics := make([]string, 0, len(c.topics))
	for t := range c.topics {
		topics = append(topics, t)
	}
	c.mu.Unlock()
	if c.o.OnBroker != nil {
		c.o.OnBroker(b)
	}
	if c.o.OnTopic != nil { // topics inherit from the broker
		for _, t := range topics {
			c.o.OnTopic(t, c.Topic(t))
		}
	}
}

// warn tells of stored broker configs that have no effect: those that were left
// out, and keys that nobody knows. The value is shown where it is no secret.
func (c *Configs) warn(isDefault bool, stored config.Values, warnings []config.Warning) {
	entity := "brokers/" + c.selfName()
	if isDefault {
		entity = "brokers/" + zkmeta.DefaultEntity
	}
	before, now := c.warned[entity], map[string]bool{}
	c.warned[entity] = now
	known := c.o.Static.DescribeBrokerDefault(stored)
	for _, d := range known {
		if d.Type == int8(config.UnknownType) && !slices.ContainsFunc(warnings, func(w config.Warning) bool { return w.Key == d.Name }) {
			warnings = append(warnings, config.Warning{Key: d.Name, Text: "stored dynamic config has no effect: unknown key"})
		}
	}
	for _, w := range warnings {
		what := w.Key + "\x00" + stored[w.Key] + "\x00" + w.Text
		if now[what] = true; before[what] {
			continue
		}
		e := c.o.Logger.Warn().Str("entity", entity).Str("key", w.Key)
		if at := slices.IndexFunc(known, func(d config.Described) bool { return d.Name == w.Key }); at >= 0 && !known[at].Sensitive {
			e = e.Str("value", known[at].Value)
		}
		e.Msg(w.Text)
	}
}

// follow acts on change notifications until the subscription ends.
func (c *Configs) follow() {
	defer close(c.done)
	for e := range c.events {
		switch {
		case e.Type == zkmeta.SessionStarted, e.Type == zkmeta.Connected, e.Path == zkmeta.ConfigChangesPath:
			c.catchUp()
		}
	}
}

func (c *Configs) catchUp() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := c.o.Store.Session()
	if err != nil {
		return // the next session starts with an event
	}
	c.mu.RLock()
	after := c.seen
	c.mu.RUnlock()
	all, err := zkmeta.ReadNotifications(ctx, s, zkmeta.ConfigChangesPath, -1, true)
	if err != nil {
		c.o.Logger.Warn().Err(err).Msg("config change notifications not read, waiting for the next")
		return
	}
	for _, n := range all {
		if n.Sequence <= after {
			continue
		}
		if !c.actOn(ctx, s, n) {
			return
		}
		c.mu.Lock()
		c.seen = max(c.seen, n.Sequence)
		c.mu.Unlock()
	}
	before := c.o.Clock.Now().Add(-purgeAfter).UnixMilli()
	if err := zkmeta.PurgeNotifications(ctx, s, all, zkmeta.ConfigChangesPath, before); err != nil {
		c.o.Logger.Warn().Err(err).Msg("old config change notifications not removed")
	}
}

func (c *Configs) actOn(ctx context.Context, s zkmeta.Session, n zkmeta.Notification) bool {
	change, err := zkmeta.DecodeConfigChange(n.Name, n.Data)
	if err != nil {
		c.o.Logger.Error().Err(err).Msg("unreadable config change notification, skipped")
		return true
	}
	if err := c.refresh(ctx, s, change); err != nil {
		c.o.Logger.Warn().Err(err).Str("entity", change.EntityPath()).Msg("changed config not read, tried again at the next event")
		return false
	}
	return true
}
