package loop

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// stateFacts reads states. Whoever mends one that cannot be understood tells
// nobody, so that such a one is read again with a watch; states are not watched
// otherwise, as only controllers and leaders that tell of it write them.
func (t *term) stateFacts(list []cluster.TopicPartition) error {
	states, err := zkmeta.ReadStates(t.ctx, t.session, list, false)
	if err != nil {
		return err
	}
	broken, err := t.take(list, states)
	if err != nil || len(broken) == 0 {
		return err
	}
	if states, err = zkmeta.ReadStates(t.ctx, t.session, broken, true); err != nil {
		return err
	}
	_, err = t.take(broken, states)
	return err
}

// take takes in what was read of the states in list, and returns those that cannot be
// understood.
func (t *term) take(list []cluster.TopicPartition, states []zkmeta.StateRead) (broken []cluster.TopicPartition, err error) {
	there := make(map[cluster.TopicPartition]bool, len(states))
	for _, r := range states {
		there[r.Partition] = true
		t.stateFact(r)
		if r.Err != nil {
			broken = append(broken, r.Partition)
		}
	}
	for _, tp := range list {
		if _, was := t.broken[zkmeta.StatePath(tp)]; was && !there[tp] {
			if err := t.stateGone(tp); err != nil {
				return nil, err
			}
		}
	}
	return broken, nil
}

func (t *term) stateFact(r zkmeta.StateRead) {
	t.parents[r.Partition.Topic] = true
	if r.Err != nil {
		t.report(zkmeta.StatePath(r.Partition), r.Err)
		t.im.StateUnreadable(r.Partition)
		return
	}
	t.understood(zkmeta.StatePath(r.Partition))
	t.im.StateRead(r.Partition, r.State)
}

// stateGone waits for the state whose unreadable znode was deleted: nobody knows
// what it said, so that no first state may take its place.
func (t *term) stateGone(tp cluster.TopicPartition) error {
	path := zkmeta.StatePath(tp)
	if !t.im.HasTopic(tp.Topic) {
		delete(t.broken, path)
		return nil
	}
	_, there, err := t.session.Exists(t.ctx, path, true)
	if err != nil {
		return err
	}
	if there {
		t.todo.states[tp] = true
		return nil
	}
	if t.once(path, "gone") {
		t.l.opts.Logger.Warn().Str("partition", tp.String()).Str("znode", path).
			Msg("a state that could not be understood was deleted: the partition is left alone until its state is there again")
	}
	return nil
}
