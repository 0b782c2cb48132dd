package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	crowdSession   = 45 * time.Second
	crowdRebalance = 20 * time.Second
	crowdClassic   = 12 * time.Second // session of those who speak the classic protocol
)

// crowd is some consumers of one group, of both protocols, that come, go, get
// lost and lose answers, under a coordinator that is loaded anew now and then and
// topics that change.
type crowd struct {
	*rig
	rand      *rand.Rand
	all       []*consumerClient
	waiting   map[coordinator.Token]func(any)
	partition map[string]int32 // number of partitions by topic
	lossy     bool
	classics  int            // of ten that come
	seen      map[string]int // what happened, by name
	// replica has replayed the log up to here: what a reload would give.
	replica  *Shard
	replayed int
}

// consumerClient is what a consumer knows of itself.
type consumerClient struct {
	name     string
	instance string
	classic  bool
	topics   []string
	regex    string
	assignor string

	id     string
	epoch  int32
	in     bool
	lost   bool       // sends nothing any more
	owned  assign.Set // what it works on
	given  assign.Set // what it was told last; it has to give up the rest of owned first
	full   bool       // its next heartbeat says everything
	phase  string     // of a classic one: join, sync, stable
	token  coordinator.Token
	others []string // a classic leader's members
	subs   map[string][]string
	last   time.Time // of its last answer
}

func newCrowd(t testing.TB, seed uint64) *crowd {
	w := &crowd{
		rig: newRig(t, consumerConfig(), seed), rand: rand.New(rand.NewPCG(seed, 848)),
		waiting: map[coordinator.Token]func(any){}, partition: map[string]int32{"a": 4, "b": 3}, seen: map[string]int{},
	}
	w.rig.replay = false
	w.classics = []int{2, 5, 8}[seed%3]
	w.replica = New(w.config, 1)
	w.tellTopics()
	for i := range 7 {
		w.all = append(w.all, &consumerClient{name: fmt.Sprintf("c%d", i)})
	}
	return w
}

func (w *crowd) tellTopics() {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(w.partition)) {
		list = append(list, fmt.Sprintf("%s:%d", name, w.partition[name]))
	}
	w.answered(w.took(w.s.Handle(w.now, coordinator.Request{Msg: MetadataChanged{storyTopics(list)}})))
}

func (w *crowd) answered(res coordinator.Result) {
	for _, a := range res.Replies {
		took := w.waiting[a.Token]
		delete(w.waiting, a.Token)
		if took == nil {
			w.t.Fatalf("an answer that nobody waits for: %s", showConsumerResponse(a.Response))
		}
		took(a.Response)
	}
	w.alone()
	if w.replayed == len(w.log) && w.rand.IntN(8) > 0 {
		return
	}
	for ; w.replayed < len(w.log); w.replayed++ {
		if err := w.replica.Apply(w.log[w.replayed].entry); err != nil {
			w.t.Fatal(err)
		}
	}
	if got, want := w.s.Dump(), w.replica.Dump(); got != want {
		w.t.Fatalf("durable state is not what its records replay to:\n%s\nreplayed:\n%s", got, want)
	}
}

// member is what the coordinator has of a client, if it is still in.
func (w *crowd) member(c *consumerClient) bool {
	g := w.s.groups["g"]
	switch {
	case g == nil || !c.in:
		return false
	case g.isConsumer():
		m := g.consumers.members[c.id]
		return m != nil && (m.classic != nil) == c.classic && m.epoch >= 0
	}
	// In a generation that is over a member may do nothing any more, which it
	// hears with its next heartbeat.
	return c.classic && g.classic.members[c.id] != nil && c.epoch == g.classic.generation
}

