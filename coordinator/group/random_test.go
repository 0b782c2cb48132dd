package group

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	worldSession   = 10 * time.Second
	worldRebalance = 20 * time.Second
	worldParts     = 12
)

// world is some clients of some groups, each doing what a client does at its
// own pace, or gone, under a shard that now and then is loaded anew.
type world struct {
	*rig
	rand    *rand.Rand
	clients []*client
	waiting map[coordinator.Token]*client
	// owners tells who has been given a partition in a generation.
	owners map[string]string
	// current is the newest generation that members of a group were told of.
	current map[string]int32
	written map[string]int32   // the generation that the group's record is of
	entered map[string]entered // by group
}

// entered is when a group was first seen in its state.
type entered struct {
	state      state
	generation int32
	at         time.Time
	generated  time.Time // when its generation was first seen
}

// client is one consumer: what it knows of itself, and the request it waits for.
type client struct {
	name, group, id string
	instance        *string
	generation      int32
	leader          bool
	members         []string
	phase           string // join, sync, stable
	token           coordinator.Token
	sent            int32 // the generation that it claimed in what it waits for
	gone            bool
	mute            bool // sends heartbeats but never asks for its assignment
	oldest          bool // of a version that is not asked to come twice
}

func newWorld(t *testing.T, seed uint64) *world {
	c := testConfig()
	c.RetentionCheckInterval, c.OffsetsRetention = time.Minute, 5*time.Minute
	w := &world{
		rig: newRig(t, c, seed), rand: rand.New(rand.NewPCG(seed, 1)), waiting: map[coordinator.Token]*client{},
		owners: map[string]string{}, current: map[string]int32{}, written: map[string]int32{}, entered: map[string]entered{},
	}
	for i := range 9 {
		x := &client{name: fmt.Sprintf("c%d", i), group: fmt.Sprintf("g%d", i%3), phase: "join", oldest: w.rand.IntN(3) == 0, mute: w.rand.IntN(9) == 0}
		if w.rand.IntN(3) == 0 {
			instance := "i" + x.name
			x.instance = &instance
		}
		w.clients = append(w.clients, x)
	}
	return w
}

// TestRandomSchedules: whatever the clients do and whoever is lost, partitions
// have one owner per generation, commits are of the current one, every request
// is answered once, groups settle in time, and the durable state is what its
// records replay to (the rig checks that after each step).
// KBROKER_GROUP_SEED=N runs one of them.
func TestRandomSchedules(t *testing.T) {
	first, n := uint64(time.Now().UnixNano()%1_000_000), uint64(25)
	if one := os.Getenv("KBROKER_GROUP_SEED"); one != "" {
		first, _ = strconv.ParseUint(one, 10, 64)
		n = 1
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 300 {
				w.step()
			}
			w.settle()
		})
	}
}

func (w *world) step() {
	switch n := w.rand.IntN(100); {
	case n < 70:
		w.act(w.clients[w.rand.IntN(len(w.clients))])
	case n < 88:
		w.pass(time.Duration(w.rand.IntN(4000)) * time.Millisecond)
	case n < 91: // a client is killed; it comes back as somebody new, or as the same instance
		x := w.clients[w.rand.IntN(len(w.clients))]
		delete(w.waiting, x.token)
		x.gone, x.token = !x.gone && w.rand.IntN(2) == 0, 0 // half of them are back at once
		x.id, x.phase, x.generation = "", "join", -1
	case n < 93:
		w.pass(time.Duration(w.rand.IntN(40)) * time.Second)
	case n < 95: // the coordinator moves: who waits has to ask again
		before := w.stable()
		w.deliver(w.restart(w.rand.Uint64()))
		for id, members := range before {
			if after := w.stable()[id]; after != members {
				w.t.Fatalf("%s was stable with %s and is loaded with %s", id, members, after)
			}
		}
		for _, x := range w.clients {
			x.token = 0
		}
		w.waiting = map[coordinator.Token]*client{}
		w.entered = map[string]entered{}
		w.current = maps.Clone(w.written) // a generation without an assignment is forgotten
	case n < 97:
		rec := offsetRecord(fmt.Sprintf("g%d", w.rand.IntN(4)), "t", int32(w.rand.IntN(3)), commit{offset: int64(w.rand.IntN(9)), epoch: -1, expires: never})
		if w.rand.IntN(5) == 0 {
			rec.Value = nil
		}
		w.append(rec, cluster.ProducerID(w.rand.IntN(3)))
		w.rig.check()
	case n < 98:
		w.mark(cluster.ProducerID(w.rand.IntN(3)), w.rand.IntN(2) == 0)
	case n < 99:
		m := kmsg.NewPtrDeleteGroupsRequest()
		m.Groups = []string{fmt.Sprintf("g%d", w.rand.IntN(4))}
		_, res := w.ask(coordinator.Request{Msg: m})
		w.deliver(res)
	default:
		_, res := w.askEvent(TopicsDeleted{Topics: []string{"t"}})
		w.deliver(res)
	}
	w.invariants()
}

