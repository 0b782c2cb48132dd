package group

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rig is the driver of one shard, in memory: a log, a clock, and a check after
// every step that the shard is what a replay of its log gives.
type rig struct {
	t      testing.TB
	config Config
	s      *Shard
	start  time.Time
	now    time.Time
	log    []logged
	offset cluster.Offset
	token  coordinator.Token
	ids    shortIDs
	// checked is what was compared last.
	checked struct {
		records int
		dump    string
	}
	replay bool // compare with a replay after each step
}

// logged is a record or a marker.
type logged struct {
	entry     coordinator.Entry
	marker    bool
	producer  cluster.ProducerID
	committed bool
}

func testConfig() Config {
	return Config{
		MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute, InitialRebalanceDelay: 3 * time.Second,
		MaxSize: 1 << 30, MaxOffsetMetadata: 4096, OffsetsRetention: 7 * 24 * time.Hour,
		RetentionCheckInterval: 10 * time.Minute, MaxMessageBytes: 1 << 20,
	}
}

func newRig(t testing.TB, config Config, seed uint64) *rig {
	r := &rig{t: t, config: config, start: time.UnixMilli(1_000_000), replay: true}
	r.now = r.start
	r.s = New(config, seed)
	r.took(r.s.Loaded(r.now))
	return r
}

// ask hands the shard a request. What it has an answer to at once is what it would
// have handled so.
func (r *rig) ask(q coordinator.Request) (coordinator.Token, coordinator.Result) {
	r.t.Helper()
	r.token++
	q.Token = r.token
	answer, ok := r.s.Answer(r.now, q.Msg)
	res := r.s.Handle(r.now, q)
	if ok && (len(res.Records) > 0 || !reflect.DeepEqual(res.Replies, []coordinator.Reply{{Token: q.Token, Response: answer}})) {
		r.t.Fatalf("%+v at once: %+v; handled: %+v", q.Msg, answer, res)
	}
	return r.token, r.took(res)
}

// took appends what a step wants written and replays it.
func (r *rig) took(res coordinator.Result) coordinator.Result {
	for _, rec := range res.Records {
		r.append(rec, cluster.NoProducerID)
	}
	r.check()
	return res
}

func (r *rig) append(rec coordinator.Record, producer cluster.ProducerID) {
	r.t.Helper()
	e := coordinator.Entry{Record: rec, Offset: r.offset, TimestampMs: r.now.UnixMilli(), Producer: producer}
	r.offset++
	r.log = append(r.log, logged{entry: e})
	if err := r.s.Apply(e); err != nil {
		r.t.Fatalf("applying what the shard wrote: %v", err)
	}
}

func (r *rig) mark(producer cluster.ProducerID, committed bool) {
	r.offset++
	r.log = append(r.log, logged{marker: true, producer: producer, committed: committed})
	r.s.ApplyMarker(producer, 0, committed)
	r.check()
}

// replayed is a fresh shard with the log in it.
func (r *rig) replayed(seed uint64) *Shard {
	s := New(r.config, seed)
	for _, l := range r.log {
		if l.marker {
			s.ApplyMarker(l.producer, 0, l.committed)
		} else if err := s.Apply(l.entry); err != nil {
			r.t.Fatalf("replay: %v", err)
		}
	}
	return s
}

func (r *rig) check() {
	r.t.Helper()
	if err := r.s.Check(); err != nil {
		r.t.Fatalf("after a step: %v", err)
	}
	if !r.replay {
		return
	}
	got := r.s.Dump()
	if len(r.log) == r.checked.records && got == r.checked.dump {
		return // as it was, and so is the log
	}
	r.checked.records, r.checked.dump = len(r.log), got
	if want := r.replayed(1).Dump(); got != want {
		r.t.Fatalf("durable state is not what its records replay to:\n%s\nreplayed:\n%s", got, want)
	}
	r.checkOffsets()
}

