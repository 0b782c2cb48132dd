package loop

import (
	"errors"
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
)

// unitPartitions is up to how many partitions a new topic gets its states, and
// their parents, in one multi: one round trip for most topics.
const unitPartitions = 50

// unit is writes that share a multi of their own.
type unit struct {
	writes []int // indexes
	ops    []zkmeta.Op
	parent string // the topic whose partitions znode it creates
}

// write carries out conditional writes and answers for each. What was refused,
// or has an unknown outcome, is read up. An error says that nothing more can be
// written now; the results say what was.
func (t *term) write(writes []controller.Write) ([]controller.Result, error) {
	results := make([]controller.Result, len(writes))
	units, err := t.units(writes)
	if err == nil {
		err = t.writeUnits(units, writes, results)
	}
	for i, w := range writes {
		if err != nil {
			break
		}
		switch w.Kind {
		case controller.SetTopicID:
			results[i], err = t.writeTopicID(w)
		case controller.SetAssignment:
			results[i], err = t.writeAssignment(w)
		case controller.DeleteTopic:
			results[i], err = t.deleteTopic(w.Topic)
		case controller.ForgetDeletion:
			results[i], err = t.forgetDeletion(w.Topic)
		}
	}
	return results, err
}

// units groups the writes of states. A large topic's parent is created before.
func (t *term) units(writes []controller.Write) ([]unit, error) {
	var units []unit
	var parents []string
	fresh := map[string]int{} // topic: index of its unit, or -1
	for i, w := range writes {
		switch w.Kind {
		case controller.SetState:
			units = append(units, unit{writes: []int{i}, ops: []zkmeta.Op{zkmeta.SetState(w.TopicPartition(), w.State)}})
		case controller.CreateState:
			ops := zkmeta.CreateState(w.TopicPartition(), w.State)
			at, seen := fresh[w.Topic]
			if !seen {
				at = -1
				if !t.parents[w.Topic] && len(t.im.PartitionNumbers(w.Topic)) > unitPartitions {
					parents = append(parents, w.Topic)
				} else if !t.parents[w.Topic] {
					at = len(units)
					create := zkmeta.Create(zkmeta.PartitionsPath(w.Topic), nil, zkmeta.Persistent, nil)
					units = append(units, unit{parent: w.Topic, ops: []zkmeta.Op{create}})
				}
				fresh[w.Topic] = at
			}
			if at < 0 {
				units = append(units, unit{writes: []int{i}, ops: ops})
				continue
			}
			units[at].writes = append(units[at].writes, i)
			units[at].ops = append(units[at].ops, ops...)
		}
	}
	return units, t.createParents(parents)
}

func (t *term) createParents(topics []string) error {
	writes := make([][]zkmeta.Op, len(topics))
	for i, name := range topics {
		writes[i] = []zkmeta.Op{zkmeta.Create(zkmeta.PartitionsPath(name), nil, zkmeta.Persistent, nil)}
	}
	for i, o := range zkmeta.WriteEach(t.ctx, t.session, t.guard(), writes) {
		switch {
		case o.Err == nil, errors.Is(o.Err, zkmeta.ErrNodeExists):
			t.parents[topics[i]] = true
		case errors.Is(o.Err, zkmeta.ErrNoNode):
			t.todo.topicList = true // the topic is gone
		default:
			return fmt.Errorf("%s: %w", topics[i], moved(o.Err))
		}
	}
	return nil
}

func (t *term) writeUnits(units []unit, writes []controller.Write, results []controller.Result) error {
	ops := make([][]zkmeta.Op, len(units))
	for i, u := range units {
		ops[i] = u.ops
	}
	var lost []controller.Write // outcome unknown
	var lostAt []int
	var failure error
	for i, o := range zkmeta.WriteEach(t.ctx, t.session, t.guard(), ops) {
		u := units[i]
		switch err := moved(o.Err); {
		case err == nil:
			t.accept(u, writes, o.Results, results)
		case errors.Is(err, zkmeta.ErrNodeExists) && u.parent != "" && failedAt(err) == 0:
			t.parents[u.parent] = true // left by a controller that got no further
		case errors.Is(err, zkmeta.ErrNodeExists), errors.Is(err, zkmeta.ErrBadVersion), errors.Is(err, zkmeta.ErrNoNode):
			if err := t.refused(u, writes, err); err != nil {
				failure = errors.Join(failure, err)
			}
		case errors.Is(err, zkmeta.ErrUnknownOutcome):
			for _, w := range u.writes {
				lost, lostAt = append(lost, writes[w]), append(lostAt, w)
			}
		default:
			failure = err
		}
	}
	if failure != nil {
		for _, w := range lost {
			t.todo.states[w.TopicPartition()] = true
		}
		return failure
	}
	return t.lookUp(lost, lostAt, results)
}

