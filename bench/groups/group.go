package groups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options say what a group is like.
type Options struct {
	Addr       string // of the coordinator
	Name       string
	Topic      string
	Partitions int32         // of the topic
	Session    time.Duration // after which a member that is silent is lost
	Beat       time.Duration // between two heartbeats
}

// Group is a group of consumers at work, each with a connection and a goroutine
// of its own. Its methods are called by one goroutine.
type Group struct {
	o       Options
	began   time.Time
	members []*member // without those that were lost

	mu      sync.Mutex
	beat    time.Duration
	held    map[*member]holding
	err     error         // the first that a member met
	changed chan struct{} // takes one: something in held or err has changed
}

// holding is what a member has been assigned, and when.
type holding struct {
	generation int32
	partitions []int32
	joined     time.Time // when the member sent the JoinGroup that led to it
	at         time.Time // when it had its assignment
}

// Settled is a generation in which every member has its assignment.
type Settled struct {
	Generation int32
	At         time.Time // the last of them had it
	Joined     time.Time // the last of them sent its JoinGroup
}

// Start has n members join at once. Each is connected before the first joins;
// began is when that is.
func Start(ctx context.Context, o Options, n int) (g *Group, began time.Time, err error) {
	g = &Group{o: o, beat: o.Beat, held: map[*member]holding{}, changed: make(chan struct{}, 1)}
	for i := range n {
		c, err := dial(ctx, o.Addr)
		if err != nil {
			for _, m := range g.members {
				m.conn.Close()
			}
			return nil, began, err
		}
		g.members = append(g.members, &member{g: g, conn: c, phase: float64(i) / float64(n), stop: make(chan struct{}), done: make(chan struct{})})
	}
	began = time.Now()
	g.began = began
	for _, m := range g.members {
		go m.run()
	}
	return g, began, nil
}

// SetBeat changes the time between two heartbeats, from each member's next one
// on.
func (g *Group) SetBeat(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.beat = d
}

func (g *Group) interval() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.beat
}

func (g *Group) tell(m *member, h holding, err error) {
	g.mu.Lock()
	if err != nil && g.err == nil {
		g.err = err
	}
	if err == nil {
		g.held[m] = h
	}
	g.mu.Unlock()
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// Settle waits until all members have their assignment of the same generation,
// a later one than after. They must own each partition once.
func (g *Group) Settle(ctx context.Context, after int32) (Settled, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s, err := g.settled(after)
		if err == nil || !errors.Is(err, errMoving) {
			return s, err
		}
		select {
		case <-g.changed:
		case <-ctx.Done():
			return s, errors.Join(fmt.Errorf("%s: %w", g.o.Name, err), ctx.Err())
		}
	}
}

// errMoving is what a group that is not settled is.
var errMoving = errors.New("not all members have their assignment")

func (g *Group) settled(after int32) (s Settled, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return s, fmt.Errorf("%s: %w", g.o.Name, g.err)
	}
	s.Generation = -1
	var all [][]int32
	for _, m := range g.members {
		h, ok := g.held[m]
		if !ok || h.generation <= after || s.Generation >= 0 && h.generation != s.Generation {
			return s, errMoving
		}
		s.Generation = h.generation
		all = append(all, h.partitions)
		s.At, s.Joined = later(s.At, h.at), later(s.Joined, h.joined)
	}
	if err := covered(all, g.o.Partitions); err != nil {
		return s, fmt.Errorf("%s, generation %d: %w", g.o.Name, s.Generation, err)
	}
	return s, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// take ends one member's work, its membership not, and answers it.
func (g *Group) take() *member {
	m := g.members[len(g.members)/2] // any but the first, who may lead
	g.members = append(g.members[:len(g.members)/2:len(g.members)/2], g.members[len(g.members)/2+1:]...)
	close(m.stop)
	m.ended()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, m)
	return m
}

// Leave has one member leave, and answers when it asked to.
func (g *Group) Leave() (time.Time, error) {
	m := g.take()
	defer m.conn.Close()
	began := time.Now()
	errs, err := leave(m.conn, g.o.Name, m.id)
	return began, errors.Join(append(errs, err)...)
}

// Die has one member fall silent, and answers when the coordinator heard its
// last heartbeat.
func (g *Group) Die() time.Time {
	m := g.take()
	m.conn.Close()
	return m.heard
}

// Identity is what a coordinator knows a member by.
type Identity struct {
	Group, Member string
	Generation    int32
}

// Abandon ends the members' work without their leaving, and answers who they
// are to the coordinator.
func (g *Group) Abandon() (ids []Identity) {
	for _, m := range g.members {
		close(m.stop)
	}
	for _, m := range g.members {
		m.ended()
		m.conn.Close()
		ids = append(ids, Identity{g.o.Name, m.id, m.generation})
	}
	g.members = nil
	return ids
}

// Stop ends the group: all members leave in one request. Those that have lost
// their session meanwhile have left.
func (g *Group) Stop(ctx context.Context) error {
	var ids []string
	for _, id := range g.Abandon() {
		ids = append(ids, id.Member)
	}
	c, err := dial(ctx, g.o.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	errs, err := leave(c, g.o.Name, ids...)
	for _, e := range errs {
		if !errors.Is(e, protocol.ErrUnknownMemberID) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// leave has members leave; errs are those of single members.
func leave(c *raw.Conn, group string, ids ...string) (errs []error, err error) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, group
	for _, id := range ids {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = id
		req.Members = append(req.Members, m)
	}
	r, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.LeaveGroupResponse)
	for _, m := range resp.Members {
		if err := protocol.Error(m.ErrorCode); err != nil {
			errs = append(errs, fmt.Errorf("LeaveGroup of %s: %w", group, err))
		}
	}
	return errs, protocol.Error(resp.ErrorCode)
}
