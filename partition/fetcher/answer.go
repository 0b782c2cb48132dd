package fetcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// take deals with an answer. An error is about the whole session or connection.
func (f *fetcher) take(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) error {
	switch code := protocol.Code(resp.ErrorCode); code {
	case 0:
	case protocol.ErrFetchSessionIDNotFound, protocol.ErrInvalidFetchSessionEpoch, protocol.ErrFetchSessionTopicIDError:
		f.session.reset() // nothing is wrong: the leader dropped it
		return nil
	default:
		f.session.reset()
		return code
	}
	f.session.next(req, resp)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := t.Topic
		if req.Version >= byID {
			name = f.session.names[cluster.TopicID(t.TopicID)]
		}
		for j := range t.Partitions {
			tp := cluster.TopicPartition{Topic: name, Partition: t.Partitions[j].Partition}
			if p := f.session.asked[tp]; p != nil && f.current(p) {
				f.takePartition(p, &t.Partitions[j])
			}
		}
	}
	return nil
}

// next moves the session on. A leader without room for one answers id 0, which
// means a full request the next time.
func (s *session) next(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) {
	switch {
	case resp.SessionID == 0:
		s.id, s.epoch = 0, 0
	case req.SessionEpoch == 0:
		s.id, s.epoch = resp.SessionID, 1
	case s.epoch == 1<<31-1:
		s.epoch = 1
	default:
		s.epoch++
	}
}

func (f *fetcher) current(p *followed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parts[p.tp] == p
}

func (f *fetcher) takePartition(p *followed, a *kmsg.FetchResponseTopicPartition) {
	if code := protocol.Code(a.ErrorCode); code != 0 {
		f.refused(p, code)
		return
	}
	if d := a.DivergingEpoch; d.Epoch >= 0 || d.EndOffset >= 0 {
		f.diverged(p, replica.Diverging{Epoch: cluster.LeaderEpoch(d.Epoch), EndOffset: cluster.Offset(d.EndOffset)}, cluster.Offset(a.HighWatermark))
		return
	}
	if p.Replica.LogEnd().LEO != p.told.offset {
		return // truncated meanwhile: what was asked for does not follow any more
	}
	info, err := p.Replica.AppendFromLeader(p.Epoch, a.RecordBatches, cluster.Offset(a.HighWatermark), cluster.Offset(a.LogStartOffset))
	if err != nil {
		f.appendFailed(p, err)
		return
	}
	if info.Bytes > 0 && f.throttled(p) {
		f.o.Throttle.Used(f.o.Clock.Now(), info.Bytes)
	}
	p.lag.Store(max(0, a.HighWatermark-int64(p.Replica.LogEnd().LEO)))
	p.level = p.lag.Load() == 0
	if info.Bytes == 0 && len(a.RecordBatches) > 0 {
		f.delay(p) // nothing of it could be taken: not in a tight loop
		return
	}
	p.rest = 0
}

// diverged truncates as the leader says. HW comes with the answer and is not
// told again by some leaders, so it is taken as far as the log goes, unless the
// logs may part earlier still: what is below HW is the same everywhere.
func (f *fetcher) diverged(p *followed, d replica.Diverging, hw cluster.Offset) {
	t, err := p.Replica.AlignWithLeader(p.Epoch, d)
	if err == nil && !t.AskAgain {
		_, err = p.Replica.AppendFromLeader(p.Epoch, nil, hw, -1)
	}
	if err != nil {
		f.appendFailed(p, err)
		return
	}
	e := f.log.Info()
	switch {
	case t.BelowHW:
		e = f.log.Error()
	case t.From == t.To: // only an epoch without records went
		e = f.log.Debug()
	}
	e.Stringer("partition", p.tp).Int32("divergingEpoch", int32(d.Epoch)).Int64("endOffset", int64(d.EndOffset)).
		Int64("from", int64(t.From)).Int64("to", int64(t.To)).Bool("belowHW", t.BelowHW).Msg("truncated to where the log agrees with the leader's")
	p.inSess = false // the same offset may be told again, with another epoch
}

