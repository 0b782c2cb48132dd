package groups

import (
	"errors"
	"fmt"
	"time"

	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rebalanceTimeout is how long a group waits for its members to join again:
// Java's max.poll.interval.ms.
const rebalanceTimeout = 5 * time.Minute

// assignor is the name of the members' one protocol.
const assignor = "range"

// member is one consumer as far as its coordinator sees it. Its fields belong
// to its goroutine, and to others once done is closed.
type member struct {
	g     *Group
	conn  *raw.Conn
	phase float64 // share of the interval by which its heartbeats are after those of others

	id         string
	generation int32
	heard      time.Time // the last heartbeat that was answered was sent

	stop chan struct{}
	done chan struct{}
}

// ended waits for the end of a member that was told to stop. In a join it is
// cut off.
func (m *member) ended() {
	select {
	case <-m.done:
	case <-time.After(2 * time.Second):
		m.conn.Close()
		<-m.done
	}
}

func (m *member) stopped() bool {
	select {
	case <-m.stop:
		return true
	default:
		return false
	}
}

// run joins and beats until the end.
func (m *member) run() {
	defer close(m.done)
	for !m.stopped() {
		h, err := m.join()
		if err == nil {
			m.g.tell(m, h, nil)
			err = m.beats()
		}
		if err != nil {
			if !m.stopped() {
				m.g.tell(m, holding{}, err)
			}
			return
		}
	}
}

// join goes on until the member has an assignment.
func (m *member) join() (holding, error) {
	for {
		h := holding{joined: time.Now()}
		joined, err := m.joinGroup()
		if err != nil {
			return h, err
		}
		switch again, err := m.rejoins(joined.ErrorCode); {
		case errors.Is(err, protocol.ErrMemberIDRequired):
			m.id = joined.MemberID
			continue
		case err != nil:
			return h, fmt.Errorf("JoinGroup: %w", err)
		case again:
			continue
		}
		m.id, m.generation = joined.MemberID, joined.Generation
		synced, err := m.syncGroup(joined)
		if err != nil {
			return h, err
		}
		if again, err := m.rejoins(synced.ErrorCode); err != nil {
			return h, fmt.Errorf("SyncGroup: %w", err)
		} else if again {
			continue
		}
		h.generation, h.at = m.generation, time.Now()
		m.heard = h.at
		h.partitions, err = assigned(synced.MemberAssignment, m.g.o.Topic)
		return h, err
	}
}

// rejoins tells whether an answer means that the member has to join again.
func (m *member) rejoins(code int16) (bool, error) {
	switch err := protocol.Error(code); {
	case err == nil:
		return false, nil
	case errors.Is(err, protocol.ErrRebalanceInProgress), errors.Is(err, protocol.ErrIllegalGeneration):
		return true, nil
	case errors.Is(err, protocol.ErrUnknownMemberID):
		m.id = ""
		return true, nil
	default:
		return false, err
	}
}

func (m *member) joinGroup() (*kmsg.JoinGroupResponse, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 9, m.g.o.Name, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(m.g.o.Session.Milliseconds()), int32(rebalanceTimeout.Milliseconds())
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = assignor, subscription(m.g.o.Topic)
	req.Protocols = append(req.Protocols, p)
	r, err := m.conn.Do(req)
	if err != nil {
		return nil, err
	}
	return r.(*kmsg.JoinGroupResponse), nil
}

// syncGroup asks for the assignment; the leader makes it.
func (m *member) syncGroup(joined *kmsg.JoinGroupResponse) (*kmsg.SyncGroupResponse, error) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, m.g.o.Name, m.id, m.generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr(assignor)
	if joined.LeaderID == m.id {
		var ids []string
		for _, o := range joined.Members {
			ids = append(ids, o.MemberID)
		}
		plan := spread(ids, m.g.o.Partitions)
		for _, id := range ids {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = id, assignment(m.g.o.Topic, plan[id])
			req.GroupAssignment = append(req.GroupAssignment, a)
		}
	}
	r, err := m.conn.Do(req)
	if err != nil {
		return nil, err
	}
	return r.(*kmsg.SyncGroupResponse), nil
}

// untilBeat is the time from now until a member's next heartbeat: the members
// of a group share its interval evenly, whenever it was that they joined.
func untilBeat(now, interval time.Duration, phase float64) time.Duration {
	return interval - (now-time.Duration(phase*float64(interval))+interval)%interval
}

// beats sends heartbeats until the member has to join again or is stopped.
func (m *member) beats() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		timer.Reset(untilBeat(time.Since(m.g.began), m.g.interval(), m.phase))
		select {
		case <-timer.C:
		case <-m.stop:
			return nil
		}
		sent := time.Now()
		code, err := beat(m.conn, Identity{m.g.o.Name, m.id, m.generation})
		if err != nil {
			return err
		}
		if again, err := m.rejoins(code); err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		} else if again {
			return nil
		}
		m.heard = sent
	}
}

// beat sends one heartbeat and answers the code.
func beat(c *raw.Conn, id Identity) (int16, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, id.Group, id.Member, id.Generation
	r, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	return r.(*kmsg.HeartbeatResponse).ErrorCode, nil
}
