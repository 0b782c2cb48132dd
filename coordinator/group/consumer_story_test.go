package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func consumerConfig() Config {
	c := testConfig()
	c.Consumer = ConsumerConfig{
		SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second, MaxSize: 1 << 30,
		Assignors: []string{assign.Uniform, assign.Range}, Migration: MigrationPolicy{Upgrade: true, Downgrade: true},
	}
	return c
}

// TestConsumerStories runs the stories of the consumer protocol. A step prints
// what is written, what is answered and how the group is left.
func TestConsumerStories(t *testing.T) {
	datadriven.Walk(t, "testdata/consumer", func(t *testing.T, path string) {
		r := newRig(t, consumerConfig(), 7)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r.t = t
			return r.consumerStep(d)
		})
	})
}

// storyTopic is the id of a topic in stories: its name, and # when there was one
// of the name before.
func storyTopic(name string) (id cluster.TopicID) {
	copy(id[:], name)
	return id
}

func storyName(id cluster.TopicID) string { return strings.TrimRight(string(id[:]), "\x00") }

func showSet(set assign.Set) string {
	if len(set) == 0 {
		return "-"
	}
	var words []string
	for _, tp := range set {
		words = append(words, fmt.Sprintf("%s:%s", storyName(tp.Topic), strings.Trim(strings.ReplaceAll(fmt.Sprint(tp.Partitions), " ", ","), "[]")))
	}
	return strings.Join(words, " ")
}

// storySet reads (a:0,a:1).
func storySet(list []string) assign.Set {
	var parts []assign.TopicPartitions
	for _, w := range list {
		name, p, _ := strings.Cut(w, ":")
		var n int32
		if _, err := fmt.Sscan(p, &n); err == nil {
			parts = append(parts, assign.TopicPartitions{Topic: storyTopic(name), Partitions: []int32{n}})
		}
	}
	return assign.Of(parts)
}

func storyTopics(list []string) *Topics {
	var views []TopicView
	for _, w := range list {
		name, n, _ := strings.Cut(w, ":")
		v := TopicView{ID: storyTopic(name)}
		v.Name, _, _ = strings.Cut(name, "#")
		n, racks, _ := strings.Cut(n, "@")
		if _, err := fmt.Sscan(n, &v.Partitions); err != nil {
			panic(err)
		}
		for range v.Partitions {
			if racks != "" {
				v.Racks = append(v.Racks, []string{racks})
			}
		}
		views = append(views, v)
	}
	return NewTopics(views)
}

