package group

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestStories runs the stories of the classic protocol and of offsets. A step
// prints what is written, what is answered (the number is that of the request)
// and how the group is left.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/classic", func(t *testing.T, path string) {
		r := newRig(t, testConfig(), 7)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r.t = t
			return r.step(d)
		})
	})
}

// word is an argument, or what it is when it is not given.
func word(d *datadriven.TestData, key, or string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return or
}

func number(d *datadriven.TestData, key string, or int64) int64 {
	n, err := strconv.ParseInt(word(d, key, fmt.Sprint(or)), 10, 64)
	if err != nil {
		d.Fatalf(nil, "%s: %v", key, err)
	}
	return n
}

func maybe(d *datadriven.TestData, key string) *string {
	if !d.HasArg(key) {
		return nil
	}
	w := word(d, key, "")
	return &w
}

// list is key=(a,b).
func list(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func (r *rig) step(d *datadriven.TestData) string {
	group := word(d, "group", "g")
	q := coordinator.Request{ClientID: word(d, "client", "c"), ClientHost: "/10.0.0.1"}
	switch d.Cmd {
	case "new": // a new shard with another configuration
		c := testConfig()
		c.MaxSize = int(number(d, "max-size", 1<<30))
		c.MaxMessageBytes = int(number(d, "max-message", 1<<20))
		c.MaxOffsetMetadata = int(number(d, "max-metadata", 4096))
		c.InitialRebalanceDelay = millis(int32(number(d, "initial-delay", 3000)))
		c.OffsetsRetention = time.Duration(number(d, "retention-minutes", 7*24*60)) * time.Minute
		*r = *newRig(r.t, c, 7)
		return ""
	case "form": // a stable group of members=(a,b) with everybody's name for an assignment
		return r.form(d, group)
	case "join":
		q.Msg = r.joinOf(d, group)
	case "sync":
		m := kmsg.NewPtrSyncGroupRequest()
		m.Version = int16(number(d, "v", 5))
		m.Group, m.MemberID, m.InstanceID = group, r.ids.full(word(d, "id", "")), maybe(d, "instance")
		m.Generation = int32(number(d, "gen", 1))
		m.ProtocolType, m.Protocol = kmsg.StringPtr(word(d, "type", "consumer")), kmsg.StringPtr(word(d, "protocol", "range"))
		if m.Version < 5 || d.HasArg("no-protocol") {
			m.ProtocolType, m.Protocol = nil, nil
		}
		for _, a := range list(d, "assign") { // id:text
			id, text, _ := strings.Cut(a, ":")
			m.GroupAssignment = append(m.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: r.ids.full(id), MemberAssignment: []byte(text)})
		}
		q.Msg = m
	case "heartbeat":
		m := kmsg.NewPtrHeartbeatRequest()
		m.Group, m.MemberID, m.InstanceID, m.Generation = group, r.ids.full(word(d, "id", "")), maybe(d, "instance"), int32(number(d, "gen", 1))
		q.Msg = m
	case "leave":
		m := kmsg.NewPtrLeaveGroupRequest()
		m.Version, m.Group = int16(number(d, "v", 5)), group
		m.MemberID = r.ids.full(word(d, "id", ""))
		for _, who := range list(d, "members") { // id/instance
			id, instance, static := strings.Cut(who, "/")
			x := kmsg.NewLeaveGroupRequestMember()
			x.MemberID = r.ids.full(id)
			if static {
				x.InstanceID = &instance
			}
			m.Members = append(m.Members, x)
		}
		q.Msg = m
	case "commit":
		q.Msg = r.commitOf(d, group)
	case "txn-commit": // records of an open transaction
		m := r.commitOf(d, group)
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				c := commit{offset: p.Offset, epoch: -1, committed: r.now.UnixMilli(), expires: never}
				rec := offsetRecord(group, t.Topic, p.Partition, c)
				if d.HasArg("take-back") {
					rec.Value = nil
				}
				r.append(rec, cluster.ProducerID(number(d, "producer", 1)))
			}
		}
		r.check()
		return r.ids.shorten(r.s.Dump())
	case "marker":
		r.mark(cluster.ProducerID(number(d, "producer", 1)), d.HasArg("committed"))
		return r.ids.shorten(r.s.Dump())
	case "offsets":
		m := kmsg.NewPtrOffsetFetchRequest()
		m.RequireStable = d.HasArg("stable")
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = group
		for _, p := range list(d, "partitions") {
			topic, id := tp(p)
			g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: []int32{id}})
		}
		m.Groups = append(m.Groups, g)
		q.Msg, q.ReadOnly = m, true
	case "delete-offsets":
		m := kmsg.NewPtrOffsetDeleteRequest()
		m.Group = group
		for _, p := range list(d, "partitions") {
			topic, id := tp(p)
			m.Topics = append(m.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: id}}})
		}
		q.Msg = m
	case "describe":
		m := kmsg.NewPtrDescribeGroupsRequest()
		m.Groups = []string{group}
		q.Msg, q.ReadOnly = m, true
	case "list":
		m := kmsg.NewPtrListGroupsRequest()
		m.StatesFilter, m.TypesFilter = list(d, "states"), list(d, "types")
		q.Msg, q.ReadOnly = m, true
	case "delete":
		m := kmsg.NewPtrDeleteGroupsRequest()
		m.Groups = list(d, "groups")
		q.Msg = m
	case "topics-deleted":
		_, res := r.askEvent(TopicsDeleted{Topics: list(d, "topics")})
		return r.show(res)
	case "after": // lets time pass; a line per step that does anything
		var b strings.Builder
		took, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			r.t.Fatal(err)
		}
		r.until(r.now.Add(took), func(res coordinator.Result) {
			if text := r.show(res); text != "" {
				fmt.Fprintf(&b, "at %s:\n%s", r.now.Sub(r.start), text)
			}
		})
		return b.String() + r.state(group)
	case "shrink": // the group may be smaller from now on
		r.s.config.MaxSize = int(number(d, "max-size", 0))
		r.config = r.s.config
		return r.show(r.restart(99)) + r.state(group)
	case "restart":
		return r.show(r.restart(99)) + r.state(group)
	case "dump":
		return r.ids.shorten(r.s.Dump())
	default:
		r.t.Fatalf("%s: unknown verb %q", d.Pos, d.Cmd)
	}
	token, res := r.ask(q)
	out := r.show(res)
	if !strings.Contains(out, fmt.Sprintf("%d: ", token)) {
		out += fmt.Sprintf("%d waits\n", token)
	}
	if q.ReadOnly {
		return out
	}
	return out + r.state(group)
}

