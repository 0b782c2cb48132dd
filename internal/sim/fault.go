package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
)

// FaultKind is a kind of mishap.
type FaultKind uint8

// The kinds of faults.
const (
	Kill          FaultKind = iota // kill -9; it comes back after For
	PowerLoss                      // as Kill, and what was not synced is gone
	Stop                           // SIGTERM: controlled shutdown
	Pause                          // SIGSTOP for For
	CutOneWay                      // nothing gets from A to B
	CutBoth                        // nothing gets between A and B
	Isolate                        // nothing gets from or to A, clients included
	CutFromOthers                  // A reaches clients and the store, not the other brokers
	CutFromStore                   // A does not reach the store
	StoreDown                      // nobody reaches the store
	EndSession                     // the store ends A's session
	Preferred                      // somebody asks for a preferred election
	Wipe                           // A dies, and its disk is replaced
	Depose                         // somebody deletes the controller's znode while its session lives
	faultKinds

	// Move asks for partition A on the brokers To; To = 0 cancels.
	Move = faultKinds
	// TakeOut deletes A's registration while its session lives.
	TakeOut = faultKinds + 1
)

var faultNames = [...]string{"kill", "power-loss", "stop", "pause", "cut-one-way", "cut", "isolate", "cut-from-others", "cut-from-store",
	"store-down", "end-session", "preferred", "wipe", "depose", "move", "take-out"}

func (k FaultKind) String() string { return faultNames[k] }

// Aim says whom a fault hits.
type Aim uint8

// The aims.
const (
	AtBroker     Aim = iota // A itself
	AtController            // whoever is the controller
	AtLeader                // whoever leads partition A
)

// Fault is one mishap of a run.
type Fault struct {
	At   time.Duration
	Kind FaultKind
	Aim  Aim
	A, B int
	To   int // of a Move: ids of brokers, a digit each
	For  time.Duration
}

func (f Fault) String() string {
	who := fmt.Sprintf("b%d", f.A)
	switch {
	case f.Kind == StoreDown || f.Kind == Preferred || f.Kind == Depose:
		who = ""
	case f.Aim == AtController:
		who = "the controller"
	case f.Aim == AtLeader:
		who = fmt.Sprintf("the leader of t-%d", f.A)
	}
	if f.Kind == CutOneWay || f.Kind == CutBoth {
		who += fmt.Sprintf(" and b%d", f.B)
	}
	if f.Kind == Move {
		return fmt.Sprintf("%.3fs move t-%d to %d", f.At.Seconds(), f.A, f.To)
	}
	return fmt.Sprintf("%.3fs %s %s for %v", f.At.Seconds(), f.Kind, who, f.For)
}

// victim finds whom a fault hits now.
func (w *World) victim(f Fault) *broker {
	switch f.Aim {
	case AtController:
		if c := w.store.controller; c != nil {
			return w.broker(c.id)
		}
		return nil
	case AtLeader:
		return w.broker(w.store.states[int32(f.A%w.cfg.partitions())].Leader)
	}
	return w.broker(cluster.BrokerID((f.A+len(w.brokers)-1)%len(w.brokers) + 1))
}

// happen makes a fault happen.
func (w *World) happen(f Fault) {
	w.say("FAULT %v", f)
	b := w.victim(f)
	if f.Kind == StoreDown {
		for _, o := range w.brokers {
			w.cutBoth(o.node.id, 0, f.For)
		}
		return
	}
	if f.Kind == Move {
		if c := w.store.controller; c != nil {
			w.broker(c.id).reassign(int32(f.A%w.cfg.partitions()), w.digits(f.To))
		}
		return
	}
	if b == nil {
		return
	}
	id := b.node.id
	switch f.Kind {
	case Kill, PowerLoss, Wipe:
		if !b.node.up {
			return
		}
		b.die(f.Kind == PowerLoss)
		if f.Kind == Wipe {
			b.wipe()
		}
		w.startLater(b, f.For)
	case Stop:
		b.stop(5, f.For)
	case Pause:
		if b.node.up {
			b.node.paused = max(b.node.paused, w.now+f.For)
		}
	case CutOneWay:
		w.cuts[[2]int{id, f.B}] = w.now + f.For
	case CutBoth:
		w.cutBoth(id, f.B, f.For)
	case Isolate:
		w.isolate(id, f.For)
		for _, c := range w.clients {
			w.cutBoth(id, c.node.id, f.For)
		}
		w.cutBoth(id, 0, f.For)
	case CutFromOthers:
		w.isolate(id, f.For)
	case CutFromStore:
		w.cutBoth(id, 0, f.For)
	case EndSession:
		if b.session != 0 {
			w.store.end(b.session)
		}
	case TakeOut:
		w.store.takeOut(b.id)
	case Depose:
		w.store.controller = nil
		w.store.controllerChanged()
	case Preferred:
		if c := w.store.controller; c != nil {
			b := w.broker(c.id)
			w.after(b.node, 0, func() { b.elect(controller.PreferredElection) })
		}
	}
}