func (r *rig) consumerStep(d *datadriven.TestData) string {
	group := word(d, "group", "g")
	q := coordinator.Request{ClientID: word(d, "client", "c"), ClientHost: "/10.0.0.1"}
	switch d.Cmd {
	case "new":
		c := consumerConfig()
		c.Consumer.MaxSize = int(number(d, "max-size", 1<<30))
		c.MaxSize = int(number(d, "classic-max-size", 1<<30))
		c.Consumer.Migration = MigrationPolicy{Upgrade: !d.HasArg("no-upgrade"), Downgrade: !d.HasArg("no-downgrade")}
		*r = *newRig(r.t, c, 7)
		return ""
	case "topics":
		var list []string
		for _, a := range d.CmdArgs {
			list = append(list, a.Key)
		}
		q.Msg = MetadataChanged{storyTopics(list)}
		r.took(r.s.Handle(r.now, q))
		return ""
	case "join", "beat", "leave", "away":
		q.Msg = r.beatOf(d, group)
	case "describe":
		m := kmsg.NewPtrConsumerGroupDescribeRequest()
		m.Version, m.Groups = 1, []string{group}
		q.Msg = m
	case "list":
		m := kmsg.NewPtrListGroupsRequest()
		m.Version, m.StatesFilter, m.TypesFilter = 5, list(d, "states"), list(d, "types")
		q.Msg = m
	case "classic-describe":
		m := kmsg.NewPtrDescribeGroupsRequest()
		m.Version, m.Groups = 5, []string{group}
		q.Msg = m
	case "delete":
		m := kmsg.NewPtrDeleteGroupsRequest()
		m.Version, m.Groups = 2, []string{group}
		q.Msg = m
	case "commit":
		m := r.commitOf(d, group)
		m.Version, m.Generation, m.MemberID = int16(number(d, "v", 9)), int32(number(d, "epoch", -1)), r.ids.full(word(d, "id", ""))
		q.Msg = m
	case "offsets":
		m := kmsg.NewPtrOffsetFetchRequest()
		m.Version = 9
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberEpoch = group, int32(number(d, "epoch", -1))
		if id := maybe(d, "id"); id != nil {
			g.MemberID = kmsg.StringPtr(r.ids.full(*id))
		}
		m.Groups = append(m.Groups, g)
		q.Msg = m
	case "delete-offsets":
		m := kmsg.NewPtrOffsetDeleteRequest()
		m.Group = group
		for _, w := range list(d, "partitions") {
			topic, p := tp(w)
			m.Topics = append(m.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: p}}})
		}
		q.Msg = m
	case "classic-join", "classic-sync", "classic-beat", "classic-leave":
		q.Msg = r.classicOf(d, group)
	case "after":
		return r.after(d, group)
	case "restart":
		view := r.s.topics
		out := r.showConsumer(r.restart(99))
		if !d.HasArg("blind") {
			r.took(r.s.Handle(r.now, coordinator.Request{Msg: MetadataChanged{view}}))
		}
		return out + r.consumerStateOf(group)
	default:
		d.Fatalf(r.t, "what is %s?", d.Cmd)
	}
	_, res := r.ask(q)
	return r.showConsumer(res) + r.consumerStateOf(group)
}

// beatOf is a ConsumerGroupHeartbeat. join, leave and away are short for what
// such a one has to have.
func (r *rig) beatOf(d *datadriven.TestData, group string) any {
	m := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	m.Version, m.Group, m.MemberID = int16(number(d, "v", 1)), word(d, "group", group), r.ids.full(word(d, "id", ""))
	m.InstanceID, m.RackID, m.SubscribedTopicRegex, m.ServerAssignor = maybe(d, "instance"), maybe(d, "rack"), maybe(d, "regex"), maybe(d, "assignor")
	if d.HasArg("topics") {
		m.SubscribedTopicNames = append([]string{}, list(d, "topics")...)
	}
	epoch, rebalance := int64(0), int64(-1)
	switch d.Cmd {
	case "join":
		rebalance = 60000
		m.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	case "leave":
		epoch = leaving
	case "away":
		epoch = away
	}
	m.MemberEpoch, m.RebalanceTimeoutMillis = int32(number(d, "epoch", epoch)), int32(number(d, "rebalance", rebalance))
	if d.HasArg("owned") {
		m.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, tp := range storySet(list(d, "owned")) {
			m.Topics = append(m.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: tp.Topic, Partitions: tp.Partitions})
		}
	}
	if d.HasArg("not-owned") {
		m.Topics = nil
	}
	if !d.HasArg("may") {
		return m
	}
	return ConsumerHeartbeat{m, func(topic string) bool {
		return strings.Contains(","+strings.Join(list(d, "may"), ",")+",", ","+topic+",")
	}}
}

