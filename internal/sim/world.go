package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/partition"
)

// Config is what a run is made of. Draw makes one from a seed.
type Config struct {
	Seed           uint64
	Brokers        int
	Partitions     int
	Replicas       int
	MinISR         int
	Clients        int
	Faulty         time.Duration // how long there are faults and clients
	SessionTimeout time.Duration
	MaxLag         time.Duration
	FetchLimit     int
	LoseOnceIn     int // messages; 0: none is lost by chance
	HoldOnceIn     int // messages that are held up, and all behind them
	HoldFor        time.Duration
	FlipOnceIn     int // appends after which the leadership moves; 0: none
	Faults         []Fault
	// Strict: a leader that restarted and lost its tail while no controller looked
	// has to give way to a member that did not, or at least lead in a new epoch.
	Strict  bool
	Groups  GroupConfig
	variant Variant
}

// stateMinISR is the min.insync.replicas that the replicas are told.
func (c *Config) stateMinISR() int32 {
	if c.variant == HWBelowMinISR {
		return 1
	}
	return int32(c.MinISR)
}

// World is one run.
type World struct {
	cfg         Config
	luck        luck
	now         time.Duration
	queue       queue
	hash        uint64
	events      int
	store       *store
	brokers     []*broker
	clients     []*client
	assignments []cluster.Assignment
	cuts        map[[2]int]time.Duration // nothing gets from one to another until then
	check       *check
	nextRecord  int32
	conns       int // how many connections there were
	arrivedOn   int // the number of the connection of the request being served
	acked       int
	healed      bool
	trace       func(string) // nil: nobody reads it
	groups      *groups      // nil: there are none
}

const topicName = "t"

var topicID = cluster.TopicID{1}

func tp(p int32) cluster.TopicPartition {
	return cluster.TopicPartition{Topic: topicName, Partition: p}
}

func newWorld(cfg Config, trace func(string)) *World {
	w := &World{cfg: cfg, luck: luck{cfg.Seed*2 + 1}, hash: 0xcbf29ce484222325, cuts: map[[2]int]time.Duration{}, trace: trace}
	w.store = newStore(w)
	for i := range cfg.Brokers {
		id := i + 1
		w.brokers = append(w.brokers, &broker{w: w, id: cluster.BrokerID(id),
			node: &node{id: id, name: fmt.Sprintf("b%d", id)}, disk: make([]diskLog, cfg.partitions())})
	}
	for p := range cfg.partitions() {
		var a cluster.Assignment
		for i := range cfg.Replicas {
			a.Replicas = append(a.Replicas, cluster.BrokerID((p+i)%cfg.Brokers+1))
		}
		w.assignments = append(w.assignments, a)
	}
	w.check = newCheck(w)
	w.groups = newGroups(w)
	for _, b := range w.brokers {
		b.start()
	}
	for i := range cfg.Clients {
		w.clients = append(w.clients, newClient(w, i))
	}
	w.groups.start()
	for _, f := range cfg.Faults {
		w.queue.push(f.At, func() { w.happen(f) })
	}
	w.queue.push(cfg.Faulty, w.heal)
	return w
}

// broker finds one; nil for none.
func (w *World) broker(id cluster.BrokerID) *broker {
	if id < 1 || int(id) > len(w.brokers) {
		return nil
	}
	return w.brokers[id-1]
}

func (w *World) pnow() partition.Time { return partition.Time(w.now) }

// say tells the trace what happened.
func (w *World) say(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%10.4fs ", w.now.Seconds()) + fmt.Sprintf(format, args...))
	}
}

// step does the next event; false: there is none before the given time, or an
// invariant is broken.
func (w *World) step(until time.Duration) bool {
	if w.check.found != nil || len(w.queue.heap) == 0 || w.queue.heap[0].at > until {
		return false
	}
	e := w.queue.pop()
	w.now = e.at
	e.do()
	w.events++
	w.hash = mix(w.hash, uint64(e.at), e.seq, w.luck.state)
	if w.groups != nil {
		w.hash = mix(w.hash, w.groups.luck.state)
	}
	return true
}

// Result is how a run ended.
type Result struct {
	Violation *Violation
	Hash      uint64
	Events    int
	Logical   time.Duration
	Acked     int
	Committed int
	Elections int
	Excused   map[string]int
	Moved     int // assignments at the end of a reassignment
	Groups    GroupResult
}

// recovery is how long a healed cluster may take until all is well.
const recovery = 60 * time.Second

