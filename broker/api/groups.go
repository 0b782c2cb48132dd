package api

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Groups runs the shards of the group coordinator: one for each partition of
// __consumer_offsets that this broker leads.
type Groups interface {
	// Submit hands a request to a partition's shard. done is called once, within
	// the call or later from any goroutine, with the answer or with an error.
	Submit(partition int32, r coordinator.Request, done func(response any, err error))
	// Answer asks a partition's shard for an answer that it has at once; false: the
	// request is to be submitted.
	Answer(partition int32, msg any) (response any, ok bool)
	// Led are the partitions whose shard is here or is being loaded.
	Led() []int32
	// Tell gives every shard an event that nobody waits for.
	Tell(event any)
	// Markers tells a shard of a marker that is in its partition's log.
	Markers(partition int32, producer cluster.ProducerID, epoch cluster.ProducerEpoch, committed bool)
}

// groupPartition is the partition of __consumer_offsets that a group belongs to.
func (h *Handlers) groupPartition(group string) int32 {
	return coordinatorPartition(group, h.groupPartitions())
}

// groupPartitions is how many partitions of __consumer_offsets groups are spread
// over: as many as it had when this broker started, or as it is to be made with. One
// that grows takes groups away from their offsets when the broker starts again, as
// Kafka's does, and not before.
func (h *Handlers) groupPartitions() int {
	if h.GroupPartitions > 0 {
		return h.GroupPartitions
	}
	return int(h.Config().OffsetsTopicPartitions)
}

// askGroup asks the group's coordinator; then gets the answer or the code of the
// failure, which coordinatorCode or one of its kin makes a client's.
func askGroup[R kmsg.Response](c *Call, group string, msg kmsg.Request, then func(R, protocol.Code)) {
	askShard(c, c.h.groupPartition(group), msg, then)
}

// askShard is askGroup for the shard of a partition. The answer is in the
// request's version.
func askShard[R kmsg.Response](c *Call, partition int32, msg kmsg.Request, then func(R, protocol.Code)) {
	var none R
	if c.h.Groups == nil {
		then(none, protocol.ErrCoordinatorNotAvailable)
		return
	}
	r := coordinator.Request{ClientID: c.Header.ClientID, ClientHost: clientHost(c.Conn.RemoteAddr.Addr()), Msg: msg, ReadOnly: readOnly(msg)}
	c.h.Groups.Submit(partition, r, func(response any, err error) {
		if err != nil {
			then(none, protocol.Code(CodeOf(err)))
			return
		}
		answer := response.(R)
		answer.SetVersion(msg.GetVersion())
		then(answer, protocol.None)
	})
}

// readOnly are the requests that lead to no record.
func readOnly(msg kmsg.Request) bool {
	switch msg.(type) {
	case *kmsg.HeartbeatRequest, *kmsg.OffsetFetchRequest, *kmsg.DescribeGroupsRequest, *kmsg.ListGroupsRequest, *kmsg.ConsumerGroupDescribeRequest:
		return true
	}
	return false
}

// coordinatorCode is what clients of a coordinator are told of a failure of its
// log: they look for the coordinator again, or try again. A state that does not
// fit into the log is nothing that they could help.
func coordinatorCode(code protocol.Code) protocol.Code {
	switch code {
	case protocol.ErrUnknownTopicOrPartition, protocol.ErrNotEnoughReplicas, protocol.ErrNotEnoughReplicasAfterAppend, protocol.ErrRequestTimedOut:
		return protocol.ErrCoordinatorNotAvailable
	case protocol.ErrNotLeaderOrFollower, protocol.ErrKafkaStorageError:
		return protocol.ErrNotCoordinator
	case protocol.ErrMessageTooLarge, protocol.ErrRecordListTooLarge, protocol.ErrInvalidFetchSize:
		return protocol.ErrUnknownServerError
	}
	return code
}

// rebalanceCode is coordinatorCode for members in a rebalance, who join again
// when its result was not committed in time.
func rebalanceCode(code protocol.Code) protocol.Code {
	if code == protocol.ErrRequestTimedOut {
		return protocol.ErrRebalanceInProgress
	}
	return coordinatorCode(code)
}

// commitCode is coordinatorCode for offsets, which a client may commit fewer of.
func commitCode(code protocol.Code) protocol.Code {
	switch code {
	case protocol.ErrMessageTooLarge, protocol.ErrRecordListTooLarge, protocol.ErrInvalidFetchSize:
		return protocol.ErrInvalidCommitOffsetSize
	}
	return coordinatorCode(code)
}

// clientHost is an address as Java prints one: /127.0.0.1, /0:0:0:0:0:0:0:1.
func clientHost(a netip.Addr) string {
	a = a.Unmap()
	if a.Is4() || !a.IsValid() {
		return "/" + strings.TrimPrefix(a.String(), "invalid IP")
	}
	b := a.As16()
	parts := make([]string, 8)
	for i := range parts {
		parts[i] = strconv.FormatUint(uint64(b[2*i])<<8|uint64(b[2*i+1]), 16)
	}
	host := "/" + strings.Join(parts, ":")
	if a.Zone() != "" {
		host += "%" + a.Zone()
	}
	return host
}

// gather calls its function when as many parts as were asked for have come.
type gather struct {
	left atomic.Int32
	then func()
}

func newGather(parts int, then func()) *gather {
	g := &gather{then: then}
	g.left.Store(int32(parts))
	return g
}

func (g *gather) done() {
	if g.left.Add(-1) == 0 {
		g.then()
	}
}

// shardGroups are those groups of a request that one shard answers for.
type shardGroups struct {
	partition int32
	groups    []string
	at        []int // their places in the request
}

// byShard splits the groups of a request that pass, in the order of partitions.
func (h *Handlers) byShard(groups []string, pass func(i int) bool) []shardGroups {
	var out []shardGroups
	for i, g := range groups {
		if !pass(i) {
			continue
		}
		p := h.groupPartition(g)
		j, found := slices.BinarySearchFunc(out, p, func(s shardGroups, p int32) int { return int(s.partition) - int(p) })
		if !found {
			out = slices.Insert(out, j, shardGroups{partition: p})
		}
		out[j].groups = append(out[j].groups, g)
		out[j].at = append(out[j].at, i)
	}
	return out
}

// perShard asks each shard for its groups and puts what it says of them to
// their places; fail makes the entry of a group that no answer tells of.
func perShard[R kmsg.Response, G any](c *Call, shards []shardGroups, out []G, request func(groups []string) kmsg.Request,
	entries func(R) []G, name func(G) string, fail func(group string, code protocol.Code) G, then func()) {
	if len(shards) == 0 {
		then()
		return
	}
	g := newGather(len(shards), then)
	for _, s := range shards {
		askShard(c, s.partition, request(s.groups), func(answer R, code protocol.Code) {
			told := map[string]G{}
			if code == protocol.None {
				for _, e := range entries(answer) {
					told[name(e)] = e
				}
				code = protocol.ErrUnknownServerError
			}
			for i, group := range s.groups {
				if e, ok := told[group]; ok {
					out[s.at[i]] = e
				} else {
					out[s.at[i]] = fail(group, coordinatorCode(code))
				}
			}
			g.done()
		})
	}
}
