package controller

import (
	"iter"
	"slices"
	"sort"

	"github.com/kbroker/kbroker/cluster"
)

// Config is what the controller's broker is configured to do.
type Config struct {
	// Listener is the name of the listener on which followers reach leaders.
	Listener string
}

// Image is what ZooKeeper says, as far as it has been read, together with what
// each broker incarnation has acknowledged. One controller epoch has one Image.
// It is not safe for concurrent use.
//
// The slices in it (ISR, replicas, endpoints) are replaced, never changed in
// place, so plans may share them.
type Image struct {
	self  cluster.BrokerID
	epoch cluster.ControllerEpoch
	cfg   Config

	brokers  map[cluster.BrokerID]*broker
	arriving map[cluster.BrokerID]Broker   // came back before their death was settled
	died     map[cluster.BrokerID]struct{} // were live under this controller, and are not
	topics   map[string]*topic
	ids      map[cluster.TopicID]*topic
	deletes  map[string]struct{} // children of /admin/delete_topics
	hosted   map[cluster.BrokerID]*hosting
	// last holds at least every partition that is in lastEpoch.
	last map[cluster.TopicPartition]struct{}

	// seq numbers what brokers have to be told by UpdateMetadata. Partitions
	// are linked in the order of metaSeq, so that what a broker lacks is the
	// tail of the list; brokersSeq is when the set of live brokers changed last.
	// 0 <= metaSeq, brokersSeq, metaAcked <= seq.
	seq        uint64
	brokersSeq uint64
	meta       metaList

	dirtyParts  map[*partition]struct{}
	dirtyTopics map[string]struct{}
	counts      Counts
}

// Counts are what Kafka's controller shows as gauges.
type Counts struct {
	Brokers, Topics, Partitions           int
	OfflinePartitions, PreferredImbalance int
	TopicsToDelete                        int
}

type broker struct {
	Broker
	leaving bool // asked for its controlled shutdown
	silent  bool // BrokerSilent, and no answer since
	// What this incarnation acknowledged of UpdateMetadata: all partitions up to
	// metaAcked, the set of live brokers up to brokersAcked.
	metaAcked    uint64
	brokersAcked uint64
	// due holds at least every partition for which LeaderAndIsr or StopReplica
	// is due to this broker.
	due map[*partition]struct{}
}

type topic struct {
	name     string
	id       cluster.TopicID // zero: the znode has none yet
	proposed cluster.TopicID // what it gets then
	version  cluster.ZKVersion
	parts    []*partition // by number
	deleting bool
	unclean  tristate // unclean.leader.election.enable, once somebody asked
	minISR   int      // min.insync.replicas, known as soon as unclean is
}

type tristate int8

const (
	unknown tristate = iota
	no
	yes
)

type partition struct {
	topic      *topic
	num        int32
	assignment cluster.Assignment
	replicas   []replica // one for each of assignment.Replicas, in their order
	known      bool      // the state znode exists
	unreadable bool      // it exists, and nobody knows what it says
	state      cluster.LeaderAndISR
	wish       Election // an election that was asked for
	held       tristate // whether sends about it wait for a write; unknown: not looked at since it changed
	suspect    bool     // a live ISR member has restarted since it joined

	// target is where a reassignment that was asked for, and is not written down
	// yet, leads. told is the assignment that went with the present leader epoch;
	// moving: it may differ from what brokers have to be told.
	target  []cluster.BrokerID
	told    cluster.Assignment
	moving  bool
	leavers []replica // not assigned any more, and not deleted yet

	counted counted

	metaSeq    uint64 // 0: not in the list, as there is no state yet
	prev, next *partition
}

// counted is how a partition stands in the Counts.
type counted struct{ offline, imbalanced, partition bool }

