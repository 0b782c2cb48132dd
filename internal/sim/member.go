package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is a consumer of the classic protocol: it joins, asks for its
// assignment, reads where the group stands, commits, and sends heartbeats. It
// asks one thing at a time, but for commits, which go along a connection of their
// own and may be late.
type member struct {
	g        *groups
	node     *node
	no       int // of its group
	group    string
	instance *string
	lines    []*line // by broker
	commits  []*line
	found    cluster.BrokerID // the coordinator; NoBroker: to be looked for
	over     bool             // fenced, or gone for good: another has its place

	id         string
	generation int32
	phase      phase
	leads      bool
	others     []string // members, if it leads
	parts      []int32
	position   map[int32]int64
	sent       int           // commits
	tarries    time.Duration // until then it does not join again although it should
}

type phase uint8

const (
	joining phase = iota
	syncing
	fetching
	settled
)

var errLost = errors.New("no answer")

func (g *groups) newMember(no int, name string, instance *string) {
	m := &member{g: g, no: no, group: fmt.Sprintf("g%d", no), instance: instance, node: &node{id: 200 + len(g.members), name: name, up: true}}
	for _, b := range g.w.brokers {
		m.lines = append(m.lines, &line{from: m.node, to: b.node})
		m.commits = append(m.commits, &line{from: m.node, to: b.node})
	}
	g.members = append(g.members, m)
	m.begin()
}

// begin is a new process.
func (m *member) begin() {
	m.id, m.generation, m.phase, m.found, m.parts, m.tarries = "", -1, joining, cluster.NoBroker, nil, 0
	m.later(0, time.Second)
}

func (m *member) later(a, b time.Duration) { m.g.w.after(m.node, m.g.luck.between(a, b), m.step) }

// soon is after something went wrong.
func (m *member) soon() { m.later(20*time.Millisecond, 300*time.Millisecond) }

// step does the next thing.
func (m *member) step() {
	switch {
	case m.over:
	case m.phase == settled && m.g.w.now < m.tarries:
		m.commit()
		m.later(200*time.Millisecond, time.Second)
	case m.mishap():
	case m.phase == joining && m.g.w.cfg.Groups.Consumer:
		m.beat()
	case m.phase == joining:
		m.join()
	case m.phase == syncing:
		m.sync()
	case m.phase == fetching:
		m.fetch()
	default:
		if m.g.luck.once(2) {
			m.commit()
		}
		m.beat()
	}
}

// mishap: the process dies, is stopped for a while, leaves, or is started twice.
func (m *member) mishap() bool {
	g := m.g
	if g.w.healed || !g.luck.once(g.w.cfg.Groups.MishapOnceIn) {
		return false
	}
	switch n := g.luck.below(10); {
	case n < 4:
		m.commit()
		m.die()
	case n < 5 && m.instance != nil && !g.w.cfg.Groups.Consumer:
		g.w.say("%s is started a second time", m.node.name)
		g.result.Replaced++
		m.commit()
		m.node.paused = g.w.now + g.luck.between(0, 8*time.Second)
		g.newMember(m.no, m.node.name+"'", m.instance)
		m.later(0, time.Second)
	case n < 7 && m.phase == settled:
		m.leave()
	default:
		m.node.paused = g.w.now + g.luck.between(100*time.Millisecond, 10*time.Second)
		g.w.say("%s is stopped until %v", m.node.name, m.node.paused)
		m.later(0, time.Second)
	}
	return true
}

// die ends the process. Most come back.
func (m *member) die() {
	m.g.w.say("%s dies", m.node.name)
	m.node.up = false
	m.node.life++
	life := m.node.life
	if m.g.luck.once(6) {
		m.over = true
		return
	}
	back := m.g.luck.between(0, 200*time.Millisecond)
	if m.g.luck.once(2) {
		back = m.g.luck.between(0, 12*time.Second)
	}
	m.g.calmAt = max(m.g.calmAt, m.g.w.now+back)
	m.g.w.queue.push(m.g.w.now+back, func() {
		if m.node.life == life {
			m.node.up = true
			m.begin()
		}
	})
}