// classicOf is a request of the classic protocol with a consumer's metadata.
func (r *rig) classicOf(d *datadriven.TestData, group string) any {
	id := r.ids.full(word(d, "id", ""))
	switch d.Cmd {
	case "classic-join":
		m := kmsg.NewPtrJoinGroupRequest()
		m.Version, m.Group, m.MemberID, m.InstanceID = int16(number(d, "v", 9)), group, id, maybe(d, "instance")
		m.SessionTimeoutMillis, m.RebalanceTimeoutMillis, m.ProtocolType = int32(number(d, "session", 10000)), int32(number(d, "rebalance", 60000)), word(d, "type", "consumer")
		said := kmsg.NewConsumerMemberMetadata()
		said.Version, said.Topics, said.Rack = 3, list(d, "topics"), maybe(d, "rack")
		for _, tp := range storySet(list(d, "owned")) {
			said.OwnedPartitions = append(said.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: storyName(tp.Topic), Partitions: tp.Partitions})
		}
		metadata := said.AppendTo(nil)
		if d.HasArg("broken") {
			metadata = metadata[:3]
		}
		m.Protocols = append(m.Protocols, kmsg.JoinGroupRequestProtocol{Name: word(d, "protocol", "range"), Metadata: metadata})
		return m
	case "classic-sync":
		m := kmsg.NewPtrSyncGroupRequest()
		m.Version, m.Group, m.MemberID, m.InstanceID, m.Generation = 5, group, id, maybe(d, "instance"), int32(number(d, "gen", 1))
		m.ProtocolType, m.Protocol = kmsg.StringPtr(word(d, "type", "consumer")), kmsg.StringPtr(word(d, "protocol", "range"))
		for _, w := range list(d, "assign") { // id=a:0+a:1
			who, parts, _ := strings.Cut(w, "=")
			a := kmsg.NewConsumerMemberAssignment()
			a.Version = 3
			if d.HasArg("userdata") {
				a.UserData = []byte("x")
			}
			for _, tp := range storySet(strings.Split(parts, "+")) {
				a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: storyName(tp.Topic), Partitions: tp.Partitions})
			}
			m.GroupAssignment = append(m.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: r.ids.full(who), MemberAssignment: a.AppendTo(nil)})
		}
		return m
	case "classic-beat":
		m := kmsg.NewPtrHeartbeatRequest()
		m.Version, m.Group, m.MemberID, m.InstanceID, m.Generation = 4, group, id, maybe(d, "instance"), int32(number(d, "gen", 1))
		return m
	}
	m := kmsg.NewPtrLeaveGroupRequest()
	m.Version, m.Group, m.MemberID = int16(number(d, "v", 5)), group, id
	x := kmsg.NewLeaveGroupRequestMember()
	x.MemberID, x.InstanceID = id, maybe(d, "instance")
	m.Members = append(m.Members, x)
	return m
}

// after lets time pass: after 5s.
func (r *rig) after(d *datadriven.TestData, group string) string {
	wait, err := time.ParseDuration(d.CmdArgs[0].Key)
	if err != nil {
		d.Fatalf(r.t, "%v", err)
	}
	var b strings.Builder
	r.until(r.now.Add(wait), func(res coordinator.Result) {
		if text := r.showConsumer(res); text != "" {
			fmt.Fprintf(&b, "at %s:\n%s", r.now.Sub(r.start), text)
		}
	})
	return b.String() + r.consumerStateOf(group)
}

func (r *rig) showConsumer(res coordinator.Result) string {
	var b strings.Builder
	for _, rec := range res.Records {
		fmt.Fprintf(&b, "write %s\n", showConsumerRecord(rec))
	}
	for _, a := range res.Replies {
		fmt.Fprintf(&b, "%s\n", showConsumerResponse(a.Response))
	}
	return r.ids.shorten(b.String())
}

func showConsumerRecord(rec coordinator.Record) string {
	k, err := readConsumerKey(rec.Key)
	if err != nil || k.version < epochKey {
		return showRecord(rec)
	}
	kind := map[int16]string{epochKey: "epoch", partitionsKey: "partitions", memberKey: "member", targetEpochKey: "target-epoch", targetKey: "target", currentKey: "current", regexKey: "regex"}[k.version]
	text := strings.TrimSpace(kind + " " + k.name)
	if rec.Value == nil {
		return text + " gone"
	}
	v := reader{b: rec.Value[2:]}
	m := &consumer{}
	switch k.version {
	case epochKey, targetEpochKey:
		n, _ := readEpoch(&v)
		return fmt.Sprintf("%s %d", text, n)
	case memberKey:
		m.readMember(&v)
		text += fmt.Sprintf(" topics=%v", m.topics)
		for _, w := range [][2]string{{"regex", m.regex}, {"instance", m.instance}, {"rack", m.rack}, {"assignor", m.assignor}} {
			if w[1] != "" {
				text += " " + w[0] + "=" + w[1]
			}
		}
		if m.classic != nil {
			text += fmt.Sprintf(" classic=%s,%dms", m.classic.protocols[0].name, m.classic.sessionMs)
		}
		return text
	case targetKey:
		return text + " " + showSet(v.set())
	case currentKey:
		m.readCurrent(&v)
		return text + " " + showPlace(m)
	case regexKey:
		return fmt.Sprintf("%s %v", text, readRegex(&v).topics)
	}
	return text
}

