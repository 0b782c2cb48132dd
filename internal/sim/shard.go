package sim

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/partition"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a coordinator's shard may answer instead of the machine's reply.
var (
	errNotCoordinator = errors.New("not the coordinator")
	errLoading        = errors.New("the coordinator loads")
	errTimedOut       = errors.New("not committed in time")
	errDisk           = errors.New("the disk refused the append")
)

// shard is the machine of a coordinator's partition during one leadership, as
// coordinator/shards drives it: what is decided is applied at once and appended
// once per round, replies wait until HW has passed all that was applied, and a
// shard whose leadership is over or whose append failed is replaced by one that
// replays the log.
type shard struct {
	h       *hosted
	since   cluster.LeaderEpoch
	machine machine
	gone    bool
	loaded  bool
	running bool // a round is due
	queue   []*asked
	waiting map[coordinator.Token]*asked
	token   coordinator.Token
	applied cluster.Offset
	waits   []*commitWait
	alarm   time.Duration // when it is looked at next; 0: never
	ends    int           // how many groups have ended here
}

// machine is group.Shard, or a wrong one.
type machine interface {
	coordinator.Machine
	Check() error
	Dump() string
}

// asked is a request on its way through a shard. A nil request is the end of the
// replay.
type asked struct {
	q     coordinator.Request
	done  func(any, error)
	floor int // what was committed for certain when the machine saw it
	gen   int32
}

// commitWait is replies that wait for HW.
type commitWait struct {
	end  cluster.Offset
	list []told
	over bool
}

type told struct {
	to       *asked
	response any
	ends     int // of the shard, when it was decided
}

// groupRequest hands a request to the shard of a partition.
func (b *broker) groupRequest(p int32, q coordinator.Request, done func(any, error)) {
	s := b.shards[p]
	switch {
	case s == nil || s.gone:
		done(nil, errNotCoordinator)
	case !s.loaded && b.w.cfg.variant != ServeWhileLoading:
		done(nil, errLoading)
	default:
		s.push(&asked{q: q, done: done})
	}
}

// look brings a partition's shard in line with the replica's role.
func (h *hosted) look() {
	if int(h.p) < h.b.w.cfg.Partitions {
		return
	}
	old, leads, v := h.b.shards[h.p], h.State.Role() == partition.Leader, h.b.w.cfg.variant
	if old != nil && !old.gone && (leads && old.since == h.since || v == ShardStays) {
		return
	}
	h.b.shards[h.p] = nil
	if leads {
		h.newShard()
	}
	if old != nil {
		old.drop()
	}
}

func (h *hosted) newShard() {
	g := h.b.w.groups
	s := &shard{h: h, since: h.since, machine: g.newMachine(), waiting: map[coordinator.Token]*asked{}}
	h.b.shards[h.p] = s
	h.b.w.say("b%d t-%d: loads the coordinator of epoch %d up to %d", h.b.id, h.p, h.since, h.Log.LEO())
	from := cluster.Offset(0)
	if h.b.w.cfg.variant == LoadLate {
		from = h.Log.LEO() / 2
	}
	s.load(from)
}

// load replays some of the log, and then the next.
func (s *shard) load(at cluster.Offset) {
	h := s.h
	if s.gone {
		return
	}
	end, w := h.Log.LEO(), h.b.w
	if w.cfg.variant == LoadToHW {
		end = h.State.HW()
	}
	if at >= end {
		s.loaded, s.applied = true, h.Log.LEO()
		w.groups.result.Loads++
		w.say("b%d t-%d: the coordinator is loaded", h.b.id, h.p)
		s.queue = append([]*asked{{}}, s.queue...)
		s.round()
		return
	}
	next := min(at+20, end)
	for o := at; o < next; o++ {
		w.groups.replay(s.machine, h.Log.At(o).ID, o)
	}
	w.after(h.b.node, w.groups.luck.between(time.Millisecond, 20*time.Millisecond), func() { s.load(next) })
}

// replay applies one batch of the log. A batch has its records' offsets to
// itself, as far as the machine is concerned.
func (g *groups) replay(m machine, id int32, at cluster.Offset) {
	b := g.batches[id]
	for i, rec := range b.records {
		if err := m.Apply(entry(rec, at, i, b.ms)); err != nil {
			g.w.check.fail("TypeOk", "a record of a coordinator cannot be read: %v", err)
		}
	}
}

