package loop

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
)

// todo is what has to be read before the next decision. Watch events put into
// it, reading takes out of it; what could not be read stays.
type todo struct {
	load      bool // everything, at the beginning of a term
	brokers   bool
	topicList bool
	deletions bool
	isr       bool // notifications of leaders that wrote their ISR themselves
	logDirs   bool
	preferred bool
	features  bool
	legacy    bool // reassignments that old tools ask for
	topics    map[string]bool
	states    map[cluster.TopicPartition]bool
	configs   map[string]bool // of topics
}

func newTodo() todo {
	return todo{topics: map[string]bool{}, states: map[cluster.TopicPartition]bool{}, configs: map[string]bool{}}
}

const topicConfigPrefix = zkmeta.ConfigPath + "/" + string(zkmeta.TopicConfigs) + "/"

// note maps a watch event to what it touches: a new topic costs the reading of
// that topic and of the list of names, not of the other topics.
func (t *term) note(e zkmeta.Event) {
	switch e.Path {
	case zkmeta.BrokerIDsPath:
		t.todo.brokers = true
	case zkmeta.TopicsPath:
		t.todo.topicList = true
	case zkmeta.DeleteTopicsPath:
		t.todo.deletions = true
	case zkmeta.IsrChangesPath:
		t.todo.isr = true
	case zkmeta.LogDirEventsPath:
		t.todo.logDirs = true
	case zkmeta.PreferredElectionPath:
		t.todo.preferred = true
	case zkmeta.FeaturePath:
		t.todo.features = true
	case zkmeta.ReassignPartitionsPath:
		t.todo.legacy = true
	default:
		if _, ok := zkmeta.BrokerOfPath(e.Path); ok {
			t.todo.brokers = true
		} else if name, ok := zkmeta.TopicOfPath(e.Path); ok {
			t.todo.topics[name] = true
		} else if tp, ok := zkmeta.PartitionOfPath(e.Path); ok {
			t.todo.states[tp] = true // only those that cannot be understood are watched
		} else if len(e.Path) > len(topicConfigPrefix) && e.Path[:len(topicConfigPrefix)] == topicConfigPrefix {
			t.todo.configs[e.Path[len(topicConfigPrefix):]] = true
		}
	}
}

// read turns everything that is to do into facts.
func (t *term) read() error {
	if t.todo.load {
		if err := t.load(); err != nil {
			return fmt.Errorf("beginning of epoch %d: %w", t.im.Epoch(), err)
		}
		t.todo.load = false
	}
	return inOrder(
		do(&t.todo.features, t.readFeatures),
		do(&t.todo.brokers, t.readBrokers),
		do(&t.todo.topicList, t.readTopicList),
		func() error { return t.readTopics() },
		do(&t.todo.deletions, t.readDeletions),
		do(&t.todo.isr, t.readIsrChanges),
		func() error { return t.readStates() },
		do(&t.todo.logDirs, t.readLogDirEvents),
		func() error { return t.readConfigs() },
		do(&t.todo.preferred, t.readPreferredElection),
		do(&t.todo.legacy, t.readLegacy),
	)
}

func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func do(flag *bool, f func() error) func() error {
	return func() error {
		if !*flag {
			return nil
		}
		if err := f(); err != nil {
			return err
		}
		*flag = false
		return nil
	}
}

// load sets all watches and reads all there is: brokers first, so that no
// partition is taken for leaderless.
func (t *term) load() error {
	if err := t.ensureFeature(); err != nil {
		return err
	}
	// What the notifications tell is about to be read anyway.
	for _, path := range []string{zkmeta.LogDirEventsPath, zkmeta.IsrChangesPath} {
		list, err := zkmeta.ReadNotifications(t.ctx, t.session, path, -1, true)
		if err != nil {
			return err
		}
		if err := t.deleteNotifications(path, list); err != nil {
			return err
		}
	}
	if _, _, err := t.session.Exists(t.ctx, zkmeta.PreferredElectionPath, true); err != nil {
		return err
	}
	t.todo.preferred, t.todo.legacy = true, true
	if err := t.readBrokers(); err != nil {
		return err
	}
	topics, err := zkmeta.ReadTopics(t.ctx, t.session, true)
	if err != nil {
		return err
	}
	var partitions []cluster.TopicPartition
	for _, r := range topics {
		if t.topicFact(r) {
			for _, n := range r.Assignment.Numbers() {
				partitions = append(partitions, cluster.TopicPartition{Topic: r.Topic, Partition: n})
			}
		}
	}
	if err := t.stateFacts(partitions); err != nil {
		return err
	}
	return t.readDeletions()
}

