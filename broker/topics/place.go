package topics

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// Node is a live broker that may get replicas.
type Node struct {
	ID   cluster.BrokerID
	Rack string // "" for none
}

// Refusals of a placement; clients see their text.
var (
	ErrInvalidPartitions        = errors.New("invalid number of partitions")
	ErrInvalidReplicationFactor = errors.New("invalid replication factor")
	ErrInvalidReplicaAssignment = errors.New("invalid replica assignment")
)

// Place spreads the replicas of n partitions, numbered from first on, over the
// nodes as Kafka does: leaders go round, followers follow at a distance that
// grows with each turn, and where the nodes have racks the replicas of a
// partition lie in different racks as long as there are any left. start and
// shift, at least 0, are where the first leader and the distance begin.
//
// It holds: each partition has rf different nodes, and the numbers of leaders
// of two nodes differ by one at most where first is 0.
func Place(nodes []Node, n, rf int, first, start, shift int) (map[int32][]cluster.BrokerID, error) {
	switch {
	case n <= 0:
		return nil, fmt.Errorf("%w: %d, it must be at least 1", ErrInvalidPartitions, n)
	case rf <= 0:
		return nil, fmt.Errorf("%w: %d, it must be at least 1", ErrInvalidReplicationFactor, rf)
	case rf > len(nodes):
		return nil, fmt.Errorf("%w: %d is larger than the %d available brokers", ErrInvalidReplicationFactor, rf, len(nodes))
	}
	ring, racks, err := alternate(nodes)
	if err != nil {
		return nil, err
	}
	out := make(map[int32][]cluster.BrokerID, n)
	for p := first; p < first+n; p++ {
		if p > 0 && p%len(ring) == 0 {
			shift++
		}
		lead := (p + start) % len(ring)
		out[int32(p)] = pick(ring, racks, rf, lead, shift*max(racks, 1))
	}
	return out, nil
}

// pick takes rf nodes of the ring, the leader first.
func pick(ring []Node, racks, rf, lead, shift int) []cluster.BrokerID {
	replicas := []cluster.BrokerID{ring[lead].ID}
	used := map[string]bool{ring[lead].Rack: true}
	for k := 0; len(replicas) < rf; k++ {
		n := ring[(lead+1+(shift+k)%(len(ring)-1))%len(ring)]
		if racks > 0 && used[n.Rack] && len(used) < racks {
			continue // another rack has none yet
		}
		if slices.Contains(replicas, n.ID) {
			continue
		}
		replicas = append(replicas, n.ID)
		used[n.Rack] = true
	}
	return replicas
}

// alternate orders the nodes so that neighbours lie in different racks, and
// counts the racks: 0 where no node has one. Without racks the order is that of
// the ids.
func alternate(nodes []Node) ([]Node, int, error) {
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b Node) int { return int(a.ID) - int(b.ID) })
	byRack := map[string][]Node{}
	for _, n := range sorted {
		byRack[n.Rack] = append(byRack[n.Rack], n)
	}
	if len(byRack[""]) == len(nodes) {
		return sorted, 0, nil
	}
	if len(byRack[""]) > 0 {
		return nil, 0, fmt.Errorf("%w: broker %d has no rack while others have", ErrInvalidReplicaAssignment, byRack[""][0].ID)
	}
	names := make([]string, 0, len(byRack))
	for r := range byRack {
		names = append(names, r)
	}
	slices.Sort(names)
	ring := make([]Node, 0, len(nodes))
	for i := 0; len(ring) < len(nodes); i++ {
		for _, r := range names {
			if i < len(byRack[r]) {
				ring = append(ring, byRack[r][i])
			}
		}
	}
	return ring, len(names), nil
}
