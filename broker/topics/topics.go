package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/zkmeta"
)

// More refusals; clients see their text.
var (
	ErrExists               = errors.New("topic already exists")
	ErrUnknown              = errors.New("no such topic")
	ErrInvalidConfig        = errors.New("invalid topic config")
	ErrInvalidRequest       = errors.New("invalid request")
	ErrReassigning          = errors.New("a reassignment of the topic is under way")
	ErrBrokerNotAvailable   = errors.New("broker is not available")
	errChangedWhileDeciding = errors.New("the topic changed meanwhile")
)

// Unset stands for a number of partitions or a replication factor that the
// broker's defaults decide.
const Unset = -1

// maxPartitions bounds what one topic may have: its assignment must fit into
// one znode of a megabyte.
const maxPartitions = 100_000

// Options say what Topics works on.
type Options struct {
	Store  zkmeta.Store
	Config func() *config.Broker
	Nodes  func() []Node // the live brokers
	Random *rand.Rand    // where placements begin; nil: a random one
}

// Topics changes the topics of the cluster in the metadata store.
type Topics struct{ o Options }

// New makes a Topics.
func New(o Options) *Topics {
	return &Topics{o}
}

func (t *Topics) random(n int) int {
	if t.o.Random != nil {
		return t.o.Random.IntN(n)
	}
	return rand.IntN(n)
}

// Spec is a new topic as asked for.
type Spec struct {
	Name              string
	Partitions        int32 // Unset: num.partitions
	ReplicationFactor int16 // Unset: default.replication.factor
	Assignment        map[int32][]cluster.BrokerID
	Configs           config.Values
}

// Made is a topic as it was, or would be, created.
type Made struct {
	ID                cluster.TopicID // zero when only validated
	Partitions        int32
	ReplicationFactor int16
	Configs           config.Values
}

// Create makes a topic, or validates only. Errors wrap a refusal of this
// package, cluster.ErrInvalidTopic, or come from the store.
func (t *Topics) Create(ctx context.Context, spec Spec, validateOnly bool) (Made, error) {
	if err := cluster.ValidateTopicName(spec.Name); err != nil {
		return Made{}, err
	}
	s, err := t.o.Store.Wait(ctx)
	if err != nil {
		return Made{}, err
	}
	if err := t.checkFree(ctx, s, spec.Name); err != nil {
		return Made{}, err
	}
	assignment, err := t.assign(spec)
	if err != nil {
		return Made{}, err
	}
	if err := config.ValidateTopicConfig(t.o.Config(), spec.Configs); err != nil {
		return Made{}, err
	}
	made := Made{Partitions: int32(len(assignment)), Configs: spec.Configs, ReplicationFactor: int16(len(assignment[0]))}
	if validateOnly {
		return made, nil
	}
	made.ID = cluster.NewTopicID()
	return made, t.write(ctx, s, spec, assignment, made.ID)
}

// checkFree refuses a name that is taken, is being deleted, or differs from
// another in '.' against '_' only.
func (t *Topics) checkFree(ctx context.Context, s zkmeta.Session, name string) error {
	for _, path := range []string{zkmeta.TopicPath(name), zkmeta.DeleteTopicPath(name)} {
		_, there, err := s.Exists(ctx, path, false)
		if err != nil {
			return err
		}
		if there && path == zkmeta.TopicPath(name) {
			return fmt.Errorf("%w: '%s'", ErrExists, name)
		}
		if there {
			return fmt.Errorf("%w: '%s' is marked for deletion", ErrExists, name)
		}
	}
	if !strings.ContainsAny(name, "._") {
		return nil
	}
	all, _, err := s.Children(ctx, zkmeta.TopicsPath, false)
	if err != nil {
		return err
	}
	for _, other := range all {
		if cluster.TopicNamesCollide(name, other) {
			return fmt.Errorf("%w: '%s' collides with '%s', which differs in '.' and '_' only", cluster.ErrInvalidTopic, name, other)
		}
	}
	return nil
}