// ensureFeature has features versioned, with none finalized, as Kafka's
// controller leaves it from inter.broker.protocol.version 2.7 on.
func (t *term) ensureFeature() error {
	f, st, found, err := zkmeta.GetFeature(t.ctx, t.session, true)
	t.finalized = nil
	if err == nil && f.Enabled {
		t.finalized = f.Finalized
	}
	none := zkmeta.Feature{Version: 2, Enabled: true}
	var op zkmeta.Op
	switch {
	case errors.Is(err, zkmeta.ErrBadZnode):
		t.report(zkmeta.FeaturePath, err)
		return nil
	case err != nil:
		return err
	case !found:
		op = zkmeta.Create(zkmeta.FeaturePath, none.Encode(), zkmeta.Persistent, nil)
	case !f.Enabled || f.Version != 2:
		if f.Enabled {
			none.Finalized = f.Finalized
		}
		op = zkmeta.Set(zkmeta.FeaturePath, none.Encode(), st.Version)
	default:
		return nil
	}
	_, err = t.session.Multi(t.ctx, append(t.guard(), op)...)
	if errors.Is(err, zkmeta.ErrNodeExists) {
		return t.ensureFeature()
	}
	return moved(err)
}

func (t *term) readBrokers() error {
	list, err := zkmeta.ReadBrokers(t.ctx, t.session, true)
	if err != nil {
		return err
	}
	there := map[cluster.BrokerID]bool{}
	for _, r := range list {
		there[r.ID] = true
		if r.Err != nil {
			t.report(zkmeta.BrokerPath(r.ID), r.Err)
			if known, ok := t.im.Incarnation(r.ID); ok && known != r.Epoch {
				t.im.BrokerGone(r.ID) // whoever that is, it is not the one we knew
			}
			continue
		}
		if err := t.supports(r.Registration); err != nil {
			if t.once(zkmeta.BrokerPath(r.ID), err.Error()) {
				t.l.opts.Logger.Error().Err(err).Int32("peer", int32(r.ID)).Str("znode", zkmeta.FeaturePath).
					Msg("the broker is left out of the cluster until it supports what is finalized")
			}
			delete(there, r.ID) // as 3.9 does: for the cluster it is not there
			continue
		}
		delete(t.broken, zkmeta.BrokerPath(r.ID))
		if known, ok := t.im.Incarnation(r.ID); !ok || known != r.Epoch {
			t.l.opts.Logger.Info().Int32("peer", int32(r.ID)).Int64("epoch", int64(r.Epoch)).Msg("broker is registered")
		}
		t.im.BrokerStarted(brokerOf(r))
	}
	for _, id := range t.im.KnownBrokers() {
		if !there[id] {
			t.l.opts.Logger.Info().Int32("peer", int32(id)).Msg("broker is gone")
			t.im.BrokerGone(id)
		}
	}
	return nil
}

// readFeatures takes over what is finalized from now on; who is live depends on
// it.
func (t *term) readFeatures() error {
	if err := t.ensureFeature(); err != nil {
		return err
	}
	t.todo.brokers = true
	return nil
}

// supports says why a broker that does not list a finalized feature, or not its
// level, is left out of the cluster.
func (t *term) supports(b zkmeta.BrokerRegistration) error {
	for _, name := range slices.Sorted(maps.Keys(t.finalized)) {
		level := t.finalized[name].Max
		if v, ok := b.Features[name]; !ok || level < v.Min || level > v.Max {
			return fmt.Errorf("the broker does not support level %d of feature %q, which is finalized", level, name)
		}
	}
	return nil
}

var protocolNumbers = map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

func brokerOf(r zkmeta.BrokerRead) controller.Broker {
	b := controller.Broker{ID: r.ID, Epoch: r.Epoch, Unclean: r.Registration.UncleanRestart()}
	if r.Registration.Rack != "" {
		b.Rack = &r.Registration.Rack
	}
	for _, e := range r.Registration.Endpoints {
		b.Endpoints = append(b.Endpoints, controller.Endpoint{Listener: e.Listener, Host: e.Host, Port: e.Port, Protocol: protocolNumbers[e.Protocol]})
	}
	return b
}

// readTopicList reads the names, and the topics among them that are new.
func (t *term) readTopicList() error {
	names, _, err := t.session.Children(t.ctx, zkmeta.TopicsPath, true)
	if errors.Is(err, zkmeta.ErrNoNode) {
		names, err = nil, nil
	}
	if err != nil {
		return err
	}
	there := make(map[string]struct{}, len(names))
	for _, name := range names {
		there[name] = struct{}{}
		if !t.im.HasTopic(name) {
			t.todo.topics[name] = true
		}
	}
	for _, name := range t.im.Topics() {
		if _, ok := there[name]; !ok {
			t.l.opts.Logger.Warn().Str("topic", name).Msg("the topic's znode was deleted by somebody else")
			t.im.TopicGone(name)
			delete(t.parents, name)
		}
	}
	return nil
}

