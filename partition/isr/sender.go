package isr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Controller sends a request to whoever is the controller now.
type Controller interface {
	Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Options of a Sender.
type Options struct {
	Self        cluster.BrokerID
	BrokerEpoch func() cluster.BrokerEpoch
	Controller  Controller
	Clock       clock.Clock // nil: the machine's
	Logger      zerolog.Logger
}

// retryAfter is the pause after a failure, as in Kafka.
const retryAfter = 50 * time.Millisecond

// maxPartitions bounds one request; the rest waits for the next.
const maxPartitions = 10_000

// Sender implements replica.Proposals with one goroutine.
type Sender struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	ready  chan struct{}

	failed atomic.Int64

	mu      sync.Mutex
	waiting map[cluster.TopicPartition]*replica.Replica // guarded by mu
}

// Failed counts changes that were not made, of attempts as they are.
func (s *Sender) Failed() int64 { return s.failed.Load() }

// Start starts a Sender.
func Start(o Options) *Sender {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	s := &Sender{o: o, done: make(chan struct{}), ready: make(chan struct{}, 1), waiting: map[cluster.TopicPartition]*replica.Replica{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run()
	return s
}

// Propose implements replica.Proposals.
func (s *Sender) Propose(r *replica.Replica) {
	s.mu.Lock()
	s.waiting[r.TopicPartition()] = r
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Close ends the sender; what waits stays unsettled.
func (s *Sender) Close() {
	s.cancel()
	<-s.done
}

func (s *Sender) run() {
	defer close(s.done)
	failing := false
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.ready:
		}
		for list := s.take(); len(list) > 0; list = s.take() {
			err := s.send(list)
			if err == nil {
				failing = false
				continue
			}
			if s.ctx.Err() != nil {
				return
			}
			s.failed.Add(int64(len(list)))
			if !failing {
				failing = true
				s.o.Logger.Warn().Err(err).Int("partitions", len(list)).Msg("the controller did not settle ISR changes, will ask again")
			}
			if !s.pause(retryAfter) {
				return
			}
		}
	}
}

func (s *Sender) pause(d time.Duration) bool {
	over := make(chan struct{})
	defer s.o.Clock.AfterFunc(d, func() { close(over) })()
	select {
	case <-s.ctx.Done():
		return false
	case <-over:
		return true
	}
}

// asked is one partition of a request.
type asked struct {
	r *replica.Replica
	p partition.Proposal
}

// take is what is pending now; what was settled or overtaken by a new epoch is
// forgotten.
func (s *Sender) take() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []asked
	for tp, r := range s.waiting {
		if len(list) == maxPartitions {
			break
		}
		p, ok := r.Pending()
		if !ok {
			delete(s.waiting, tp)
			continue
		}
		list = append(list, asked{r, p})
	}
	slices.SortFunc(list, func(a, b asked) int { return a.r.TopicPartition().Compare(b.r.TopicPartition()) })
	return list
}

// drop forgets a partition whose proposal the controller has answered, unless a
// new one came up meanwhile.
func (s *Sender) drop(a asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tp := a.r.TopicPartition()
	if s.waiting[tp] != a.r {
		return
	}
	if p, ok := a.r.Pending(); !ok || p.LeaderEpoch == a.p.LeaderEpoch && p.ZKVersion == a.p.ZKVersion && slices.Equal(p.ISR, a.p.ISR) {
		delete(s.waiting, tp)
	}
}

