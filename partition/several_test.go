package partition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/sim"
	"github.com/kbroker/kbroker/partition"
)

// TestSeveral runs the stories of several replicas of one partition, each with
// a log of its own. A step prints what happened and then every replica. Check
// runs on all of them after every step.
func TestSeveral(t *testing.T) {
	datadriven.Walk(t, "testdata/several", func(t *testing.T, path string) {
		var s *stage
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "replicas" {
				s = newStage(ids(t, d, "ids"))
			}
			s.out.Reset()
			s.step(t, d)
			if d.HasArg("quiet") {
				return s.out.String() + "ok\n"
			}
			return s.out.String() + s.show(t, d)
		})
	})
}

// stage is where a story plays.
type stage struct {
	out      strings.Builder
	ids      []cluster.BrokerID
	replicas map[cluster.BrokerID]*sim.Replica // nil while down
	disks    map[cluster.BrokerID]sim.Log      // of those that are down
	state    cluster.LeaderAndISR              // as last told
	minISR   int32
	now      partition.Time
	nextID   int32
	parked   []held
	held     map[string]held
	proposed map[cluster.BrokerID]partition.Proposal
	writes   []write
}

// held is a request, or an answer to it, that is on its way.
type held struct {
	to     cluster.BrokerID
	fetch  sim.Fetch
	answer *sim.Fetched
}

// write is an acks=all produce that waits for HW.
type write struct {
	leader cluster.BrokerID
	at     cluster.Offset
}

func newStage(all []cluster.BrokerID) *stage {
	s := &stage{ids: all, replicas: map[cluster.BrokerID]*sim.Replica{}, disks: map[cluster.BrokerID]sim.Log{}, minISR: 1,
		held: map[string]held{}, proposed: map[cluster.BrokerID]partition.Proposal{}}
	for _, id := range all {
		s.open(id, sim.Log{}, 0)
	}
	return s
}

func (s *stage) open(id cluster.BrokerID, log sim.Log, hw cluster.Offset) {
	r := sim.NewReplica(id, log, hw)
	r.State.EligibleChanged(s.ids, s.now)
	r.State.MinISRChanged(s.minISR)
	s.replicas[id] = r
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *stage) step(t *testing.T, d *datadriven.TestData) {
	if d.HasArg("now") {
		s.now = partition.Time(time.Duration(num(t, d, "now")) * time.Millisecond)
	}
	switch d.Cmd {
	case "replicas", "state":
	case "min-isr":
		s.minISR = int32(num(t, d, "n"))
		s.each(func(r *sim.Replica) { s.effects(r, r.State.MinISRChanged(s.minISR)) })
	case "live":
		live := ids(t, d, "ids")
		s.each(func(r *sim.Replica) { s.effects(r, r.State.EligibleChanged(live, s.now)) })
	case "lead": // a LeaderAndIsr to all replicas that are up, or to those in to=
		s.lead(t, d)
	case "write": // b=1 n=1 [acks-all]
		s.write(t, d)
	case "fetch": // b=2 [limit=1] [hold=name] [hold-answer=name]
		s.fetch(t, d)
	case "unfenced": // the leader answers as one that does not look at CurrentLeaderEpoch
		r := s.up(t, d)
		f := r.NextFetch()
		to := s.replicas[s.state.Leader]
		ask := f
		ask.Current = cluster.NoLeaderEpoch
		a := to.Serve(ask, 1000, s.now)
		s.take(held{to: to.Self, fetch: f, answer: &a})
	case "arrive": // what was held goes on
		s.arrive(s.held[d.CmdArgs[0].Key])
	case "time-out": // a parked fetch is completed by force
		s.timeOut(t, d)
	case "tick":
		r := s.up(t, d)
		s.effects(r, r.State.Tick(s.now))
	case "settle": // b=1 accepted|reverted|unknown
		s.settle(t, d)
	case "checkpoint-log": // everything that b has is durable
		s.up(t, d).Log.Sync()
	case "crash": // b=1 [keep=N]: what follows N was not synced, and is lost
		s.crash(t, d)
	case "start": // b=1 hw=N, as checkpointed
		id := s.broker(t, d)
		s.open(id, s.disks[id], cluster.Offset(num(t, d, "hw")))
	case "wipe": // the disk of a broker that is down is replaced
		s.disks[s.broker(t, d)] = sim.Log{}
	case "compare": // a=1 b=2
		s.compare(t, d)
	default:
		t.Fatalf("%s: unknown verb %q", d.Pos, d.Cmd)
	}
}

