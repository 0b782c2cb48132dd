package api

import (
	"errors"
	"time"

	"github.com/kbroker/kbroker/broker/session"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetch (1).
//
//	v0-3   message formats 0 (v0, v1) and 1 (v2, v3); v3 adds max_bytes (KIP-74)
//	v4     format 2, isolation level, aborted transactions
//	v5     log start offset
//	v7     sessions (KIP-227)
//	v9     current leader epoch (KIP-320)
//	v10    zstd
//	v11    rack id and preferred read replica (KIP-392)
//	v12    flexible, last fetched epoch, diverging epoch (KIP-595)
//	v13    topic ids (KIP-516)
//	v15    replica state (KIP-903)
//	v16    endpoints of new leaders (KIP-951)
//	v17    directory id
func init() {
	register(API{Key: protocol.Fetch, Handle: fetch,
		Notes: "an error on any partition is answered at once; 3.9.2 waits where only the topic is unknown"})
}

// fetchCall is a Fetch on its way.
type fetchCall struct {
	c        *Call
	req      *kmsg.FetchRequest
	session  *session.Fetch
	parts    []fetchPart
	maxBytes int
	minBytes int
	byID     bool
	// follower is the broker that follows, NoBroker for a consumer; trusted: it
	// may.
	follower cluster.BrokerID
	trusted  bool
}

// fetchPart is one partition of a Fetch: who serves it, or why nobody does.
type fetchPart struct {
	wanted  session.Wanted
	topic   string
	id      cluster.TopicID
	replica *replica.Replica
	query   replica.ReadRequest
	err     error // found before reading
	res     replica.ReadResult
	readErr error
	nearest cluster.BrokerID // to read from instead; NoBroker: from here
}

const (
	consumerReplica  = -1
	debuggingReplica = -2
)

func replicaOf(req *kmsg.FetchRequest) int32 {
	if req.Version >= 15 {
		return req.ReplicaState.ID
	}
	return req.ReplicaID
}

func fetch(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.FetchRequest)
	f := &fetchCall{c: c, req: req, byID: c.Version() >= 13, follower: cluster.NoBroker}
	follower := replicaOf(req) >= 0
	if follower {
		f.follower = cluster.BrokerID(replicaOf(req))
		f.trusted = c.Allowed(OpClusterAction, ResCluster, ClusterName)
	}
	s, verdict := h.Sessions.Begin(c.Received, sessionRequest(req, follower))
	if verdict != session.OK {
		f.fail(verdictCode(verdict), 0)
		return
	}
	f.session = s
	f.parts = make([]fetchPart, len(s.Wanted()))
	for i, w := range s.Wanted() {
		f.parts[i] = f.resolve(w)
	}
	f.maxBytes = int(req.MaxBytes)
	if !follower {
		f.maxBytes = min(f.maxBytes, int(h.Config().FetchMaxBytes))
	}
	f.minBytes = min(int(req.MinBytes), f.maxBytes)
	c.ReleaseBody()

	wait := time.Duration(req.MaxWaitMillis) * time.Millisecond
	if f.read() || wait <= 0 || len(f.parts) == 0 {
		f.answer()
		return
	}
	f.release()
	queues := make([]*delay.Waiters, 0, len(f.parts)+1)
	if follower {
		queues = append(queues, &h.Replicas.Arrivals)
	}
	for i := range f.parts {
		if r := f.parts[i].replica; r != nil {
			queues = append(queues, &r.Data)
		}
	}
	h.Waits.Wait(f, wait, queues...)
}

func sessionRequest(req *kmsg.FetchRequest, follower bool) session.Request {
	q := session.Request{Epoch: -1, ByID: req.Version >= 13, Follower: follower}
	if req.Version >= 7 {
		q.ID, q.Epoch = req.SessionID, req.SessionEpoch
	}
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	q.Wanted = make([]session.Wanted, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			q.Wanted = append(q.Wanted, session.Wanted{
				Key:    session.Key{Topic: t.Topic, ID: cluster.TopicID(t.TopicID), Index: p.Partition},
				Offset: cluster.Offset(p.FetchOffset), LogStart: cluster.Offset(p.LogStartOffset), MaxBytes: p.PartitionMaxBytes,
				CurrentEpoch: cluster.LeaderEpoch(p.CurrentLeaderEpoch), LastEpoch: cluster.LeaderEpoch(p.LastFetchedEpoch)})
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, p := range t.Partitions {
			q.Forget = append(q.Forget, session.Key{Topic: t.Topic, ID: cluster.TopicID(t.TopicID), Index: p})
		}
	}
	return q
}

