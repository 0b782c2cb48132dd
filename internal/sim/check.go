package sim

import (
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/partition"
)

// Violation is an invariant that does not hold.
type Violation struct {
	Invariant string
	What      string
}

func (v *Violation) Error() string { return v.Invariant + ": " + v.What }

// check watches a run: it knows more than any broker does. Each thing that
// happens is looked at when it happens, so that an invariant holds after every
// event without all logs being compared every time.
type check struct {
	w     *World
	found *Violation
	parts []*partCheck

	ctlEpoch cluster.ControllerEpoch // of the latest controller elected
	excused  map[string]int
	moved    int // reassignments completed
}

// partCheck is what is known of one partition.
//
// ledger is what has ever been below a presumed leader's HW: from then on it may
// never change. known is what was ever written, by offset and epoch.
type partCheck struct {
	ledger  []Record
	known   map[place]written
	leaders map[cluster.LeaderEpoch]cluster.BrokerID
	lost    map[cluster.BrokerID]loss
	before  cluster.LeaderAndISR // what the last election began from
	life    int                  // of whom it chose
	excused string
}

type place struct {
	offset cluster.Offset
	epoch  cluster.LeaderEpoch
}

type written struct {
	id     int32
	before cluster.LeaderEpoch // epoch of the record before it
}

// loss is a tail that a broker's disk lost with the power: until it is made good
// the broker is not what others take it for.
type loss struct {
	to    cluster.Offset
	epoch cluster.LeaderEpoch
	life  int // the first incarnation that runs without it
}

func newCheck(w *World) *check {
	c := &check{w: w, excused: map[string]int{}}
	for range w.cfg.partitions() {
		c.parts = append(c.parts, &partCheck{known: map[place]written{}, leaders: map[cluster.LeaderEpoch]cluster.BrokerID{},
			lost: map[cluster.BrokerID]loss{}})
	}
	return c
}

func (c *check) fail(invariant, format string, args ...any) {
	if c.found == nil {
		c.found = &Violation{invariant, fmt.Sprintf(format, args...)}
		c.w.say("VIOLATION %s", c.found)
	}
}

// excuse stops the checks of a partition: what was lost is beyond what the
// protocol protects.
func (c *check) excuse(p int32, why string) {
	if pc := c.parts[p]; pc.excused == "" {
		pc.excused = why
		c.excused[why]++
		c.w.say("t-%d is not checked any more: %s", p, why)
	}
}

func (c *check) off(p int32) bool { return c.parts[p].excused != "" }

// lost notes that a broker's disk lost the end of a log.
func (c *check) lost(b cluster.BrokerID, p int32, to cluster.Offset, epoch cluster.LeaderEpoch) {
	pc := c.parts[p]
	if old, ok := pc.lost[b]; ok {
		to, epoch = max(to, old.to), max(epoch, old.epoch)
	}
	pc.lost[b] = loss{to, epoch, c.w.broker(b).node.life}
}

// stepped: TypeOk after each step of a replica.
func (c *check) stepped(h *hosted) {
	if err := h.State.Check(); err != nil {
		c.fail("TypeOk", "b%d t-%d: %v", h.b.id, h.p, err)
	}
	if h.State.LEO() != h.Log.LEO() {
		c.fail("TypeOk", "b%d t-%d: the state says LEO %d, the log %d", h.b.id, h.p, h.State.LEO(), h.Log.LEO())
	}
}

// image: TypeOk of the controller.
func (c *check) image(im *controller.Image) {
	if err := im.Check(); err != nil {
		c.fail("TypeOk", "controller: %v", err)
	}
}

// appended: LogMatching and EpochMonotone. A record at an offset in an epoch is
// one and the same everywhere, and so is the epoch before it: two logs that have
// it are equal up to it.
func (c *check) appended(h *hosted, o cluster.Offset) {
	if c.off(h.p) {
		return
	}
	pc, rec := c.parts[h.p], h.Log.At(o)
	before := cluster.NoLeaderEpoch
	if o > 0 {
		before = h.Log.At(o - 1).Epoch
	}
	if rec.Epoch < before {
		c.fail("EpochMonotone", "b%d t-%d: epoch %d at %d after %d", h.b.id, h.p, rec.Epoch, o, before)
	}
	at, is := place{o, rec.Epoch}, written{rec.ID, before}
	if was, ok := pc.known[at]; !ok {
		pc.known[at] = is
	} else if was != is {
		c.fail("LogMatching", "b%d t-%d: offset %d of epoch %d is record %d after epoch %d, elsewhere %d after %d",
			h.b.id, h.p, o, rec.Epoch, is.id, is.before, was.id, was.before)
	}
	c.madeGood(h)
}

