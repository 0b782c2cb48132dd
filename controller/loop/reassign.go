package loop

import (
	"context"
	"errors"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
)

// Reassignment is a partition that somebody wants on other replicas; nil cancels
// the reassignment that is under way.
type Reassignment struct {
	Partition cluster.TopicPartition
	Replicas  []cluster.BrokerID
}

// Refusal is why a reassignment was not taken: Kafka's error code, and words.
type Refusal struct {
	Code int16
	Why  string
}

const codeRequestTimedOut = 7

// AlterReassignments begins, replaces or cancels reassignments and answers for
// each that was refused. Those begun are written down when it returns.
func (l *Loop) AlterReassignments(ctx context.Context, list []Reassignment) (refused map[cluster.TopicPartition]Refusal, err error) {
	err = l.do(ctx, func(t *term) error {
		refused = map[cluster.TopicPartition]Refusal{}
		var taken []cluster.TopicPartition
		for _, r := range list {
			if code, why := t.im.Reassign(r.Partition, r.Replicas); code != 0 {
				refused[r.Partition] = Refusal{code, why}
			} else {
				taken = append(taken, r.Partition)
			}
		}
		// The latest wish counts, also over one in ZooKeeper.
		for _, tp := range taken {
			if _, ok := t.legacy[tp]; ok {
				t.legacy[tp] = nil
			}
		}
		err := l.carryOut(t)
		for _, tp := range taken {
			if t.im.DropReassign(tp) {
				refused[tp] = t.whyNot(tp, list)
			}
		}
		if over(err) || errors.Is(err, ErrNotController) {
			return err
		}
		return nil // what is due besides is tried again
	})
	return refused, err
}

// whyNot says why a reassignment that was taken was not written down.
func (t *term) whyNot(tp cluster.TopicPartition, list []Reassignment) Refusal {
	for _, r := range list {
		if r.Partition != tp {
			continue
		}
		if code, why := t.im.Reassign(tp, r.Replicas); code != 0 { // an election came first
			return Refusal{code, why}
		}
		t.im.DropReassign(tp)
	}
	return Refusal{codeRequestTimedOut, "ZooKeeper does not take the assignment"}
}

// Reassigning is one partition's reassignment.
type Reassigning struct {
	Partition  cluster.TopicPartition
	Assignment cluster.Assignment
}

// ListReassignments are the reassignments under way of the partitions named, or
// of all for nil; sorted.
func (l *Loop) ListReassignments(ctx context.Context, partitions []cluster.TopicPartition) (list []Reassigning, err error) {
	err = l.do(ctx, func(t *term) error {
		named := make(map[cluster.TopicPartition]bool, len(partitions))
		for _, tp := range partitions {
			named[tp] = true
		}
		for _, tp := range t.im.ReassigningPartitions() {
			if partitions != nil && !named[tp] {
				continue
			}
			a, _ := t.im.Assignment(tp)
			list = append(list, Reassigning{tp, a})
		}
		return nil
	})
	return list, err
}

// writeAssignment changes what the plan says in the topic's znode as it is.
func (t *term) writeAssignment(w controller.Write) (controller.Result, error) {
	t.todo.topics[w.Topic] = true // to be read again, unless all went well
	a, st, found, err := zkmeta.GetTopic(t.ctx, t.session, w.Topic, false)
	switch {
	case errors.Is(err, zkmeta.ErrBadZnode), err == nil && (!found || st.Version != w.Version):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, err
	}
	for _, m := range w.Moves {
		a.Partitions[m.Partition] = m.Assignment
	}
	results, err := t.session.Multi(t.ctx, append(t.guard(), zkmeta.SetTopic(w.Topic, a, w.Version))...)
	switch err = moved(err); {
	case errors.Is(err, zkmeta.ErrBadVersion), errors.Is(err, zkmeta.ErrNoNode):
		return controller.Result{}, nil
	case errors.Is(err, zkmeta.ErrUnknownOutcome):
		return t.lookUpAssignment(w)
	case err != nil:
		return controller.Result{}, err
	}
	delete(t.todo.topics, w.Topic)
	return controller.Result{Accepted: true, Version: results[1].Stat.Version}, nil
}