func (s *stage) each(f func(*sim.Replica)) {
	for _, id := range s.ids {
		if r := s.replicas[id]; r != nil {
			f(r)
		}
	}
}

func (s *stage) lead(t *testing.T, d *datadriven.TestData) {
	s.state = cluster.LeaderAndISR{Leader: cluster.BrokerID(num(t, d, "b")), LeaderEpoch: cluster.LeaderEpoch(num(t, d, "epoch")),
		ISR: ids(t, d, "isr"), ZKVersion: cluster.ZKVersion(num(t, d, "epoch"))}
	to := s.ids
	if d.HasArg("to") {
		to = ids(t, d, "to")
	}
	for _, id := range to {
		r := s.replicas[id]
		if r == nil {
			continue
		}
		a := cluster.Assignment{Replicas: s.ids}
		if id == s.state.Leader {
			e, err := r.Lead(s.state, a, s.now)
			s.failed(id, err)
			s.effects(r, e)
		} else {
			s.failed(id, r.Follow(s.state, a))
		}
		s.writes = slices.DeleteFunc(s.writes, func(w write) bool {
			if w.leader == id && id != s.state.Leader {
				s.say("acks=all write at %d is answered NOT_LEADER_OR_FOLLOWER", w.at)
				return true
			}
			return false
		})
	}
	s.wake()
}

func (s *stage) failed(id cluster.BrokerID, err error) {
	if err != nil {
		s.say("b%d: %v", id, err)
	}
}

func (s *stage) write(t *testing.T, d *datadriven.TestData) {
	r := s.up(t, d)
	n := int64(1)
	if d.HasArg("n") {
		n = num(t, d, "n")
	}
	all := partition.Effects{HWFrom: r.State.HW()}
	for range n {
		s.nextID++
		at, e, err := r.Write(s.nextID, d.HasArg("acks-all"))
		if err != nil {
			s.say("refused: %v", err)
			return // nothing was written: only the first can be refused
		}
		if d.HasArg("acks-all") {
			s.writes = append(s.writes, write{r.Self, at})
		}
		all.HWTo = e.HWTo
	}
	s.effects(r, all)
	s.wake()
}

func (s *stage) fetch(t *testing.T, d *datadriven.TestData) {
	r := s.up(t, d)
	if slices.ContainsFunc(s.parked, func(h held) bool { return h.fetch.From == r.Self && h.to == r.State.Leader() }) {
		t.Fatalf("%s: b%d has a fetch parked already", d.Pos, r.Self)
	}
	h := held{to: r.State.Leader(), fetch: r.NextFetch()}
	if d.HasArg("offset") { // what a broken follower would say
		h.fetch.Offset = cluster.Offset(num(t, d, "offset"))
	}
	s.say("b%d -> b%d: Fetch(offset %d, current epoch %d, last fetched epoch %d)", r.Self, h.to, h.fetch.Offset, h.fetch.Current, h.fetch.Last)
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "hold":
			s.held[arg.Vals[0]] = h
			return
		case "hold-answer":
			a := s.replicas[h.to].Serve(h.fetch, 1000, s.now)
			s.effects(s.replicas[h.to], a.Effects)
			h.answer = &a
			s.held[arg.Vals[0]] = h
			return
		}
	}
	s.arrive(h)
}