// checkOffsets compares the offsets with what the log says, read the slow way.
func (r *rig) checkOffsets() {
	r.t.Helper()
	committed := map[string]logged{}
	pending := map[cluster.ProducerID][]logged{}
	for _, l := range r.log {
		key := string(l.entry.Key)
		switch {
		case l.marker && l.committed:
			for _, p := range pending[l.producer] {
				if old, ok := committed[string(p.entry.Key)]; !ok || old.entry.Offset < p.entry.Offset {
					committed[string(p.entry.Key)] = p
				}
			}
			fallthrough
		case l.marker:
			delete(pending, l.producer)
		case binary.BigEndian.Uint16(l.entry.Key) != offsetKey:
		case l.entry.Producer != cluster.NoProducerID:
			ps := slices.DeleteFunc(pending[l.entry.Producer], func(p logged) bool { return string(p.entry.Key) == key })
			if l.entry.Value != nil {
				ps = append(ps, l)
			}
			pending[l.entry.Producer] = ps
		case l.entry.Value == nil:
			delete(committed, key)
			for id := range pending {
				pending[id] = slices.DeleteFunc(pending[id], func(p logged) bool { return string(p.entry.Key) == key })
			}
		default:
			committed[key] = l
		}
	}
	n := 0
	for _, g := range r.s.groups {
		n += g.count
	}
	for key, l := range committed {
		id, topic, part, _ := readOffsetKey([]byte(key[2:]))
		want, _, _ := readCommit(l.entry.Value)
		g := r.s.groups[string(id)]
		if g == nil {
			r.t.Fatalf("%s has an offset in the log but is not there", id)
		}
		if c, ok := g.offset(partition{string(topic), part}); !ok || c.offset != want.offset || c.at != l.entry.Offset {
			r.t.Fatalf("%s %s-%d: %v, want %d of the record at %d", id, topic, part, c, want.offset, l.entry.Offset)
		}
	}
	if n != len(committed) {
		r.t.Fatalf("%d offsets, %d in the log", n, len(committed))
	}
}

// restart loads the log into a new shard, as a new leader does.
func (r *rig) restart(seed uint64) coordinator.Result {
	r.s = r.replayed(seed)
	return r.took(r.s.Loaded(r.now))
}

// until lets the time pass, step by step, and hands on what each step does.
func (r *rig) until(end time.Time, each func(coordinator.Result)) {
	for {
		at, ok := r.s.NextDeadline()
		if !ok || at.After(end) {
			break
		}
		if at.After(r.now) {
			r.now = at
		}
		each(r.took(r.s.Expire(r.now)))
		if next, ok := r.s.NextDeadline(); ok && !next.After(r.now) {
			r.t.Fatalf("Expire leaves what is due")
		}
	}
	r.now = end
}

// shortIDs are the short forms of member ids in stories: client#2 for client-UUID.
type shortIDs struct {
	short, long map[string]string
	n           map[string]int
}