// replica is what one incarnation of one broker acknowledged about one replica.
// Marks of an earlier incarnation count as none, but for deleted.
type replica struct {
	id          cluster.BrokerID
	incarn      cluster.BrokerEpoch // to which the marks belong
	ledEpoch    cluster.LeaderEpoch // acknowledged by LeaderAndIsr; NoLeaderEpoch: none
	leads       bool                // and it said that this broker leads
	isNew       bool                // LeaderAndIsr may create it on any disk
	offline     bool                // answered KAFKA_STORAGE_ERROR
	probe       uint64              // asked at that seq, although offline, what became of it; 0: not
	stopped     bool                // acknowledged StopReplica without deletion
	deleted     bool                // acknowledged StopReplica with deletion
	undeletable bool                // answered an error to that
	// condemned: it may have been told to delete the replica, and has not
	// acknowledged a role since. What it holds cannot be counted on.
	condemned bool
}

// New makes the image of a controller that has just been elected; everything
// else is told to it as facts.
func New(self cluster.BrokerID, epoch cluster.ControllerEpoch, cfg Config) *Image {
	return &Image{
		self: self, epoch: epoch, cfg: cfg,
		brokers:     map[cluster.BrokerID]*broker{},
		arriving:    map[cluster.BrokerID]Broker{},
		died:        map[cluster.BrokerID]struct{}{},
		topics:      map[string]*topic{},
		ids:         map[cluster.TopicID]*topic{},
		deletes:     map[string]struct{}{},
		last:        map[cluster.TopicPartition]struct{}{},
		hosted:      map[cluster.BrokerID]*hosting{},
		dirtyParts:  map[*partition]struct{}{},
		dirtyTopics: map[string]struct{}{},
	}
}

// Self is the broker that is the controller.
func (im *Image) Self() cluster.BrokerID { return im.self }

// Epoch is the controller's epoch.
func (im *Image) Epoch() cluster.ControllerEpoch { return im.epoch }

// Counts are the present gauges.
func (im *Image) Counts() Counts {
	c := im.counts
	c.Brokers, c.Topics, c.TopicsToDelete = len(im.brokers), len(im.topics), len(im.deletes)
	return c
}

// Broker is the live incarnation of a broker.
func (im *Image) Broker(id cluster.BrokerID) (Broker, bool) {
	b, ok := im.brokers[id]
	if !ok {
		return Broker{}, false
	}
	return b.Broker, true
}

// Incarnation is the latest epoch under which a broker was reported, also while
// its predecessor's death is not settled yet.
func (im *Image) Incarnation(id cluster.BrokerID) (cluster.BrokerEpoch, bool) {
	if b, ok := im.arriving[id]; ok {
		return b.Epoch, true
	}
	if b, ok := im.brokers[id]; ok {
		return b.Epoch, true
	}
	return cluster.NoBrokerEpoch, false
}

// BrokerIDs are the live brokers, sorted.
func (im *Image) BrokerIDs() []cluster.BrokerID { return sortedKeys(im.brokers) }