// Run runs the whole of a configuration. trace hears what happens, nil: nobody.
func Run(cfg Config, trace func(string)) Result {
	w := newWorld(cfg, trace)
	for w.step(cfg.Faulty) {
	}
	deadline := cfg.Faulty + recovery
	for w.check.found == nil && w.unwell() != "" && w.now < deadline {
		w.step(deadline)
		for i := 0; i < 200 && w.step(deadline); i++ {
		}
		if len(w.queue.heap) == 0 || w.queue.heap[0].at > deadline {
			break
		}
	}
	if what := w.unwell(); w.check.found == nil && what != "" {
		w.check.fail("Liveness", "%v after everything was healed: %s", w.now-cfg.Faulty, what)
	}
	if w.check.found == nil {
		w.settled()
	}
	return w.result()
}

func (w *World) result() Result {
	r := Result{Violation: w.check.found, Hash: w.hash, Events: w.events, Logical: w.now, Acked: w.acked, Excused: w.check.excused, Moved: w.check.moved}
	for p, pc := range w.check.parts {
		r.Committed += len(pc.ledger)
		r.Elections += int(w.store.states[int32(p)].LeaderEpoch)
		r.Hash = mix(r.Hash, uint64(len(pc.ledger)), uint64(w.store.states[int32(p)].ZKVersion))
	}
	if w.groups != nil {
		r.Groups = w.groups.result
	}
	return r
}

// heal ends all faults and all load.
func (w *World) heal() {
	w.say("healed")
	w.healed = true
	clear(w.cuts)
	w.cfg.LoseOnceIn, w.cfg.HoldOnceIn = 0, 0
	for _, c := range w.clients {
		c.node.up = false
	}
	w.groups.heal()
	for _, b := range w.brokers {
		b.node.paused = 0
		if !b.node.up {
			b.start()
		}
	}
}

// unwell says what is not as it has to be some time after everything was
// healed: every partition is led, its ISR is full, and everybody knows what is
// committed. Nothing: all is well.
func (w *World) unwell() string {
	for p, a := range w.assignments {
		s, ok := w.store.states[int32(p)]
		b := w.broker(s.Leader)
		switch {
		case !ok || b == nil:
			unassigned := func(id cluster.BrokerID) bool { return !slices.Contains(a.Replicas, id) }
			if s.History != nil && slices.Contains(s.History.Joined, cluster.RestartedUncleanly) || slices.ContainsFunc(s.ISR, unassigned) {
				// Offline until the operator decides: nothing is lost by itself.
				if c := w.store.controller; c != nil && w.now > w.cfg.Faulty+10*time.Second {
					w.broker(c.id).elect(controller.UncleanElection, int32(p))
				}
			}
			return fmt.Sprintf("t-%d: nobody leads (%+v)", p, s)
		case len(a.Adding)+len(a.Removing) > 0:
			return fmt.Sprintf("t-%d: is being reassigned (%+v)", p, a)
		case len(s.ISR) != len(a.Replicas):
			return fmt.Sprintf("t-%d: ISR %v of %v", p, s.ISR, a.Replicas)
		}
		h := b.replicas[p]
		if h == nil || h.State.Role() != partition.Leader || h.State.LeaderEpoch() != s.LeaderEpoch {
			return fmt.Sprintf("t-%d: b%d does not know that it leads epoch %d", p, b.id, s.LeaderEpoch)
		}
		if h.State.HW() != h.State.LEO() || h.State.HW() < cluster.Offset(len(w.check.parts[p].ledger)) && !w.check.off(int32(p)) {
			return fmt.Sprintf("t-%d: HW %d, LEO %d, committed %d", p, h.State.HW(), h.State.LEO(), len(w.check.parts[p].ledger))
		}
		if len(h.State.ISR()) != len(s.ISR) {
			return fmt.Sprintf("t-%d: the leader's ISR is %v", p, h.State.ISR())
		}
		for _, id := range a.Replicas {
			f := w.broker(id).replicas[p]
			if f == nil || f.State.LeaderEpoch() != s.LeaderEpoch || f.Log.LEO() != h.Log.LEO() || f.State.HW() != h.State.HW() {
				return fmt.Sprintf("t-%d: b%d is not where its leader is", p, id)
			}
		}
	}
	return w.groups.unwell()
}

// settled compares all logs in the end: replicas are equal, and have what was
// committed.
func (w *World) settled() {
	for p, a := range w.assignments {
		if w.check.off(int32(p)) {
			continue
		}
		for _, id := range a.Replicas {
			w.check.prefix(id, int32(p), "CommittedNeverLost", "in the end")
			l, leader := w.broker(id).log(int32(p)), w.broker(w.store.states[int32(p)].Leader).log(int32(p))
			for o := range l.LEO() {
				if l.At(o) != leader.At(o) {
					w.check.fail("LogMatching", "t-%d: b%d has %v at %d, its leader %v", p, id, l.At(o), o, leader.At(o))
					break
				}
			}
		}
	}
	w.groups.settled()
}
