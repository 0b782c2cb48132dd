package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// settings are what the brokers of a cluster are started with.
type settings struct {
	cores   string // that they share
	session time.Duration
}

// cluster is three brokers of one kind.
type cluster struct {
	*clusters
	name    string
	root    string // its path in ZooKeeper
	set     settings
	members []*member
}

// member is one broker, which keeps its id, address and directory when it is
// started again.
type member struct {
	*subject
	id int32
}

// clusterProps are the settings of all brokers beside those that ship: topics
// come by order, leaders move only when they have to, and what acks=all
// promises outlives one broker.
const clusterProps = `auto.create.topics.enable=false
auto.leader.rebalance.enable=false
log.segment.delete.delay.ms=100
default.replication.factor=3
min.insync.replicas=2
`

func (c *clusters) newCluster(name string, s settings) (*cluster, error) {
	c.serial++
	k := &cluster{clusters: c, name: name, root: fmt.Sprintf("/run-%d", c.serial), set: s}
	for id := int32(1); id <= replicas; id++ {
		m := &member{id: id, subject: &subject{name: fmt.Sprintf("%s %d", name, id), c: c.comparison, dir: filepath.Join(c.dir, fmt.Sprintf("%02d-%s-%d", c.serial, name, id))}}
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return nil, err
		}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		m.addr = "127.0.0.1:" + strconv.Itoa(port)
		file := filepath.Join(m.dir, "server.properties")
		props := strings.Replace(shipped, "broker.id=1\n", "", 1) + clusterProps + fmt.Sprintf("broker.id=%d\nlisteners=PLAINTEXT://%s\nlog.dirs=%s\nzookeeper.connect=%s%s\nzookeeper.session.timeout.ms=%d\n",
			id, m.addr, m.data(), c.zooKeeperAddr, k.root, s.session.Milliseconds())
		if err := os.WriteFile(file, []byte(props), 0o644); err != nil {
			return nil, err
		}
		m.argv = []string{c.kbroker, file}
		if name == Kafka {
			m.argv = c.java(jvmFlags, "kafka.Kafka", file)
		}
		k.members = append(k.members, m)
	}
	return k, nil
}

func (k *cluster) end() {
	for _, m := range k.members {
		m.end()
	}
}

// start starts all brokers and waits until each knows all of them.
func (k *cluster) start(ctx context.Context) error {
	for _, m := range k.members {
		if err := k.launch(m); err != nil {
			return err
		}
	}
	return k.joined(ctx)
}

func (k *cluster) launch(m *member) (err error) {
	m.proc, err = startProc(filepath.Join(m.dir, "log"), pinnedTo(k.set.cores, m.argv...)...)
	return err
}

// joined waits until every broker knows all of them and the controller.
func (k *cluster) joined(ctx context.Context) error {
	return k.await(ctx, k.members, nil, func(r *kmsg.MetadataResponse) error {
		if len(r.Brokers) != len(k.members) || r.ControllerID < 0 {
			return fmt.Errorf("%d brokers and the controller %d are known", len(r.Brokers), r.ControllerID)
		}
		return nil
	})
}

// patience is how long anything may take before the run is given up.
const patience = 5 * time.Minute

// poll is how often something is looked at.
const poll = 10 * time.Millisecond

// until asks until the answer is no error.
func until(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(poll):
		}
	}
}

