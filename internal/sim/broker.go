package sim

import (
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/partition"
)

// broker is one broker: a disk that stays, and a process that comes and goes.
type broker struct {
	w    *World
	id   cluster.BrokerID
	node *node
	disk []diskLog // by partition

	// The process.
	startedUncleanly bool
	zk               *line
	session          int // 0: none
	registered       bool
	epoch            cluster.BrokerEpoch
	seen             [2]uint64 // versions of what its watches are about
	incumbent        incumbent // the controller, as last heard
	ctlEpoch         cluster.ControllerEpoch
	ctlConn          int // the newest connection of that controller's
	replicas         []*hosted
	shards           []*shard // by partition; nil where none is led here, or groups are none
	live             []cluster.BrokerID
	metadata         []cluster.LeaderAndISR
	term             *term
	toController     *line
	proposals        []int32 // partitions whose proposal is to be carried to the controller
	altering         bool
	stopping         bool
	unclean          bool // it died without the mark of a clean shutdown
	doubt            bool // it started uncleanly, and no controller has reckoned with that
	power            bool // it died by a loss of power: the disk lost what was not synced
}

// diskLog is what is left of a partition while nobody has it open.
type diskLog struct {
	log   Log
	hw    cluster.Offset
	wiped bool    // the disk was replaced
	held  *hosted // has it open
}

// log is a partition's log, open or not.
func (b *broker) log(p int32) *Log {
	if h := b.disk[p].held; h != nil {
		return &h.Log
	}
	return &b.disk[p].log
}

// start begins a new incarnation.
func (b *broker) start() {
	b.node.up, b.node.closed = true, true
	b.node.life++
	b.node.paused = 0
	b.zk = &line{from: b.node, to: b.w.store.node}
	b.session, b.registered, b.epoch = 0, false, cluster.NoBrokerEpoch
	b.seen, b.incumbent, b.ctlEpoch = [2]uint64{}, incumbent{id: cluster.NoBroker}, cluster.NoControllerEpoch
	b.replicas, b.live, b.term = make([]*hosted, b.w.cfg.partitions()), nil, nil
	b.shards = make([]*shard, b.w.cfg.partitions())
	b.metadata = make([]cluster.LeaderAndISR, b.w.cfg.partitions())
	for p := range b.metadata {
		b.metadata[p] = cluster.LeaderAndISR{Leader: cluster.NoBroker, LeaderEpoch: cluster.NoLeaderEpoch}
	}
	b.toController, b.proposals, b.altering, b.stopping = nil, nil, false, false
	b.doubt = b.doubt || b.unclean
	b.startedUncleanly, b.unclean = b.doubt, true
	b.recover()
	b.w.say("b%d starts", b.id)
	b.open()
	b.w.after(b.node, b.w.cfg.MaxLag/2, b.tick)
	b.w.after(b.node, b.w.luck.between(0, 2*time.Second), b.flush)
	b.w.after(b.node, b.w.luck.between(0, 5*time.Second), b.checkpoint)
}

// recover is what a start finds after a loss of power, or on another disk.
func (b *broker) recover() {
	for p := range b.disk {
		d := &b.disk[p]
		keep := d.log.LEO()
		switch {
		case d.wiped:
			d.log.synced, keep = 0, 0
		case b.power:
			lost := int(keep - d.log.Synced())
			keep = d.log.Synced() + cluster.Offset(b.w.luck.below(lost+1))
		}
		if keep < d.log.LEO() {
			b.w.say("b%d lost t-%d from %d to %d", b.id, p, keep, d.log.LEO())
			b.w.check.lost(b.id, int32(p), d.log.LEO(), d.log.LatestEpoch())
			d.log = d.log.Crashed(keep)
			d.hw = min(d.hw, keep)
		}
		d.wiped = false
	}
	b.power = false
}

// die ends the process; what it has written is with the disk, and with a loss
// of power some of that is gone when it comes back.
func (b *broker) die(power bool) {
	if !b.node.up {
		return
	}
	b.w.say("b%d dies%s", b.id, map[bool]string{true: " by a loss of power"}[power])
	b.node.up = false
	b.power = b.power || power
	b.closeLogs()
}

func (b *broker) closeLogs() {
	for p, h := range b.replicas {
		if h != nil {
			b.disk[p].log, b.disk[p].held = h.Log, nil
		}
	}
}

