package loop

import (
	"context"
	"errors"
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
)

// errMoved says that a check of /controller_epoch failed: there is a later
// controller.
var errMoved = errors.New("the controller has moved to another broker")

// contend looks who the controller is, with a watch, and tries to become it if
// nobody is.
func (l *Loop) contend() error {
	s, err := l.opts.Store.Session()
	if err != nil {
		return err
	}
	c, st, found, err := zkmeta.GetController(l.ctx, s, true)
	switch {
	case errors.Is(err, zkmeta.ErrBadZnode):
		return fmt.Errorf("%w; nobody is elected while it is there: delete %s once it is sure that no KRaft controller has taken this cluster over", err, zkmeta.ControllerPath)
	case err != nil:
		return err
	case found && c.KRaftControllerEpoch != zkmeta.NoKRaftController:
		l.vacancy = nil
		l.resign("a KRaft controller took over")
		l.opts.Logger.Error().Int32("node", int32(c.BrokerID)).Int32("kraft epoch", c.KRaftControllerEpoch).
			Msg("a KRaft controller owns this cluster: this broker does not contend")
		l.contends = false
		return nil
	case found && st.EphemeralOwner == s.ID() && l.term != nil && l.term.session == s:
		l.contends = false // a watch fired for nothing
		return nil
	case found && s.Owned(st.EphemeralOwner):
		// Left by an earlier session, or by an election whose answer was lost:
		// nobody acts for it, so that it may go.
		l.resign("an earlier election is in the way")
		if _, err := s.Multi(l.ctx, zkmeta.Delete(zkmeta.ControllerPath, st.Version)); err != nil && !errors.Is(err, zkmeta.ErrNoNode) && !errors.Is(err, zkmeta.ErrBadVersion) {
			return err
		}
		return l.contend()
	case found:
		l.resign("another broker is the controller")
		if l.follows != st.Czxid { // events come in pairs: of the list and of the znode, of the session
			l.follows = st.Czxid
			l.opts.Logger.Info().Int32("controller", int32(c.BrokerID)).Msg("another broker is the controller")
		}
		l.contends, l.vacancy = false, nil
		return nil
	}
	l.resign("the controller's znode is gone")
	l.vacated()
	return l.elect(s)
}

func (l *Loop) elect(s zkmeta.Session) error {
	if l.opts.Ineligible {
		l.contends = false
		return nil
	}
	// A controller that is not registered would take itself for dead. The watch
	// wakes it when it is.
	st, registered, err := s.Exists(l.ctx, zkmeta.BrokerPath(l.opts.Self), true)
	if err != nil {
		return err
	}
	if !registered || st.EphemeralOwner != s.ID() {
		l.contends = false
		return nil
	}
	epoch, version, err := zkmeta.GetOrCreateControllerEpoch(l.ctx, s)
	if errors.Is(err, zkmeta.ErrBadZnode) {
		return fmt.Errorf("%w; nobody is elected until it has a number: set it to one above the epoch that brokers have seen last (\"elected as controller\" in their logs)", err)
	}
	if err != nil {
		return err
	}
	me := zkmeta.Controller{BrokerID: l.opts.Self, Timestamp: l.opts.Clock.Now().UnixMilli(), KRaftControllerEpoch: zkmeta.NoKRaftController}
	results, err := s.Multi(l.ctx, zkmeta.Elect(me, epoch+1, version)...)
	switch {
	case errors.Is(err, zkmeta.ErrNodeExists), errors.Is(err, zkmeta.ErrBadVersion):
		return l.contend() // somebody was faster; the watch is set again
	case err != nil:
		return fmt.Errorf("election: %w", err)
	}
	l.contends, l.vacancy = false, nil
	return l.begin(s, epoch+1, results[1].Stat.Version)
}

// begin starts a term. If its first reads fail it is repeated as a whole.
func (l *Loop) begin(s zkmeta.Session, epoch cluster.ControllerEpoch, version cluster.ZKVersion) error {
	l.opts.Logger.Info().Int32("epoch", int32(epoch)).Msg("elected as controller")
	t := &term{
		l: l, session: s, version: version,
		im:      controller.New(l.opts.Self, epoch, controller.Config{Listener: l.opts.InterBrokerListener}),
		senders: map[cluster.BrokerID]*sender{},
		todo:    newTodo(),
		parents: map[string]bool{},
		broken:  map[string]string{},
		stuck:   map[cluster.TopicPartition]bool{},
		moved:   map[string]int{},
		asked:   map[string]bool{},
	}
	t.todo.load = true
	t.ctx, t.cancel = context.WithCancel(l.ctx)
	l.term = t
	l.active.Store(&Status{Epoch: epoch})
	l.opts.OnController(true, epoch)
	if l.opts.RebalanceEvery > 0 {
		l.rebalanceIn(t, firstRebalance)
	}
	return nil
}

// resign ends the term, if there is one. Senders end by themselves.
func (l *Loop) resign(why string) {
	t := l.term
	if t == nil {
		return
	}
	l.term = nil
	t.cancel()
	l.active.Store(nil)
	l.opts.Logger.Info().Int32("epoch", int32(t.im.Epoch())).Str("why", why).Msg("no longer the controller")
	l.opts.OnController(false, t.im.Epoch())
}
