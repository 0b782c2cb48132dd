package api

import (
	"slices"
	"strings"
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups (16).
//
//	v1  throttle time
//	v3  flexible
//	v4  states, and a filter of them (KIP-518)
//	v5  types, and a filter of them (KIP-848)
func init() { register(API{Key: protocol.ListGroups, Handle: listGroups}) }

// listCall is a ListGroups on its way, which adds up what each shard has.
type listCall struct {
	c       *Call
	cluster bool // may see every group

	mu   sync.Mutex
	resp *kmsg.ListGroupsResponse
}

func listGroups(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.ListGroupsRequest)
	if h.Groups == nil {
		if h.leadsAny(cluster.GroupMetadataTopic) {
			c.Fail(protocol.ErrCoordinatorNotAvailable)
		} else {
			c.Reply(req.ResponseKind())
		}
		return
	}
	l := &listCall{c: c, cluster: c.Allowed(OpDescribe, ResCluster, ClusterName), resp: req.ResponseKind().(*kmsg.ListGroupsResponse)}
	led := h.Groups.Led()
	if len(led) == 0 {
		c.Reply(l.resp)
		return
	}
	all := newGather(len(led), l.done)
	for _, p := range led {
		askShard(c, p, req, func(answer *kmsg.ListGroupsResponse, code protocol.Code) {
			l.add(answer, code)
			all.done()
		})
	}
}

// add takes in a shard's groups. One that is being loaded makes the list an
// error, and leaves the others in it; one that went away is no longer this
// broker's to list.
func (l *listCall) add(answer *kmsg.ListGroupsResponse, code protocol.Code) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch code {
	case protocol.None:
	case protocol.ErrNotCoordinator:
		return
	default:
		l.resp.ErrorCode = int16(coordinatorCode(code))
		return
	}
	for _, g := range answer.Groups {
		if l.cluster || l.c.Allowed(OpDescribe, ResGroup, g.Group) {
			l.resp.Groups = append(l.resp.Groups, g)
		}
	}
}

func (l *listCall) done() {
	slices.SortFunc(l.resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	l.c.Reply(l.resp)
}