var uuids = regexp.MustCompile(`[A-Za-z0-9.]+-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

func (n *shortIDs) shorten(text string) string {
	return uuids.ReplaceAllStringFunc(text, func(id string) string {
		if n.short == nil {
			n.short, n.long, n.n = map[string]string{}, map[string]string{}, map[string]int{}
		}
		if n.short[id] == "" {
			prefix := id[:len(id)-37]
			n.n[prefix]++
			n.short[id] = fmt.Sprintf("%s#%d", prefix, n.n[prefix])
			n.long[n.short[id]] = id
		}
		return n.short[id]
	})
}

func (n *shortIDs) full(short string) string {
	if id := n.long[short]; id != "" {
		return id
	}
	return short
}

// show prints what a step did.
func (r *rig) show(res coordinator.Result) string {
	var b strings.Builder
	for _, rec := range res.Records {
		fmt.Fprintf(&b, "write %s\n", showRecord(rec))
	}
	for _, a := range res.Replies {
		fmt.Fprintf(&b, "%d: %s\n", a.Token, showResponse(a.Response))
	}
	return r.ids.shorten(b.String())
}

func showRecord(rec coordinator.Record) string {
	if binary.BigEndian.Uint16(rec.Key) == metaKey {
		id := string(rec.Key[4:])
		if rec.Value == nil {
			return id + " gone"
		}
		m, err := readMeta(rec.Value)
		if err != nil {
			return err.Error()
		}
		t := fmt.Sprintf("%s gen=%d type=%s protocol=%s leader=%s", id, m.generation, m.protocolType, orNone(m.protocol), orNone(m.leader))
		for _, x := range m.members {
			t += fmt.Sprintf(" %s=%q", x.id, x.assignment)
		}
		return t
	}
	id, topic, part, err := readOffsetKey(rec.Key[2:])
	if err != nil {
		return err.Error()
	}
	if rec.Value == nil {
		return fmt.Sprintf("%s %s-%d gone", id, topic, part)
	}
	c, metadata, err := readCommit(rec.Value)
	if err != nil {
		return err.Error()
	}
	t := fmt.Sprintf("%s %s-%d offset=%d", id, topic, part, c.offset)
	if c.epoch >= 0 {
		t += fmt.Sprintf(" epoch=%d", c.epoch)
	}
	if len(metadata) > 0 {
		t += fmt.Sprintf(" metadata=%.20q", metadata)
	}
	t += fmt.Sprintf(" committed=%d", c.committed)
	if c.expires != never {
		t += fmt.Sprintf(" expires=%d", c.expires)
	}
	return t
}

func showCode(c int16) string {
	if c == 0 {
		return "ok"
	}
	return protocol.Code(c).Error()
}

// showMetadata prints a subscription's topics.
func showMetadata(b []byte) string {
	if topics, ok := subscription(b); ok {
		return fmt.Sprint(topics)
	}
	return strconv.Quote(string(b))
}

func showResponse(m any) string {
	var b strings.Builder
	switch a := m.(type) {
	case *kmsg.JoinGroupResponse:
		b.WriteString("join " + showCode(a.ErrorCode))
		if a.ErrorCode == 0 {
			fmt.Fprintf(&b, " gen=%d %s/%s leader=%s", a.Generation, orNone(a.ProtocolType), orNone(a.Protocol), a.LeaderID)
		}
		fmt.Fprintf(&b, " id=%s", a.MemberID)
		if a.SkipAssignment {
			b.WriteString(" skip-assignment")
		}
		for _, x := range a.Members {
			fmt.Fprintf(&b, " %s=%s", x.MemberID, showMetadata(x.ProtocolMetadata))
		}
	case *kmsg.SyncGroupResponse:
		b.WriteString("sync " + showCode(a.ErrorCode))
		if a.ErrorCode == 0 {
			fmt.Fprintf(&b, " %s/%s %q", orNone(a.ProtocolType), orNone(a.Protocol), a.MemberAssignment)
		}
	case *kmsg.HeartbeatResponse:
		b.WriteString("heartbeat " + showCode(a.ErrorCode))
	case *kmsg.LeaveGroupResponse:
		b.WriteString("leave " + showCode(a.ErrorCode))
		for _, x := range a.Members {
			fmt.Fprintf(&b, " %s/%s=%s", x.MemberID, orNone(x.InstanceID), showCode(x.ErrorCode))
		}
	case *kmsg.OffsetCommitResponse:
		b.WriteString("commit")
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d=%s", t.Topic, p.Partition, showCode(p.ErrorCode))
			}
		}
	case *kmsg.OffsetDeleteResponse:
		b.WriteString("delete-offsets " + showCode(a.ErrorCode))
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d=%s", t.Topic, p.Partition, showCode(p.ErrorCode))
			}
		}
	case *kmsg.OffsetFetchResponse:
		for _, g := range a.Groups {
			fmt.Fprintf(&b, "offsets of %s %s", g.Group, showCode(g.ErrorCode))
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					fmt.Fprintf(&b, " %s-%d=%d", t.Topic, p.Partition, p.Offset)
					if p.LeaderEpoch >= 0 {
						fmt.Fprintf(&b, "@%d", p.LeaderEpoch)
					}
					if *p.Metadata != "" {
						fmt.Fprintf(&b, "(%.20s)", *p.Metadata)
					}
					if p.ErrorCode != 0 {
						b.WriteString(":" + showCode(p.ErrorCode))
					}
				}
			}
		}
	case *kmsg.DescribeGroupsResponse:
		for _, g := range a.Groups {
			fmt.Fprintf(&b, "%s %s %s type=%q protocol=%q", g.Group, showCode(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
			for _, x := range g.Members {
				fmt.Fprintf(&b, "\n   %s instance=%s %s%s metadata=%s assignment=%q", x.MemberID, orNone(x.InstanceID), x.ClientID, x.ClientHost, showMetadata(x.ProtocolMetadata), x.MemberAssignment)
			}
		}
	case *kmsg.ListGroupsResponse:
		b.WriteString("groups " + showCode(a.ErrorCode))
		for _, g := range a.Groups {
			fmt.Fprintf(&b, " %s(%s %s %s)", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
		}
	case *kmsg.DeleteGroupsResponse:
		b.WriteString("delete")
		for _, g := range a.Groups {
			fmt.Fprintf(&b, " %s=%s", g.Group, showCode(g.ErrorCode))
		}
	default:
		fmt.Fprintf(&b, "%T", m)
	}
	return b.String()
}

// state prints a group's live part.
func (r *rig) state(id string) string {
	g := r.s.groups[id]
	if g == nil {
		return id + ": not there\n"
	}
	c := &g.classic
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s gen=%d", id, c.state, c.generation)
	for _, x := range c.order {
		fmt.Fprintf(&b, " %s", x.id)
		if x.id == c.leader {
			b.WriteString("*")
		}
		if x.join != coordinator.NoToken {
			b.WriteString(" joins")
		}
		if x.sync != coordinator.NoToken {
			b.WriteString(" syncs")
		}
		if x.owes {
			b.WriteString(" owes")
		}
	}
	if len(c.pending) > 0 {
		fmt.Fprintf(&b, " pending=%d", len(c.pending))
	}
	return r.ids.shorten(b.String()) + "\n"
}