func (t *term) readTopics() error {
	if len(t.todo.topics) == 0 {
		return nil
	}
	names := sortedNames(t.todo.topics)
	list, err := zkmeta.ReadTopicsNamed(t.ctx, t.session, names, true)
	if err != nil {
		return err
	}
	clear(t.todo.topics)
	for _, r := range list {
		t.topicFact(r)
	}
	return nil
}

// topicFact reports whether the topic could be understood. One that cannot is
// left as it was known, or left alone.
func (t *term) topicFact(r zkmeta.TopicRead) bool {
	if r.Err != nil {
		t.report(zkmeta.TopicPath(r.Topic), r.Err)
		return false
	}
	t.understood(zkmeta.TopicPath(r.Topic))
	f := controller.Topic{Name: r.Topic, ID: r.Assignment.ID, Version: r.Stat.Version, Partitions: r.Assignment.Partitions}
	if f.ID.IsZero() {
		f.Proposed = cluster.NewTopicID()
	}
	t.im.TopicRead(f)
	return true
}

func (t *term) readStates() error {
	if len(t.todo.states) == 0 {
		return nil
	}
	list := make([]cluster.TopicPartition, 0, len(t.todo.states))
	for tp := range t.todo.states {
		list = append(list, tp)
	}
	clear(t.todo.states) // what is read anew comes in meanwhile
	err := t.stateFacts(list)
	if err != nil {
		for _, tp := range list {
			t.todo.states[tp] = true
		}
	}
	return err
}

// readDeletions reads the marks. A topic may have been made and marked before
// its creation was seen, so unknown ones are looked up first.
func (t *term) readDeletions() error {
	names, _, err := t.session.Children(t.ctx, zkmeta.DeleteTopicsPath, true)
	if errors.Is(err, zkmeta.ErrNoNode) {
		_, _, err = t.session.Exists(t.ctx, zkmeta.DeleteTopicsPath, true)
		names = nil
	}
	if err != nil {
		return err
	}
	if t.l.opts.DeletionOff {
		if len(names) > 0 {
			t.l.opts.Logger.Warn().Strs("topics", names).Msg("delete.topic.enable is false: nothing is deleted")
		}
		return t.removeMarks(names)
	}
	var unknown []string
	for _, name := range names {
		if !t.im.HasTopic(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		list, err := zkmeta.ReadTopicsNamed(t.ctx, t.session, unknown, true)
		if err != nil {
			return err
		}
		for _, r := range list {
			t.topicFact(r)
		}
	}
	t.im.DeletionsRead(names)
	return nil
}

func (t *term) removeMarks(topics []string) error {
	for _, name := range topics {
		if _, err := t.forgetDeletion(name); err != nil {
			return err
		}
	}
	return nil
}

// readConfigs reads what elections ask of topics.
func (t *term) readConfigs() error {
	for _, name := range sortedNames(t.todo.configs) {
		path := zkmeta.ConfigEntityPath(zkmeta.TopicConfigs, name)
		if _, _, err := t.session.Exists(t.ctx, path, true); err != nil {
			return err
		}
		config, _, _, err := zkmeta.GetEntityConfig(t.ctx, t.session, path)
		if errors.Is(err, zkmeta.ErrBadZnode) {
			t.report(path, err)
			t.im.ConfigRead(name, controller.TopicConfig{MinISR: t.minISR(nil)})
		} else if err != nil {
			return err
		} else {
			t.im.ConfigRead(name, controller.TopicConfig{Unclean: t.unclean(config), MinISR: t.minISR(config)})
		}
		delete(t.todo.configs, name)
		t.asked[name] = true
	}
	return nil
}

// unclean is a topic's unclean.leader.election.enable. As on its brokers, a value
// that is none leaves the default in force.
func (t *term) unclean(config map[string]string) bool {
	switch v := strings.TrimSpace(config["unclean.leader.election.enable"]); {
	case strings.EqualFold(v, "true"):
		return true
	case strings.EqualFold(v, "false"):
		return false
	}
	return t.l.opts.UncleanElection()
}

func (t *term) minISR(config map[string]string) int {
	if n, err := strconv.ParseInt(strings.TrimSpace(config["min.insync.replicas"]), 10, 32); err == nil && n > 0 {
		return int(n)
	}
	return t.l.opts.MinISR()
}