// refused deals with an error of the leader's.
func (f *fetcher) refused(p *followed, code protocol.Code) {
	switch code {
	case protocol.ErrFencedLeaderEpoch:
		f.dropOne(p) // the LeaderAndIsr of the newer epoch is on its way
		return
	case protocol.ErrOffsetOutOfRange:
		if err := f.outOfRange(p); err != nil {
			f.log.Warn().Err(err).Stringer("partition", p.tp).Msg("cannot find where to go on")
			f.delay(p)
		}
		return
	case protocol.ErrUnknownLeaderEpoch, protocol.ErrNotLeaderOrFollower, protocol.ErrUnknownTopicID, protocol.ErrUnknownTopicOrPartition, protocol.ErrInconsistentTopicID:
		// The leader will hear of it, or another will lead.
	default:
		f.log.Warn().Stringer("partition", p.tp).Str("error", code.Error()).Msg("leader refuses a fetch")
	}
	f.delay(p)
}

// appendFailed deals with an error of this broker's own.
func (f *fetcher) appendFailed(p *followed, err error) {
	var unexpected *logstore.UnexpectedOffset
	switch {
	case errors.Is(err, partition.ErrNotFollower), errors.Is(err, partition.ErrStorage), errors.Is(err, logstore.ErrStorage):
		f.dropOne(p) // its role or its log is gone
		return
	case errors.As(err, &unexpected):
		p.inSess = false
	}
	f.log.Error().Err(err).Stringer("partition", p.tp).Msg("cannot take what the leader sent, will fetch it again")
	f.delay(p)
}

// outOfRange finds where to go on when the leader does not have the log's end:
// it truncates to a leader's end below it, or starts over at the leader's start
// above it.
func (f *fetcher) outOfRange(p *followed) error {
	const latest, earliest = -1, -2
	own := p.Replica.LogEnd()
	end, err := f.listOffset(p, latest)
	if err != nil {
		return err
	}
	if end < own.LEO {
		f.log.Warn().Stringer("partition", p.tp).Int64("from", int64(own.LEO)).Int64("to", int64(end)).Msg("the leader's log ends earlier, truncating")
		p.inSess = false
		return p.Replica.CutAt(p.Epoch, end)
	}
	start, err := f.listOffset(p, earliest)
	if err != nil {
		return err
	}
	if start <= own.LEO { // its log has grown meanwhile, or it knows none of this one's epochs
		f.delay(p)
		return nil
	}
	f.log.Warn().Stringer("partition", p.tp).Int64("from", int64(own.LEO)).Int64("to", int64(start)).Msg("the leader's log starts later, starting over there")
	p.inSess = false
	return p.Replica.StartOverAt(p.Epoch, start)
}

// listOffset asks the leader for its log's end or start, as 3.9 does.
func (f *fetcher) listOffset(p *followed, ts int64) (cluster.Offset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 9, int32(f.o.Self)
	q := kmsg.NewListOffsetsRequestTopicPartition()
	q.Partition, q.CurrentLeaderEpoch, q.Timestamp = p.tp.Partition, int32(p.Epoch), ts
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: p.tp.Topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{q}}}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	got, err := f.conn.Do(ctx, req)
	if err != nil {
		f.hangUp()
		return 0, err
	}
	for _, t := range got.(*kmsg.ListOffsetsResponse).Topics {
		for _, a := range t.Partitions {
			if t.Topic != p.tp.Topic || a.Partition != p.tp.Partition {
				continue
			}
			if a.ErrorCode != 0 {
				return 0, fmt.Errorf("ListOffsets %d: %w", ts, protocol.Code(a.ErrorCode))
			}
			return cluster.Offset(a.Offset), nil
		}
	}
	return 0, fmt.Errorf("ListOffsets %d: %w: the answer lacks the partition", ts, protocol.ErrMalformed)
}