// arrive delivers a request, and its answer at once, or only the answer.
func (s *stage) arrive(h held) {
	if h.answer == nil {
		leader := s.replicas[h.to]
		if leader == nil {
			s.say("b%d is down", h.to)
			return
		}
		a := leader.Serve(h.fetch, 1000, s.now)
		s.effects(leader, a.Effects)
		if a.Waits() {
			s.say("parked")
			s.parked = append(s.parked, h)
			return
		}
		h.answer = &a
	}
	s.take(h)
}

func (s *stage) take(h held) {
	a := *h.answer
	switch {
	case a.Err != nil:
		s.say("b%d -> b%d: %v", h.to, h.fetch.From, a.Err)
	case a.Diverging:
		s.say("b%d -> b%d: diverging, epoch %d ends at %d, HW %d", h.to, h.fetch.From, a.Epoch, a.End, a.HW)
	default:
		s.say("b%d -> b%d: %d records, HW %d", h.to, h.fetch.From, len(a.Records), a.HW)
	}
	r := s.replicas[h.fetch.From]
	if r == nil || a.Err != nil {
		return
	}
	took := r.Take(h.fetch, a)
	switch {
	case took.Stale:
		s.say("b%d drops it", r.Self)
	case took.Truncated:
		s.say("b%d truncates to %d", r.Self, r.Log.LEO())
	case took.Appended < len(a.Records):
		s.say("b%d takes %d of them", r.Self, took.Appended)
	}
	s.effects(r, took.Effects)
}

// wake completes the parked fetches that are ready.
func (s *stage) wake() {
	for i := 0; i < len(s.parked); i++ {
		h := s.parked[i]
		if r := s.replicas[h.to]; r != nil && r.Ready(h.fetch) {
			s.parked = slices.Delete(s.parked, i, i+1)
			i--
			s.say("the parked fetch of b%d goes on", h.fetch.From)
			s.arrive(h)
		}
	}
}

func (s *stage) timeOut(t *testing.T, d *datadriven.TestData) {
	id := s.broker(t, d)
	i := slices.IndexFunc(s.parked, func(h held) bool { return h.fetch.From == id })
	if i < 0 {
		t.Fatalf("%s: b%d has no parked fetch", d.Pos, id)
	}
	h := s.parked[i]
	s.parked = slices.Delete(s.parked, i, i+1)
	a := s.replicas[h.to].Serve(h.fetch, 1000, s.now)
	s.effects(s.replicas[h.to], a.Effects)
	h.answer = &a
	s.take(h)
}

func (s *stage) settle(t *testing.T, d *datadriven.TestData) {
	r := s.up(t, d)
	p, ok := s.proposed[r.Self]
	if !ok {
		t.Fatalf("%s: b%d proposed nothing", d.Pos, r.Self)
	}
	delete(s.proposed, r.Self)
	o := partition.Unknown
	switch {
	case d.HasArg("accepted"):
		o = partition.Accepted
	case d.HasArg("reverted"):
		o = partition.Reverted
	}
	l := cluster.LeaderAndISR{Leader: r.Self, LeaderEpoch: p.LeaderEpoch, ISR: p.ISR, ZKVersion: p.ZKVersion + 1}
	s.effects(r, r.State.ISRSettled(p, o, l))
}

func (s *stage) crash(t *testing.T, d *datadriven.TestData) {
	r := s.up(t, d)
	log := r.Log
	if d.HasArg("keep") {
		log = log.Crashed(cluster.Offset(num(t, d, "keep")))
	}
	s.disks[r.Self] = log
	s.replicas[r.Self] = nil
	s.parked = slices.DeleteFunc(s.parked, func(h held) bool { return h.to == r.Self || h.fetch.From == r.Self })
	s.writes = slices.DeleteFunc(s.writes, func(w write) bool { return w.leader == r.Self })
}