// ask sends a request to the coordinator, which is looked for first if it is
// not known.
func (m *member) ask(lines []*line, msg any, patience time.Duration, then func(any, error)) {
	w := m.g.w
	if m.found == cluster.NoBroker {
		m.find(func() {
			if m.found == cluster.NoBroker {
				then(nil, errNotCoordinator)
				return
			}
			m.ask(lines, msg, patience, then)
		})
		return
	}
	b := w.broker(m.found)
	q := coordinator.Request{ClientID: m.node.name, ClientHost: "/h", Msg: msg}
	switch msg.(type) {
	case *kmsg.HeartbeatRequest, *kmsg.OffsetFetchRequest:
		q.ReadOnly = true
	}
	w.call(lines[b.id-1], patience, func(reply func(func())) {
		b.groupRequest(m.g.coordinator(m.no), q, func(response any, err error) {
			reply(func() {
				if err != nil && !errors.Is(err, errLoading) {
					m.found = cluster.NoBroker
				}
				then(response, err)
			})
		})
	}, func() {
		m.found = cluster.NoBroker
		then(nil, errLost)
	})
}

// find is FindCoordinator, asked of some broker.
func (m *member) find(then func()) {
	b := m.g.w.brokers[m.g.luck.below(len(m.g.w.brokers))]
	m.g.w.call(m.lines[b.id-1], time.Second, func(reply func(func())) {
		at := b.metadata[m.g.coordinator(m.no)].Leader
		reply(func() {
			if m.g.w.broker(at) != nil {
				m.found = at
			}
			then()
		})
	}, then)
}

// refused takes an error code of a group in; false: there is none.
func (m *member) refused(code int16) bool {
	switch protocol.Code(code) {
	case protocol.None:
		return false
	case protocol.ErrFencedInstanceID:
		m.g.w.say("%s is fenced", m.node.name)
		m.over = true
	case protocol.ErrUnknownMemberID:
		m.id, m.generation, m.phase = "", -1, joining
	default:
		m.phase = joining
	}
	return true
}

func (m *member) join() {
	q := kmsg.NewPtrJoinGroupRequest()
	q.Version, q.Group, q.MemberID, q.InstanceID, q.ProtocolType = 9, m.group, m.id, m.instance, "consumer"
	q.SessionTimeoutMillis, q.RebalanceTimeoutMillis = int32(groupSession.Milliseconds()), int32(groupRebalance.Milliseconds())
	q.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription()}}
	m.ask(m.lines, q, groupRebalance+5*time.Second, func(response any, err error) {
		if err != nil {
			m.soon()
			return
		}
		a := response.(*kmsg.JoinGroupResponse)
		switch {
		case a.ErrorCode == int16(protocol.ErrMemberIDRequired):
			m.id = a.MemberID
		case m.refused(a.ErrorCode):
			m.soon()
			return
		default:
			m.id, m.generation, m.leads, m.phase, m.others = a.MemberID, a.Generation, len(a.Members) > 0 && !a.SkipAssignment, syncing, nil
			for _, o := range a.Members {
				m.others = append(m.others, o.MemberID)
			}
			slices.Sort(m.others)
			m.g.w.say("%s joined %s as %s, generation %d of %d", m.node.name, m.group, m.id, m.generation, len(m.others))
			if !m.g.w.healed && m.g.luck.once(10) { // busy with something else
				busy := m.g.luck.between(0, 2*groupRebalance)
				m.g.calmAt = max(m.g.calmAt, m.g.w.now+busy)
				m.g.w.after(m.node, busy, m.step)
				return
			}
		}
		m.later(0, 50*time.Millisecond)
	})
}

// subscription is a consumer's, to the topic of the groups.
func subscription() []byte {
	s := kmsg.ConsumerMemberMetadata{Topics: []string{groupTopic}}
	return s.AppendTo(nil)
}

const groupTopic = "read"