// digits are the brokers that a number names, a digit each.
func (w *World) digits(n int) []cluster.BrokerID {
	var ids []cluster.BrokerID
	for ; n > 0; n /= 10 {
		if id := cluster.BrokerID(n % 10); w.broker(id) != nil {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids)
	return ids
}

// maybeFlip takes the leadership away soon after an append: the leader lives on,
// and learns of it later than others.
func (w *World) maybeFlip(h *hosted) {
	if w.healed || !w.luck.once(w.cfg.FlipOnceIn) {
		return
	}
	f := Fault{Kind: EndSession, A: int(h.b.id)}
	if w.luck.once(3) {
		f.Kind = Preferred
	}
	w.queue.push(w.now+w.luck.between(0, 10*time.Millisecond), func() {
		f.At = w.now
		w.happen(f)
	})
}

func (w *World) cutBoth(a, b int, d time.Duration) {
	w.cuts[[2]int{a, b}] = max(w.cuts[[2]int{a, b}], w.now+d)
	w.cuts[[2]int{b, a}] = max(w.cuts[[2]int{b, a}], w.now+d)
}

func (w *World) isolate(id int, d time.Duration) {
	for _, o := range w.brokers {
		if o.node.id != id {
			w.cutBoth(id, o.node.id, d)
		}
	}
}

func (w *World) startLater(b *broker, d time.Duration) {
	life := b.node.life
	w.queue.push(w.now+d, func() {
		if !b.node.up && b.node.life == life {
			b.start()
		}
	})
}

// wipe replaces the disk of a broker that is down.
func (b *broker) wipe() {
	b.w.say("b%d gets an empty disk", b.id)
	for p := range b.disk {
		b.disk[p].wiped = true
	}
}

// stop is a SIGTERM: leadership goes to others first, as far as the controller
// can be asked, then everything is synced and the session is closed.
func (b *broker) stop(tries int, down time.Duration) {
	if !b.node.up || b.stopping && tries == 5 {
		return
	}
	b.stopping = true
	again := func() { b.w.after(b.node, 300*time.Millisecond, func() { b.stop(tries-1, down) }) }
	to := b.w.broker(b.incumbent.id)
	switch {
	case tries == 0:
		b.exit(down)
		return
	case to == nil:
		again()
		return
	}
	epoch := b.epoch
	b.w.call(&line{from: b.node, to: to.node}, time.Second, func(reply func(func())) {
		to.shutDown(b.id, epoch, func(left int, ok bool) {
			reply(func() {
				if !ok || left > 0 {
					again()
					return
				}
				b.exit(down)
			})
		})
	}, again)
}

func (b *broker) exit(down time.Duration) {
	b.w.say("b%d stops", b.id)
	b.unclean = false
	b.checkpointNow()
	for _, h := range b.replicas {
		if h != nil {
			h.Log.Sync()
		}
	}
	id := b.session
	b.ask(func(func(func())) { b.w.store.end(id) }, func() {})
	b.node.up = false
	b.closeLogs()
	b.w.startLater(b, down)
}

// Draw makes the configuration of a seed: the size of the cluster, a random part
// of the kinds of faults, and when they happen.
func Draw(seed uint64) Config {
	l := luck{seed ^ 0x51ed270b}
	c := Config{Seed: seed, Brokers: 3 + l.below(3), Partitions: 1 + l.below(3), Replicas: 3, Clients: 1 + l.below(3),
		Faulty: 30*time.Second + l.between(0, 60*time.Second), SessionTimeout: 3 * time.Second, MaxLag: 2 * time.Second,
		FetchLimit: 1 + l.below(20)}
	c.MinISR = 1 + l.below(3)
	if l.once(6) {
		c.Replicas = 2
	}
	if l.once(2) {
		c.LoseOnceIn = 50 + l.below(2000)
	}
	if l.once(2) {
		c.HoldOnceIn, c.HoldFor = 20+l.below(1000), time.Duration(1+l.below(12))*time.Second
	}
	if l.once(3) {
		c.FlipOnceIn = 5 + l.below(40)
	}
	var kinds []FaultKind
	for k := range faultKinds {
		odds := 2
		if k == PowerLoss {
			odds = 3
		} else if k == Wipe {
			odds = 12
		}
		if l.once(odds) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		kinds = []FaultKind{Kill}
	}
	// In some runs one fault comes close upon another, so that leaders change
	// before anybody has heard of the change before.
	bursts := l.once(3)
	gap := l.between(500*time.Millisecond, 6*time.Second)
	for at := 3 * time.Second; at < c.Faulty; at += l.between(gap/4, gap*2) {
		f := Fault{At: at, Kind: kinds[l.below(len(kinds))], Aim: AtBroker, A: 1 + l.below(c.Brokers), B: 1 + l.below(c.Brokers)}
		switch l.below(4) {
		case 0:
			f.Aim = AtController
		case 1, 2:
			f.Aim, f.A = AtLeader, l.below(c.Partitions)
		}
		f.For = l.between(50*time.Millisecond, 8*time.Second)
		c.Faults = append(c.Faults, f)
		for bursts && l.once(2) {
			f.At += l.between(0, 300*time.Millisecond)
			f.Kind, f.Aim, f.A = kinds[l.below(len(kinds))], Aim(l.below(3)), 1+l.below(c.Brokers)
			c.Faults = append(c.Faults, f)
		}
	}
	return c
}

// DrawMoves makes the configuration of a seed with reassignments: that of Draw,
// or in a third of the seeds of DrawGroups, in which replicas are moved now and
// then, often one soon after the other.
func DrawMoves(seed uint64) Config {
	l := luck{seed ^ 0x6d6f766573}
	c := Draw(seed)
	if l.once(3) {
		c = DrawGroups(seed)
	}
	gap := l.between(time.Second, 10*time.Second)
	for at := 2 * time.Second; at < c.Faulty; at += l.between(gap/10, 2*gap) {
		c.Faults = append(c.Faults, Fault{At: at, Kind: Move, A: l.below(c.partitions()), To: l.brokers(c.Brokers)})
	}
	return c
}

// DrawTakenOut makes the configuration of a seed in which registrations are taken
// out while their sessions live: that of DrawMoves, or in half of the seeds of Draw,
// with such a fault soon after three of four kills, and now and then by itself.
func DrawTakenOut(seed uint64) Config {
	l := luck{seed ^ 0x74616b656e}
	c := DrawMoves(seed)
	if l.once(2) {
		c = Draw(seed)
	}
	var more []Fault
	for _, f := range c.Faults {
		if (f.Kind == Kill || f.Kind == PowerLoss || f.Kind == Wipe) && !l.once(4) {
			f.Kind, f.At = TakeOut, f.At+l.between(0, 400*time.Millisecond)
			more = append(more, f)
		}
	}
	gap := l.between(time.Second, 10*time.Second)
	for at := 2 * time.Second; at < c.Faulty; at += l.between(gap/10, 2*gap) {
		f := Fault{At: at, Kind: TakeOut, Aim: Aim(l.below(3)), A: 1 + l.below(c.Brokers)}
		more = append(more, f)
	}
	c.Faults = append(c.Faults, more...)
	return c
}

// brokers are one to three of them in some order, a digit each; now and then
// none.
func (l *luck) brokers(n int) int {
	if l.once(8) {
		return 0
	}
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i + 1
	}
	to := 0
	for range 1 + l.below(3) {
		i := l.below(len(ids))
		to = to*10 + ids[i]
		ids = slices.Delete(ids, i, i+1)
	}
	return to
}