// await waits until what each of the brokers tells its clients of the topics
// (all, if none is named) is right.
func (k *cluster) await(ctx context.Context, of []*member, topics []string, right func(*kmsg.MetadataResponse) error) error {
	errs := make([]error, len(of))
	var all sync.WaitGroup
	for i, m := range of {
		all.Go(func() {
			errs[i] = until(ctx, func() error {
				if m.proc.exited() {
					return nil // said below
				}
				r, err := m.metadata(ctx, topics)
				if err == nil {
					err = right(r)
				}
				return err
			})
			switch {
			case m.proc.exited():
				errs[i] = fmt.Errorf("%s has ended\n%s", m.name, m.proc.tail())
			case errs[i] != nil:
				errs[i] = fmt.Errorf("%s: %w\n%s", m.name, errs[i], m.proc.tail())
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// metadata is what a broker tells of the topics, or of all.
func (m *member) metadata(ctx context.Context, topics []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 8
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	r, err := raw.Ask(ctx, m.addr, req)
	if err != nil {
		return nil, err
	}
	return r.(*kmsg.MetadataResponse), nil
}

func (k *cluster) member(id int32) *member { return k.members[id-1] }

// but are the members without one.
func (k *cluster) but(id int32) []*member {
	return slices.DeleteFunc(slices.Clone(k.members), func(m *member) bool { return m.id == id })
}

func (k *cluster) seeds() (addrs []string) {
	for _, m := range k.members {
		addrs = append(addrs, m.addr)
	}
	return addrs
}

// create asks the controller, whoever that is, for a topic, until one of the
// brokers has taken the order. That the topic is there is not awaited.
func (k *cluster) create(ctx context.Context, of []*member, name string, partitions int, factor int, assignment ...[]int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 5, 45_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), int16(factor)
	for i, ids := range assignment {
		t.NumPartitions, t.ReplicationFactor = -1, -1
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), ids
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, t)
	next := 0
	return until(ctx, func() error {
		m := of[next%len(of)]
		next++
		r, err := raw.Ask(ctx, m.addr, req)
		if err != nil {
			return err
		}
		err = protocol.Error(r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
		if errors.Is(err, protocol.ErrTopicAlreadyExists) || errors.Is(err, protocol.ErrRequestTimedOut) {
			err = nil
		}
		return err
	})
}

// created makes a topic and waits until every broker has it, led and with all
// replicas in its ISR.
func (k *cluster) created(ctx context.Context, name string, partitions, factor int, assignment ...[]int32) error {
	if err := k.create(ctx, k.members, name, partitions, factor, assignment...); err != nil {
		return fmt.Errorf("topic %s: %w", name, err)
	}
	return k.whole(ctx, max(partitions, len(assignment)), name)
}

// whole waits until every broker knows all partitions of the topics with a
// leader and all replicas in the ISR.
func (k *cluster) whole(ctx context.Context, partitions int, topics ...string) error {
	return k.await(ctx, k.members, topics, func(r *kmsg.MetadataResponse) error {
		for _, t := range r.Topics {
			if err := errors.Join(complete(t, partitions, nil), inSync(t, nil)); err != nil {
				return err
			}
		}
		return nil
	})
}

// complete tells whether a topic has so many partitions, any number if that is
// 0, and a leader for each that has a replica on a live broker, nil being all.
func complete(t kmsg.MetadataResponseTopic, partitions int, live []int32) error {
	if err := protocol.Error(t.ErrorCode); err != nil {
		return err
	}
	if partitions > 0 && len(t.Partitions) != partitions {
		return fmt.Errorf("%d partitions, want %d", len(t.Partitions), partitions)
	}
	alive := func(id int32) bool { return id >= 0 && (live == nil || slices.Contains(live, id)) }
	for _, p := range t.Partitions {
		if led := alive(p.Leader); !led && (p.Leader >= 0 || slices.ContainsFunc(p.Replicas, alive)) {
			return fmt.Errorf("%s-%d: leader %d of replicas %v", *t.Topic, p.Partition, p.Leader, p.Replicas)
		}
	}
	return nil
}

// inSync tells whether a broker, or every one for nil, is in the ISR of each
// partition that it has a replica of.
func inSync(t kmsg.MetadataResponseTopic, id *int32) error {
	for _, p := range t.Partitions {
		for _, r := range p.Replicas {
			if (id == nil || r == *id) && !slices.Contains(p.ISR, r) {
				return fmt.Errorf("%s-%d: %d is not in the ISR %v", *t.Topic, p.Partition, r, p.ISR)
			}
		}
	}
	return nil
}

// controller is the broker that ZooKeeper has as controller, and the znode's
// birth, which tells one election from the next.
func (k *cluster) controller() (id int32, born int64, err error) {
	b, stat, err := k.zk.Get(k.root + "/controller")
	if err != nil {
		return 0, 0, err
	}
	var v struct {
		ID int32 `json:"brokerid"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return 0, 0, fmt.Errorf("/controller: %w: %s", err, b)
	}
	return v.ID, stat.Czxid, nil
}

// gone waits until a znode is gone.
func (k *cluster) gone(ctx context.Context, path string) error {
	return until(ctx, func() error {
		there, _, err := k.zk.Exists(k.root + path)
		if err == nil && there {
			err = zk.ErrNodeExists
		}
		return err
	})
}

// again starts a broker that has ended. Apache Kafka does not start while its
// old session lives: that is waited for.
func (k *cluster) again(ctx context.Context, m *member) error {
	if err := k.gone(ctx, fmt.Sprintf("/brokers/ids/%d", m.id)); err != nil {
		return err
	}
	if err := k.launch(m); err != nil {
		return err
	}
	return k.joined(ctx)
}

// terminate ends a broker as an operator does, and waits for its end.
func (m *member) terminate(ctx context.Context) error {
	m.proc.signal(syscall.SIGTERM)
	select {
	case <-m.proc.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s does not stop\n%s", m.name, m.proc.tail())
	case <-ctx.Done():
		return ctx.Err()
	}
}