func (m *member) sync() {
	q := kmsg.NewPtrSyncGroupRequest()
	q.Version, q.Group, q.MemberID, q.InstanceID, q.Generation = 4, m.group, m.id, m.instance, m.generation
	if m.leads {
		given, first := make([][]string, len(m.others)), m.g.luck.below(len(m.others))
		for p := range m.g.w.cfg.Groups.Parts {
			to := (p + first) % len(m.others)
			given[to] = append(given[to], strconv.Itoa(p))
		}
		for i, id := range m.others {
			q.GroupAssignment = append(q.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(strings.Join(given[i], ","))})
		}
	}
	m.phase = joining // whatever else happens
	m.ask(m.lines, q, groupRebalance+5*time.Second, func(response any, err error) {
		if err != nil {
			m.soon()
			return
		}
		a := response.(*kmsg.SyncGroupResponse)
		if m.refused(a.ErrorCode) {
			m.soon()
			return
		}
		m.parts, m.phase = assigned(a.MemberAssignment), fetching
		m.g.w.say("%s is assigned %v in generation %d of %s", m.node.name, m.parts, m.generation, m.group)
		m.later(0, 20*time.Millisecond)
	})
}

func assigned(b []byte) []int32 {
	var out []int32
	for s := range strings.SplitSeq(string(b), ",") {
		if p, err := strconv.Atoi(s); err == nil {
			out = append(out, int32(p))
		}
	}
	return out
}

// fetch reads where the group stands in what the member is to read.
func (m *member) fetch() {
	m.position = map[int32]int64{}
	q := kmsg.NewPtrOffsetFetchRequest()
	q.Version = 9
	q.Groups = []kmsg.OffsetFetchRequestGroup{{Group: m.group, MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: groupTopic, Partitions: slices.Clone(m.parts)}}}}
	if m.g.w.cfg.Groups.Consumer {
		q.Groups[0].MemberID, q.Groups[0].MemberEpoch = &m.id, m.generation
	}
	m.ask(m.lines, q, 2*time.Second, func(response any, err error) {
		if err != nil {
			m.beat() // in time, if the offsets take long
			return
		}
		a := response.(*kmsg.OffsetFetchResponse).Groups[0]
		if a.ErrorCode != 0 {
			m.beat() // it is in another epoch by now
			return
		}
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				m.position[p.Partition] = p.Offset
			}
		}
		m.phase = settled
		m.later(0, 500*time.Millisecond)
	})
}

// commit says how far the member is in one of its partitions. What it writes
// names who wrote it.
func (m *member) commit() {
	if len(m.parts) == 0 || m.phase != settled || m.g.w.healed {
		return
	}
	p := m.parts[m.g.luck.below(len(m.parts))]
	m.position[p] += int64(1 + m.g.luck.below(5))
	m.sent++
	generation := m.generation
	if m.g.w.cfg.Groups.Consumer && m.g.luck.once(6) {
		generation -= int32(m.g.luck.below(3)) // made before its latest heartbeats
	}
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group, q.MemberID, q.InstanceID, q.Generation = 9, m.group, m.id, m.instance, generation
	c := kmsg.NewOffsetCommitRequestTopicPartition()
	c.Partition, c.Offset, c.Metadata = p, m.position[p], kmsg.StringPtr(fmt.Sprintf("%s %d %d", m.id, generation, m.sent))
	q.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: groupTopic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{c}}}
	if m.found == cluster.NoBroker {
		return
	}
	m.ask(m.commits, q, 3*time.Second, func(response any, err error) {
		if err != nil {
			return
		}
		code := response.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		if code == 0 {
			m.g.result.Commits++
		}
	})
}

func (m *member) heartbeat() {
	q := kmsg.NewPtrHeartbeatRequest()
	q.Group, q.MemberID, q.InstanceID, q.Generation = m.group, m.id, m.instance, m.generation
	m.ask(m.lines, q, 2*time.Second, func(response any, err error) {
		if err != nil {
			m.soon()
			return
		}
		a, was := response.(*kmsg.HeartbeatResponse), m.phase
		if !m.refused(a.ErrorCode) {
			m.later(300*time.Millisecond, time.Second)
			return
		}
		if was == settled && m.phase == joining && m.id != "" && !m.g.w.healed && m.g.luck.once(4) {
			m.phase, m.tarries = settled, m.g.w.now+m.g.luck.between(0, 2*groupRebalance)
		}
		m.soon()
	})
}

