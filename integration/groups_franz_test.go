//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupie is a franz-go consumer of a group that polls until it is closed and
// remembers what it owns and what it read.
type groupie struct {
	cl   *kgo.Client
	done chan struct{}

	mu     sync.Mutex
	owned  map[string]bool
	values []string
	moves  int // how often something was given or taken
	lost   int
	err    error
}

func newGroupie(t testing.TB, b *broker, group, topic string, opts ...kgo.Opt) *groupie {
	t.Helper()
	g := &groupie{owned: map[string]bool{}, done: make(chan struct{})}
	g.cl = franz(t, b, append(g.options(group, topic), opts...)...)
	go g.poll()
	return g
}

// options make a client a member that tells g of its partitions.
func (g *groupie) options(group, topic string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.SessionTimeout(6 * time.Second), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.move(m, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.move(m, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			g.move(m, false)
			g.mu.Lock()
			g.lost++
			g.mu.Unlock()
		}),
	}
}

func (g *groupie) move(m map[string][]int32, given bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, partitions := range m {
		for _, p := range partitions {
			g.moves++
			name := fmt.Sprintf("%s-%d", topic, p)
			if given {
				g.owned[name] = true
			} else {
				delete(g.owned, name)
			}
		}
	}
}

func (g *groupie) poll() {
	defer close(g.done)
	for {
		fetches := g.cl.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		g.mu.Lock()
		fetches.EachError(func(_ string, _ int32, err error) { g.err = err })
		fetches.EachRecord(func(r *kgo.Record) { g.values = append(g.values, string(r.Value)) })
		g.mu.Unlock()
	}
}

// end leaves the group, commits nothing, and waits for the poll to end.
func (g *groupie) end() {
	g.cl.Close()
	<-g.done
}