func verdictCode(v session.Verdict) protocol.Code {
	switch v {
	case session.IDNotFound:
		return protocol.ErrFetchSessionIDNotFound
	case session.TopicIDError:
		return protocol.ErrFetchSessionTopicIDError
	}
	return protocol.ErrInvalidFetchSessionEpoch
}

// resolve finds who serves a partition.
func (f *fetchCall) resolve(w session.Wanted) fetchPart {
	c, h := f.c, f.c.h
	p := fetchPart{wanted: w, topic: w.Topic, id: w.ID, nearest: cluster.NoBroker}
	follower := f.follower != cluster.NoBroker
	if f.byID {
		t, ok := h.Metadata.TopicByID(w.ID)
		if !ok {
			p.err = protocol.ErrUnknownTopicID
			return p
		}
		p.topic = t.Name
	}
	switch {
	case follower && !f.trusted:
		p.err = protocol.ErrTopicAuthorizationFailed
	case !follower && !c.Allowed(OpRead, ResTopic, p.topic):
		p.err = protocol.ErrTopicAuthorizationFailed
	}
	if p.err != nil {
		return p
	}
	p.replica, p.err = h.hosted(cluster.TopicPartition{Topic: p.topic, Partition: w.Index})
	if p.err != nil {
		return p
	}
	if f.byID && p.replica.Log().TopicID() != w.ID {
		p.replica, p.err = nil, protocol.ErrInconsistentTopicID
		return p
	}
	if follower {
		if p.err = p.replica.CheckFollower(f.follower); p.err != nil {
			p.replica = nil
			return p
		}
	}
	p.query = replica.ReadRequest{Offset: w.Offset, MaxBytes: int(w.MaxBytes), Isolation: isolation(f.req),
		LeaderOnly: follower || c.Version() < 11, CurrentEpoch: w.CurrentEpoch, LastEpoch: w.LastEpoch}
	return p
}

// early reports whether a follower asks for what this broker has not heard of
// yet: the controller's LeaderAndIsr may reach followers first. Such a fetch
// waits a moment where an error would cost the follower its backoff.
func (f *fetchCall) early(err error) bool {
	if f.follower == cluster.NoBroker {
		return false
	}
	return errors.Is(err, partition.ErrUnknownLeaderEpoch) || errors.Is(err, protocol.ErrUnknownTopicID) ||
		errors.Is(err, replica.ErrUnknownTopicOrPartition) || errors.Is(err, partition.ErrNotLeader)
}

func isolation(req *kmsg.FetchRequest) replica.Isolation {
	switch {
	case replicaOf(req) >= 0:
		return replica.ToLEO
	case req.IsolationLevel == 1:
		return replica.ToLSO
	}
	return replica.ToHW
}

// read reads every partition as far as the limits allow, in order, and reports
// whether the answer need not wait: it has min_bytes, or something that the
// client must hear at once.
//
// Until a partition has given something, the first batch is read whole whatever
// its size, so that a client with small limits gets on (KIP-74); before v3
// clients expect to be cut short instead.
func (f *fetchCall) read() bool {
	total, now := 0, false
	left := f.maxBytes
	minOne := f.c.Version() > 2
	for i := range f.parts {
		p := &f.parts[i]
		if p.err != nil {
			now = now || !f.early(p.err)
			continue
		}
		q := p.query
		q.MaxBytes = max(0, min(q.MaxBytes, left))
		q.MinOne = minOne
		if f.held(p) {
			q.MaxBytes, q.MinOne = 0, false
		}
		p.res, p.readErr = p.replica.Read(q)
		if p.readErr != nil || p.res.Diverging != nil {
			now = now || !f.early(p.readErr)
			continue
		}
		if min(p.query.MaxBytes, f.maxBytes) < 0 && p.len() > 0 { // as Kafka, which fails on it
			p.res.Slice.Release()
			p.res, p.readErr, now = replica.ReadResult{}, protocol.ErrUnknownServerError, true
			continue
		}
		if f.follower != cluster.NoBroker {
			f.followed(p)
		} else if f.redirect(p) {
			now = true
			continue
		}
		if n := p.len(); n > 0 {
			minOne = false
			total += n
			left = max(0, left-n)
		}
	}
	return now || total >= f.minBytes
}