func (t *Topics) assign(spec Spec) (map[int32][]cluster.BrokerID, error) {
	if len(spec.Assignment) > 0 {
		if spec.Partitions != Unset || spec.ReplicationFactor != Unset {
			return nil, fmt.Errorf("%w: give either an assignment or numbers of partitions and replicas", ErrInvalidRequest)
		}
		return spec.Assignment, checkManual(spec.Assignment)
	}
	n, rf := int(spec.Partitions), int(spec.ReplicationFactor)
	if spec.Partitions == Unset {
		n = int(t.o.Config().NumPartitions)
	}
	if spec.ReplicationFactor == Unset {
		rf = int(t.o.Config().DefaultReplicationFactor)
	}
	if n > maxPartitions {
		return nil, fmt.Errorf("%w: %d, at most %d fit into a topic's znode", ErrInvalidPartitions, n, maxPartitions)
	}
	nodes := t.o.Nodes()
	start := max(1, len(nodes))
	return Place(nodes, n, rf, 0, t.random(start), t.random(start))
}

// checkManual checks an assignment made by hand. As with Kafka it may name
// brokers that are not live.
func checkManual(a map[int32][]cluster.BrokerID) error {
	rf := len(a[0])
	for i := range int32(len(a)) {
		replicas, ok := a[i]
		switch {
		case !ok:
			return fmt.Errorf("%w: the partitions must be numbered from 0 without gaps", ErrInvalidReplicaAssignment)
		case len(replicas) == 0 || len(replicas) != rf:
			return fmt.Errorf("%w: every partition needs the same number of replicas, partition %d has %d", ErrInvalidReplicaAssignment, i, len(replicas))
		case hasDuplicates(replicas):
			return fmt.Errorf("%w: partition %d names a broker twice: %v", ErrInvalidReplicaAssignment, i, replicas)
		case slices.Min(replicas) < 0:
			return fmt.Errorf("%w: partition %d names broker %d", ErrInvalidReplicaAssignment, i, slices.Min(replicas))
		}
	}
	return nil
}

func hasDuplicates(ids []cluster.BrokerID) bool {
	sorted := slices.Sorted(slices.Values(ids))
	return len(slices.Compact(sorted)) != len(ids)
}

// write makes the znodes: the configs first, so that whoever sees the topic
// finds them.
func (t *Topics) write(ctx context.Context, s zkmeta.Session, spec Spec, assignment map[int32][]cluster.BrokerID, id cluster.TopicID) error {
	data := zkmeta.EncodeEntityConfig(spec.Configs)
	path := zkmeta.ConfigEntityPath(zkmeta.TopicConfigs, spec.Name)
	_, leftOver, err := s.Exists(ctx, path, false)
	if err != nil {
		return err
	}
	configs := zkmeta.Create(path, data, zkmeta.Persistent, nil)
	if leftOver { // of an earlier topic of this name
		configs = zkmeta.Set(path, data, cluster.AnyZKVersion)
	}
	topic := zkmeta.TopicAssignment{ID: id, Partitions: make(map[int32]cluster.Assignment, len(assignment))}
	for p, replicas := range assignment {
		topic.Partitions[p] = cluster.Assignment{Replicas: replicas}
	}
	_, err = s.Multi(ctx, configs, zkmeta.CreateTopic(spec.Name, topic))
	if errors.Is(err, zkmeta.ErrNodeExists) {
		return fmt.Errorf("%w: '%s'", ErrExists, spec.Name)
	}
	if errors.Is(err, zkmeta.ErrUnknownOutcome) { // did ours get through?
		if got, _, found, readErr := zkmeta.GetTopic(ctx, s, spec.Name, false); readErr == nil && found && got.ID == id {
			return nil
		}
	}
	return err
}

// Growth asks for more partitions.
type Growth struct {
	Name       string
	Count      int32                // of all partitions afterwards
	Assignment [][]cluster.BrokerID // of the new ones; nil: placed by Kafka's rule
}

// Grow adds partitions to a topic, or validates only, and returns the count.
func (t *Topics) Grow(ctx context.Context, g Growth, validateOnly bool) (int32, error) {
	s, err := t.o.Store.Wait(ctx)
	if err != nil {
		return 0, err
	}
	for {
		n, err := t.grow(ctx, s, g, validateOnly)
		if !errors.Is(err, errChangedWhileDeciding) {
			return n, err
		}
	}
}