func entry(rec coordinator.Record, at cluster.Offset, i int, ms int64) coordinator.Entry {
	return coordinator.Entry{Record: rec, Offset: at*1000 + cluster.Offset(i), TimestampMs: ms, Producer: cluster.NoProducerID,
		ProducerEpoch: cluster.NoProducerEpoch}
}

// push queues a request; a round takes all that came until it begins.
func (s *shard) push(a *asked) {
	s.queue = append(s.queue, a)
	s.wake(s.h.b.w.groups.luck.between(0, 2*time.Millisecond))
}

func (s *shard) wake(d time.Duration) {
	if s.running {
		return
	}
	s.running = true
	s.h.b.w.after(s.h.b.node, d, s.round)
}

// leads reports whether the leadership that the shard is of goes on.
func (s *shard) leads() error {
	if err := s.h.State.CheckLeader(cluster.NoLeaderEpoch); err != nil {
		return errNotCoordinator
	}
	if s.h.since != s.since && s.h.b.w.cfg.variant != ShardStays {
		return errNotCoordinator
	}
	return nil
}

// round takes what is queued through the machine, and appends what that decided.
func (s *shard) round() {
	s.running = false
	if s.gone {
		return
	}
	w, now := s.h.b.w, s.h.b.w.groups.clock()
	lead := s.leads()
	write := lead
	if write == nil {
		write = s.h.State.CheckMinISR()
	}
	out := batch{ms: now.UnixMilli()}
	var replies []told
	queue := s.queue
	s.queue = nil
	for _, a := range queue {
		switch {
		case a.q.Msg == nil:
			replies = s.take(&out, replies, s.machine.Loaded(now))
		case lead != nil:
			a.done(nil, errNotCoordinator)
		case write != nil && !a.q.ReadOnly:
			a.done(nil, write)
		default:
			s.token++
			a.q.Token = s.token
			s.waiting[s.token] = a
			w.groups.truth(s.h.p).handling(s, a)
			replies = s.take(&out, replies, s.machine.Handle(now, a.q))
		}
	}
	if at, ok := s.machine.NextDeadline(); ok && !at.After(now) && write == nil {
		replies = s.take(&out, replies, s.machine.Expire(now))
	}
	if err := s.machine.Check(); err != nil {
		w.check.fail("TypeOk", "b%d t-%d: coordinator: %v", s.h.b.id, s.h.p, err)
	}
	if err := s.append(out); err != nil {
		s.lost(replies, err)
		return
	}
	s.await(replies)
	if !s.gone {
		s.arm(now, write)
	}
}

// take applies what the machine decided, and sorts out who is answered when.
func (s *shard) take(out *batch, replies []told, r coordinator.Result) []told {
	for _, rec := range r.Records {
		if err := s.machine.Apply(entry(rec, s.h.Log.LEO(), len(out.records), out.ms)); err != nil {
			s.h.b.w.check.fail("TypeOk", "b%d t-%d: a coordinator cannot read what it writes: %v", s.h.b.id, s.h.p, err)
		}
		out.records = append(out.records, rec)
		if rec.Value == nil && binary.BigEndian.Uint16(rec.Key) == 2 {
			s.ends++
		}
	}
	for _, reply := range r.Replies {
		a := s.waiting[reply.Token]
		if a == nil {
			s.h.b.w.check.fail("TypeOk", "b%d t-%d: a coordinator replies to a request that does not wait", s.h.b.id, s.h.p)
			continue
		}
		delete(s.waiting, reply.Token)
		t := told{a, reply.Response, s.ends}
		if s.prompt(reply.Response) {
			s.send(t)
			continue
		}
		replies = append(replies, t)
	}
	return replies
}

// prompt replies do not wait for HW.
func (s *shard) prompt(response any) bool {
	switch response.(type) {
	case *kmsg.HeartbeatResponse:
		return true
	case *kmsg.OffsetFetchResponse:
		return s.h.b.w.cfg.variant == OffsetsAtOnce
	}
	return s.h.b.w.cfg.variant == ReplyWhenAppended
}