func (m *member) leave() {
	q := kmsg.NewPtrLeaveGroupRequest()
	q.Version, q.Group = 5, m.group
	q.Members = []kmsg.LeaveGroupRequestMember{{MemberID: m.id, InstanceID: m.instance}}
	m.g.w.say("%s leaves", m.node.name)
	back := func(any, error) {
		away := m.g.luck.between(0, 6*time.Second)
		m.g.calmAt = max(m.g.calmAt, m.g.w.now+away)
		m.g.w.after(m.node, away, m.step)
	}
	if m.g.w.cfg.Groups.Consumer {
		m.quit(back)
	} else {
		m.ask(m.lines, q, 2*time.Second, back)
	}
	m.id, m.phase, m.parts = "", joining, nil
}

// unwell says which group is not as it has to be some time after everything was
// healed: every partition is read by one member that is alive, all in the
// generation that is committed; a group of none is empty.
func (g *groups) unwell() string {
	if g == nil {
		return ""
	}
	if g.wellAt == 0 {
		g.wellAt = g.w.now
	}
	for p := int32(g.w.cfg.Partitions); p < int32(g.w.cfg.partitions()); p++ {
		b := g.w.broker(g.w.store.states[p].Leader)
		if s := b.shards[p]; s == nil || !s.loaded {
			return fmt.Sprintf("t-%d: no coordinator is loaded", p)
		}
	}
	for no := range g.w.cfg.Groups.Groups {
		if what := g.groupUnwell(no); what != "" {
			if calm := max(g.wellAt, g.calmAt); g.w.now > calm+groupRecovery {
				g.w.check.fail("GroupLiveness", "%v after the cluster is well: %s", g.w.now-calm, what)
			}
			return what
		}
	}
	return ""
}

func (g *groups) groupUnwell(no int) string {
	p := g.coordinator(no)
	name, t := fmt.Sprintf("g%d", no), g.truth(p)
	alive, owned, generation := 0, map[int32]bool{}, int32(0)
	for _, m := range g.members {
		if m.no != no || m.over {
			continue
		}
		if m.phase != settled || m.tarries > g.w.now {
			return fmt.Sprintf("%s is not settled in %s", m.node.name, name)
		}
		if alive++; alive > 1 && m.generation != generation {
			return fmt.Sprintf("%s is in generation %d of %s, another in %d", m.node.name, m.generation, name, generation)
		}
		generation = m.generation
		for _, q := range m.parts {
			if owned[q] {
				return fmt.Sprintf("two members of %s read %d", name, q)
			}
			owned[q] = true
		}
	}
	is := t.group(name)
	switch {
	case alive > 0 && len(owned) != g.w.cfg.Groups.Parts:
		return fmt.Sprintf("%s: %d of %d partitions are read", name, len(owned), g.w.cfg.Groups.Parts)
	case g.w.check.off(p):
	case alive != len(is.members) || alive > 0 && is.generation != generation:
		return fmt.Sprintf("%s: %d members of generation %d are committed, %d of %d are alive", name, len(is.members), is.generation, alive, generation)
	}
	return ""
}

// settled: in the end each coordinator is what a replay of its log gives.
func (g *groups) settled() {
	if g == nil {
		return
	}
	for p := int32(g.w.cfg.Partitions); p < int32(g.w.cfg.partitions()); p++ {
		b := g.w.broker(g.w.store.states[p].Leader)
		s, l := b.shards[p], b.log(p)
		if s == nil || !s.loaded {
			g.w.check.fail("GroupLiveness", "t-%d: no coordinator is loaded", p)
			continue
		}
		m := g.newMachine()
		for o := range l.LEO() {
			g.replay(m, l.At(o).ID, o)
		}
		if got, want := s.machine.Dump(), m.Dump(); got != want {
			g.w.check.fail("StateIsReplay", "t-%d: the coordinator has\n%s\nits log gives\n%s", p, got, want)
		}
	}
}