// KnownBrokers are the live and the arriving brokers, sorted.
func (im *Image) KnownBrokers() []cluster.BrokerID {
	ids := im.BrokerIDs()
	for id := range im.arriving {
		if _, live := im.brokers[id]; !live {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Topics are the names of all topics, in no order.
func (im *Image) Topics() []string {
	names := make([]string, 0, len(im.topics))
	for name := range im.topics {
		names = append(names, name)
	}
	return names
}

// HasTopic reports whether the topic's assignment has been read.
func (im *Image) HasTopic(name string) bool { _, ok := im.topics[name]; return ok }

// TopicVersion is the version of the topic's znode that the image stands on.
func (im *Image) TopicVersion(name string) (cluster.ZKVersion, bool) {
	t, ok := im.topics[name]
	if !ok {
		return cluster.NoZKVersion, false
	}
	return t.version, true
}

// PartitionNumbers are the numbers of a topic's partitions, sorted.
func (im *Image) PartitionNumbers(name string) []int32 {
	t, ok := im.topics[name]
	if !ok {
		return nil
	}
	nums := make([]int32, len(t.parts))
	for i, p := range t.parts {
		nums[i] = p.num
	}
	return nums
}

// State is a partition's state; false while it has none.
func (im *Image) State(tp cluster.TopicPartition) (cluster.LeaderAndISR, bool) {
	p := im.partition(tp)
	if p == nil || !p.known {
		return cluster.LeaderAndISR{}, false
	}
	return p.state, true
}

// LedBy are the partitions that a broker leads, sorted.
func (im *Image) LedBy(id cluster.BrokerID) []cluster.TopicPartition {
	var led []cluster.TopicPartition
	for p := range im.hostedBy(id) {
		if p.known && p.state.Leader == id && !p.topic.deleting {
			led = append(led, p.tp())
		}
	}
	slices.SortFunc(led, cluster.TopicPartition.Compare)
	return slices.Compact(led)
}

func (im *Image) partition(tp cluster.TopicPartition) *partition {
	t, ok := im.topics[tp.Topic]
	if !ok {
		return nil
	}
	return t.part(tp.Partition)
}

// part finds a partition; numbers are dense but for znodes of foreign making.
func (t *topic) part(num int32) *partition {
	if num >= 0 && int(num) < len(t.parts) && t.parts[num].num == num {
		return t.parts[num]
	}
	i := sort.Search(len(t.parts), func(i int) bool { return t.parts[i].num >= num })
	if i < len(t.parts) && t.parts[i].num == num {
		return t.parts[i]
	}
	return nil
}

func (p *partition) tp() cluster.TopicPartition {
	return cluster.TopicPartition{Topic: p.topic.name, Partition: p.num}
}

func (p *partition) replica(id cluster.BrokerID) *replica {
	for i := range p.replicas {
		if p.replicas[i].id == id {
			return &p.replicas[i]
		}
	}
	return nil
}

// copyOn finds a replica that is assigned or is leaving.
func (p *partition) copyOn(id cluster.BrokerID) *replica {
	if r := p.replica(id); r != nil {
		return r
	}
	for i := range p.leavers {
		if p.leavers[i].id == id {
			return &p.leavers[i]
		}
	}
	return nil
}

func comparePartitions(a, b *partition) int {
	if a.topic != b.topic {
		if a.topic.name < b.topic.name {
			return -1
		}
		return 1
	}
	return int(a.num) - int(b.num)
}

// marks are what the broker's present incarnation acknowledged.
func (r *replica) marks(b *broker) replica {
	if r.incarn == b.Epoch {
		return *r
	}
	return replica{id: r.id, incarn: b.Epoch, ledEpoch: cluster.NoLeaderEpoch}
}

// renew makes the marks those of the broker's present incarnation.
func (r *replica) renew(b *broker) { *r = r.marks(b) }

func sortedKeys[K cluster.BrokerID | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// hosting is the index from a broker, live or not, to the partitions that name
// it a replica. Entries of partitions that left are skipped and, when they
// outnumber the others, dropped.
type hosting struct {
	parts []*partition
	stale int
}

func (im *Image) hostedBy(id cluster.BrokerID) iter.Seq[*partition] {
	return func(yield func(*partition) bool) {
		h := im.hosted[id]
		if h == nil {
			return
		}
		for _, p := range h.parts {
			if p.copyOn(id) != nil && !yield(p) {
				return
			}
		}
	}
}

func (im *Image) host(id cluster.BrokerID, p *partition) {
	h := im.hosted[id]
	if h == nil {
		h = &hosting{}
		im.hosted[id] = h
	}
	h.parts = append(h.parts, p)
}

// unhost is called when p has already lost its replica on the broker.
func (im *Image) unhost(id cluster.BrokerID, p *partition) {
	if b := im.brokers[id]; b != nil {
		delete(b.due, p)
	}
	h := im.hosted[id]
	if h == nil {
		return
	}
	if h.stale++; h.stale <= len(h.parts)/2 {
		return
	}
	h.parts = slices.DeleteFunc(h.parts, func(p *partition) bool { return p.copyOn(id) == nil })
	h.stale = 0
	if len(h.parts) == 0 {
		delete(im.hosted, id)
	}
}

// metaList links the partitions that have a state by rising metaSeq.
type metaList struct{ head, tail *partition }

func (l *metaList) remove(p *partition) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.head = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.tail = p.prev
	}
	p.prev, p.next, p.metaSeq = nil, nil, 0
}

func (l *metaList) append(p *partition, seq uint64) {
	p.metaSeq, p.prev = seq, l.tail
	if l.tail != nil {
		l.tail.next = p
	} else {
		l.head = p
	}
	l.tail = p
}