func (s *shard) send(t told) {
	s.h.b.w.groups.truth(s.h.p).answered(s, t)
	t.to.done(t.response, nil)
}

// append writes the records of a round as one batch.
func (s *shard) append(out batch) error {
	if len(out.records) == 0 {
		return nil
	}
	w, h := s.h.b.w, s.h
	if !w.healed && w.groups.luck.once(w.cfg.Groups.FailOnceIn) {
		w.groups.result.FailedAppends++
		return errDisk
	}
	w.nextRecord++
	w.groups.batches[w.nextRecord] = out
	at, e, err := h.Write(w.nextRecord, false)
	if err != nil {
		return err
	}
	s.applied = at + 1
	w.say("b%d t-%d: %v at %d in epoch %d", h.b.id, h.p, out, at, h.State.LeaderEpoch())
	w.check.appended(h, at)
	w.maybeFlip(h)
	h.after(e)
	h.wake()
	return nil
}

// lost ends a shard whose append has failed: it is ahead of the log.
func (s *shard) lost(replies []told, err error) {
	s.h.b.w.say("b%d t-%d: the coordinator could not write: %v", s.h.b.id, s.h.p, err)
	if s.h.b.w.cfg.variant != StayAfterFailedAppend {
		s.drop()
		s.h.look()
	} else {
		s.wake(time.Second)
	}
	for _, t := range replies {
		t.to.done(nil, err)
	}
}

// await sends replies once HW has passed all that was applied.
func (s *shard) await(replies []told) {
	if len(replies) == 0 {
		return
	}
	c := &commitWait{end: s.applied, list: replies}
	s.waits = append(s.waits, c)
	s.committed()
	s.h.b.w.after(s.h.b.node, commitTimeout, func() { c.fail(errTimedOut) })
}

// committed looks whose wait is over.
func (h *hosted) committed() {
	if int(h.p) < h.b.w.cfg.Partitions {
		return
	}
	if s := h.b.shards[h.p]; s != nil {
		s.committed()
	}
	for _, s := range h.ghosts {
		s.committed()
	}
}

func (s *shard) committed() {
	lost := s.leads()
	if s.h.b.w.cfg.variant == WaitsOutliveLeadership {
		lost = nil
	}
	list := s.waits
	s.waits = nil
	for _, c := range list {
		switch {
		case lost != nil:
			c.fail(errNotCoordinator)
		case s.h.State.HW() < c.end:
			s.waits = append(s.waits, c)
		case !c.over:
			c.over = true
			for _, t := range c.list {
				s.send(t)
			}
		}
	}
}

func (c *commitWait) fail(err error) {
	if c.over {
		return
	}
	c.over = true
	for _, t := range c.list {
		t.to.done(nil, err)
	}
}

// arm has the shard look again when its machine wants to.
func (s *shard) arm(now time.Time, write error) {
	at, ok := s.machine.NextDeadline()
	if !ok {
		return
	}
	d := max(at.Sub(now), time.Millisecond)
	if write != nil {
		d = max(d, 500*time.Millisecond)
	}
	w := s.h.b.w
	due := w.now + d
	if s.alarm > w.now && s.alarm <= due {
		return
	}
	s.alarm = due
	w.after(s.h.b.node, d, func() {
		if s.alarm == due {
			s.alarm = 0
			s.wake(0)
		}
	})
}

// drop ends a shard: whoever waits is sent elsewhere.
func (s *shard) drop() {
	if s.gone {
		return
	}
	s.gone = true
	if s.h.b.w.cfg.variant == WaitsOutliveLeadership {
		s.h.ghosts = append(s.h.ghosts, s)
	} else {
		for _, c := range s.waits {
			c.fail(errNotCoordinator)
		}
		s.waits = nil
	}
	for _, a := range s.queue {
		if a.q.Msg != nil {
			a.done(nil, errNotCoordinator)
		}
	}
	s.queue = nil
	tokens := make([]coordinator.Token, 0, len(s.waiting))
	for t := range s.waiting {
		tokens = append(tokens, t)
	}
	slices.Sort(tokens)
	for _, t := range tokens {
		s.waiting[t].done(nil, errNotCoordinator)
	}
	s.waiting = nil
}