func (w *world) pass(d time.Duration) {
	w.until(w.now.Add(d), func(res coordinator.Result) {
		w.deliver(res)
		w.invariants()
	})
	w.invariants()
}

// act lets a client take its next step.
func (w *world) act(x *client) {
	if x.gone || x.token != 0 {
		return
	}
	q := coordinator.Request{ClientID: x.name}
	x.sent = x.generation
	if w.rand.IntN(20) == 0 {
		x.sent-- // it has not heard of the last one, say
	}
	switch {
	case x.phase == "join":
		m := kmsg.NewPtrJoinGroupRequest()
		m.Version = 9
		if x.oldest {
			m.Version = 3
		}
		m.Group, m.MemberID, m.InstanceID = x.group, x.id, x.instance
		m.SessionTimeoutMillis, m.RebalanceTimeoutMillis = int32(worldSession.Milliseconds()), int32(worldRebalance.Milliseconds())
		m.ProtocolType = consumerType
		m.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscribes("t")}}
		q.Msg = m
	case x.phase == "sync" && !x.mute:
		m := kmsg.NewPtrSyncGroupRequest()
		m.Version, m.Group, m.MemberID, m.InstanceID, m.Generation = 4, x.group, x.id, x.instance, x.sent
		if x.leader {
			parts, first := map[string][]string{}, w.rand.IntN(len(x.members))
			for p := range worldParts {
				to := x.members[(p+first)%len(x.members)]
				parts[to] = append(parts[to], fmt.Sprint(p))
			}
			for id, ps := range parts {
				m.GroupAssignment = append(m.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(strings.Join(ps, ","))})
			}
		}
		q.Msg = m
	case x.phase == "sync" || w.rand.IntN(3) == 0: // a mute one that owes its SyncGroup, among others
		m := kmsg.NewPtrHeartbeatRequest()
		m.Group, m.MemberID, m.InstanceID, m.Generation = x.group, x.id, x.instance, x.sent
		q.Msg = m
	case w.rand.IntN(20) == 0:
		m := kmsg.NewPtrLeaveGroupRequest()
		m.Version, m.Group = 5, x.group
		m.Members = []kmsg.LeaveGroupRequestMember{{MemberID: x.id, InstanceID: x.instance}}
		q.Msg = m
	case w.rand.IntN(8) > 0:
		m := kmsg.NewPtrOffsetCommitRequest()
		m.Version, m.Group, m.MemberID, m.InstanceID, m.Generation = 9, x.group, x.id, x.instance, x.sent
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = int32(w.rand.IntN(3)), int64(w.rand.IntN(100))
		m.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
		q.Msg = m
	default:
		x.phase = "join" // say, it has subscribed anew
		return
	}
	x.token = w.token + 1
	w.waiting[x.token] = x
	_, res := w.ask(q)
	w.deliver(res)
}

// deliver hands the replies to their clients.
func (w *world) deliver(res coordinator.Result) {
	for _, rec := range res.Records {
		if binary.BigEndian.Uint16(rec.Key) != metaKey {
			continue
		}
		id := string(rec.Key[4:])
		if rec.Value != nil {
			m, err := readMeta(rec.Value)
			if err != nil {
				w.t.Fatal(err)
			}
			w.written[id] = m.generation
		} else {
			delete(w.written, id)
			delete(w.current, id) // its generations start over
			for key := range w.owners {
				if strings.HasPrefix(key, id+" ") {
					delete(w.owners, key)
				}
			}
		}
	}
	for _, a := range res.Replies {
		x := w.waiting[a.Token]
		if x == nil {
			continue // its client is gone; or an event
		}
		if x.token != a.Token {
			w.t.Fatalf("request %d is answered, %s waits for %d", a.Token, x.name, x.token)
		}
		delete(w.waiting, a.Token)
		x.token = 0
		w.told(x, a.Response)
	}
}

