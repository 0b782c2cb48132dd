//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupSession is the members' session time-out under load.
const groupSession = 10 * time.Second

// underLoad is a group that reads and commits what a ledger writes.
type underLoad interface {
	// stable waits until the group is stable with all its members and commits what
	// was written after the given time.
	stable(t testing.TB, after time.Time, limit time.Duration)
	coordinator(t testing.TB) int
	// finish ends it: everything was read and committed, nothing was turned back.
	finish(t testing.TB)
	of() *groupLoad
}

// groupLoad is a group of franz-go members that read a topic and commit what they
// have read, again and again, while a ledger writes. It holds whatever happens:
// no record is skipped, and a committed offset that was acked is never lost or
// turned back, neither for who reads it nor for who starts from it.
type groupLoad struct {
	c          *cluster
	group      string
	topic      string
	partitions int
	ledger     *ledger
	members    []*loadMember
	stopWatch  context.CancelFunc
	watched    chan struct{}
	fetches    int // how often the committed offsets were read
	protocol   string

	mu     sync.Mutex
	next   []int64     // behind the highest offset that was read
	acked  []int64     // highest committed offset that was acked
	since  []time.Time // when the newest acked commit was begun
	faults []error
}

type loadMember struct {
	l    *groupLoad
	cl   *kgo.Client
	done chan struct{}

	floor map[int32]int64 // acked when the partition was given, until its first record came
	owned map[int32]bool
}

// newGroupLoad starts members of one protocol, classic or consumer.
func newGroupLoad(t testing.TB, c *cluster, protocol string, members, partitions int) *groupLoad {
	t.Helper()
	l := layOutGroupLoad(t, c, protocol, partitions)
	for range members {
		l.join(t)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.stopWatch = cancel
	t.Cleanup(cancel)
	go l.watch(ctx, kadm.NewClient(c.client(t)))
	l.stable(t, time.Now(), time.Minute)
	return l
}

// layOutGroupLoad has the ledger write, and nobody read.
func layOutGroupLoad(t testing.TB, c *cluster, protocol string, partitions int) *groupLoad {
	t.Helper()
	topic := topicName(t)
	c.createTopic(t, topic, int32(partitions), 3)
	return &groupLoad{c: c, group: topic + ".g", topic: topic, partitions: partitions, protocol: protocol, ledger: newLedger(t, c, topic, partitions, true),
		next: make([]int64, partitions), acked: make([]int64, partitions), since: make([]time.Time, partitions), watched: make(chan struct{})}
}

func (l *groupLoad) of() *groupLoad { return l }

func (l *groupLoad) join(t testing.TB) {
	t.Helper()
	m := &loadMember{l: l, done: make(chan struct{}), floor: map[int32]int64{}, owned: map[int32]bool{}}
	taken := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.taken(gone[l.topic]) }
	opts := []kgo.Opt{kgo.ConsumerGroup(l.group), kgo.ConsumeTopics(l.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.SessionTimeout(groupSession), kgo.RebalanceTimeout(groupSession),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) { m.given(given[l.topic]) }),
		kgo.OnPartitionsRevoked(taken), kgo.OnPartitionsLost(taken)}
	if l.protocol == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	m.cl = l.c.client(t, opts...)
	l.members = append(l.members, m)
	go m.run()
}

// fault notes what must not be.
func (l *groupLoad) fault(format string, args ...any) {
	if len(l.faults) < 20 {
		l.faults = append(l.faults, fmt.Errorf(format, args...))
	}
}

func (m *loadMember) given(partitions []int32) {
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	for _, p := range partitions {
		m.floor[p], m.owned[p] = m.l.acked[p], true
	}
}

func (m *loadMember) taken(partitions []int32) {
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	for _, p := range partitions {
		delete(m.floor, p)
		delete(m.owned, p)
	}
}

// run reads and commits until the client is closed.
func (m *loadMember) run() {
	defer close(m.done)
	for {
		fetches := m.cl.PollRecords(context.Background(), 500)
		if fetches.IsClientClosed() {
			return
		}
		began := time.Now()
		commit := m.take(fetches)
		if len(commit) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := m.cl.CommitRecords(ctx, commit...)
			cancel()
			if err == nil {
				m.acked(commit, began)
			}
		}
		m.cl.AllowRebalance()
	}
}

// take checks what was read and gives the last record of each partition.
func (m *loadMember) take(fetches kgo.Fetches) (last []*kgo.Record) {
	l := m.l
	l.mu.Lock()
	defer l.mu.Unlock()
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		for _, r := range p.Records {
			if floor, first := m.floor[r.Partition]; first {
				delete(m.floor, r.Partition)
				if r.Offset < floor {
					l.fault("partition %d was begun at %d, though %d was committed", r.Partition, r.Offset, floor)
				}
			}
			if r.Offset > l.next[r.Partition] {
				l.fault("partition %d: offset %d was read where %d is due", r.Partition, r.Offset, l.next[r.Partition])
			}
			l.next[r.Partition] = max(l.next[r.Partition], r.Offset+1)
		}
		if n := len(p.Records); n > 0 {
			last = append(last, p.Records[n-1])
		}
	})
	return last
}

func (m *loadMember) acked(commit []*kgo.Record, began time.Time) {
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	for _, r := range commit {
		p := r.Partition
		if r.Offset+1 < m.l.acked[p] {
			m.l.fault("partition %d: a commit of %d was taken after one of %d", p, r.Offset+1, m.l.acked[p])
		}
		m.l.acked[p] = max(m.l.acked[p], r.Offset+1)
		if began.After(m.l.since[p]) {
			m.l.since[p] = began
		}
	}
}

