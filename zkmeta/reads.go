package zkmeta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/cluster"
)

// getOr reads one znode; found is false, without an error, when there is none.
// With watch, a missing znode is watched too.
func getOr[T any](ctx context.Context, s Session, path string, watch bool, decode func(data []byte, st Stat) (T, error)) (v T, st Stat, found bool, err error) {
	for {
		data, st, err := s.Get(ctx, path, watch)
		if err == nil {
			v, err = decode(data, st)
			return v, st, true, err
		}
		if !errors.Is(err, ErrNoNode) {
			return v, Stat{}, false, err
		}
		if !watch {
			return v, Stat{}, false, nil
		}
		if _, there, err := s.Exists(ctx, path, true); err != nil || !there {
			return v, Stat{}, false, err
		}
	}
}

// GetController reads who the controller is; found is false when nobody is.
// With watch, that is watched as well.
func GetController(ctx context.Context, s Session, watch bool) (c Controller, st Stat, found bool, err error) {
	return getOr(ctx, s, ControllerPath, watch, func(data []byte, _ Stat) (Controller, error) { return DecodeController(data) })
}

// GetControllerEpoch reads the epoch of the last controller.
func GetControllerEpoch(ctx context.Context, s Session) (e cluster.ControllerEpoch, st Stat, found bool, err error) {
	return getOr(ctx, s, ControllerEpochPath, false, func(data []byte, _ Stat) (cluster.ControllerEpoch, error) { return DecodeControllerEpoch(data) })
}

// GetFeature reads the finalized features.
func GetFeature(ctx context.Context, s Session, watch bool) (f Feature, st Stat, found bool, err error) {
	return getOr(ctx, s, FeaturePath, watch, func(data []byte, _ Stat) (Feature, error) { return DecodeFeature(data) })
}

// GetClusterID reads the cluster's id.
func GetClusterID(ctx context.Context, s Session) (id string, found bool, err error) {
	id, _, found, err = getOr(ctx, s, ClusterIDPath, false, func(data []byte, _ Stat) (string, error) { return DecodeClusterID(data) })
	return id, found, err
}

// GetBroker reads a broker's registration; its epoch is the Stat's Czxid.
func GetBroker(ctx context.Context, s Session, id cluster.BrokerID, watch bool) (b BrokerRegistration, st Stat, found bool, err error) {
	return getOr(ctx, s, BrokerPath(id), watch, func(data []byte, _ Stat) (BrokerRegistration, error) { return DecodeBroker(id, data) })
}

// GetTopic reads a topic's assignment.
func GetTopic(ctx context.Context, s Session, topic string, watch bool) (t TopicAssignment, st Stat, found bool, err error) {
	return getOr(ctx, s, TopicPath(topic), watch, func(data []byte, _ Stat) (TopicAssignment, error) { return DecodeTopic(topic, data) })
}

// GetState reads a partition's state, whose ZKVersion is the znode's.
func GetState(ctx context.Context, s Session, tp cluster.TopicPartition, watch bool) (l cluster.LeaderAndISR, st Stat, found bool, err error) {
	return getOr(ctx, s, StatePath(tp), watch, func(data []byte, st Stat) (cluster.LeaderAndISR, error) {
		return DecodeState(tp, data, st.Version)
	})
}

// GetEntityConfig reads the configs of an entity; an entity without a znode has
// none.
func GetEntityConfig(ctx context.Context, s Session, path string) (config map[string]string, st Stat, found bool, err error) {
	return getOr(ctx, s, path, false, func(data []byte, _ Stat) (map[string]string, error) { return DecodeEntityConfig(path, data) })
}

// GetProducerIDBlock reads the block of producer ids given out last.
func GetProducerIDBlock(ctx context.Context, s Session) (p ProducerIDBlock, st Stat, found bool, err error) {
	given := false
	p, st, found, err = getOr(ctx, s, ProducerIDBlockPath, false, func(data []byte, _ Stat) (p ProducerIDBlock, err error) {
		p, given, err = DecodeProducerIDBlock(data)
		return p, err
	})
	return p, st, found && given, err
}

// BrokerRead is one answer of ReadBrokers.
type BrokerRead struct {
	ID           cluster.BrokerID
	Registration BrokerRegistration
	Epoch        cluster.BrokerEpoch
	Stat         Stat
	Err          error // unreadable; the broker is there
}

