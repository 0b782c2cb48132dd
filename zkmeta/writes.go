package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// CheckControllerEpoch guards a controller's write: version is that of
// /controller_epoch when it was elected.
func CheckControllerEpoch(version cluster.ZKVersion) Op { return Check(ControllerEpochPath, version) }

// Elect are the operations that make a broker the controller: version is that
// of /controller_epoch when epoch was worked out as one more than it said. The
// second result's Stat.Version is what CheckControllerEpoch takes from then on.
func Elect(c Controller, epoch cluster.ControllerEpoch, version cluster.ZKVersion) []Op {
	return []Op{
		Create(ControllerPath, c.Encode(), Ephemeral, nil),
		Set(ControllerEpochPath, EncodeControllerEpoch(epoch), version),
	}
}

// Register are the operations that register a broker. The second result's
// Stat.Czxid is the broker's epoch: a create alone would not tell it. As with
// Kafka, the registration's data is at version 1 afterwards.
func Register(id cluster.BrokerID, b BrokerRegistration) []Op {
	return []Op{
		Create(BrokerPath(id), nil, Ephemeral, nil),
		Set(BrokerPath(id), b.Encode(), 0),
	}
}

// CreateTopic makes a topic; the controller does the rest.
func CreateTopic(topic string, t TopicAssignment) Op {
	return Create(TopicPath(topic), t.Encode(), Persistent, nil)
}

// SetTopic changes a topic's assignment.
func SetTopic(topic string, t TopicAssignment, version cluster.ZKVersion) Op {
	return Set(TopicPath(topic), t.Encode(), version)
}

// CreateState are the operations that give a partition its first state. The
// topic's PartitionsPath has to be there.
func CreateState(tp cluster.TopicPartition, s cluster.LeaderAndISR) []Op {
	return []Op{
		Create(PartitionPath(tp), nil, Persistent, nil),
		Create(StatePath(tp), EncodeState(s), Persistent, nil),
	}
}

// SetState changes a partition's state at the version that s carries.
func SetState(tp cluster.TopicPartition, s cluster.LeaderAndISR) Op {
	return Set(StatePath(tp), EncodeState(s), s.ZKVersion)
}

// Notify makes a notification of a changed entity.
func (c ConfigChange) Notify() Op {
	return Create(ConfigChangeSequentialPath, c.Encode(), PersistentSequential, nil)
}

// EnsurePaths creates what is missing of the paths and their parents, with no
// data. The order of the creations is that of the paths, parents first.
func EnsurePaths(ctx context.Context, s Session, paths ...string) error {
	var all []string
	seen := map[string]bool{}
	for _, p := range paths {
		for _, q := range append(Parents(p), p) {
			if !seen[q] {
				seen[q] = true
				all = append(all, q)
			}
		}
	}
	for {
		var creates []Op
		for _, r := range s.GetMany(ctx, all, false) {
			switch {
			case errors.Is(r.Err, ErrNoNode):
				creates = append(creates, Create(r.Path, nil, Persistent, nil))
			case r.Err != nil && !errors.Is(r.Err, ErrNoAuth): // it is there, if not for us to read
				return r.Err
			}
		}
		if len(creates) == 0 {
			return nil
		}
		// Somebody else may create or delete the same at the same time.
		if _, err := s.Multi(ctx, creates...); err == nil || !errors.Is(err, ErrNodeExists) && !errors.Is(err, ErrNoNode) {
			return err
		}
	}
}

// EnsurePersistentPaths creates what every broker creates at its start.
func EnsurePersistentPaths(ctx context.Context, s Session) error {
	return EnsurePaths(ctx, s, PersistentPaths()...)
}

// CreateWithParents creates a persistent znode and what is missing above it.
func CreateWithParents(ctx context.Context, s Session, path string, data []byte) error {
	for {
		_, err := s.Multi(ctx, Create(path, data, Persistent, nil))
		if !errors.Is(err, ErrNoNode) {
			return err
		}
		if err := EnsurePaths(ctx, s, Parents(path)...); err != nil {
			return err
		}
	}
}

// GetOrCreateClusterID gives the cluster the proposed id unless it has one, and
// returns the one it has.
func GetOrCreateClusterID(ctx context.Context, s Session, proposed string) (string, error) {
	for {
		id, found, err := GetClusterID(ctx, s)
		if err != nil || found {
			return id, err
		}
		err = CreateWithParents(ctx, s, ClusterIDPath, EncodeClusterID(proposed))
		if err == nil {
			return proposed, nil
		}
		if !errors.Is(err, ErrNodeExists) {
			return "", err
		}
	}
}

