package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/kbroker/kbroker/cluster"
)

// story runs one file of testdata. After each verb the image's invariants are
// checked, and each decision is made both ways.
type story struct {
	t    *testing.T
	im   *Image
	plan Plan
	// scope is what the present plan was made for; a plan that is thrown away
	// gives it back.
	scope Scope
}

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			out := s.run(d)
			if s.im != nil {
				if err := s.im.Check(); err != nil {
					t.Fatalf("%s: %v", d.Pos, err)
				}
			}
			return out
		})
	})
}

func (s *story) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "controller":
		var self, epoch int
		d.ScanArgs(s.t, "id", &self)
		d.ScanArgs(s.t, "epoch", &epoch)
		s.im = New(cluster.BrokerID(self), cluster.ControllerEpoch(epoch), Config{Listener: "PLAINTEXT"})
		s.facts(d.Input)
		return s.decide().text()
	case "facts":
		s.facts(d.Input)
		return s.decide().text()
	case "settle":
		s.settle(args(d))
		return s.decide().text()
	case "answer":
		s.answer(args(d))
		return s.decide().text()
	case "quiesce":
		return s.quiesce()
	case "alter":
		return s.alter(d.Input)
	case "elect":
		return s.elect(d.CmdArgs[0].Key, d.Input)
	case "reassign":
		return s.reassign(d.Input)
	case "elect-all":
		return s.electAll(d.CmdArgs[0].Key)
	case "stuck":
		return fmt.Sprintln(s.im.Stuck())
	case "image":
		return s.im.text()
	}
	s.t.Fatalf("%s: unknown verb %s", d.Pos, d.Cmd)
	return ""
}

func args(d *datadriven.TestData) map[string]string {
	m := map[string]string{}
	for _, a := range d.CmdArgs {
		m[a.Key] = strings.Join(a.Vals, ",")
	}
	return m
}

// decide makes the plan both ways and compares.
func (s *story) decide() Plan {
	s.restore()
	s.scope = s.im.TakeDirty()
	s.plan = DecideFor(s.im, s.scope, s.im.Due())
	if full, part := Decide(s.im).text(), s.plan.text(); full != part {
		s.t.Fatalf("looking at everything:\n%s\nlooking at what changed:\n%s", full, part)
	}
	if again := Decide(s.im).text(); again != s.plan.text() {
		s.t.Fatalf("the same image gives another plan:\n%s", again)
	}
	return s.plan
}

// restore gives back the scope of a plan that was not carried out.
func (s *story) restore() {
	for _, name := range s.scope.topics {
		s.im.dirtyTopics[name] = struct{}{}
	}
	for _, p := range s.scope.parts {
		if s.im.topics[p.topic.name] == p.topic {
			s.im.dirtyParts[p] = struct{}{}
		}
	}
	s.scope = Scope{}
}

func (s *story) settle(refuse map[string]string) {
	results := make([]Result, len(s.plan.Writes))
	for i, w := range s.plan.Writes {
		name := w.Topic
		if w.Partition != TopicOnly {
			name = w.TopicPartition().String()
		}
		if slices.Contains(strings.Split(refuse["refuse"], ","), name) {
			continue
		}
		results[i] = accepted(w)
	}
	s.scope = Scope{}
	s.im.Settle(s.plan, results)
}

// accepted is how ZooKeeper counts versions.
func accepted(w Write) Result {
	r := Result{Accepted: true}
	switch w.Kind {
	case SetState:
		r.Version = w.State.ZKVersion + 1
	case SetTopicID, SetAssignment:
		r.Version = w.Version + 1
	}
	return r
}

func (s *story) answer(a map[string]string) {
	ans := Answer{Partitions: map[cluster.TopicPartition]int16{}}
	from := cluster.NoBroker
	for k, v := range a {
		switch n, _ := strconv.Atoi(v); k {
		case "from":
			from = cluster.BrokerID(n)
		case "error":
			ans.Error = int16(n)
		default:
			ans.Partitions[parsePartition(k)] = int16(n)
		}
	}
	for _, send := range s.plan.Sends {
		if from == cluster.NoBroker || from == send.Broker {
			s.im.Answered(send, ans)
		}
	}
}