func (t *Topics) grow(ctx context.Context, s zkmeta.Session, g Growth, validateOnly bool) (int32, error) {
	topic, st, found, err := zkmeta.GetTopic(ctx, s, g.Name, false)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, fmt.Errorf("%w: '%s'", ErrUnknown, g.Name)
	}
	has := int32(len(topic.Partitions))
	for _, a := range topic.Partitions {
		if len(a.Adding) > 0 || len(a.Removing) > 0 {
			return 0, fmt.Errorf("%w: '%s'", ErrReassigning, g.Name)
		}
	}
	switch {
	case g.Count < has:
		return 0, fmt.Errorf("%w: '%s' has %d partitions, more than the %d asked for", ErrInvalidPartitions, g.Name, has, g.Count)
	case g.Count == has:
		return 0, fmt.Errorf("%w: '%s' has %d partitions already", ErrInvalidPartitions, g.Name, has)
	case g.Count > maxPartitions:
		return 0, fmt.Errorf("%w: %d, at most %d fit into a topic's znode", ErrInvalidPartitions, g.Count, maxPartitions)
	}
	added, err := t.placeGrowth(g, topic, has)
	if err != nil || validateOnly {
		return g.Count, err
	}
	grown := zkmeta.TopicAssignment{ID: topic.ID, Partitions: maps.Clone(topic.Partitions)}
	for p, replicas := range added {
		grown.Partitions[p] = cluster.Assignment{Replicas: replicas}
	}
	_, err = s.Multi(ctx, zkmeta.SetTopic(g.Name, grown, st.Version))
	if errors.Is(err, zkmeta.ErrBadVersion) {
		return 0, errChangedWhileDeciding
	}
	return g.Count, err
}

func (t *Topics) placeGrowth(g Growth, topic zkmeta.TopicAssignment, has int32) (map[int32][]cluster.BrokerID, error) {
	like := topic.Partitions[0].Replicas
	if len(like) == 0 {
		return nil, fmt.Errorf("%w: '%s' has no partition 0 to take the replication factor from", ErrInvalidReplicaAssignment, g.Name)
	}
	nodes := t.o.Nodes()
	if g.Assignment == nil {
		slices.SortFunc(nodes, func(a, b Node) int { return int(a.ID) - int(b.ID) })
		start := max(0, slices.IndexFunc(nodes, func(n Node) bool { return n.ID >= like[0] }))
		return Place(nodes, int(g.Count-has), len(like), int(has), start, start)
	}
	if len(g.Assignment) != int(g.Count-has) {
		return nil, fmt.Errorf("%w: %d partitions are added, %d assignments are given", ErrInvalidReplicaAssignment, g.Count-has, len(g.Assignment))
	}
	out := map[int32][]cluster.BrokerID{}
	for i, replicas := range g.Assignment {
		switch {
		case hasDuplicates(replicas):
			return nil, fmt.Errorf("%w: a broker is named twice: %v", ErrInvalidReplicaAssignment, replicas)
		case len(replicas) != len(like):
			return nil, fmt.Errorf("%w: partition 0 has %d replicas, a new one is given %d", ErrInvalidReplicaAssignment, len(like), len(replicas))
		}
		for _, id := range replicas {
			if !slices.ContainsFunc(nodes, func(n Node) bool { return n.ID == id }) {
				return nil, fmt.Errorf("%w: unknown broker %d", ErrInvalidReplicaAssignment, id)
			}
		}
		out[has+int32(i)] = replicas
	}
	return out, nil
}

// Delete asks the controller to delete a topic; asking again is no error.
func (t *Topics) Delete(ctx context.Context, name string) error {
	s, err := t.o.Store.Wait(ctx)
	if err != nil {
		return err
	}
	_, there, err := s.Exists(ctx, zkmeta.TopicPath(name), false)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("%w: '%s'", ErrUnknown, name)
	}
	_, err = s.Multi(ctx, zkmeta.DeleteTopic(name))
	if errors.Is(err, zkmeta.ErrNodeExists) {
		return nil
	}
	return err
}