// tick looks for followers that have fallen behind.
func (b *broker) tick() {
	for _, h := range b.replicas {
		if h != nil {
			h.after(h.State.Tick(b.w.pnow()))
		}
	}
	b.w.after(b.node, b.w.cfg.MaxLag/2, b.tick)
}

func (b *broker) flush() {
	for _, h := range b.replicas {
		if h != nil {
			h.Log.Sync()
		}
	}
	b.w.after(b.node, b.w.luck.between(200*time.Millisecond, 3*time.Second), b.flush)
}

func (b *broker) checkpoint() {
	b.checkpointNow()
	b.w.after(b.node, 5*time.Second, b.checkpoint)
}

func (b *broker) checkpointNow() {
	for p, h := range b.replicas {
		if h != nil {
			b.disk[p].hw = h.State.HW()
		}
	}
}

// ask calls the metadata store in the present session. What comes along an
// earlier connection than the session's latest is not served: the session has
// moved.
func (b *broker) ask(serve func(reply func(answer func())), failed func()) {
	id := b.session
	b.w.call(b.zk, b.w.cfg.SessionTimeout/3, func(reply func(func())) {
		if b.w.store.onLatest(id, b.w.arrivedOn) {
			serve(reply)
		}
	}, failed)
}

// open starts a session, and registers in it.
func (b *broker) open() {
	b.session, b.registered = 0, false
	b.ask(func(reply func(func())) {
		id := b.w.store.open(b)
		reply(func() {
			b.session = id
			b.ping(id)
			b.register(id)
		})
	}, func() { b.w.after(b.node, 200*time.Millisecond, b.open) })
}

func (b *broker) ping(id int) {
	if b.session != id {
		return
	}
	s := b.w.store
	b.ask(func(reply func(func())) {
		alive, seen, stands := s.hear(id), s.versions, s.stands(id, b)
		reply(func() {
			switch {
			case b.session != id:
			case !alive:
				b.expired()
			default:
				if !stands {
					b.registerAgain()
				}
				if seen[0] != b.seen[0] {
					b.brokersChanged()
				}
				if seen[1] != b.seen[1] {
					b.lookForController()
				}
				b.seen = seen
				b.w.after(b.node, b.w.cfg.SessionTimeout/3, func() { b.ping(id) })
			}
		})
	}, func() { b.ping(id) })
}

// expired ends what was of the session; a new one starts at once.
func (b *broker) expired() {
	b.w.say("b%d learns that its session is over", b.id)
	b.resign()
	b.open()
}

func (b *broker) register(id int) {
	s := b.w.store
	b.ask(func(reply func(func())) {
		if !s.hear(id) {
			return // the ping will tell
		}
		if b.epoch != cluster.NoBrokerEpoch && !b.leaderless() {
			b.startedUncleanly = false
		}
		epoch, ok := s.register(id, b)
		reply(func() {
			switch {
			case b.session != id:
			case !ok:
				b.w.after(b.node, 300*time.Millisecond, func() { b.register(id) })
			default:
				b.epoch, b.registered, b.node.closed = epoch, true, false
				b.lookForController()
			}
		})
	}, func() {
		if b.session == id {
			b.w.after(b.node, 100*time.Millisecond, func() { b.register(id) })
		}
	})
}

// registerAgain is the watch on the broker's own registration, which is gone though
// the session lives.
func (b *broker) registerAgain() {
	if b.registered && b.w.cfg.variant != StaysTakenOut {
		b.registered = false
		b.register(b.session)
	}
}

// lookForController contends for being the controller.
func (b *broker) lookForController() {
	id, s := b.session, b.w.store
	if id == 0 || !b.registered || b.stopping {
		return
	}
	b.ask(func(reply func(func())) {
		if !s.hear(id) {
			return
		}
		is := s.contend(id, b)
		reply(func() {
			if b.session != id || is.epoch < b.incumbent.epoch {
				return
			}
			b.incumbent = is
			mine := is.session == id
			if b.term != nil && b.term.epoch != is.epoch {
				b.resign()
			}
			if mine && b.term == nil {
				b.term = newTerm(b, is.epoch)
			}
		})
	}, func() {
		if b.session == id {
			b.w.after(b.node, 100*time.Millisecond, b.lookForController)
		}
	})
}

// leaderless reports whether a partition here has no leader.
func (b *broker) leaderless() bool {
	return slices.ContainsFunc(b.replicas, func(h *hosted) bool {
		return h != nil && h.State.Role() == partition.Follower && h.State.Leader() == cluster.NoBroker
	})
}