func (g *groupie) names() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for name := range g.owned {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// awaitShared waits until the members own all partitions, each one once, so many
// each.
func awaitShared(t testing.TB, partitions int, sizes []int, members ...*groupie) {
	t.Helper()
	eventually(t, 30*time.Second, fmt.Sprintf("the members own %v", sizes), func() error {
		var got []int
		all := map[string]bool{}
		for _, g := range members {
			names := g.names()
			got = append(got, len(names))
			for _, name := range names {
				all[name] = true
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, sizes) || len(all) != partitions {
			return fmt.Errorf("they own %v, %d partitions in all", got, len(all))
		}
		return nil
	})
}

// Members of franz-go under each of its balancers.
func TestFranzGroup(t *testing.T) {
	for _, balancer := range []kgo.GroupBalancer{kgo.RangeBalancer(), kgo.RoundRobinBalancer(), kgo.StickyBalancer(), kgo.CooperativeStickyBalancer()} {
		t.Run(balancer.ProtocolName(), func(t *testing.T) {
			franzMembers(t, sharedGroups(t), balancer.ProtocolName(), func(w *wire, group string) string { return describedGroup(t, w, group).Protocol }, kgo.Balancers(balancer))
		})
	}
}

// The same under the consumer protocol.
func TestFranzConsumerProtocol(t *testing.T) {
	slow(t)
	for assignor, balancer := range map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "uniform": kgo.StickyBalancer()} {
		t.Run(assignor, func(t *testing.T) {
			franzMembers(t, sharedConsumerGroups(t), assignor, func(w *wire, group string) string {
				req := kmsg.NewPtrConsumerGroupDescribeRequest()
				req.Version, req.Groups = 1, []string{group}
				return ask[*kmsg.ConsumerGroupDescribeResponse](t, w, req).Groups[0].AssignorName
			}, kgo.Balancers(balancer), kgo.ServerSideBalancer())
		})
	}
}

// franzMembers has members of franz-go join and leave; what is produced is read
// once, by one of them.
func franzMembers(t *testing.T, b *broker, wantAssignor string, assignor func(w *wire, group string) string, opts ...kgo.Opt) {
	t.Helper()
	topic := topicName(t)
	createTopic(t, b, topic, 6)
	group := topic + ".g"
	w := dial(t, b)
	member := func() *groupie { return newGroupie(t, b, group, topic, opts...) }
	n := 0
	flows := func(members ...*groupie) {
		t.Helper()
		var want []string
		for p := range int32(6) {
			want = append(want, fmt.Sprintf("%d/%d", p, n))
			produce(t, w, topic, p, batch{recs: values(now, want[p])}.bytes())
		}
		n++
		var got []string
		eventually(t, 20*time.Second, "six records are read", func() error {
			for _, g := range members {
				g.mu.Lock()
				got = append(got, g.values...)
				g.values = nil
				err := g.err
				g.mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			if len(got) < 6 {
				return fmt.Errorf("%d records", len(got))
			}
			return nil
		})
		slices.Sort(got)
		wantStrings(t, "records", got, want)
		for _, g := range members {
			if err := g.cl.CommitUncommittedOffsets(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		for p := range int32(6) {
			if got := committedOffset(t, w, group, topic, p); got != int64(n) {
				t.Errorf("partition %d: committed %d, want %d", p, got, n)
			}
		}
	}
	one := member()
	awaitShared(t, 6, []int{6}, one)
	flows(one)
	two := member()
	awaitShared(t, 6, []int{3, 3}, one, two)
	flows(one, two)
	three := member()
	awaitShared(t, 6, []int{2, 2, 2}, one, two, three)
	flows(one, two, three)
	if got := assignor(w, group); got != wantAssignor {
		t.Errorf("assignor %s, want %s", got, wantAssignor)
	}
	one.end()
	awaitShared(t, 6, []int{3, 3}, two, three)
	flows(two, three)
	two.end()
	awaitShared(t, 6, []int{6}, three)
	flows(three)
	three.end()
	req := kmsg.NewPtrListGroupsRequest()
	req.Version, req.StatesFilter = 5, []string{"Empty"}
	eventually(t, 20*time.Second, group+" is empty", func() error {
		for _, g := range ask[*kmsg.ListGroupsResponse](t, w, req).Groups {
			if g.Group == group {
				return nil
			}
		}
		return errors.New("it is not")
	})
	if one.lost+two.lost+three.lost != 0 {
		t.Errorf("partitions were lost %d times", one.lost+two.lost+three.lost)
	}
}

// A static member of franz-go restarts within its session: nobody is told.
func TestFranzGroupStatic(t *testing.T) {
	b := sharedGroups(t)
	topic := topicName(t)
	createTopic(t, b, topic, 4)
	group := topic + ".g"
	one := newGroupie(t, b, group, topic, kgo.InstanceID("i1"), kgo.SessionTimeout(20*time.Second))
	two := newGroupie(t, b, group, topic, kgo.InstanceID("i2"), kgo.SessionTimeout(20*time.Second))
	awaitShared(t, 4, []int{2, 2}, one, two)
	_, generation := one.cl.GroupMetadata()
	had, moves := two.names(), one.moves
	two.end()
	two = newGroupie(t, b, group, topic, kgo.InstanceID("i2"), kgo.SessionTimeout(20*time.Second))
	awaitShared(t, 4, []int{2, 2}, one, two)
	if got := two.names(); !slices.Equal(got, had) {
		t.Errorf("it owns %v, and %v before", got, had)
	}
	if _, now := one.cl.GroupMetadata(); now != generation || one.moves != moves {
		t.Errorf("generation %d, was %d; %d moves, were %d", now, generation, one.moves, moves)
	}
	two.end() // it would join again when it hears of its end
	adm := kadm.NewClient(franz(t, b))
	left, err := adm.LeaveGroup(within(t, 10*time.Second), kadm.LeaveGroup(group).InstanceIDs("i2"))
	if err != nil || !left.Ok() {
		t.Errorf("leave: %v, %v", err, left.Error())
	}
	awaitShared(t, 4, []int{4}, one)
}

// The admin client on groups: lag, offsets set and deleted, groups deleted.
func TestFranzGroupAdmin(t *testing.T) {
	b := sharedGroups(t)
	topic := topicName(t)
	createTopic(t, b, topic, 2)
	group := topic + ".g"
	w := dial(t, b)
	for i := range 5 {
		produce(t, w, topic, 0, batch{recs: values(now, fmt.Sprint(i))}.bytes())
	}
	adm := kadm.NewClient(franz(t, b))
	ctx := within(t, 60*time.Second)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 2, LeaderEpoch: 0, Metadata: "here"})
	if err := adm.CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatal(err)
	}
	lags, err := adm.Lag(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	l := lags[group]
	if lag := l.Lag[topic][0]; l.State != "Empty" || lag.Lag != 3 || lag.Commit.At != 2 || lag.End.Offset != 5 || lag.Commit.Metadata != "here" {
		t.Errorf("lag %+v of a group that is %s", lag, l.State)
	}
	var set kadm.TopicsSet
	set.Add(topic, 0)
	deleted, err := adm.DeleteOffsets(ctx, group, set)
	if err != nil || deleted.Error() != nil {
		t.Fatalf("delete offsets: %v, %v", err, deleted.Error())
	}
	all, err := adm.FetchOffsets(ctx, group)
	if err != nil || len(all) != 0 {
		t.Errorf("offsets left: %v, %v", all, err)
	}
	if err := adm.CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatal(err)
	}
	listed, err := adm.ListGroups(ctx, "Empty")
	if err != nil || !slices.Contains(listed.Groups(), group) {
		t.Errorf("listed: %v, %v", listed.Groups(), err)
	}
	gone, err := adm.DeleteGroup(ctx, group)
	if err != nil || gone.Err != nil {
		t.Errorf("delete: %v, %v", err, gone.Err)
	}
	if gone, err = adm.DeleteGroup(ctx, group); !errors.Is(err, kerr.GroupIDNotFound) && !errors.Is(gone.Err, kerr.GroupIDNotFound) {
		t.Errorf("delete again: %v, %v", err, gone.Err)
	}
}

// kcat as a member of a group: all of a topic, committed at its end; the next one
// reads what came since.
func TestKcatGroup(t *testing.T) {
	b := sharedGroups(t)
	topic := topicName(t)
	createTopic(t, b, topic, 3)
	w := dial(t, b)
	for round := range 3 {
		var want []string
		for p := range int32(3) {
			v := fmt.Sprintf("%d/%d", p, round)
			produce(t, w, topic, p, batch{recs: values(now, v)}.bytes())
			want = append(want, fmt.Sprintf("%s-%d %d %s", topic, p, round, v))
		}
		out := lines(kcat(t, b, "", "-G", topic+".g", "-q", "-e", "-f", "%t-%p %o %s\n", "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000",
			"-X", "heartbeat.interval.ms=200", "-X", "partition.assignment.strategy="+[]string{"range", "roundrobin", "cooperative-sticky"}[round], topic))
		slices.Sort(out)
		wantStrings(t, fmt.Sprint("round ", round), out, want)
		for p := range int32(3) {
			if got := committedOffset(t, w, topic+".g", topic, p); got != int64(round+1) {
				t.Errorf("partition %d: committed %d, want %d", p, got, round+1)
			}
		}
	}
	if d := describedGroup(t, w, topic+".g"); d.State != "Empty" || !strings.EqualFold(d.ProtocolType, "consumer") {
		t.Errorf("group %s of type %s", d.State, d.ProtocolType)
	}
}