// send asks the controller once. An error means that something has to be asked
// again.
func (s *Sender) send(list []asked) error {
	req, byID, byName := s.request(list)
	got, err := s.o.Controller.Do(s.ctx, req)
	if err != nil {
		return err
	}
	resp := got.(*kmsg.AlterPartitionResponse)
	if resp.ErrorCode != 0 {
		return protocol.Code(resp.ErrorCode)
	}
	var again error
	answers := 0
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			a, ok := byID[idKey{t.TopidID, t.Partitions[i].Partition}]
			if req.Version < 2 {
				a, ok = byName[cluster.TopicPartition{Topic: t.Topic, Partition: t.Partitions[i].Partition}]
			}
			if ok {
				answers++
				again = errors.Join(again, s.settle(a, &t.Partitions[i]))
			}
		}
	}
	if answers < len(list) {
		again = errors.Join(again, fmt.Errorf("%w: AlterPartition of %d partitions was answered for %d", protocol.ErrMalformed, len(list), answers))
	}
	return again
}

type idKey struct {
	topic     [16]byte
	partition int32
}

// The versions sent: with topic ids, and by name while one is unknown.
const (
	withIDs = 3
	byNames = 1
)

func (s *Sender) request(list []asked) (*kmsg.AlterPartitionRequest, map[idKey]asked, map[cluster.TopicPartition]asked) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = withIDs, int32(s.o.Self), int64(s.o.BrokerEpoch())
	if slices.ContainsFunc(list, func(a asked) bool { return a.r.Log().TopicID().IsZero() }) {
		req.Version = byNames
	}
	byID, byName := map[idKey]asked{}, map[cluster.TopicPartition]asked{}
	for _, a := range list {
		tp, id := a.r.TopicPartition(), a.r.Log().TopicID()
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewAlterPartitionRequestTopic()
			t.Topic, t.TopicID = tp.Topic, id
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.AlterPartitionRequestTopicPartition{Partition: tp.Partition, LeaderEpoch: int32(a.p.LeaderEpoch), PartitionEpoch: int32(a.p.ZKVersion)}
		for i, id := range a.p.ISR {
			p.NewISR = append(p.NewISR, int32(id))
			e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			e.BrokerID, e.BrokerEpoch = int32(id), int64(a.p.BrokerEpochs[i])
			if id == s.o.Self {
				e.BrokerEpoch = req.BrokerEpoch
			}
			p.NewEpochISR = append(p.NewEpochISR, e)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
		byID[idKey{id, tp.Partition}], byName[tp] = a, a
	}
	return req, byID, byName
}

// settle tells a partition what the controller said. What may have another
// answer a moment later stays pending.
func (s *Sender) settle(a asked, r *kmsg.AlterPartitionResponseTopicPartition) error {
	code := protocol.Code(r.ErrorCode)
	o := partition.Unknown
	switch code {
	case 0:
		o = partition.Accepted
	case protocol.ErrIneligibleReplica, protocol.ErrOperationNotAttempted:
		o = partition.Reverted
	case protocol.ErrFencedLeaderEpoch, protocol.ErrInvalidUpdateVersion, protocol.ErrUnknownTopicOrPartition,
		protocol.ErrUnknownTopicID, protocol.ErrInvalidRequest, protocol.ErrNewLeaderElected:
	default:
		return code
	}
	if code != 0 {
		s.failed.Add(1)
	}
	switch {
	case o == partition.Reverted: // as each follower of a leaver gets
		s.o.Logger.Debug().Stringer("partition", a.r.TopicPartition()).Any("isr", a.p.ISR).Str("error", code.Error()).Msg("the controller takes a replica into no ISR now")
	case code != 0:
		s.o.Logger.Warn().Stringer("partition", a.r.TopicPartition()).Any("isr", a.p.ISR).Str("error", code.Error()).Msg("the controller refuses an ISR")
	}
	state := cluster.LeaderAndISR{Leader: cluster.BrokerID(r.LeaderID), LeaderEpoch: cluster.LeaderEpoch(r.LeaderEpoch),
		Recovery: cluster.RecoveryState(r.LeaderRecoveryState), ZKVersion: cluster.ZKVersion(r.PartitionEpoch)}
	for _, id := range r.ISR {
		state.ISR = append(state.ISR, cluster.BrokerID(id))
	}
	a.r.ISRSettled(a.p, o, state)
	s.drop(a)
	return nil
}