// madeGood forgets a loss once the log has everything again that others count
// on.
func (c *check) madeGood(h *hosted) {
	pc := c.parts[h.p]
	l, ok := pc.lost[h.b.id]
	if !ok || h.Log.LEO() < cluster.Offset(len(pc.ledger)) {
		return
	}
	if h.Log.LEO() >= l.to || !slices.Contains(c.w.store.states[h.p].ISR, h.b.id) {
		delete(pc.lost, h.b.id)
	}
}

// hwMoved: ValidHighWatermark, StrongIsr, CommittedNeverLost, HwMonotone.
func (c *check) hwMoved(h *hosted, from, to cluster.Offset) {
	if c.off(h.p) || c.found != nil {
		return
	}
	pc, leads := c.parts[h.p], h.State.Role() == partition.Leader
	if to < from && leads {
		c.fail("HwMonotone", "b%d t-%d: HW went back from %d to %d", h.b.id, h.p, from, to)
	}
	if leads && int32(len(h.State.ISR())) < min(int32(c.w.cfg.MinISR), int32(len(h.State.Assignment().Replicas))) {
		c.fail("HwBelowMinISR", "b%d t-%d: HW moved to %d with ISR %v", h.b.id, h.p, to, h.State.ISR())
	}
	for o := from; o < to; o++ {
		rec := h.Log.At(o)
		switch {
		case int(o) < len(pc.ledger):
			if pc.ledger[o] != rec {
				c.lostCommitted(h.b.id, h.p, "CommittedNeverLost", "HW passed %v at %d, where %v was committed", rec, o, pc.ledger[o])
				return
			}
		case !leads:
			c.fail("ValidHighWatermark", "b%d t-%d follows with HW %d; committed is only up to %d", h.b.id, h.p, to, len(pc.ledger))
			return
		default:
			pc.ledger = append(pc.ledger, rec)
			c.w.groups.committed(h.p, rec)
			c.held(h, o, rec)
		}
	}
}

// held: all data below any presumed leader's HW is on every member of the ISR
// that is in force, and on every member that the leader counts.
func (c *check) held(h *hosted, o cluster.Offset, rec Record) {
	state := c.w.store.states[h.p]
	for _, id := range state.ISR {
		c.has(id, h.p, o, rec, "StrongIsr", "in the ISR")
	}
	if pc := c.parts[h.p]; state.LeaderEpoch > h.State.LeaderEpoch() && pc.lost[state.Leader].life <= pc.life {
		c.chosen(state.Leader, h.p, pc.before) // h leads no more, and does not know
	}
	if state.Leader == h.b.id && state.LeaderEpoch == h.State.LeaderEpoch() {
		for _, id := range h.State.MaximalISR() {
			c.has(id, h.p, o, rec, "ValidHighWatermark", "in the maximal ISR")
		}
	}
}

func (c *check) has(id cluster.BrokerID, p int32, o cluster.Offset, rec Record, invariant, where string) {
	if c.off(p) {
		return
	}
	l := c.w.broker(id).log(p)
	if o >= l.LEO() {
		c.lostCommitted(id, p, invariant, "%s without %v, committed at %d: its log ends at %d", where, rec, o, l.LEO())
	} else if l.At(o) != rec {
		c.lostCommitted(id, p, invariant, "%s with %v at %d, where %v is committed", where, l.At(o), o, rec)
	}
}

// lostCommitted is a violation, unless the broker's disk lost it with the power:
// then it is one when the broker is elected or joins the ISR.
func (c *check) lostCommitted(id cluster.BrokerID, p int32, invariant, format string, args ...any) {
	if _, tainted := c.parts[p].lost[id]; !tainted {
		c.fail(invariant, "b%d t-%d: "+format, append([]any{id, p}, args...)...)
	}
}

// lacks reports whether a broker, as it is registered, has less than what is
// committed because its disk lost it.
func (c *check) lacks(id cluster.BrokerID, p int32) bool {
	l, tainted := c.parts[p].lost[id]
	r, registered := c.w.store.brokers[id]
	return tainted && registered && r.life >= l.life && !c.whole(id, p)
}