// quiesce carries out plans, everything accepted, until none is left, and
// prints them.
func (s *story) quiesce() string {
	var b strings.Builder
	for round := 1; ; round++ {
		if round > 20 {
			s.t.Fatalf("no end of plans:\n%s", b.String())
		}
		plan := s.decide()
		if plan.Empty() {
			return b.String() + s.im.text()
		}
		fmt.Fprintf(&b, "%s--\n", plan.text())
		for _, name := range plan.Asks {
			s.im.ConfigRead(name, TopicConfig{MinISR: 1})
		}
		s.settle(nil)
		s.answer(nil)
		if err := s.im.Check(); err != nil {
			s.t.Fatalf("after %s: %v", plan.text(), err)
		}
	}
}

func (s *story) alter(input string) string {
	var b strings.Builder
	s.restore()
	plan := Plan{Epoch: s.im.epoch}
	for line := range strings.Lines(input) {
		f := fields(line)
		a := Alter{
			Partition: parsePartition(f["partition"]), Sender: cluster.BrokerID(num(f["from"])),
			LeaderEpoch: cluster.LeaderEpoch(num(f["epoch"])), Version: cluster.ZKVersion(num(f["v"])),
			ISR: brokerList(f["isr"]), Recovery: cluster.RecoveryState(num(f["recovery"])), Epochs: epochList(f["epochs"]),
		}
		w, write, code := s.im.Alter(a)
		switch {
		case write:
			plan.Writes = append(plan.Writes, w)
			fmt.Fprintf(&b, "write %s\n", w.text())
		case code == codeNone:
			fmt.Fprintf(&b, "is so\n")
		default:
			fmt.Fprintf(&b, "error %d\n", code)
		}
	}
	s.plan = plan
	if len(plan.Writes) > 0 {
		s.settle(nil)
		b.WriteString(s.decide().text())
	}
	return b.String()
}

func (s *story) elect(kind, input string) string {
	k := PreferredElection
	if kind == "unclean" {
		k = UncleanElection
	}
	var b strings.Builder
	for name := range strings.FieldsSeq(input) {
		tp := parsePartition(name)
		fmt.Fprintf(&b, "%s error %d\n", name, s.im.Elect(k, []cluster.TopicPartition{tp})[tp])
	}
	return b.String() + s.decide().text()
}

// electAll is for all partitions that there are.
func (s *story) electAll(kind string) string {
	var names []string
	for _, tp := range s.im.AllPartitions() {
		names = append(names, tp.String())
	}
	return s.elect(kind, strings.Join(names, " "))
}

// reassign: NAME-N to=1,2 or NAME-N cancel.
func (s *story) reassign(input string) string {
	var b strings.Builder
	for line := range strings.Lines(input) {
		w := strings.Fields(line)
		to := brokerList(fields(line)["to"])
		if to == nil && w[1] != "cancel" {
			to = []cluster.BrokerID{}
		}
		code, why := s.im.Reassign(parsePartition(w[0]), to)
		fmt.Fprintf(&b, "%s error %d", w[0], code)
		if why != "" {
			fmt.Fprintf(&b, ": %s", why)
		}
		b.WriteString("\n")
	}
	return b.String() + s.decide().text()
}

// facts are lines: verb, name, key=value….
func (s *story) facts(input string) {
	for line := range strings.Lines(input) {
		if w := strings.Fields(line); len(w) > 0 {
			s.fact(w, fields(line))
		}
	}
}

