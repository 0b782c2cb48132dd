package loop

import (
	"context"
	"errors"
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// do runs f in the decision goroutine, after what is already waiting there. f
// gets no term when this broker is not the controller.
func (l *Loop) do(ctx context.Context, f func(t *term) error) error {
	done := make(chan error, 1)
	put := l.inbox.put(call(func() {
		switch {
		case ctx.Err() != nil:
			done <- ctx.Err()
		case l.term == nil || l.term.todo.load:
			done <- ErrNotController
		default:
			done <- f(l.term)
		}
	}))
	if !put {
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ctx.Done():
		return ErrClosed
	}
}

// carryOut makes the plans that are due by what a call changed. What cannot be
// written now stays due; the loop goes on with it.
func (l *Loop) carryOut(t *term) error {
	err := t.decide()
	if err != nil {
		l.failed("controller", err)
	}
	if over(err) {
		return ErrNotController
	}
	return err
}

// AllocateProducerIDs hands the next block of producer ids to a broker.
func (l *Loop) AllocateProducerIDs(ctx context.Context, broker cluster.BrokerID, epoch cluster.BrokerEpoch) (start int64, n int32, err error) {
	err = l.do(ctx, func(t *term) error {
		if err := t.checkSender(broker, epoch); err != nil {
			return err
		}
		block, err := zkmeta.NextProducerIDs(t.ctx, t.session, broker, t.guard()...)
		if err = moved(err); err != nil {
			l.failed("allocating producer ids", err)
			if over(err) {
				return ErrNotController
			}
			return err
		}
		start, n = int64(block.First), int32(block.Last-block.First+1)
		return nil
	})
	return start, n, err
}

func (t *term) checkSender(id cluster.BrokerID, epoch cluster.BrokerEpoch) error {
	if t.im.CheckSender(id, epoch) == 0 {
		return nil
	}
	if _, live := t.im.Broker(id); !live {
		return fmt.Errorf("%w: %d", ErrUnknownBroker, id)
	}
	return fmt.Errorf("%w: broker %d, epoch %d", ErrStaleBrokerEpoch, id, epoch)
}

// ControlledShutdown takes from a broker what it leads and follows, as far as
// others can take over, and returns what it still leads.
func (l *Loop) ControlledShutdown(ctx context.Context, broker cluster.BrokerID, epoch cluster.BrokerEpoch) (left []cluster.TopicPartition, err error) {
	err = l.do(ctx, func(t *term) error {
		b, live := t.im.Broker(broker)
		switch {
		case !live:
			return fmt.Errorf("%w: %d", ErrBrokerNotAvailable, broker)
		case epoch != cluster.NoBrokerEpoch && epoch < b.Epoch:
			return fmt.Errorf("%w: broker %d, epoch %d", ErrStaleBrokerEpoch, broker, epoch)
		}
		l.opts.Logger.Info().Int32("peer", int32(broker)).Msg("broker asks for its controlled shutdown")
		t.im.BrokerLeaving(broker)
		if err := l.carryOut(t); err != nil {
			return err
		}
		left = t.im.LedBy(broker)
		return nil
	})
	return left, err
}

// ElectLeaders holds elections and says for each partition what came of it; no
// partitions named (nil) are all of them.
func (l *Loop) ElectLeaders(ctx context.Context, kind controller.Election, partitions []cluster.TopicPartition) (elected map[cluster.TopicPartition]controller.Elected, err error) {
	err = l.do(ctx, func(t *term) error {
		if partitions == nil {
			partitions = t.im.AllPartitions()
		}
		before := map[cluster.TopicPartition]cluster.LeaderEpoch{}
		for _, tp := range partitions {
			if s, ok := t.im.State(tp); ok {
				before[tp] = s.LeaderEpoch
			}
		}
		codes := t.im.Elect(kind, partitions)
		if err := l.carryOut(t); err != nil {
			return err
		}
		elected = make(map[cluster.TopicPartition]controller.Elected, len(codes))
		for tp, code := range codes {
			s, _ := t.im.State(tp)
			if code == 0 && s.LeaderEpoch == before[tp] {
				code = kind.NotElected()
			}
			elected[tp] = controller.Elected{Code: code, Leader: s.Leader, LeaderEpoch: s.LeaderEpoch}
		}
		return nil
	})
	return elected, err
}

// UncleanElectionChanged says that Options.UncleanElection may answer otherwise
// than before; topics without a leader are decided on anew.
func (l *Loop) UncleanElectionChanged() {
	l.inbox.put(call(func() {
		if l.term == nil {
			return
		}
		for name := range l.term.asked {
			l.term.todo.configs[name] = true
		}
	}))
}

// Codes of AlterPartition's answers that the pure controller does not give.
const (
	codeNotController         = 41
	codeUnknownTopicID        = 100
	codeIneligibleReplica     = 107
	codeOperationNotAttempted = 55
)

// AlterPartition answers leaders that want another ISR.
func (l *Loop) AlterPartition(ctx context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	err := l.do(ctx, func(t *term) error {
		if code := t.im.CheckSender(cluster.BrokerID(req.BrokerID), cluster.BrokerEpoch(req.BrokerEpoch)); code != 0 {
			resp.ErrorCode = code
			return nil
		}
		return l.alter(t, req, resp)
	})
	if errors.Is(err, ErrNotController) {
		resp.Topics, resp.ErrorCode = nil, codeNotController
		return resp, nil
	}
	return resp, err
}

// asked is a partition of an AlterPartition whose answer is still open.
type asked struct {
	wish   controller.Alter
	answer *kmsg.AlterPartitionResponseTopicPartition
}

func (l *Loop) alter(t *term, req *kmsg.AlterPartitionRequest, resp *kmsg.AlterPartitionResponse) error {
	var open []asked
	for _, rt := range req.Topics {
		name, known := rt.Topic, true
		if req.Version >= 2 {
			name, known = t.im.TopicByID(rt.TopicID)
		}
		answer := kmsg.AlterPartitionResponseTopic{Topic: rt.Topic, TopidID: rt.TopicID}
		answer.Partitions = make([]kmsg.AlterPartitionResponseTopicPartition, len(rt.Partitions))
		for i, rp := range rt.Partitions {
			a := &answer.Partitions[i]
			a.Default()
			a.Partition = rp.Partition
			if known {
				open = append(open, asked{alterOf(req, name, rp), a})
			} else {
				a.ErrorCode = codeUnknownTopicID
			}
		}
		resp.Topics = append(resp.Topics, answer)
	}
	// A write that is refused may have been made before, by an attempt whose
	// outcome nobody learned, or the znode has moved on: what was read up since
	// says which. A leader that got INVALID_UPDATE_VERSION would not ask again.
	for range alterAttempts {
		var err error
		if open, err = l.alterOnce(t, open, req.Version); err != nil {
			return err
		}
		if len(open) == 0 {
			return nil // the step after the call sends what is due
		}
		if err := t.read(); err != nil {
			l.failed("altering partitions", err)
			return ErrNotController
		}
	}
	for _, x := range open {
		x.answer.ErrorCode = codeNotController // which leaders ask again after
	}
	return nil
}

// alterAttempts bounds how often a refused write is tried in one call.
const alterAttempts = 3

// alterOnce answers what can be answered; what is left was refused by ZooKeeper.
func (l *Loop) alterOnce(t *term, open []asked, version int16) (left []asked, err error) {
	plan := controller.Plan{Epoch: t.im.Epoch()}
	var waiting []asked
	for _, x := range open {
		w, write, code := t.im.Alter(x.wish)
		switch {
		case write:
			waiting = append(waiting, x)
			plan.Writes = append(plan.Writes, w)
		case code == 0:
			t.putState(x.answer, x.wish.Partition)
		case code == codeIneligibleReplica && version < 2:
			x.answer.ErrorCode = codeOperationNotAttempted
		default:
			x.answer.ErrorCode = code
		}
	}
	if len(plan.Writes) == 0 {
		return nil, nil
	}
	results, err := t.write(plan.Writes)
	t.im.Settle(plan, results)
	for i, x := range waiting {
		if results[i].Accepted {
			t.putState(x.answer, x.wish.Partition)
		} else {
			left = append(left, x)
		}
	}
	if err != nil {
		l.failed("altering partitions", err)
		if over(err) {
			return nil, ErrNotController
		}
		return nil, err
	}
	return left, nil
}

func alterOf(req *kmsg.AlterPartitionRequest, topic string, p kmsg.AlterPartitionRequestTopicPartition) controller.Alter {
	a := controller.Alter{
		Partition:   cluster.TopicPartition{Topic: topic, Partition: p.Partition},
		Sender:      cluster.BrokerID(req.BrokerID),
		LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch),
		Recovery:    cluster.RecoveryState(p.LeaderRecoveryState),
		Version:     cluster.ZKVersion(p.PartitionEpoch),
	}
	for _, id := range p.NewISR {
		a.ISR = append(a.ISR, cluster.BrokerID(id))
	}
	for _, m := range p.NewEpochISR {
		a.ISR = append(a.ISR, cluster.BrokerID(m.BrokerID))
		a.Epochs = append(a.Epochs, cluster.BrokerEpoch(m.BrokerEpoch))
	}
	return a
}

func (t *term) putState(a *kmsg.AlterPartitionResponseTopicPartition, tp cluster.TopicPartition) {
	s, _ := t.im.State(tp)
	a.LeaderID, a.LeaderEpoch, a.ISR = int32(s.Leader), int32(s.LeaderEpoch), numbers(s.ISR)
	a.LeaderRecoveryState, a.PartitionEpoch = int8(s.Recovery), int32(s.ZKVersion)
}