func (b *broker) resign() {
	if b.term != nil {
		b.w.say("b%d resigns", b.id)
		b.term = nil
	}
}

// brokersChanged is the watch on the registrations.
func (b *broker) brokersChanged() {
	if b.term != nil {
		b.term.readBrokers()
	}
}

// Codes that this broker answers to control requests.
const (
	codeStaleController  = 11
	codeStaleBrokerEpoch = 77
)

// order carries out a controller's request.
func (b *broker) order(from cluster.BrokerID, epoch cluster.ControllerEpoch, s controller.Send) controller.Answer {
	switch {
	case s.Epoch < b.epoch:
		b.w.say("b%d refuses an order of controller %d for its incarnation %d: STALE_BROKER_EPOCH, it is %d", b.id, from, s.Epoch, b.epoch)
		return controller.Answer{Error: codeStaleBrokerEpoch}
	case epoch < b.ctlEpoch:
		b.w.say("b%d refuses an order of controller %d of epoch %d: STALE_CONTROLLER_EPOCH, the newest is %d", b.id, from, epoch, b.ctlEpoch)
		return controller.Answer{Error: codeStaleController}
	case epoch == b.ctlEpoch && b.w.arrivedOn < b.ctlConn && b.w.cfg.variant != OldConnections && b.w.cfg.variant != UnfencedStop:
		b.w.say("b%d drops an order of controller %d along an older connection", b.id, from)
		return controller.Answer{Error: codeStaleController} // nobody hears it
	}
	b.ctlEpoch, b.ctlConn = epoch, b.w.arrivedOn
	if epoch > b.incumbent.epoch {
		b.incumbent = incumbent{id: from, epoch: epoch}
	}
	a := controller.Answer{}
	switch {
	case s.LeaderAndISR != nil:
		b.doubt = false
		for _, t := range s.LeaderAndISR.Topics {
			for _, lp := range t.Partitions {
				if code := b.lead(lp); code != 0 {
					if a.Partitions == nil {
						a.Partitions = map[cluster.TopicPartition]int16{}
					}
					a.Partitions[tp(lp.Partition)] = code
				}
			}
		}
	case s.UpdateMetadata != nil:
		b.update(s.UpdateMetadata)
	case s.StopReplica != nil:
		for _, t := range s.StopReplica.Topics {
			for _, sp := range t.Partitions {
				b.stopReplica(sp)
			}
		}
	}
	return a
}

// stopReplica carries out one partition of a StopReplica.
func (b *broker) stopReplica(sp controller.StopReplicaPartition) {
	h := b.replicas[sp.Partition]
	known := b.disk[sp.Partition].log.LatestEpoch()
	if h != nil {
		known = h.State.KnownEpoch()
	}
	if sp.LeaderEpoch >= 0 && sp.LeaderEpoch < known && b.w.cfg.variant != UnfencedStop {
		b.w.say("b%d t-%d does not stop: the order is of epoch %d", b.id, sp.Partition, sp.LeaderEpoch)
		return
	}
	if h != nil {
		b.w.say("b%d t-%d stops", b.id, sp.Partition)
		h.State.Stopped()
		h.unfollow()
		h.roleChanged()
	}
	if sp.Delete {
		b.w.say("b%d t-%d is deleted", b.id, sp.Partition)
		b.replicas[sp.Partition], b.disk[sp.Partition] = nil, diskLog{}
		b.w.check.deleted(b.id, sp.Partition)
	}
}

func (b *broker) update(u *controller.UpdateMetadata) {
	b.live = b.live[:0:0]
	for _, l := range u.Brokers {
		b.live = append(b.live, l.ID)
	}
	slices.Sort(b.live)
	for _, h := range b.replicas {
		if h != nil {
			h.after(h.State.EligibleChanged(b.live, b.w.pnow()))
		}
	}
	for _, t := range u.Topics {
		for _, p := range t.Partitions {
			b.metadata[p.Partition] = p.State
		}
	}
}