func failedAt(err error) int {
	if failed, ok := errors.AsType[*zkmeta.MultiError](err); ok {
		return failed.Index
	}
	return -1
}

func (t *term) accept(u unit, writes []controller.Write, got []zkmeta.Result, results []controller.Result) {
	if u.parent != "" {
		t.parents[u.parent] = true
	}
	for _, w := range u.writes {
		results[w].Accepted = true // a created znode is at version 0
		if writes[w].Kind == controller.SetState {
			results[w].Version = got[0].Stat.Version
		}
	}
}

// refused has read what is there instead. A partition's znode without a state,
// which a controller left that created them one by one, gets its state by
// itself in the next plan.
func (t *term) refused(u unit, writes []controller.Write, err error) error {
	for _, w := range u.writes {
		t.todo.states[writes[w].TopicPartition()] = true
	}
	t.todo.topicList = true
	failed, ok := errors.AsType[*zkmeta.MultiError](err)
	if !ok || failed.Op.Kind != zkmeta.OpCreate || !errors.Is(err, zkmeta.ErrNodeExists) {
		return nil
	}
	for _, w := range u.writes {
		tp := writes[w].TopicPartition()
		if failed.Op.Path != zkmeta.PartitionPath(tp) {
			continue
		}
		if _, there, err := t.session.Exists(t.ctx, zkmeta.StatePath(tp), false); err != nil || there {
			return err
		}
		_, err := t.session.Multi(t.ctx, append(t.guard(), zkmeta.Delete(zkmeta.PartitionPath(tp), cluster.AnyZKVersion))...)
		if err = moved(err); err != nil && !errors.Is(err, zkmeta.ErrNotEmpty) && !errors.Is(err, zkmeta.ErrNoNode) {
			return err
		}
	}
	return nil
}

// lookUp settles writes of unknown outcome: a state that is just as it would
// have been written was written.
func (t *term) lookUp(lost []controller.Write, at []int, results []controller.Result) error {
	if len(lost) == 0 {
		return nil
	}
	list := make([]cluster.TopicPartition, len(lost))
	for i, w := range lost {
		list[i] = w.TopicPartition()
		t.todo.states[list[i]] = true
	}
	states, err := zkmeta.ReadStates(t.ctx, t.session, list, false)
	if err != nil {
		return err // they are still to do
	}
	found := make(map[cluster.TopicPartition]cluster.LeaderAndISR, len(states))
	for _, r := range states {
		if r.Err == nil {
			found[r.Partition] = r.State
		}
	}
	for i, w := range lost {
		is, ok := found[list[i]]
		want := w.State
		want.ZKVersion++
		if ok && is.Equal(want) {
			results[at[i]] = controller.Result{Accepted: true, Version: want.ZKVersion}
			delete(t.todo.states, list[i])
		}
	}
	return nil
}

// writeTopicID adds an id to the topic's znode as it is.
func (t *term) writeTopicID(w controller.Write) (controller.Result, error) {
	t.todo.topics[w.Topic] = true // to be read again, unless all went well
	a, st, found, err := zkmeta.GetTopic(t.ctx, t.session, w.Topic, false)
	switch {
	case errors.Is(err, zkmeta.ErrBadZnode), err == nil && (!found || st.Version != w.Version || !a.ID.IsZero()):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, err
	}
	a.ID = w.TopicID
	results, err := t.session.Multi(t.ctx, append(t.guard(), zkmeta.SetTopic(w.Topic, a, w.Version))...)
	switch err = moved(err); {
	case errors.Is(err, zkmeta.ErrBadVersion), errors.Is(err, zkmeta.ErrNoNode), errors.Is(err, zkmeta.ErrUnknownOutcome):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, err
	}
	delete(t.todo.topics, w.Topic)
	return controller.Result{Accepted: true, Version: results[1].Stat.Version}, nil
}
