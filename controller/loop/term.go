package loop

import (
	"context"
	"errors"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
)

// term is one time of being the controller: one session, one epoch, one image.
// It belongs to the decision goroutine.
type term struct {
	l       *Loop
	ctx     context.Context
	cancel  context.CancelFunc
	session zkmeta.Session
	version cluster.ZKVersion // of /controller_epoch
	im      *controller.Image
	todo    todo
	senders map[cluster.BrokerID]*sender
	parents map[string]bool // topics whose partitions znode is there
	asked   map[string]bool // topics whose unclean.leader.election.enable was read
	// What an old tool wants reassigned, nil where somebody overruled it; of which
	// the znode is at legacyVersion and names legacySize.
	legacy        map[cluster.TopicPartition][]cluster.BrokerID
	legacyVersion cluster.ZKVersion
	legacySize    int
	finalized     map[string]zkmeta.FinalizedFeature
	// znodes that cannot be understood, and why; partitions whose leader epochs have
	// come to an end: both logged once.
	broken map[string]string
	stuck  map[cluster.TopicPartition]bool
	moved  map[string]int // partitions whose reassignment has ended, of topics where others go on
}

// guard goes before every write.
func (t *term) guard() []zkmeta.Op {
	return []zkmeta.Op{zkmeta.CheckControllerEpoch(t.version)}
}

// moved turns a failure of the guard into errMoved.
func moved(err error) error {
	if failed, ok := errors.AsType[*zkmeta.MultiError](err); ok && failed.Index == 0 && failed.Op.Kind == zkmeta.OpCheck {
		return errMoved
	}
	return err
}

// decide reads what changed, carries out the plans until no write is due, and
// hands the senders that have nothing in flight what is due to their brokers.
// What is due to the others waits for their answers, so that it can grow
// together. While ZooKeeper cannot be reached, sends that need no write go on.
func (t *term) decide() error {
	err := t.read()
	for fruitless := 0; err == nil; {
		var outcome progress
		outcome, err = t.round()
		switch {
		case err != nil:
		case outcome == nothingLeft:
			return t.settleLegacy()
		case outcome == something:
			fruitless = 0
		default:
			// What was read up since should be acceptable the next time.
			if fruitless++; fruitless > 2 {
				err = errors.New("ZooKeeper keeps refusing what is due")
			}
		}
	}
	if !t.todo.load && !over(err) {
		t.dispatch(controller.DecideFor(t.im, controller.Scope{}, t.idle()))
	}
	return err
}

// over reports whether an error ends the term.
func over(err error) bool {
	return errors.Is(err, errMoved) || errors.Is(err, zkmeta.ErrSessionExpired) || errors.Is(err, zkmeta.ErrClosed)
}

// progress is what a round brought.
type progress int

const (
	nothingLeft progress = iota // to write
	something
	onlyRefusals
)

// round carries out one plan.
func (t *term) round() (progress, error) {
	t.matchSenders()
	// Writes first, since most sends are about to change by them; many writes are
	// carried out in parts, with the sends of one before the next.
	plan := controller.DecideFor(t.im, t.im.TakeDirty(), nil)
	if len(plan.Writes) == 0 && len(plan.Asks) == 0 {
		t.reportStuck()
		t.dispatch(controller.DecideFor(t.im, controller.Scope{}, t.idle()))
		return nothingLeft, nil
	}
	outcome := onlyRefusals
	var done changes
	defer func() { t.tell(done) }()
	for writes := plan.Writes; len(writes) > 0; {
		n := min(len(writes), writesPerPart)
		part := plan
		part.Writes = writes[:n]
		writes = writes[n:]
		results, err := t.write(part.Writes)
		t.im.Settle(part, results)
		t.l.countUnclean(part.Writes, results)
		done.add(part.Writes, results)
		if err != nil {
			t.im.Postpone(writes)
			return outcome, err
		}
		if slices.ContainsFunc(results, func(r controller.Result) bool { return r.Accepted }) {
			outcome = something
		}
		if len(writes) > 0 {
			t.dispatch(controller.DecideFor(t.im, controller.Scope{}, t.idle()))
		}
	}
	for _, name := range plan.Asks {
		t.todo.configs[name] = true
		outcome = something
	}
	return outcome, t.read()
}

// writesPerPart is about what ZooKeeper takes in a fifth of a second.
const writesPerPart = 2000

// matchSenders has one sender for each live incarnation of a broker.
func (t *term) matchSenders() {
	for id, s := range t.senders {
		if b, live := t.im.Broker(id); !live || b.Epoch != s.broker.Epoch {
			s.stop()
			delete(t.senders, id)
		}
	}
	for _, id := range t.im.BrokerIDs() {
		b, _ := t.im.Broker(id)
		s := t.senders[id]
		if s == nil {
			s = newSender(t, b)
			t.senders[id] = s
		}
		s.moveTo(b)
	}
}

// idle are the brokers to which something is due and nothing is in flight.
func (t *term) idle() []cluster.BrokerID {
	return slices.DeleteFunc(t.im.Due(), func(id cluster.BrokerID) bool {
		s := t.senders[id]
		b, _ := t.im.Broker(id)
		return s == nil || s.busy || s.broker.Epoch != b.Epoch
	})
}

// dispatch gives each idle sender what is due to its broker.
func (t *term) dispatch(plan controller.Plan) {
	shared := map[*controller.UpdateMetadata]*sharedTopics{}
	var followers [][]job
	for sends := plan.Sends; len(sends) > 0; {
		to := sends[0].Broker
		var jobs []job
		for len(sends) > 0 && sends[0].Broker == to {
			j := job{send: sends[0]}
			if u := j.send.UpdateMetadata; u != nil {
				if shared[u] == nil {
					shared[u] = &sharedTopics{}
				}
				j.topics = shared[u]
			}
			jobs, sends = append(jobs, j), sends[1:]
		}
		// New leaders first: a follower that fetches before its leader has heard of
		// its role is sent away, and waits.
		if !leads(jobs, to) {
			followers = append(followers, jobs)
			continue
		}
		t.senders[to].give(jobs)
	}
	for _, jobs := range followers {
		t.senders[jobs[0].send.Broker].give(jobs)
	}
}

// leads reports whether the broker is told to lead something.
func leads(jobs []job, id cluster.BrokerID) bool {
	for _, j := range jobs {
		if j.send.LeaderAndISR == nil {
			continue
		}
		for _, t := range j.send.LeaderAndISR.Topics {
			if slices.ContainsFunc(t.Partitions, func(p controller.LeaderAndISRPartition) bool { return p.State.Leader == id }) {
				return true
			}
		}
	}
	return false
}