func showPlace(m *consumer) string {
	state := [...]string{"steady", "unrevoked", "unreleased"}[m.state]
	text := fmt.Sprintf("%d<%d %s %s", m.epoch, m.previous, state, showSet(m.assigned))
	if len(m.revoking) > 0 {
		text += " revoking " + showSet(m.revoking)
	}
	return text
}

func showConsumerResponse(m any) string {
	var b strings.Builder
	switch a := m.(type) {
	case *kmsg.ConsumerGroupHeartbeatResponse:
		if a.ErrorCode != 0 {
			return fmt.Sprintf("beat %s: %s", showConsumerCode(a.ErrorCode), *a.ErrorMessage)
		}
		fmt.Fprintf(&b, "beat ok id=%s epoch=%d", *a.MemberID, a.MemberEpoch)
		if a.Assignment != nil {
			var parts []assign.TopicPartitions
			for _, t := range a.Assignment.Topics {
				parts = append(parts, assign.TopicPartitions{Topic: t.TopicID, Partitions: t.Partitions})
			}
			b.WriteString(" assignment " + showSet(assign.Of(parts)))
		}
	case *kmsg.ConsumerGroupDescribeResponse:
		for _, g := range a.Groups {
			if g.ErrorCode != 0 {
				return fmt.Sprintf("%s %s: %s", g.Group, showConsumerCode(g.ErrorCode), *g.ErrorMessage)
			}
			fmt.Fprintf(&b, "%s %s epoch=%d assignment-epoch=%d assignor=%s", g.Group, g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName)
			for _, x := range g.Members {
				fmt.Fprintf(&b, "\n  %s epoch=%d %s%s instance=%s rack=%s topics=%v regex=%s type=%d has", x.MemberID, x.MemberEpoch, x.ClientID, x.ClientHost,
					orNone(x.InstanceID), orNone(x.RackID), x.SubscribedTopics, orNone(x.SubscribedTopicRegex), x.MemberType)
				for _, t := range x.Assignment.TopicPartitions {
					fmt.Fprintf(&b, " %s%v", t.Topic, t.Partitions)
				}
				b.WriteString(" wants")
				for _, t := range x.TargetAssignment.TopicPartitions {
					fmt.Fprintf(&b, " %s%v", t.Topic, t.Partitions)
				}
			}
		}
	case *kmsg.SyncGroupResponse:
		if a.ErrorCode != 0 {
			return showResponse(m)
		}
		var got kmsg.ConsumerMemberAssignment
		if err := got.ReadFrom(a.MemberAssignment); err != nil {
			return "sync ok without an assignment"
		}
		fmt.Fprintf(&b, "sync ok v%d", got.Version)
		for _, t := range got.Topics {
			fmt.Fprintf(&b, " %s%v", t.Topic, t.Partitions)
		}
	default:
		return showResponse(m)
	}
	return b.String()
}

func showConsumerCode(c int16) string {
	if protocol.Code(c) == errInvalidRegularExpression {
		return "INVALID_REGULAR_EXPRESSION"
	}
	return showCode(c)
}

// consumerStateOf is a line for the group and one for each member.
func (r *rig) consumerStateOf(id string) string {
	g := r.s.groups[id]
	if !g.isConsumer() {
		return r.state(id)
	}
	c := g.consumers
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s epoch=%d target=%d\n", id, c.state(), c.epoch, c.targetEpoch)
	for _, m := range c.sorted() {
		fmt.Fprintf(&b, "  %s %s", m.id, showPlace(m))
		if target := c.target[m.id]; !target.Equal(m.assigned) {
			fmt.Fprintf(&b, " wants %s", showSet(target))
		}
		b.WriteString("\n")
	}
	return r.ids.shorten(b.String())
}
