package broker

import (
	"slices"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/partition/replica"
)

// addReplicas adds the metrics of every replica, and those that sum them up: one
// walk over the replicas at each reading.
func addReplicas(replicas []*replica.Replica, add func(metric.Reading)) {
	var sum replicaSums
	for _, r := range replicas {
		s := r.Status()
		c := conditionOf(&s)
		sum.add(&s, c)
		addPartition(r, &s, c, add)
	}
	for name, n := range map[string]int64{
		"PartitionCount": int64(len(replicas)), "LeaderCount": sum.leaders, "OfflineReplicaCount": sum.offline,
		"UnderReplicatedPartitions": sum.underReplicated, "UnderMinIsrPartitionCount": sum.underMinISR,
		"AtMinIsrPartitionCount": sum.atMinISR, "ReassigningPartitions": sum.reassigning,
	} {
		add(metric.Reading{Name: metric.Name{Group: "kafka.server", Type: "ReplicaManager", Name: name}, Value: float64(n)})
	}
	add(metric.Reading{Name: metric.Name{Group: "kbroker.server", Type: "ReplicaManager", Name: "MaxFollowerLag"}, Value: float64(sum.maxLag)})
}

// condition is how the leader of a partition finds it; all false for others.
type condition struct {
	leads, underReplicated, underMinISR, atMinISR, reassigning bool
	factor                                                     int // replicas without those that a reassignment adds
}

func conditionOf(s *replica.Status) condition {
	if s.Role != partition.Leader {
		return condition{}
	}
	c := condition{leads: true, reassigning: len(s.Assignment.Adding)+len(s.Assignment.Removing) > 0}
	for _, id := range s.Assignment.Replicas {
		if !slices.Contains(s.Assignment.Adding, id) {
			c.factor++
		}
	}
	isr := int32(len(s.ISR))
	c.underReplicated = len(s.ISR) < c.factor
	c.underMinISR, c.atMinISR = isr < s.MinISR, isr == s.MinISR
	return c
}

type replicaSums struct {
	leaders, offline, underReplicated, underMinISR, atMinISR, reassigning int64

	maxLag cluster.Offset // of a follower in some ISR behind this leader
}

func (x *replicaSums) add(s *replica.Status, c condition) {
	x.leaders += one(c.leads)
	x.offline += one(s.Role == partition.Offline)
	x.underReplicated += one(c.underReplicated)
	x.underMinISR += one(c.underMinISR)
	x.atMinISR += one(c.atMinISR)
	x.reassigning += one(c.reassigning)
	for _, f := range s.Remotes {
		if f.LEO >= 0 {
			x.maxLag = max(x.maxLag, s.LEO-f.LEO)
		}
	}
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func addPartition(r *replica.Replica, s *replica.Status, c condition, add func(metric.Reading)) {
	tp := r.TopicPartition()
	tags := "topic=" + tp.Topic + ",partition=" + strconv.Itoa(int(tp.Partition))
	value := func(group, typ, name string, n int64) {
		add(metric.Reading{Name: metric.Name{Group: group, Type: typ, Name: name, Tags: tags}, Value: float64(n)})
	}
	value("kafka.log", "Log", "LogStartOffset", int64(s.LogStart))
	value("kafka.log", "Log", "LogEndOffset", int64(s.LEO))
	value("kafka.log", "Log", "Size", s.Size)
	value("kafka.log", "Log", "NumLogSegments", int64(r.Log().Segments()))
	isr := 0
	if c.leads {
		isr = len(s.ISR)
	}
	value("kafka.cluster", "Partition", "UnderReplicated", one(c.underReplicated))
	value("kafka.cluster", "Partition", "UnderMinIsr", one(c.underMinISR))
	value("kafka.cluster", "Partition", "AtMinIsr", one(c.atMinISR))
	value("kafka.cluster", "Partition", "InSyncReplicasCount", int64(isr))
	value("kafka.cluster", "Partition", "ReplicasCount", int64(c.factor))
	value("kafka.cluster", "Partition", "LastStableOffsetLag", int64(s.HW-s.LSO))
}
