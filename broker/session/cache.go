package session

import (
	"math/rand/v2"
	"sync"
	"time"
)

// EvictAfter is how long a session must lie unused before any other may take
// its slot (Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS).
const EvictAfter = 120 * time.Second

// Cache holds at most a fixed number of sessions
// (max.incremental.fetch.session.cache.slots). A full cache gives a slot to a
// new session when another is stale, or is less worth keeping: consumers' before
// followers', and smaller before larger.
type Cache struct {
	slots int

	mu       sync.Mutex
	sessions map[int32]*Session
	random   *rand.Rand
	evicted  int64
}

// NewCache makes a cache with that many slots; seed makes its session ids.
func NewCache(slots int, seed uint64) *Cache {
	return &Cache{slots: slots, sessions: map[int32]*Session{}, random: rand.New(rand.NewPCG(seed, seed))}
}

// Begin places a request in its session. Any verdict but OK is the error code
// of the whole answer, and the Fetch is nil.
func (c *Cache) Begin(now time.Time, q Request) (*Fetch, Verdict) {
	if q.Epoch == initialEpoch || q.Epoch == finalEpoch {
		c.remove(q.ID)
		return &Fetch{cache: c, request: q, full: q.Epoch == initialEpoch, wanted: q.Wanted}, OK
	}
	c.mu.Lock()
	s, ok := c.sessions[q.ID]
	if ok {
		s.lastUsed = now
	}
	c.mu.Unlock()
	if !ok {
		return nil, IDNotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch != q.Epoch:
		return nil, InvalidEpoch
	case s.byID != q.ByID:
		return nil, TopicIDError
	}
	for _, w := range q.Wanted {
		s.want(w)
	}
	for _, k := range q.Forget {
		s.forget(k)
	}
	if len(s.parts) == 0 { // nothing left: the answer has session id 0
		c.remove(s.id)
		return &Fetch{cache: c}, OK
	}
	s.epoch = nextEpoch(s.epoch)
	f := &Fetch{cache: c, session: s, request: q, epoch: s.epoch, wanted: make([]Wanted, 0, len(s.parts))}
	for e := s.ring.next; e != &s.ring; e = e.next {
		f.wanted = append(f.wanted, e.Wanted)
	}
	return f, OK
}

func (c *Cache) create(now time.Time, q Request, told []Told) int32 {
	if len(q.Wanted) == 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.makeRoomLocked(now, q) {
		return 0
	}
	s := newSession(q)
	s.created, s.lastUsed, s.size = now, now, len(s.parts)
	for i, w := range q.Wanted {
		s.tell(w.Key, told[i])
	}
	for {
		s.id = c.random.Int32N(1<<31-1) + 1
		if _, taken := c.sessions[s.id]; !taken {
			break
		}
	}
	c.sessions[s.id] = s
	return s.id
}

func (c *Cache) makeRoomLocked(now time.Time, q Request) bool {
	if len(c.sessions) < c.slots {
		return true
	}
	var victim *Session
	for _, s := range c.sessions {
		if mayEvict(now, s, q) && (victim == nil || worthLess(now, s, victim)) {
			victim = s
		}
	}
	if victim == nil {
		return false
	}
	delete(c.sessions, victim.id)
	c.evicted++
	return true
}

// mayEvict tells whether a new session may take the slot of s: s is stale; or
// it has had its time (a follower need not wait for that with a consumer's) and
// the newcomer is worth at least as much.
func mayEvict(now time.Time, s *Session, q Request) bool {
	if stale(now, s) {
		return true
	}
	old := now.Sub(s.created) > EvictAfter
	if s.privileged != q.Follower {
		return q.Follower
	}
	return old && s.size <= len(q.Wanted)
}

func stale(now time.Time, s *Session) bool { return now.Sub(s.lastUsed) > EvictAfter }

// worthLess orders sessions by how readily they give up their slot. Ids break
// ties, so that the choice does not depend on the map's order.
func worthLess(now time.Time, a, b *Session) bool {
	if x, y := stale(now, a), stale(now, b); x != y {
		return x
	}
	if a.privileged != b.privileged {
		return !a.privileged
	}
	if a.size != b.size {
		return a.size < b.size
	}
	return a.id < b.id
}

func (c *Cache) remove(id int32) {
	if id == 0 {
		return
	}
	c.mu.Lock()
	delete(c.sessions, id)
	c.mu.Unlock()
}

// Counts are the sessions held, the partitions in them when they were made,
// and the sessions evicted so far.
func (c *Cache) Counts() (sessions, partitions int, evicted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		partitions += s.size
	}
	return len(c.sessions), partitions, c.evicted
}
