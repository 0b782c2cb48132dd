package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
)

// hosted is a replica on a running broker, with the requests that wait for it.
type hosted struct {
	*Replica
	b *broker
	p int32

	parked []*parkedFetch
	writes []pendingWrite
	since  cluster.LeaderEpoch // the epoch that the present leadership began with
	ghosts []*shard            // of a wrong variant: shards that are gone and answer yet

	// As follower: turn counts the leaderships followed, so that answers of
	// earlier ones are known.
	turn   int
	leader *line
}

type parkedFetch struct {
	fetch Fetch
	reply func(Fetched)
	done  bool
}

// pendingWrite is an acks=all produce that waits for HW.
type pendingWrite struct {
	at    cluster.Offset
	reply func(error)
}

// after does what follows a step of the state.
func (h *hosted) after(e partition.Effects) {
	w := h.b.w
	w.check.stepped(h)
	if e.HWMoved() {
		w.check.hwMoved(h, e.HWFrom, e.HWTo)
		h.answerWrites()
		h.committed()
	}
	if e.Propose {
		prop, _ := h.State.Pending()
		w.say("b%d t-%d proposes ISR %v", h.b.id, h.p, prop.ISR)
		h.b.propose(h.p)
	}
}

// errors that producers get.
var (
	errNotEnoughAfterAppend = errors.New("committed, but fewer in sync than min.insync.replicas")
)

// answerWrites answers the acks=all writes that HW has passed, and those that
// it cannot pass any more.
func (h *hosted) answerWrites() {
	lost := h.State.CheckLeader(cluster.NoLeaderEpoch)
	if h.bug == WritesOutliveRole && lost != nil {
		return
	}
	h.writes = slices.DeleteFunc(h.writes, func(p pendingWrite) bool {
		switch {
		case lost != nil:
			p.reply(lost)
		case h.State.HW() <= p.at && h.bug != AckBeforeHW:
			return false
		case int32(len(h.State.MaximalISR())) < h.State.EffectiveMinISR():
			p.reply(errNotEnoughAfterAppend)
		default:
			p.reply(nil)
		}
		return true
	})
}

// afterISR: a smaller ISR may be too small for those that wait.
func (h *hosted) afterISR() { h.answerWrites() }

// roleChanged lets every request that waits look again.
func (h *hosted) roleChanged() {
	h.answerWrites()
	h.look()
	h.wake()
}

// wake serves the parked fetches that are ready.
func (h *hosted) wake() {
	var rest []*parkedFetch
	list := h.parked
	h.parked = nil
	for _, f := range list {
		switch {
		case f.done:
		case h.Ready(f.fetch):
			f.done = true
			f.reply(h.serve(f.fetch))
		default:
			rest = append(rest, f)
		}
	}
	h.parked = append(rest, h.parked...)
}

func (h *hosted) serve(f Fetch) Fetched {
	a := h.Serve(f, h.b.w.cfg.FetchLimit, h.b.w.pnow())
	h.after(a.Effects)
	return a
}

// fetch answers a follower, now or later.
func (h *hosted) fetch(f Fetch, from cluster.BrokerEpoch, reply func(Fetched)) {
	if h.State.CheckLeader(f.Current) == nil {
		h.State.FollowerIs(f.From, from)
	}
	a := h.serve(f)
	if !a.Waits() {
		reply(a)
		return
	}
	p := &parkedFetch{fetch: f, reply: reply}
	h.parked = append(h.parked, p)
	h.b.w.after(h.b.node, 500*time.Millisecond, func() {
		if p.done {
			return
		}
		p.done = true
		h.parked = slices.DeleteFunc(h.parked, func(q *parkedFetch) bool { return q == p })
		p.reply(h.serve(f))
	})
}

// produce writes one record.
func (h *hosted) produce(id int32, acksAll bool, reply func(cluster.Offset, error)) {
	at, e, err := h.Write(id, acksAll)
	if err != nil {
		reply(0, err)
		return
	}
	h.b.w.say("b%d t-%d: record %d at %d in epoch %d", h.b.id, h.p, id, at, h.State.LeaderEpoch())
	h.b.w.check.appended(h, at)
	h.b.w.maybeFlip(h)
	if acksAll {
		h.writes = append(h.writes, pendingWrite{at, func(err error) { reply(at, err) }})
	}
	h.after(e)
	if acksAll {
		h.answerWrites()
	} else {
		reply(at, nil)
	}
	h.wake()
}

// unfollow ends fetching.
func (h *hosted) unfollow() {
	h.turn++
	h.leader = nil
}

// follow fetches from a leader until the next unfollow.
func (h *hosted) follow(leader cluster.BrokerID) {
	h.leader = &line{from: h.b.node, to: h.b.w.broker(leader).node}
	h.fetchNext(h.turn)
}

func (h *hosted) fetchNext(turn int) {
	if h.turn != turn {
		return
	}
	f, w, mine := h.NextFetch(), h.b.w, h.b.epoch
	to := w.brokers[h.leader.to.id-1]
	w.call(h.leader, 2*time.Second, func(reply func(func())) {
		answer := func(a Fetched) { reply(func() { h.fetched(turn, f, a) }) }
		if r := to.replicas[h.p]; r != nil {
			r.fetch(f, mine, answer)
		} else {
			answer(Fetched{Err: ErrUnknownPartition})
		}
	}, func() { h.fetchLater(turn) })
}

func (h *hosted) fetchLater(turn int) {
	h.b.w.after(h.b.node, 100*time.Millisecond, func() { h.fetchNext(turn) })
}

func (h *hosted) fetched(turn int, f Fetch, a Fetched) {
	switch {
	case h.turn != turn:
		return
	case errors.Is(a.Err, partition.ErrFencedLeaderEpoch):
		h.unfollow() // the LeaderAndIsr of the newer epoch is on its way
		return
	case errors.Is(a.Err, ErrOffsetOutOfRange):
		h.outOfRange(turn)
		return
	case a.Err != nil:
		h.fetchLater(turn)
		return
	}
	before, hw := h.Log.LEO(), h.State.HW()
	t := h.Take(f, a)
	w := h.b.w
	if t.Truncated {
		w.say("b%d t-%d: truncated from %d to %d", h.b.id, h.p, before, h.Log.LEO())
		w.check.truncated(h)
		t.Effects.HWFrom = hw
		t.Effects.HWTo = h.State.HW()
	}
	for o := before; o < h.Log.LEO(); o++ {
		w.check.appended(h, o)
	}
	h.after(t.Effects)
	if len(a.Records) > 0 && t.Appended == 0 {
		h.fetchLater(turn)
		return
	}
	h.fetchNext(turn)
}

// outOfRange cuts a log that ends beyond its leader's.
func (h *hosted) outOfRange(turn int) {
	w, epoch := h.b.w, h.State.LeaderEpoch()
	to := w.brokers[h.leader.to.id-1]
	w.call(h.leader, 2*time.Second, func(reply func(func())) {
		r := to.replicas[h.p]
		if r == nil || r.State.CheckLeader(epoch) != nil {
			reply(func() { h.fetchLater(turn) })
			return
		}
		end := r.Log.LEO()
		reply(func() {
			if h.turn != turn {
				return
			}
			if end < h.Log.LEO() {
				hw := h.State.HW()
				w.say("b%d t-%d: out of range, cut from %d to %d", h.b.id, h.p, h.Log.LEO(), end)
				h.CutTo(end)
				w.check.truncated(h)
				h.after(partition.Effects{HWFrom: hw, HWTo: h.State.HW()})
			}
			h.fetchLater(turn)
		})
	}, func() { h.fetchLater(turn) })
}