// watch reads the committed offsets again and again.
func (l *groupLoad) watch(ctx context.Context, adm *kadm.Client) {
	defer close(l.watched)
	defer adm.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		l.look(ctx, adm)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (l *groupLoad) look(ctx context.Context, adm *kadm.Client) {
	l.mu.Lock()
	floor := append([]int64(nil), l.acked...)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	got, err := adm.FetchOffsets(ctx, l.group)
	if err != nil || got.Error() != nil {
		return // the coordinator is away or loads
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fetches++
	for p, want := range floor {
		at := int64(0)
		if o, ok := got.Lookup(l.topic, int32(p)); ok {
			at = o.At
		}
		if at < want {
			l.fault("partition %d: %d is committed, though a commit of %d was acked before", p, at, want)
		}
	}
}

// stable waits until the group is stable with all its members and every partition
// has had a commit acked that was begun after the given time.
func (l *groupLoad) stable(t testing.TB, after time.Time, limit time.Duration) {
	t.Helper()
	adm := kadm.NewClient(l.c.client(t))
	defer adm.Close()
	eventually(t, time.Until(after.Add(limit)), "the group is stable and commits", func() error {
		l.mu.Lock()
		for p, since := range l.since {
			if since.Before(after) {
				l.mu.Unlock()
				return fmt.Errorf("partition %d: the newest commit is of %v before", p, after.Sub(since))
			}
		}
		l.mu.Unlock()
		return l.described(adm, len(l.members))
	})
	l.healthy(t)
}

// described wants the group to be stable with so many members.
func (l *groupLoad) described(adm *kadm.Client, members int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if l.protocol == "consumer" {
		got, err := adm.DescribeConsumerGroups(ctx, l.group)
		if err != nil {
			return err
		}
		if g := got[l.group]; g.Err != nil || g.State != "Stable" || len(g.Members) != members {
			return fmt.Errorf("consumer group %s with %d members: %v", g.State, len(g.Members), g.Err)
		}
		return nil
	}
	got, err := adm.DescribeGroups(ctx, l.group)
	if err != nil {
		return err
	}
	if g := got[l.group]; g.Err != nil || g.State != "Stable" || len(g.Members) != members {
		return fmt.Errorf("group %s with %d members: %v", g.State, len(g.Members), g.Err)
	}
	return nil
}

// healthy fails the test if something was seen that must not be.
func (l *groupLoad) healthy(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) > 0 {
		t.Fatal(errors.Join(l.faults...))
	}
}

// survives does something to the cluster; the group must be stable again within
// the session time-out plus two seconds from its beginning.
func survives(t testing.TB, l underLoad, what string, do func()) {
	t.Helper()
	began := time.Now()
	do()
	l.stable(t, began, groupSession+2*time.Second)
	l.of().c.step(t, "%s: stable again after %v", what, time.Since(began).Round(10*time.Millisecond))
}

// goesOn is survives for what itself takes long: the group must be stable within
// the same time from its end.
func goesOn(t testing.TB, l underLoad, what string, do func()) {
	t.Helper()
	do()
	began := time.Now()
	l.stable(t, began, groupSession+2*time.Second)
	l.of().c.step(t, "%s: stable after %v", what, time.Since(began).Round(10*time.Millisecond))
}

// coordinator is the broker that leads the group's partition of offsets.
func (l *groupLoad) coordinator(t testing.TB) int {
	t.Helper()
	return mustState(t, l.c, "__consumer_offsets", l.offsetsPartition()).Leader
}

// offsetsPartition is where the group's records go: of 3, by Java's hash.
func (l *groupLoad) offsetsPartition() int {
	return javaHash(l.group) % 3
}

// finish ends writers and members: everything that was written was read and
// committed.
func (l *groupLoad) finish(t testing.TB) {
	t.Helper()
	l.ledger.stop(t)
	values := l.c.checkLedgers(t, l.ledger)
	eventually(t, time.Minute, "everything is read and committed", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for p := range values {
			if n := int64(len(values[p])); l.next[p] != n || l.acked[p] != n {
				return fmt.Errorf("partition %d: read to %d, committed to %d of %d", p, l.next[p], l.acked[p], n)
			}
		}
		return nil
	})
	l.stopWatch()
	<-l.watched
	for _, m := range l.members {
		m.cl.CloseAllowingRebalance()
		<-m.done
	}
	l.healthy(t)
	if l.fetches == 0 {
		t.Error("the committed offsets were never read")
	}
	adm := kadm.NewClient(l.c.client(t))
	defer adm.Close()
	l.committed(t, adm, values)
	l.c.step(t, "nothing was skipped, lost or turned back; the committed offsets were read %d times", l.fetches)
}

// committed wants everything to be committed.
func (l *groupLoad) committed(t testing.TB, adm *kadm.Client, values [][]string) {
	t.Helper()
	got, err := adm.FetchOffsets(within(t, 30*time.Second), l.group)
	if err != nil {
		t.Fatal(err)
	}
	for p := range values {
		if o, _ := got.Lookup(l.topic, int32(p)); o.At != int64(len(values[p])) {
			t.Errorf("partition %d: %d is committed, want %d", p, o.At, len(values[p]))
		}
	}
}
