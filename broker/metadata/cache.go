package metadata

import (
	"slices"
	"strings"
	"sync"

	"github.com/kbroker/kbroker/cluster"
)

// Endpoint is where one listener of a broker is reached.
type Endpoint struct {
	Listener string
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	Host     string
	Port     int32
}

// Broker is a live broker.
type Broker struct {
	ID        cluster.BrokerID
	Rack      string // "" for none
	Endpoints []Endpoint
}

// Endpoint is the broker's endpoint of a listener.
func (b Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Listener == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Partition is one partition as last told.
type Partition struct {
	Index    int32
	State    cluster.LeaderAndISR
	Replicas []cluster.BrokerID
	Offline  []cluster.BrokerID // replicas on dead brokers or failed directories
}

// Topic is one topic; it and what it holds are never changed once published.
type Topic struct {
	Name       string
	ID         cluster.TopicID // zero when the controller knows none
	Partitions []Partition     // sorted by Index, which may have gaps while a topic grows
}

// Partition finds one partition.
func (t *Topic) Partition(index int32) (Partition, bool) {
	if int(index) < len(t.Partitions) && index >= 0 && t.Partitions[index].Index == index {
		return t.Partitions[index], true
	}
	i, ok := slices.BinarySearchFunc(t.Partitions, index, func(p Partition, x int32) int { return int(p.Index) - int(x) })
	if !ok {
		return Partition{}, false
	}
	return t.Partitions[i], true
}

// Update is what one UpdateMetadata says: the whole list of live brokers and
// those partitions that changed.
type Update struct {
	Controller cluster.BrokerID
	Brokers    []Broker
	Topics     []Topic // a partition whose leader is LeaderDuringDelete goes
}

// Cache holds the cluster as last told. Reading one topic costs the same
// however many there are.
type Cache struct {
	mu         sync.RWMutex
	controller cluster.BrokerID
	brokers    []Broker // sorted by id
	topics     map[string]*Topic
	ids        map[cluster.TopicID]string
	changed    chan struct{} // closed and replaced by each update
}

// New is a cache that has been told nothing.
func New() *Cache {
	return &Cache{controller: cluster.NoBroker, topics: map[string]*Topic{},
		ids: map[cluster.TopicID]string{}, changed: make(chan struct{})}
}

// Apply takes over an update, but for partitions whose leader epoch is behind the
// one known: it never goes back in what clients are told, or they would take the
// leader of before for the present one. It returns how many those were. (A topic
// without an id may be another one of the same name: all is taken over.)
func (c *Cache) Apply(u Update) (behind int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controller = u.Controller
	c.brokers = slices.Clone(u.Brokers)
	slices.SortFunc(c.brokers, func(a, b Broker) int { return int(a.ID) - int(b.ID) })
	for i := range u.Topics {
		behind += c.applyLocked(&u.Topics[i])
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return behind
}

func (c *Cache) applyLocked(t *Topic) (behind int) {
	old := c.topics[t.Name]
	merged := &Topic{Name: t.Name, ID: t.ID}
	if old != nil {
		if merged.ID.IsZero() {
			merged.ID = old.ID
		}
		if merged.ID == old.ID {
			merged.Partitions = slices.Clone(old.Partitions)
		} else {
			delete(c.ids, old.ID)
		}
	}
	for _, p := range t.Partitions {
		i, found := slices.BinarySearchFunc(merged.Partitions, p.Index, func(p Partition, x int32) int { return int(p.Index) - int(x) })
		switch {
		case p.State.Leader == cluster.LeaderDuringDelete:
			if found {
				merged.Partitions = slices.Delete(merged.Partitions, i, i+1)
			}
		case found && !merged.ID.IsZero() && p.State.LeaderEpoch < merged.Partitions[i].State.LeaderEpoch:
			behind++
		case found:
			merged.Partitions[i] = p
		default:
			merged.Partitions = slices.Insert(merged.Partitions, i, p)
		}
	}
	if len(merged.Partitions) == 0 {
		delete(c.topics, t.Name)
		delete(c.ids, merged.ID)
		return behind
	}
	c.topics[t.Name] = merged
	if !merged.ID.IsZero() {
		c.ids[merged.ID] = t.Name
	}
	return behind
}

// Changed is closed at the next update.
func (c *Cache) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

// Controller is the controller's id, NoBroker before the first update.
func (c *Cache) Controller() cluster.BrokerID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.controller
}

// Brokers are the live brokers, sorted by id; not to be changed.
func (c *Cache) Brokers() []Broker {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.brokers
}

// Broker finds a live broker.
func (c *Cache) Broker(id cluster.BrokerID) (Broker, bool) {
	brokers := c.Brokers()
	i, ok := slices.BinarySearchFunc(brokers, id, func(b Broker, x cluster.BrokerID) int { return int(b.ID) - int(x) })
	if !ok {
		return Broker{}, false
	}
	return brokers[i], true
}

// Topic finds a topic by name.
func (c *Cache) Topic(name string) (*Topic, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.topics[name]
	return t, ok
}

// TopicByID finds a topic by id.
func (c *Cache) TopicByID(id cluster.TopicID) (*Topic, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	name, ok := c.ids[id]
	if !ok {
		return nil, false
	}
	return c.topics[name], true
}

// Topics are all topics, sorted by name.
func (c *Cache) Topics() []*Topic {
	c.mu.RLock()
	out := make([]*Topic, 0, len(c.topics))
	for _, t := range c.topics {
		out = append(out, t)
	}
	c.mu.RUnlock()
	slices.SortFunc(out, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Counts are the numbers of topics and partitions known.
func (c *Cache) Counts() (topics, partitions int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, t := range c.topics {
		partitions += len(t.Partitions)
	}
	return len(c.topics), partitions
}