// lead carries out one partition of a LeaderAndIsr.
func (b *broker) lead(lp controller.LeaderAndISRPartition) int16 {
	h := b.replicas[lp.Partition]
	if h == nil {
		d := &b.disk[lp.Partition]
		h = &hosted{b: b, p: lp.Partition, Replica: NewReplica(b.id, d.log, d.hw)}
		h.bug = b.w.cfg.variant
		h.State.MinISRChanged(b.w.cfg.stateMinISR())
		h.State.MaxLagChanged(b.w.cfg.MaxLag)
		h.State.EligibleChanged(b.live, b.w.pnow())
		b.replicas[lp.Partition], d.held = h, h
	}
	if lp.State.Leader == b.id {
		goesOn := h.State.Role() == partition.Leader
		e, err := h.Lead(lp.State, lp.Assignment, b.w.pnow())
		if err != nil {
			return codeStaleController
		}
		if !goesOn {
			h.since = lp.State.LeaderEpoch
		}
		b.w.say("b%d t-%d: leads epoch %d with ISR %v", b.id, lp.Partition, lp.State.LeaderEpoch, lp.State.ISR)
		h.unfollow()
		b.w.check.leads(h, lp.State)
		h.after(e)
		h.roleChanged()
		return 0
	}
	before, hw := h.Log.LEO(), h.State.HW()
	if err := h.Follow(lp.State, lp.Assignment); err != nil {
		return codeStaleController
	}
	b.w.say("b%d t-%d: follows %d in epoch %d", b.id, lp.Partition, lp.State.Leader, lp.State.LeaderEpoch)
	if h.Log.LEO() < before {
		b.w.check.truncated(h)
	}
	h.after(partition.Effects{HWFrom: hw, HWTo: h.State.HW()})
	h.roleChanged()
	h.unfollow()
	if l := lp.State.Leader; l != cluster.NoBroker {
		h.follow(l)
	}
	return 0
}

// propose carries a partition's proposed ISR to the controller, one request at
// a time.
func (b *broker) propose(p int32) {
	if !slices.Contains(b.proposals, p) {
		b.proposals = append(b.proposals, p)
	}
	b.alter()
}

func (b *broker) alter() {
	for len(b.proposals) > 0 && !b.altering {
		p := b.proposals[0]
		h := b.replicas[p]
		var prop partition.Proposal
		ok := h != nil
		if ok {
			prop, ok = h.State.Pending()
		}
		if !ok {
			b.proposals = b.proposals[1:]
			continue
		}
		b.altering = true
		b.sendAlter(p, h, prop)
	}
}

func (b *broker) sendAlter(p int32, h *hosted, prop partition.Proposal) {
	again := func() {
		b.w.after(b.node, 50*time.Millisecond, func() {
			b.altering = false
			b.alter()
		})
	}
	to := b.w.broker(b.incumbent.id)
	if to == nil {
		again()
		return
	}
	if b.toController == nil || b.toController.to != to.node {
		b.toController = &line{from: b.node, to: to.node}
	}
	a := controller.Alter{Partition: tp(p), Sender: b.id, LeaderEpoch: prop.LeaderEpoch, ISR: prop.ISR, Version: prop.ZKVersion,
		Epochs: prop.BrokerEpochs}
	epoch := b.epoch
	if b.w.cfg.variant == SettledAtOnce {
		h.after(h.State.ISRSettled(prop, partition.Accepted, cluster.LeaderAndISR{Leader: b.id, LeaderEpoch: prop.LeaderEpoch,
			ISR: prop.ISR, ZKVersion: prop.ZKVersion}))
	}
	b.w.call(b.toController, 2*time.Second, func(reply func(func())) {
		to.alterPartition(epoch, a, func(r altered) { reply(func() { b.altered(p, h, prop, r, again) }) })
	}, again)
}

// altered takes the controller's answer.
func (b *broker) altered(p int32, h *hosted, prop partition.Proposal, r altered, again func()) {
	o := partition.Unknown
	switch r.code {
	case 0:
		o = partition.Accepted
	case codeIneligibleReplica:
		o = partition.Reverted
	case codeFencedLeaderEpoch, codeInvalidUpdateVersion, codeUnknownPartition, codeInvalidRequest:
	default:
		again()
		return
	}
	b.w.say("b%d t-%d: ISR %v is settled: %d", b.id, p, prop.ISR, r.code)
	h.after(h.State.ISRSettled(prop, o, r.state))
	h.afterISR()
	b.altering = false
	if now, ok := h.State.Pending(); !ok || slices.Equal(now.ISR, prop.ISR) && now.ZKVersion == prop.ZKVersion && now.LeaderEpoch == prop.LeaderEpoch {
		b.proposals = slices.DeleteFunc(b.proposals, func(q int32) bool { return q == p })
	}
	b.alter()
}