// GetOrCreateControllerEpoch reads the last controller's epoch, and makes the
// znode with the initial one when there has been no controller.
func GetOrCreateControllerEpoch(ctx context.Context, s Session) (cluster.ControllerEpoch, cluster.ZKVersion, error) {
	for {
		epoch, st, found, err := GetControllerEpoch(ctx, s)
		if err != nil || found {
			return epoch, st.Version, err
		}
		_, err = s.Multi(ctx, Create(ControllerEpochPath, EncodeControllerEpoch(InitialControllerEpoch), Persistent, nil))
		if err != nil && !errors.Is(err, ErrNodeExists) {
			return 0, 0, err
		}
	}
}

// NextBrokerID takes an id for a broker that has none configured. An unknown
// outcome costs an id, no more.
func NextBrokerID(ctx context.Context, s Session, reservedMax cluster.BrokerID) (cluster.BrokerID, error) {
	for {
		results, err := s.Multi(ctx, Set(BrokerSeqIDPath, []byte{}, cluster.AnyZKVersion))
		if err == nil {
			return BrokerIDFromSeqID(results[0].Stat.Version, reservedMax)
		}
		if !errors.Is(err, ErrNoNode) {
			return cluster.NoBroker, err
		}
		if err := EnsurePaths(ctx, s, BrokerSeqIDPath); err != nil {
			return cluster.NoBroker, err
		}
	}
}

// NextProducerIDs takes the next block of producer ids for a broker. The guard
// goes into the same multi; its failure is a *MultiError with an index below
// len(guard). An unknown outcome is looked up.
func NextProducerIDs(ctx context.Context, s Session, broker cluster.BrokerID, guard ...Op) (ProducerIDBlock, error) {
	var mine ProducerIDBlock
	pending := cluster.NoZKVersion // the version that an own write of unknown outcome would have made
	for {
		last, st, given, err := GetProducerIDBlock(ctx, s)
		if err != nil {
			return ProducerIDBlock{}, err
		}
		if given && pending == st.Version && last == mine {
			return mine, nil
		}
		next, ok := last.Next(given, broker)
		if !ok {
			return ProducerIDBlock{}, fmt.Errorf("%s: the producer ids are used up", ProducerIDBlockPath)
		}
		if st == (Stat{}) {
			if err := EnsurePaths(ctx, s, ProducerIDBlockPath); err != nil {
				return ProducerIDBlock{}, err
			}
			continue
		}
		_, err = s.Multi(ctx, append(slices.Clone(guard), Set(ProducerIDBlockPath, next.Encode(), st.Version))...)
		switch failed, isMulti := errors.AsType[*MultiError](err); {
		case err == nil:
			return next, nil
		case isMulti && failed.Index >= len(guard) && errors.Is(err, ErrBadVersion):
			pending = cluster.NoZKVersion
		case errors.Is(err, ErrUnknownOutcome):
			mine, pending = next, st.Version+1
			if ctx.Err() != nil {
				return ProducerIDBlock{}, err
			}
		default:
			return ProducerIDBlock{}, err
		}
	}
}

// UpdateEntityConfig changes an entity's configs by update, which gets a copy of
// what they are and returns what they shall be (nil: no znode), and notifies
// the brokers in the same multi. It starts over when somebody else was faster.
func UpdateEntityConfig(ctx context.Context, s Session, change ConfigChange, update func(map[string]string) (map[string]string, error)) error {
	path := change.EntityPath()
	for {
		old, st, found, err := GetEntityConfig(ctx, s, path)
		if err != nil {
			return err
		}
		if old == nil {
			old = map[string]string{}
		}
		config, err := update(maps.Clone(old))
		if err != nil {
			return err
		}
		var write Op
		switch {
		case found && config != nil:
			write = Set(path, EncodeEntityConfig(config), st.Version)
		case found:
			write = Delete(path, st.Version)
		case config != nil:
			write = Create(path, EncodeEntityConfig(config), Persistent, nil)
		default:
			return nil
		}
		_, err = s.Multi(ctx, write, change.Notify())
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrNoNode): // a parent, or the znode meanwhile
			if err := EnsurePaths(ctx, s, append(Parents(path), ConfigChangesPath)...); err != nil {
				return err
			}
		case errors.Is(err, ErrBadVersion), errors.Is(err, ErrNodeExists):
		default:
			return err
		}
	}
}

// PurgeNotifications deletes the notifications that were made before a time, as
// every broker does with those of changed configs 15 minutes after.
func PurgeNotifications(ctx context.Context, s Session, notifications []Notification, parent string, beforeMs int64) error {
	var multis [][]Op
	for _, n := range notifications {
		if n.Stat.Ctime < beforeMs {
			multis = append(multis, []Op{Delete(parent+"/"+n.Name, cluster.AnyZKVersion)})
		}
	}
	for _, o := range s.MultiMany(ctx, multis) {
		if o.Err != nil && !errors.Is(o.Err, ErrNoNode) { // another broker purges too
			return o.Err
		}
	}
	return nil
}
