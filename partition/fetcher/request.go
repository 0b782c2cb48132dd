package fetcher

import (
	"cmp"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions of Fetch that a broker of 3.9 sends: with topic ids, and by name
// where the controller has not told an id.
const (
	byID   = 17
	byName = 12
)

// session is the follower's side of an incremental fetch session (KIP-227).
type session struct {
	id    int32
	epoch int32 // of the next request; 0 asks for a new session
	byID  bool
	parts map[cluster.TopicPartition]*followed // what the leader holds, each as told
	// asked are the partitions of the request in flight: only their answers
	// count, at the offset asked for.
	asked map[cluster.TopicPartition]*followed
	names map[cluster.TopicID]string
}

// reset makes the next request start a session.
func (s *session) reset() { *s = session{} }

// request asks for what is due: all of it in a new session, else what changed
// since the last request.
func (f *fetcher) request(due []*followed) *kmsg.FetchRequest {
	s := &f.session
	ids := !slices.ContainsFunc(due, func(p *followed) bool { return p.TopicID.IsZero() })
	if s.epoch != 0 && ids != s.byID {
		s.reset()
	}
	if s.epoch == 0 {
		s.id, s.byID, s.parts = 0, ids, map[cluster.TopicPartition]*followed{}
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version = byName
	if ids {
		req.Version = byID
		req.ReplicaState.ID, req.ReplicaState.Epoch = int32(f.o.Self), int64(f.o.BrokerEpoch())
	}
	req.ReplicaID = int32(f.o.Self)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(f.o.MaxWait/time.Millisecond), f.o.MinBytes, f.o.MaxBytes
	req.SessionID, req.SessionEpoch = s.id, s.epoch

	s.asked, s.names = make(map[cluster.TopicPartition]*followed, len(due)), make(map[cluster.TopicID]string, len(due))
	slices.SortFunc(due, func(a, b *followed) int { return a.tp.Compare(b.tp) })
	for _, p := range due {
		s.asked[p.tp], s.names[p.TopicID] = p, p.tp.Topic
		end := p.Replica.LogEnd()
		now := told{offset: end.LEO, logStart: end.LogStart, epoch: p.Epoch, lastEpoch: end.LatestEpoch}
		if old := s.parts[p.tp]; old == p && p.inSess && p.told == now {
			continue
		}
		p.told, p.inSess = now, true
		s.parts[p.tp] = p
		appendPartition(req, p, f.o.PartitionBytes)
	}
	for tp, p := range s.parts {
		if s.asked[tp] == nil {
			delete(s.parts, tp)
			p.inSess = false
			forget(req, p)
		}
	}
	slices.SortFunc(req.ForgottenTopics, func(a, b kmsg.FetchRequestForgottenTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return req
}

func appendPartition(req *kmsg.FetchRequest, p *followed, maxBytes int32) {
	if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.tp.Topic {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = p.tp.Topic, p.TopicID
		req.Topics = append(req.Topics, t)
	}
	q := kmsg.NewFetchRequestTopicPartition()
	q.Partition, q.CurrentLeaderEpoch = p.tp.Partition, int32(p.told.epoch)
	q.FetchOffset, q.LogStartOffset, q.LastFetchedEpoch = int64(p.told.offset), int64(p.told.logStart), int32(p.told.lastEpoch)
	q.PartitionMaxBytes = maxBytes
	t := &req.Topics[len(req.Topics)-1]
	t.Partitions = append(t.Partitions, q)
}

func forget(req *kmsg.FetchRequest, p *followed) {
	i := slices.IndexFunc(req.ForgottenTopics, func(t kmsg.FetchRequestForgottenTopic) bool {
		return t.Topic == p.tp.Topic && t.TopicID == p.TopicID
	})
	if i < 0 {
		t := kmsg.NewFetchRequestForgottenTopic()
		t.Topic, t.TopicID = p.tp.Topic, p.TopicID
		req.ForgottenTopics = append(req.ForgottenTopics, t)
		i = len(req.ForgottenTopics) - 1
	}
	req.ForgottenTopics[i].Partitions = append(req.ForgottenTopics[i].Partitions, p.tp.Partition)
}