// alone: no two members of the group work on one partition.
func (w *crowd) alone() {
	w.t.Helper()
	who := map[string]string{}
	for _, c := range w.all {
		if !w.member(c) {
			continue
		}
		for _, tp := range c.owned {
			for _, p := range tp.Partitions {
				key := fmt.Sprintf("%s-%d", storyName(tp.Topic), p)
				if who[key] != "" {
					w.t.Fatalf("%s and %s work on %s:\n%s", who[key], c.id, key, w.consumerStateOf("g"))
				}
				who[key] = c.id
			}
		}
	}
	if g := w.s.groups["g"]; g.isConsumer() {
		if g.consumers.epoch == g.consumers.targetEpoch {
			w.targets(g.consumers)
		}
	}
}

// targets are disjoint.
func (w *crowd) targets(c *consumers) {
	sum, all := 0, assign.Set(nil)
	for _, set := range c.target {
		sum += set.Len()
		all = all.Or(set)
	}
	if sum != all.Len() {
		w.t.Fatalf("targets of epoch %d overlap: %v", c.targetEpoch, c.target)
	}
}

// chance is one thing that happens.
func (w *crowd) chance() {
	c := w.all[w.rand.IntN(len(w.all))]
	switch n := w.rand.IntN(100); {
	case n < 60:
		w.step(c)
	case n < 68:
		if !c.in {
			w.come(c)
		}
		w.step(c)
	case n < 71:
		w.quit(c)
	case n < 73:
		c.lost = c.in
	case n < 75 && !c.classic && c.in:
		c.topics, c.full = []string{"a", "new"}, true
	case n < 78:
		w.change()
	case n < 80:
		w.reload()
	case n < 86:
		w.commits(c)
	default:
		w.pass(time.Duration(w.rand.IntN(5000)) * time.Millisecond)
	}
	// A consumer whose answers stay away knows that its session is over.
	for _, c := range w.all {
		session := crowdSession
		if c.classic {
			session = crowdClassic
		}
		if c.lost && w.now.Sub(c.last) >= session {
			c.in, c.owned = false, nil
		}
	}
}

func (w *crowd) quit(c *consumerClient) {
	if !c.in || c.lost || c.token != coordinator.NoToken || c.id == "" {
		return
	}
	w.seen["leaves"]++
	if c.classic || w.rand.IntN(4) == 0 { // an administrator may remove those of both protocols
		m := kmsg.NewPtrLeaveGroupRequest()
		m.Version, m.Group = 5, "g"
		x := kmsg.NewLeaveGroupRequestMember()
		x.MemberID, x.InstanceID = c.id, optionalText(c.instance)
		m.Members = append(m.Members, x)
		w.send(c, m, func(any) {})
	} else {
		m := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		m.Version, m.Group, m.MemberID, m.MemberEpoch, m.InstanceID = 1, "g", c.id, leaving, optionalText(c.instance)
		if c.instance != "" && w.rand.IntN(2) == 0 {
			m.MemberEpoch = away
		}
		w.send(c, m, func(any) {})
	}
	c.in, c.owned, c.token = false, nil, coordinator.NoToken
}

func (w *crowd) change() {
	switch w.rand.IntN(4) {
	case 0:
		w.partition["a"] = min(w.partition["a"]+1, 9)
	case 1:
		w.partition["new"] = 2
	case 2:
		delete(w.partition, "new")
	case 3:
		w.partition["nobody"]++
	}
	w.tellTopics()
}

// reload is another coordinator: what waited is answered with an error.
func (w *crowd) reload() {
	w.seen["reloads"]++
	for _, c := range w.all {
		if c.token != coordinator.NoToken {
			c.token, c.full = coordinator.NoToken, true
			if c.classic {
				c.phase = "join"
			}
		}
	}
	clear(w.waiting)
	w.answered(w.restart(w.rand.Uint64()))
	w.tellTopics()
}