func (s *stage) compare(t *testing.T, d *datadriven.TestData) {
	a, b := s.replicas[cluster.BrokerID(num(t, d, "a"))], s.replicas[cluster.BrokerID(num(t, d, "b"))]
	both := min(a.Log.LEO(), b.Log.LEO())
	for o := range both {
		if a.Log.At(o) != b.Log.At(o) {
			s.say("b%d and b%d differ at offset %d", a.Self, b.Self, o)
			return
		}
	}
	s.say("b%d and b%d are equal up to %d", a.Self, b.Self, both)
}

func (s *stage) effects(r *sim.Replica, e partition.Effects) {
	if e.HWMoved() {
		s.say("b%d: HW moved %d -> %d", r.Self, e.HWFrom, e.HWTo)
		s.writes = slices.DeleteFunc(s.writes, func(w write) bool {
			if w.leader == r.Self && w.at < e.HWTo {
				s.say("acks=all write at %d is answered", w.at)
				return true
			}
			return false
		})
	}
	if p, ok := r.State.Pending(); e.Propose && ok {
		s.proposed[r.Self] = p
		s.say("b%d proposes ISR %v", r.Self, p.ISR)
	}
}

// show prints every replica: role, epoch, ends, and the log as runs of records
// of one epoch.
func (s *stage) show(t *testing.T, d *datadriven.TestData) string {
	var b strings.Builder
	for _, id := range s.ids {
		r := s.replicas[id]
		if r == nil {
			fmt.Fprintf(&b, "b%d down LEO=%d\n", id, logOf(s.disks[id]).LEO())
			continue
		}
		if err := r.State.Check(); err != nil {
			t.Fatalf("%s: b%d: %v", d.Pos, id, err)
		}
		fmt.Fprintf(&b, "b%d %s epoch=%d LEO=%d", id, r.State.Role(), r.State.LeaderEpoch(), r.State.LEO())
		for _, f := range r.State.Remotes() {
			fmt.Fprintf(&b, " RemoteLEO(b%d)=%d", f.ID, f.LEO)
		}
		fmt.Fprintf(&b, " HW=%d", r.State.HW())
		if r.State.Role() == partition.Leader {
			fmt.Fprintf(&b, " ISR=%v", r.State.ISR())
			if !slices.Equal(r.State.MaximalISR(), r.State.ISR()) {
				fmt.Fprintf(&b, " maximal=%v", r.State.MaximalISR())
			}
		}
		fmt.Fprintf(&b, "%s\n", runs(&r.Log))
	}
	return b.String()
}

func logOf(l sim.Log) *sim.Log { return &l }

func runs(l *sim.Log) string {
	var b strings.Builder
	for from := cluster.Offset(0); from < l.LEO(); {
		to := from
		for to < l.LEO() && l.At(to).Epoch == l.At(from).Epoch {
			to++
		}
		fmt.Fprintf(&b, " [%d..%d)@%d", from, to, l.At(from).Epoch)
		from = to
	}
	return b.String()
}

func (s *stage) broker(t *testing.T, d *datadriven.TestData) cluster.BrokerID {
	return cluster.BrokerID(num(t, d, "b"))
}

func (s *stage) up(t *testing.T, d *datadriven.TestData) *sim.Replica {
	r := s.replicas[s.broker(t, d)]
	if r == nil {
		t.Fatalf("%s: broker is down", d.Pos)
	}
	return r
}

func num(t *testing.T, d *datadriven.TestData, key string) int64 {
	t.Helper()
	var n int64
	d.ScanArgs(t, key, &n)
	return n
}

func ids(t *testing.T, d *datadriven.TestData, key string) []cluster.BrokerID {
	t.Helper()
	for _, arg := range d.CmdArgs {
		if arg.Key != key {
			continue
		}
		out := make([]cluster.BrokerID, len(arg.Vals))
		for i, v := range arg.Vals {
			if _, err := fmt.Sscan(v, &out[i]); err != nil {
				t.Fatalf("%s: %s: %v", d.Pos, key, err)
			}
		}
		return out
	}
	t.Fatalf("%s: %s is missing", d.Pos, key)
	return nil
}
