package loop

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
)

func sortedNames(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// readIsrChanges follows leaders of inter.broker.protocol.versions below 2.7,
// which write the state znode themselves.
func (t *term) readIsrChanges() error {
	list, err := zkmeta.ReadNotifications(t.ctx, t.session, zkmeta.IsrChangesPath, -1, true)
	if err != nil {
		return err
	}
	for _, n := range list {
		partitions, err := zkmeta.DecodeIsrChange(n.Name, n.Data)
		if err != nil {
			t.reportDropped(zkmeta.IsrChangesPath+"/"+n.Name, err)
			continue
		}
		for _, tp := range partitions {
			t.todo.states[tp] = true
		}
	}
	return t.deleteNotifications(zkmeta.IsrChangesPath, list)
}

// readLogDirEvents asks the brokers that lost a log directory what they lost.
func (t *term) readLogDirEvents() error {
	list, err := zkmeta.ReadNotifications(t.ctx, t.session, zkmeta.LogDirEventsPath, -1, true)
	if err != nil {
		return err
	}
	for _, n := range list {
		id, err := zkmeta.DecodeLogDirEvent(n.Name, n.Data)
		if err != nil {
			t.reportDropped(zkmeta.LogDirEventsPath+"/"+n.Name, err)
			continue
		}
		t.l.opts.Logger.Warn().Int32("peer", int32(id)).Msg("a log directory of the broker failed")
		t.im.LogDirFailed(id)
	}
	return t.deleteNotifications(zkmeta.LogDirEventsPath, list)
}

func (t *term) deleteNotifications(parent string, list []zkmeta.Notification) error {
	writes := make([][]zkmeta.Op, len(list))
	for i, n := range list {
		writes[i] = []zkmeta.Op{zkmeta.Delete(parent+"/"+n.Name, cluster.AnyZKVersion)}
	}
	for _, o := range zkmeta.WriteEach(t.ctx, t.session, t.guard(), writes) {
		if o.Err != nil && !errors.Is(o.Err, zkmeta.ErrNoNode) {
			return moved(o.Err)
		}
	}
	return nil
}

// readPreferredElection serves the znode by which old tools ask for preferred
// elections. It goes once they are wished for; what cannot be had is logged.
func (t *term) readPreferredElection() error {
	data, st, err := t.session.Get(t.ctx, zkmeta.PreferredElectionPath, true)
	if errors.Is(err, zkmeta.ErrNoNode) {
		_, _, err = t.session.Exists(t.ctx, zkmeta.PreferredElectionPath, true)
		return err
	}
	if err != nil {
		return err
	}
	partitions, err := zkmeta.DecodePreferredElection(data)
	if err != nil {
		t.reportDropped(zkmeta.PreferredElectionPath, err)
	}
	for tp, code := range t.im.Elect(controller.PreferredElection, partitions) {
		if code != 0 {
			t.l.opts.Logger.Warn().Stringer("partition", tp).Str("error", errorName(code)).Msg("preferred election asked for in ZooKeeper is not possible")
		}
	}
	_, err = t.session.Multi(t.ctx, append(t.guard(), zkmeta.Delete(zkmeta.PreferredElectionPath, st.Version))...)
	if errors.Is(err, zkmeta.ErrBadVersion) || errors.Is(err, zkmeta.ErrNoNode) {
		return nil // somebody else changed it; the watch tells
	}
	return moved(err)
}

// firstRebalance is how long after its election a controller first looks at
// the preferred replicas, as Kafka's does.
const firstRebalance = 5 * time.Second

func (l *Loop) rebalanceIn(t *term, d time.Duration) {
	l.opts.Clock.AfterFunc(d, func() { l.inbox.put(rebalance{t}) })
}

// rebalance wishes for the elections; the step after it holds them.
func (l *Loop) rebalance(m rebalance) {
	if l.term != m.of {
		return
	}
	l.rebalanceIn(m.of, l.opts.RebalanceEvery)
	if m.of.todo.load {
		return
	}
	if away := m.of.im.Imbalanced(l.opts.RebalancePercentage); len(away) > 0 {
		l.opts.Logger.Info().Int("partitions", len(away)).Msg("giving the leadership back to preferred replicas")
		m.of.im.Elect(controller.PreferredElection, away)
	}
}