// whole reports whether a broker has all that is committed.
func (c *check) whole(id cluster.BrokerID, p int32) bool {
	l, ledger := c.w.broker(id).log(p), c.parts[p].ledger
	return int(l.LEO()) >= len(ledger) && slices.Equal(l.records[:len(ledger)], ledger)
}

// chosen: a leader that lost what was committed is a violation if another member
// of the ISR was there that has it, had registered before, so that a controller
// that knows of the one knows of the other, and did not come back from an unclean
// death itself. If there is none, all members have died: more than replication
// protects from.
func (c *check) chosen(id cluster.BrokerID, p int32, from cluster.LeaderAndISR) {
	if !c.lacks(id, p) || c.off(p) {
		return
	}
	for _, other := range from.ISR {
		r, live := c.w.store.brokers[other]
		if (c.w.cfg.Strict || id != from.Leader) && live && other != id && !r.unclean && r.epoch < c.w.store.brokers[id].epoch && c.whole(other, p) {
			c.fail("NeedlessLoss", "t-%d: b%d was elected, whose disk lost committed records; b%d has them", p, id, other)
			return
		}
	}
	if id == from.Leader {
		c.excuse(p, "a leader that restarted unseen lost its tail and stays the leader")
		return
	}
	c.excuse(p, "every member of the ISR has died, and the one elected lost its tail")
}

// truncated: what is committed stays on every member of the ISR.
func (c *check) truncated(h *hosted) {
	pc := c.parts[h.p]
	if end := h.Log.LEO(); int(end) < len(pc.ledger) && slices.Contains(c.w.store.states[h.p].ISR, h.b.id) {
		c.has(h.b.id, h.p, end, pc.ledger[end], "StrongIsr", "in the ISR")
	}
}

// prefix compares a log with all that is committed.
func (c *check) prefix(id cluster.BrokerID, p int32, invariant, where string) {
	for o, rec := range c.parts[p].ledger {
		if c.off(p) || c.found != nil {
			return
		}
		c.has(id, p, cluster.Offset(o), rec, invariant, where)
	}
}

// stateWritten: LeaderInIsr, EpochMonotone, SingleController; a new member of
// the ISR and a new leader have all that is committed.
func (c *check) stateWritten(p int32, old cluster.LeaderAndISR, existed bool, is cluster.LeaderAndISR, by cluster.ControllerEpoch) {
	if by != c.ctlEpoch {
		c.fail("SingleController", "a controller of epoch %d wrote after the election of %d", by, c.ctlEpoch)
	}
	if is.Leader != cluster.NoBroker && !slices.Contains(is.ISR, is.Leader) {
		c.fail("LeaderInIsr", "t-%d: leader %d, ISR %v", p, is.Leader, is.ISR)
	}
	for _, id := range is.ISR {
		if !slices.Contains(c.w.assignments[p].Replicas, id) && !slices.Contains(old.ISR, id) {
			c.fail("LeaderInIsr", "t-%d: ISR %v is not within the assignment", p, is.ISR)
		}
	}
	if existed && (is.LeaderEpoch < old.LeaderEpoch || is.LeaderEpoch == old.LeaderEpoch && is.Leader != old.Leader ||
		is.ControllerEpoch < old.ControllerEpoch) {
		c.fail("EpochMonotone", "t-%d: leader %d of epoch %d by controller %d after leader %d of epoch %d by controller %d", p,
			is.Leader, is.LeaderEpoch, is.ControllerEpoch, old.Leader, old.LeaderEpoch, old.ControllerEpoch)
	}
	if is.Recovery == cluster.Recovering && is.LeaderEpoch > old.LeaderEpoch && !c.whole(is.Leader, p) {
		c.excuse(p, "elected uncleanly by the operator, after a loss of power")
	}
	for _, id := range is.ISR {
		if slices.Contains(old.ISR, id) {
			continue
		}
		c.prefix(id, p, "StrongIsr", "joined the ISR")
		if c.lacks(id, p) && !c.off(p) {
			c.fail("StrongIsr", "t-%d: b%d joined the ISR, and its disk has lost since what it had caught up with", p, id)
		}
	}
	if is.Leader != cluster.NoBroker && is.LeaderEpoch > old.LeaderEpoch {
		c.prefix(is.Leader, p, "CommittedNeverLost", "was elected")
		c.parts[p].before, c.parts[p].life = old, c.w.store.brokers[is.Leader].life
		if at := slices.Index(is.ISR, is.Leader); at < 0 || is.History == nil || is.History.Joined[at] == c.w.store.brokers[is.Leader].epoch {
			c.chosen(is.Leader, p, old) // else the one that was chosen is dead, and nobody leads
		}
	}
}