// commits: only a member may, in its epoch, or in an older one if it has had the
// partition since then.
func (w *crowd) commits(c *consumerClient) {
	if !c.in || c.id == "" {
		return
	}
	epoch := c.epoch + int32(w.rand.IntN(2))
	m := kmsg.NewPtrOffsetCommitRequest()
	m.Version, m.Group, m.MemberID, m.Generation = 9, "g", c.id, epoch
	m.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0, Offset: 1}}}}
	g := w.s.groups["g"]
	may := !g.isConsumer()
	if !may {
		x := g.consumers.members[c.id]
		if may = x != nil && x.epoch == epoch; x != nil && x.classic == nil && epoch < x.epoch {
			since, has := x.since[storyTopic("a")][0]
			may = has && epoch >= since
		}
	}
	_, res := w.ask(coordinator.Request{Msg: m})
	a := res.Replies[0].Response.(*kmsg.OffsetCommitResponse)
	if code := a.Topics[0].Partitions[0].ErrorCode; (code == 0) != may && g.isConsumer() {
		w.t.Fatalf("a commit of %s in epoch %d: %s", c.id, epoch, showCode(code))
	}
}

func (w *crowd) pass(d time.Duration) {
	w.until(w.now.Add(d), w.answered)
}

// settle: nothing changes any more but those who are lost going. The group gets
// to its target within the session time-out, the rebalance time-out and a few
// heartbeats, and every partition that is read has somebody.
func (w *crowd) settle(rounds int) {
	w.lossy = false
	for range rounds {
		for _, c := range w.all {
			w.step(c)
			w.step(c)
		}
		w.pass(time.Second)
		for _, c := range w.all {
			if c.lost && w.now.Sub(c.last) >= crowdSession {
				c.in, c.owned = false, nil
			}
		}
	}
	if len(w.waiting) > 0 {
		w.t.Fatalf("%d still wait", len(w.waiting))
	}
	g := w.s.groups["g"]
	readers := map[string]bool{}
	for _, c := range w.all {
		if !c.in {
			continue
		}
		if !w.member(c) {
			w.t.Fatalf("%s (%+v) is not in:\n%s", c.id, c, w.consumerStateOf("g"))
		}
		for _, name := range c.topics {
			readers[name] = true
		}
		for name := range w.partition {
			if c.regex == ".*" || c.regex == "a|n.*" && name != "b" {
				readers[name] = true
			}
		}
	}
	who := map[string]int{}
	for _, c := range w.all {
		for _, tp := range c.owned {
			for range tp.Partitions {
				who[storyName(tp.Topic)]++
			}
		}
	}
	for name, n := range w.partition {
		want := 0
		if readers[name] {
			want = int(n)
		}
		if who[name] != want {
			w.t.Fatalf("%d partitions of %s are worked on, of %d:\n%s", who[name], name, want, w.consumerStateOf("g"))
		}
	}
	if g.isConsumer() && len(g.consumers.members) > 0 && g.consumers.state() != "Stable" {
		w.t.Fatalf("not stable:\n%s", w.consumerStateOf("g"))
	}
}

func TestRandomConsumers(t *testing.T) {
	runs, first := 20, uint64(1)
	if s := os.Getenv("SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		runs, first = 1, n
	}
	if s := os.Getenv("RUNS"); s != "" {
		runs, _ = strconv.Atoi(s)
	}
	seen := map[string]int{}
	for seed := first; seed < first+uint64(runs); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newCrowd(t, seed)
			w.lossy = true
			for range 300 {
				was := w.s.groups["g"].isConsumer()
				w.chance()
				if now := w.s.groups["g"].isConsumer(); was != now {
					w.seen[fmt.Sprintf("consumer group: %t", now)]++
				}
			}
			w.settle(120)
			if w.s.groups["g"].isConsumer() { // else its leader would have to see it
				w.partition["a"]++ // nobody comes or goes: the change alone has to be seen
				w.tellTopics()
				w.settle(30)
			}
			for what, n := range w.seen {
				seen[what] += n
			}
		})
	}
	t.Logf("%v", seen)
}