// lookUpAssignment settles a write of unknown outcome.
func (t *term) lookUpAssignment(w controller.Write) (controller.Result, error) {
	a, st, found, err := zkmeta.GetTopic(t.ctx, t.session, w.Topic, false)
	switch {
	case errors.Is(err, zkmeta.ErrBadZnode), err == nil && (!found || st.Version != w.Version+1):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, err
	}
	for _, m := range w.Moves {
		if !a.Partitions[m.Partition].Equal(m.Assignment) {
			return controller.Result{}, nil
		}
	}
	return controller.Result{Accepted: true, Version: st.Version}, nil
}

// readLegacy takes up what an old tool asks for in ZooKeeper. Its znode goes when
// all of it is done, and shrinks meanwhile.
func (t *term) readLegacy() error {
	data, st, err := t.session.Get(t.ctx, zkmeta.ReassignPartitionsPath, true)
	if errors.Is(err, zkmeta.ErrNoNode) {
		t.legacy, t.legacySize = nil, 0
		_, _, err = t.session.Exists(t.ctx, zkmeta.ReassignPartitionsPath, true)
		return err
	}
	if err != nil {
		return err
	}
	list, err := zkmeta.DecodeReassign(data)
	if err != nil {
		t.report(zkmeta.ReassignPartitionsPath, err)
		t.legacy, t.legacySize = nil, 0
		return nil
	}
	before := t.legacy
	t.legacy = make(map[cluster.TopicPartition][]cluster.BrokerID, len(list))
	t.legacyVersion, t.legacySize = st.Version, len(list)
	for _, r := range list {
		if was, ok := before[r.Partition]; ok && (was == nil || slices.Equal(was, r.Replicas)) {
			t.legacy[r.Partition] = was // taken up or overruled before
			continue
		}
		code, why := t.im.ReassignUnchecked(r.Partition, r.Replicas)
		if code != 0 {
			t.l.opts.Logger.Warn().Stringer("partition", r.Partition).Str("why", why).Msg("reassignment asked for in ZooKeeper is not possible")
			continue
		}
		t.legacy[r.Partition] = r.Replicas
	}
	if len(list) == 0 {
		return t.dropLegacy(st.Version)
	}
	return nil // settleLegacy takes out those that are not possible
}

func (t *term) dropLegacy(version cluster.ZKVersion) error {
	return t.writeLegacy(zkmeta.Delete(zkmeta.ReassignPartitionsPath, version))
}

func (t *term) writeLegacy(op zkmeta.Op) error {
	results, err := t.session.Multi(t.ctx, append(t.guard(), op)...)
	if errors.Is(err, zkmeta.ErrBadVersion) || errors.Is(err, zkmeta.ErrNoNode) || errors.Is(err, zkmeta.ErrUnknownOutcome) {
		t.todo.legacy = true // somebody changed it
		return nil
	}
	if err == nil && op.Kind == zkmeta.OpSet {
		t.legacyVersion = results[1].Stat.Version
	}
	return moved(err)
}

// settleLegacy takes out of the old tools' znode what is done or was overruled.
func (t *term) settleLegacy() error {
	if t.legacySize == 0 || t.todo.legacy {
		return nil
	}
	for tp, replicas := range t.legacy {
		if replicas == nil || !t.im.Reassigning(tp) {
			delete(t.legacy, tp)
		}
	}
	if len(t.legacy) == t.legacySize {
		return nil
	}
	t.legacySize = len(t.legacy)
	if len(t.legacy) == 0 {
		return t.dropLegacy(t.legacyVersion)
	}
	var left []zkmeta.Reassignment
	for tp, replicas := range t.legacy {
		left = append(left, zkmeta.Reassignment{Partition: tp, Replicas: replicas})
	}
	slices.SortFunc(left, func(a, b zkmeta.Reassignment) int { return a.Partition.Compare(b.Partition) })
	return t.writeLegacy(zkmeta.Set(zkmeta.ReassignPartitionsPath, zkmeta.EncodeReassign(left), t.legacyVersion))
}