// form makes a stable group out of new members of version 3, who are not asked
// to come twice.
func (r *rig) form(d *datadriven.TestData, group string) string {
	members := list(d, "members")
	for _, name := range members {
		m := r.joinOf(d, group)
		m.Version = 3
		_, res := r.ask(coordinator.Request{Msg: m, ClientID: name, ClientHost: "/10.0.0.1"})
		r.show(res) // learns the ids
	}
	r.until(r.now.Add(r.config.InitialRebalanceDelay*time.Duration(len(members))), func(res coordinator.Result) { r.show(res) })
	c := &r.s.groups[group].classic
	order := append([]*member(nil), c.order...)
	for i := range order {
		x := order[len(order)-1-i] // the leader is the last
		m := kmsg.NewPtrSyncGroupRequest()
		m.Version, m.Group, m.MemberID, m.Generation = 4, group, x.id, c.generation
		for _, o := range order {
			m.GroupAssignment = append(m.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: o.id, MemberAssignment: []byte(o.clientID)})
		}
		r.ask(coordinator.Request{Msg: m})
	}
	return r.state(group)
}

// askEvent tells the shard of something that nobody waits for.
func (r *rig) askEvent(e any) (coordinator.Token, coordinator.Result) {
	return 0, r.took(r.s.Handle(r.now, coordinator.Request{Msg: e}))
}

func (r *rig) joinOf(d *datadriven.TestData, group string) *kmsg.JoinGroupRequest {
	m := kmsg.NewPtrJoinGroupRequest()
	m.Version = int16(number(d, "v", 9))
	m.Group, m.MemberID, m.InstanceID = group, r.ids.full(word(d, "id", "")), maybe(d, "instance")
	m.SessionTimeoutMillis = int32(number(d, "session", 10_000))
	m.RebalanceTimeoutMillis = int32(number(d, "rebalance", 60_000))
	m.ProtocolType = word(d, "type", "consumer")
	ps := list(d, "protocols") // name:topics, the topics with a plus between them
	if ps == nil {
		ps = []string{"range:t"}
	}
	for _, p := range ps {
		name, topics, _ := strings.Cut(p, ":")
		m.Protocols = append(m.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: subscribes(strings.Split(topics, "+")...)})
	}
	if d.HasArg("no-protocols") {
		m.Protocols = nil
	}
	return m
}

// subscribes is a consumer's subscription; "?" is none that can be read.
func subscribes(topics ...string) []byte {
	if len(topics) == 1 && topics[0] == "?" {
		return []byte("?")
	}
	b := []byte{0, 1, 0, 0, 0, byte(len(topics))}
	for _, t := range topics {
		b = appendText(b, t)
	}
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0) // no user data, nothing owned
}

// commitOf takes offsets=(t-0:5,...).
func (r *rig) commitOf(d *datadriven.TestData, group string) *kmsg.OffsetCommitRequest {
	m := kmsg.NewPtrOffsetCommitRequest()
	m.Version = int16(number(d, "v", 9))
	m.Group, m.MemberID, m.InstanceID = group, r.ids.full(word(d, "id", "")), maybe(d, "instance")
	m.Generation = int32(number(d, "gen", -1))
	m.RetentionTimeMillis = number(d, "retention", -1)
	for _, o := range list(d, "offsets") {
		where, offset, _ := strings.Cut(o, ":")
		topic, id := tp(where)
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition = id
		p.Offset, _ = strconv.ParseInt(offset, 10, 64)
		p.LeaderEpoch = int32(number(d, "epoch", -1))
		p.Timestamp = number(d, "timestamp", -1)
		if d.HasArg("metadata") {
			p.Metadata = maybe(d, "metadata")
		}
		m.Topics = append(m.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}})
	}
	return m
}

// tp reads topic-partition.
func tp(text string) (string, int32) {
	topic, id, _ := strings.Cut(text, "-")
	n, _ := strconv.Atoi(id)
	return topic, int32(n)
}
