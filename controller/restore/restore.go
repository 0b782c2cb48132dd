package restore

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// End is how far the log of one broker's replica goes.
type End struct {
	Partition cluster.TopicPartition
	TopicID   cluster.TopicID     // zero: not known
	Epoch     cluster.LeaderEpoch // the newest one in it, NoLeaderEpoch for none
	LEO       cluster.Offset
	broker    cluster.BrokerID
}

// compare orders by how much of what was committed a log has: who has a later epoch
// has been made equal to the leader of it, and of those the longest one has most.
func (e End) compare(o End) int {
	return cmp.Or(cmp.Compare(e.Epoch, o.Epoch), cmp.Compare(e.LEO, o.LEO))
}

// Partition is what ZooKeeper has of one.
type Partition struct {
	Partition cluster.TopicPartition
	TopicID   cluster.TopicID
	Replicas  []cluster.BrokerID // the assignment
	State     cluster.LeaderAndISR
}

// Change is a partition that ZooKeeper has forgotten the newest epochs of.
type Change struct {
	Partition cluster.TopicPartition
	Newest    cluster.LeaderEpoch // in the logs
	Was, Next cluster.LeaderAndISR
	Err       error // why nothing is decided; Next is Was
}

// Decide gives each partition whose leader epoch is older than one in its logs a state
// above them: led by who has most, with those in the ISR that have as much. Others are
// left alone. As long as a broker that has a replica has no report, nothing is decided
// for it. Logs of another topic id do not count.
func Decide(partitions []Partition, reports []Report) []Change {
	logs := map[cluster.TopicPartition][]End{}
	var scanned []cluster.BrokerID
	for _, r := range reports {
		scanned = append(scanned, r.Broker)
		for _, e := range r.Ends {
			e.broker = r.Broker
			logs[e.Partition] = append(logs[e.Partition], e)
		}
	}
	var out []Change
	for _, p := range partitions {
		own := slices.DeleteFunc(logs[p.Partition], func(e End) bool { return e.TopicID.IsZero() || e.TopicID != p.TopicID })
		newest := cluster.NoLeaderEpoch
		for _, e := range own {
			newest = max(newest, e.Epoch)
		}
		if newest > p.State.LeaderEpoch {
			out = append(out, p.change(newest, scanned, own))
		}
	}
	return out
}

func (p *Partition) change(newest cluster.LeaderEpoch, scanned []cluster.BrokerID, own []End) Change {
	c := Change{Partition: p.Partition, Newest: newest, Was: p.State, Next: p.State}
	for _, id := range p.Replicas {
		if !slices.Contains(scanned, id) {
			c.Err = fmt.Errorf("broker %d has a replica, and its logs were not scanned", id)
			return c
		}
	}
	most := slices.MaxFunc(own, End.compare)
	var isr []cluster.BrokerID // in order of preference
	for _, id := range p.Replicas {
		if slices.ContainsFunc(own, func(e End) bool { return e.broker == id && e.compare(most) == 0 }) {
			isr = append(isr, id)
		}
	}
	switch {
	case len(isr) == 0:
		c.Err = fmt.Errorf("broker %d has most, up to offset %d in epoch %d, and ZooKeeper knows of no replica there (%v): assign the partition to it", most.broker, most.LEO, most.Epoch, p.Replicas)
	case newest == math.MaxInt32:
		c.Err = fmt.Errorf("broker %d has epoch %d, and there is none above it", most.broker, newest)
	default:
		c.Next.Leader, c.Next.ISR, c.Next.LeaderEpoch = isr[0], isr, newest+1
		c.Next.History = nil // of another ISR
	}
	return c
}