// told is a client taking an answer in.
func (w *world) told(x *client, response any) {
	failed := func(c int16) bool {
		switch protocol.Code(c) {
		case protocol.None:
			return false
		case protocol.ErrUnknownMemberID, protocol.ErrFencedInstanceID, protocol.ErrIllegalGeneration:
			x.id, x.phase = "", "join"
		default:
			x.phase = "join"
		}
		return true
	}
	switch a := response.(type) {
	case *kmsg.JoinGroupResponse:
		if a.ErrorCode == code(protocol.ErrMemberIDRequired) {
			x.id = a.MemberID
			return
		}
		if failed(a.ErrorCode) {
			return
		}
		x.id, x.generation, x.leader, x.phase = a.MemberID, a.Generation, a.LeaderID == a.MemberID && !a.SkipAssignment, "sync"
		x.members = nil
		for _, m := range a.Members {
			x.members = append(x.members, m.MemberID)
		}
		sort.Strings(x.members)
		if a.Generation < w.current[x.group] {
			w.t.Fatalf("%s is told generation %d of %s after %d", x.name, a.Generation, x.group, w.current[x.group])
		}
		w.current[x.group] = a.Generation
	case *kmsg.SyncGroupResponse:
		if failed(a.ErrorCode) {
			return
		}
		x.phase = "stable"
		if x.sent != w.current[x.group] || len(a.MemberAssignment) == 0 {
			w.t.Fatalf("%s is given %q in generation %d of %s, the newest is %d", x.name, a.MemberAssignment, x.sent, x.group, w.current[x.group])
		}
		who := x.id
		if x.instance != nil {
			who = *x.instance
		}
		for _, p := range strings.Split(string(a.MemberAssignment), ",") {
			if p == "" {
				continue
			}
			key := fmt.Sprintf("%s %d %s", x.group, x.sent, p)
			if o := w.owners[key]; o != "" && o != who {
				w.t.Fatalf("partition %s of %s is %s's and %s's in generation %d", p, x.group, o, who, x.sent)
			}
			w.owners[key] = who
		}
	case *kmsg.HeartbeatResponse:
		if !failed(a.ErrorCode) && x.sent != w.current[x.group] {
			w.t.Fatalf("%s is fine in generation %d, the newest is %d", x.name, x.sent, w.current[x.group])
		}
	case *kmsg.LeaveGroupResponse:
		x.id, x.phase = "", "join"
	case *kmsg.OffsetCommitResponse:
		if !failed(a.Topics[0].Partitions[0].ErrorCode) && x.sent != w.current[x.group] {
			w.t.Fatalf("%s commits in generation %d, the newest is %d", x.name, x.sent, w.current[x.group])
		}
	}
}

// invariants hold after every step, beside those of Check.
func (w *world) invariants() {
	waits := map[coordinator.Token]bool{}
	for id, g := range w.s.groups {
		c := &g.classic
		for _, x := range c.order {
			waits[x.join], waits[x.sync] = true, true
		}
		if e := w.entered[id]; e.state != c.state || e.generation != c.generation {
			next := entered{c.state, c.generation, w.now, e.generated}
			if e.generation != c.generation {
				next.generated = w.now
			}
			w.entered[id] = next
		}
		// Static members hold a rebalance up until their sessions end.
		if took := w.now.Sub(w.entered[id].at); took > worldRebalance+worldSession+joinAgain && !c.is(empty) && !c.is(stable) {
			w.t.Fatalf("%s is in %s for %s", id, c.state, took)
		}
	}
	for id, e := range w.entered {
		g := w.s.groups[id]
		if g == nil {
			delete(w.entered, id)
		} else if g.classic.owing > 0 && w.now.Sub(e.generated) > worldRebalance {
			w.t.Fatalf("%s has waited for %d SyncGroups since %s", id, g.classic.owing, e.generated)
		}
	}
	for token, x := range w.waiting {
		if !waits[token] {
			w.t.Fatalf("%s waits for %d, which nobody will answer", x.name, token)
		}
	}
}

// stable are the groups that no move of the coordinator may disturb, with who
// has what in them.
func (w *world) stable() map[string]string {
	out := map[string]string{}
	for id, g := range w.s.groups {
		if g.classic.is(stable) {
			text := fmt.Sprint(g.classic.generation, g.classic.leader)
			for _, x := range g.classic.order {
				text += fmt.Sprintf(" %s=%s", x.id, x.assignment)
			}
			out[id] = text
		}
	}
	return out
}

// settle lets the rest do what clients do, every second: the groups become
// stable with them, or empty.
func (w *world) settle() {
	for _, x := range w.clients {
		x.phase = map[bool]string{true: x.phase, false: "join"}[x.phase == "stable"]
	}
	for range int((2*worldSession + 2*worldRebalance) / time.Second) {
		w.pass(time.Second)
		for range 3 {
			for _, x := range w.clients {
				x.mute = false
				if x.phase == "stable" && !x.gone && x.token == 0 {
					x.sent = x.generation
					m := kmsg.NewPtrHeartbeatRequest()
					m.Group, m.MemberID, m.InstanceID, m.Generation = x.group, x.id, x.instance, x.generation
					x.token = w.token + 1
					w.waiting[x.token] = x
					_, res := w.ask(coordinator.Request{Msg: m})
					w.deliver(res)
				} else {
					w.act(x)
				}
			}
		}
	}
	for id, g := range w.s.groups {
		live := 0
		for _, x := range w.clients {
			if x.group == id && !x.gone {
				live++
				if g.classic.members[x.id] == nil || x.phase != "stable" {
					w.t.Errorf("%s is not a stable member of %s: %s %s", x.name, id, x.id, x.phase)
				}
			}
		}
		if want := map[bool]state{true: stable, false: empty}[live > 0]; g.classic.state != want || len(g.classic.members) != live {
			w.t.Errorf("%s is %s with %d members, want %s with %d", id, g.classic.state, len(g.classic.members), want, live)
		}
	}
}