// ReadBrokers reads all registrations, by id. With watch it watches the list
// and each registration. A broker that vanished meanwhile is left out.
func ReadBrokers(ctx context.Context, s Session, watch bool) ([]BrokerRead, error) {
	names, _, err := childrenOr(ctx, s, BrokerIDsPath, watch)
	if err != nil {
		return nil, err
	}
	var ids []cluster.BrokerID
	for _, name := range names {
		if id, ok := ParseBrokerID(name); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return readEach(ctx, s, ids, watch, BrokerPath, func(id cluster.BrokerID, r Read) BrokerRead {
		b := BrokerRead{ID: id, Stat: r.Stat, Epoch: cluster.BrokerEpoch(r.Stat.Czxid)}
		b.Registration, b.Err = DecodeBroker(id, r.Data)
		return b
	})
}

// TopicRead is one answer of ReadTopics.
type TopicRead struct {
	Topic      string
	Assignment TopicAssignment
	Stat       Stat
	Err        error // unreadable; the topic is there
}

// ReadTopics reads all topics' assignments, by name. With watch it watches the
// list and each topic. A topic that vanished meanwhile is left out.
func ReadTopics(ctx context.Context, s Session, watch bool) ([]TopicRead, error) {
	names, _, err := childrenOr(ctx, s, TopicsPath, watch)
	if err != nil {
		return nil, err
	}
	return ReadTopicsNamed(ctx, s, names, watch)
}

// ReadTopicsNamed reads these topics' assignments, in this order, without those
// that are not there.
func ReadTopicsNamed(ctx context.Context, s Session, topics []string, watch bool) ([]TopicRead, error) {
	return readEach(ctx, s, topics, watch, TopicPath, func(topic string, r Read) TopicRead {
		t := TopicRead{Topic: topic, Stat: r.Stat}
		t.Assignment, t.Err = DecodeTopic(topic, r.Data)
		return t
	})
}

// StateRead is one answer of ReadStates.
type StateRead struct {
	Partition cluster.TopicPartition
	State     cluster.LeaderAndISR
	Stat      Stat
	Err       error // unreadable; the state is there
}

// ReadStates reads the states of the partitions, in this order, without those
// that have none.
func ReadStates(ctx context.Context, s Session, partitions []cluster.TopicPartition, watch bool) ([]StateRead, error) {
	return readEach(ctx, s, partitions, watch, StatePath, func(tp cluster.TopicPartition, r Read) StateRead {
		st := StateRead{Partition: tp, Stat: r.Stat}
		st.State, st.Err = DecodeState(tp, r.Data, r.Stat.Version)
		return st
	})
}

// EntityRead is one answer of ReadEntityConfigs.
type EntityRead struct {
	Name   string // as in the path
	Config map[string]string
	Stat   Stat
	Err    error // unreadable; the entity is there
}

// ReadEntityConfigs reads the configs of all entities of a kind, by name, the
// default entity among them; not those of clients under users.
func ReadEntityConfigs(ctx context.Context, s Session, t ConfigType) ([]EntityRead, error) {
	names, _, err := childrenOr(ctx, s, ConfigTypePath(t), false)
	if err != nil {
		return nil, err
	}
	path := func(name string) string { return ConfigEntityPath(t, name) }
	return readEach(ctx, s, names, false, path, func(name string, r Read) EntityRead {
		e := EntityRead{Name: name, Stat: r.Stat}
		e.Config, e.Err = DecodeEntityConfig(path(name), r.Data)
		return e
	})
}

// Notification is a child of one of the notification paths.
type Notification struct {
	Name     string
	Sequence int64
	Data     []byte
	Stat     Stat
}

// ReadNotifications reads the children of a notification path whose number is
// above after, in the order of their numbers. With watch it watches the list.
func ReadNotifications(ctx context.Context, s Session, parent string, after int64, watch bool) ([]Notification, error) {
	names, _, err := childrenOr(ctx, s, parent, watch)
	if err != nil {
		return nil, err
	}
	var wanted []Notification
	for _, name := range names {
		if seq, ok := Sequence(name); ok && seq > after {
			wanted = append(wanted, Notification{Name: name, Sequence: seq})
		}
	}
	slices.SortFunc(wanted, func(a, b Notification) int { return cmp.Compare(a.Sequence, b.Sequence) })
	path := func(n Notification) string { return parent + "/" + n.Name }
	return readEach(ctx, s, wanted, false, path, func(n Notification, r Read) Notification {
		n.Data, n.Stat = r.Data, r.Stat
		return n
	})
}

// childrenOr is Children where a missing parent has none; it is watched.
func childrenOr(ctx context.Context, s Session, path string, watch bool) ([]string, Stat, error) {
	for {
		names, st, err := s.Children(ctx, path, watch)
		if !errors.Is(err, ErrNoNode) {
			return names, st, err
		}
		if !watch {
			return nil, Stat{}, nil
		}
		if _, there, err := s.Exists(ctx, path, true); err != nil || !there {
			return nil, Stat{}, err
		}
	}
}

// readEach reads one znode per key with many reads in flight and leaves out
// what is not there. Any other failure to read fails the whole.
func readEach[K, V any](ctx context.Context, s Session, keys []K, watch bool, path func(K) string, decode func(K, Read) V) ([]V, error) {
	paths := make([]string, len(keys))
	for i, k := range keys {
		paths[i] = path(k)
	}
	out := make([]V, 0, len(keys))
	for i, r := range s.GetMany(ctx, paths, watch) {
		switch {
		case errors.Is(r.Err, ErrNoNode):
		case r.Err != nil:
			return nil, fmt.Errorf("reading %d znodes, %s among them: %w", len(keys), r.Path, r.Err)
		default:
			out = append(out, decode(keys[i], r))
		}
	}
	return out, nil
}

// UserClientOf splits the name of a client under a user, "U/clients/C".
func UserClientOf(name string) (user, client string, ok bool) {
	user, client, ok = strings.Cut(name, "/"+string(ClientConfigs)+"/")
	return user, client, ok && user != "" && client != ""
}