func (s *story) fact(w []string, f map[string]string) {
	switch w[0] {
	case "broker":
		id := num(w[1])
		port := int32(9000 + id)
		if f["port"] != "" {
			port = int32(num(f["port"]))
		}
		s.im.BrokerStarted(Broker{ID: cluster.BrokerID(id), Epoch: cluster.BrokerEpoch(num(f["epoch"])),
			Endpoints: []Endpoint{{Listener: "PLAINTEXT", Host: "h" + w[1], Port: port}}, Unclean: slices.Contains(w, "unclean")})
	case "gone":
		s.im.BrokerGone(cluster.BrokerID(num(w[1])))
	case "leaving":
		s.im.BrokerLeaving(cluster.BrokerID(num(w[1])))
	case "silent":
		s.im.BrokerSilent(cluster.BrokerID(num(w[1])))
	case "logdir":
		s.im.LogDirFailed(cluster.BrokerID(num(w[1])))
	case "topic":
		s.im.TopicRead(topicFact(w, f))
	case "topicgone":
		s.im.TopicGone(w[1])
	case "state":
		s.im.StateRead(parsePartition(w[1]), cluster.LeaderAndISR{
			Leader: cluster.BrokerID(num(f["leader"])), LeaderEpoch: cluster.LeaderEpoch(num(f["epoch"])),
			ISR: brokerList(f["isr"]), ControllerEpoch: cluster.ControllerEpoch(num(f["c"])), ZKVersion: cluster.ZKVersion(num(f["v"])),
			History: historyFact(f),
		})
	case "deletions":
		s.im.DeletionsRead(w[1:])
	case "unclean":
		s.im.ConfigRead(w[1], TopicConfig{Unclean: f["is"] == "true", MinISR: num(f["min"])})
	default:
		s.t.Fatalf("unknown fact %q", w)
	}
}

func epochList(s string) []cluster.BrokerEpoch {
	var list []cluster.BrokerEpoch
	for part := range strings.SplitSeq(s, ",") {
		if part != "" {
			list = append(list, cluster.BrokerEpoch(num(part)))
		}
	}
	return list
}

// historyFact: joined=10,20 left=3/1,4 moving=yes.
func historyFact(f map[string]string) *cluster.ISRHistory {
	if f["joined"] == "" {
		return nil
	}
	h := &cluster.ISRHistory{Joined: epochList(f["joined"]), Moving: f["moving"] != ""}
	for group := range strings.SplitSeq(f["left"], "/") {
		if group != "" {
			h.Left = append(h.Left, brokerList(group))
		}
	}
	return h
}

// topicFact: topic NAME v=0 id=1 0=1,2 1=2,1; id=none has none. 0=3,1,2/+3/-2 is
// being reassigned.
func topicFact(w []string, f map[string]string) Topic {
	t := Topic{Name: w[1], Version: cluster.ZKVersion(num(f["v"])), Partitions: map[int32]cluster.Assignment{}}
	if f["id"] == "none" {
		t.Proposed = cluster.TopicID{15: 77}
	} else {
		t.ID = topicIDFor(w[1], num(f["id"]))
	}
	for k, v := range f {
		if n, err := strconv.Atoi(k); err == nil {
			part := strings.Split(v, "/")
			a := cluster.Assignment{Replicas: brokerList(part[0])}
			for _, p := range part[1:] {
				if p[0] == '+' {
					a.Adding = brokerList(p[1:])
				} else {
					a.Removing = brokerList(p[1:])
				}
			}
			t.Partitions[int32(n)] = a
		}
	}
	return t
}

func topicIDFor(name string, n int) cluster.TopicID {
	id := cluster.TopicID{15: byte(n + 1)}
	copy(id[:14], name)
	return id
}

func fields(line string) map[string]string {
	m := map[string]string{}
	for _, w := range strings.Fields(line) {
		if k, v, ok := strings.Cut(w, "="); ok {
			m[k] = v
		}
	}
	return m
}

func num(s string) int {
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func brokerList(s string) []cluster.BrokerID {
	var list []cluster.BrokerID
	for part := range strings.SplitSeq(s, ",") {
		if part != "" {
			list = append(list, cluster.BrokerID(num(part)))
		}
	}
	return list
}

func parsePartition(s string) cluster.TopicPartition {
	i := strings.LastIndexByte(s, '-')
	return cluster.TopicPartition{Topic: s[:i], Partition: int32(num(s[i+1:]))}
}
