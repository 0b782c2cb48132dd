package session

import (
	"sync"
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// Key names a partition within a session: by topic id from Fetch v13 on, by
// name before.
type Key struct {
	Topic string          // "" where the session goes by id
	ID    cluster.TopicID // zero where it goes by name
	Index int32
}

// Wanted is one partition as a Fetch request asks for it.
type Wanted struct {
	Key
	Offset       cluster.Offset
	LogStart     cluster.Offset // a follower's, -1 from consumers
	MaxBytes     int32
	CurrentEpoch cluster.LeaderEpoch // -1: not checked
	LastEpoch    cluster.LeaderEpoch // -1: not checked
}

// Told is what an answer says of one partition, as far as the session decides
// by it whether to say it again.
type Told struct {
	HasRecords bool
	Failed     bool // the partition has an error code
	MustSend   bool // a diverging epoch or a preferred read replica
	HW         cluster.Offset
	LogStart   cluster.Offset
}

// Request is what a Fetch request says of its session.
type Request struct {
	ID       int32 // 0: none
	Epoch    int32 // 0 starts a session, -1 ends one or goes without
	ByID     bool  // Fetch v13 and up
	Follower bool  // privileged: evicted last
	Wanted   []Wanted
	Forget   []Key
}

// Verdict is how a request's session turned out.
type Verdict uint8

// The verdicts; the last three are Kafka's error codes of the same name.
const (
	OK Verdict = iota
	IDNotFound
	InvalidEpoch
	TopicIDError
)

const (
	initialEpoch = 0
	finalEpoch   = -1
)

// nextEpoch wraps to 1: 0 starts a session.
func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

type entry struct {
	Wanted
	hw, logStart cluster.Offset // as last told; -1 after an error, so that the next answer tells again
	prev, next   *entry
}

// Session is one client's set of partitions, in the order in which they are
// served: those that were answered with records go last.
type Session struct {
	id         int32
	privileged bool
	byID       bool
	created    time.Time
	lastUsed   time.Time // guarded by the cache
	size       int       // partitions when last counted for the cache

	mu    sync.Mutex
	epoch int32
	parts map[Key]*entry
	ring  entry // sentinel
}

func newSession(q Request) *Session {
	s := &Session{byID: q.ByID, privileged: q.Follower, epoch: nextEpoch(initialEpoch), parts: make(map[Key]*entry, len(q.Wanted))}
	s.ring.prev, s.ring.next = &s.ring, &s.ring
	for _, w := range q.Wanted {
		s.want(w)
	}
	return s
}

func (s *Session) want(w Wanted) {
	if e, ok := s.parts[w.Key]; ok {
		e.Wanted = w
		return
	}
	e := &entry{Wanted: w, hw: -1, logStart: -1}
	s.parts[w.Key] = e
	s.pushBack(e)
}

func (s *Session) pushBack(e *entry) {
	e.prev, e.next = s.ring.prev, &s.ring
	e.prev.next, s.ring.prev = e, e
}

func (e *entry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

func (s *Session) forget(k Key) {
	if e, ok := s.parts[k]; ok {
		e.unlink()
		delete(s.parts, k)
	}
}

// tell takes over what an answer says of a partition and reports whether the
// answer must hold it.
func (s *Session) tell(k Key, t Told) bool {
	e, ok := s.parts[k]
	if !ok { // forgotten while the answer waited
		return true
	}
	send := t.HasRecords || t.MustSend || e.hw != t.HW || e.logStart != t.LogStart
	e.hw, e.logStart = t.HW, t.LogStart
	if t.HasRecords {
		e.unlink()
		s.pushBack(e)
	}
	if t.Failed {
		e.hw = -1
		send = true
	}
	if t.MustSend { // the HW in such an answer may not be taken: tell it again
		e.hw = -1
	}
	return send
}

// Fetch is one Fetch request within, or without, a session.
type Fetch struct {
	cache   *Cache
	session *Session // nil without one, and for a full fetch until Answer
	request Request
	full    bool
	epoch   int32 // expected of session when the answer is made
	wanted  []Wanted
}

// Wanted are the partitions to serve, in order.
func (f *Fetch) Wanted() []Wanted { return f.wanted }

// Incremental reports whether the answer leaves out what has not changed.
func (f *Fetch) Incremental() bool { return f.session != nil && !f.full }

// Answer decides what the response says: the session id, and for each of
// Wanted whether it is in it. told has one element per element of Wanted; keep
// is where the decisions go. A session that another request has moved on
// meanwhile gives InvalidEpoch.
func (f *Fetch) Answer(now time.Time, told []Told, keep []bool) (id int32, v Verdict) {
	if f.session == nil {
		for i := range keep {
			keep[i] = true
		}
		if !f.full {
			return 0, OK
		}
		return f.cache.create(now, f.request, told), OK
	}
	s := f.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != f.epoch {
		for i := range keep {
			keep[i] = false
		}
		return s.id, InvalidEpoch
	}
	for i, w := range f.wanted {
		keep[i] = s.tell(w.Key, told[i])
	}
	return s.id, OK
}

// SessionID is the id that a throttled, empty answer carries.
func (f *Fetch) SessionID() int32 {
	if f.session == nil {
		return 0
	}
	return f.session.id
}