// assigned: a member of the ISR stays assigned. One that an earlier reassignment
// had added may lose its place before it is out of the ISR, as in Kafka.
func (c *check) assigned(p int32, a cluster.Assignment) {
	if len(a.Adding)+len(a.Removing) == 0 {
		c.moved++
	}
	isr := c.w.store.states[p].ISR
	if len(isr) > 0 && !slices.ContainsFunc(isr, func(id cluster.BrokerID) bool { return slices.Contains(a.Replicas, id) }) {
		c.fail("LeaderInIsr", "t-%d: assigned to %v, ISR %v", p, a.Replicas, isr)
	}
}

// deleted: a broker deletes no replica that is in the ISR.
func (c *check) deleted(id cluster.BrokerID, p int32) {
	delete(c.parts[p].lost, id)
	if slices.Contains(c.w.store.states[p].ISR, id) && !c.off(p) {
		c.fail("StrongIsr", "t-%d: b%d deletes what it has, and is in the ISR", p, id)
	}
}

// elected: ControllerEpochMonotone.
func (c *check) elected(epoch cluster.ControllerEpoch) {
	if epoch < c.ctlEpoch {
		c.fail("ControllerEpochMonotone", "controller of epoch %d after %d", epoch, c.ctlEpoch)
	}
	c.ctlEpoch = max(epoch, c.ctlEpoch)
}

// leads: SingleLeaderPerEpoch.
func (c *check) leads(h *hosted, l cluster.LeaderAndISR) {
	pc := c.parts[h.p]
	if was, ok := pc.leaders[l.LeaderEpoch]; ok && was != h.b.id {
		c.fail("SingleLeaderPerEpoch", "t-%d: b%d and b%d lead epoch %d", h.p, was, h.b.id, l.LeaderEpoch)
	}
	pc.leaders[l.LeaderEpoch] = h.b.id
	if loss, ok := pc.lost[h.b.id]; ok && l.LeaderEpoch <= loss.epoch && !c.off(h.p) {
		if c.w.cfg.Strict && len(h.State.Assignment().Replicas) > 1 { // one replica differs from nobody
			c.fail("LogMatching", "t-%d: b%d lost records of epoch %d, and leads epoch %d", h.p, h.b.id, loss.epoch, l.LeaderEpoch)
		}
		c.excuse(h.p, "a leader that restarted unseen lost its tail and stays the leader")
	}
	c.chosen(h.b.id, h.p, c.w.store.states[h.p])
	if c.w.store.states[h.p].LeaderEpoch == l.LeaderEpoch { // not told of it too late
		c.prefix(h.b.id, h.p, "CommittedNeverLost", "leads")
	}
}

// acked: a producer was told that its record is committed, and where.
func (c *check) acked(p int32, o cluster.Offset, id int32) {
	pc := c.parts[p]
	if c.off(p) {
		return
	}
	if int(o) >= len(pc.ledger) || pc.ledger[o].ID != id {
		c.fail("AckImpliesCommitted", "t-%d: record %d was acked at %d", p, id, o)
	}
}

// read: a consumer was given a record.
func (c *check) read(b cluster.BrokerID, p int32, o cluster.Offset, rec Record) {
	pc := c.parts[p]
	if c.off(p) {
		return
	}
	if int(o) >= len(pc.ledger) || pc.ledger[o] != rec {
		c.fail("NoReadAboveHw", "t-%d: b%d gave a consumer %v at %d", p, b, rec, o)
	}
}

// latest: as a client sees it, LATEST never goes back.
func (c *check) latest(b cluster.BrokerID, p int32, was, is cluster.Offset) {
	if is < was && !c.off(p) {
		c.fail("HwMonotoneForClients", "t-%d: b%d answers LATEST %d after %d", p, b, is, was)
	}
}