// held reports whether a follower outside the ISR has to wait for the
// replication quota: it gets no records, and they do not end its wait.
func (f *fetchCall) held(p *fetchPart) bool {
	h := f.c.h
	if f.follower == cluster.NoBroker || h.LeaderQuota == nil {
		return false
	}
	return h.throttled(p.replica, f.follower) && h.LeaderQuota.Exceeded(h.Clock.Now()) && !p.replica.InSync(f.follower)
}

// throttled reports whether the topic puts the follower under the quota.
func (h *Handlers) throttled(r *replica.Replica, follower cluster.BrokerID) bool {
	return r.Log().Config().LeaderThrottled.Contains(r.TopicPartition().Partition, follower)
}

// redirect sends a consumer to a replica in its own rack (KIP-392), with no
// records from here; it reports whether it did.
func (f *fetchCall) redirect(p *fetchPart) bool {
	h := f.c.h
	if f.c.Version() < 11 || f.req.Rack == "" || h.Config().ReplicaSelector != config.RackAwareSelector {
		return false
	}
	p.nearest = p.replica.NearestTo(f.req.Rack, p.query.Offset, func(id cluster.BrokerID) (string, bool) {
		b, ok := h.Metadata.Broker(id)
		return b.Rack, ok && f.c.node(id) != nil
	})
	if p.nearest == cluster.NoBroker {
		return false
	}
	if p.res.Slice != nil {
		p.res.Slice.Release()
		p.res.Slice = nil
	}
	p.res.Aborted = nil
	return true
}

// incarnation is the broker epoch under which a follower fetches.
func incarnation(req *kmsg.FetchRequest) cluster.BrokerEpoch {
	if req.Version < 15 {
		return cluster.NoBrokerEpoch
	}
	return cluster.BrokerEpoch(req.ReplicaState.Epoch)
}

// followed tells the partition how far its follower has come. The order is that
// of law 3: read, RemoteLEO, HW, and then the answer, with that HW.
func (f *fetchCall) followed(p *fetchPart) {
	v := p.replica.FollowerFetched(replica.Follower{ID: f.follower, Epoch: incarnation(f.req)}, p.res.View.LeaderEpoch, p.query.Offset, p.wanted.LogStart)
	p.res.View.HW, p.res.View.LSO = v.HW, min(p.res.View.LSO, v.HW)
}

func (p *fetchPart) len() int {
	if p.res.Slice == nil {
		return 0
	}
	return p.res.Slice.Len()
}

// release gives back what was read and is not sent.
func (f *fetchCall) release() {
	for i := range f.parts {
		if s := f.parts[i].res.Slice; s != nil {
			s.Release()
			f.parts[i].res.Slice = nil
		}
	}
}

// Ready implements delay.Task. With the usual min_bytes of 1 it looks at
// offsets only. A move of HW alone does not end a follower's wait: that would
// double the traffic.
func (f *fetchCall) Ready() bool {
	if f.minBytes > 1 {
		done := f.read()
		f.release()
		return done
	}
	for i := range f.parts {
		p := &f.parts[i]
		if p.replica == nil {
			if f.follower != cluster.NoBroker && f.early(p.err) {
				again := f.resolve(p.wanted)
				if again.replica != nil || !f.early(again.err) {
					return true
				}
			}
			continue
		}
		v, err := p.replica.ReadView(p.query)
		if f.early(err) || err == nil && f.held(p) {
			continue
		}
		if err != nil || v.Limit(p.query.Isolation) > p.query.Offset || p.query.Offset < v.LogStart {
			return true
		}
	}
	return false
}

// Complete implements delay.Task.
func (f *fetchCall) Complete(bool) {
	for i := range f.parts {
		if p := &f.parts[i]; f.early(p.err) {
			*p = f.resolve(p.wanted)
		}
	}
	f.read()
	f.answer()
}
