package controller

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// Elect notes that somebody asks for elections, and answers for each partition
// with Kafka's error code; those answered 0 have a write due in the next plan.
func (im *Image) Elect(kind Election, partitions []cluster.TopicPartition) map[cluster.TopicPartition]int16 {
	codes := make(map[cluster.TopicPartition]int16, len(partitions))
	for _, tp := range partitions {
		codes[tp] = im.wish(kind, tp)
	}
	return codes
}

// Elected is what came of one election: Kafka's error code, and for code 0 who
// leads in which epoch.
type Elected struct {
	Code        int16
	Leader      cluster.BrokerID
	LeaderEpoch cluster.LeaderEpoch
}

// NotElected is the code for an election that found no leader.
func (e Election) NotElected() int16 {
	if e == PreferredElection {
		return codePreferredUnavailable
	}
	return codeEligibleUnavailable
}

// AllPartitions are all partitions that have a state, sorted, without those of
// topics that are being deleted.
func (im *Image) AllPartitions() []cluster.TopicPartition {
	all := make([]cluster.TopicPartition, 0, im.counts.Partitions)
	for _, t := range im.topics {
		for _, p := range t.parts {
			if p.known && !t.deleting {
				all = append(all, p.tp())
			}
		}
	}
	slices.SortFunc(all, cluster.TopicPartition.Compare)
	return all
}

func (im *Image) wish(kind Election, tp cluster.TopicPartition) int16 {
	p := im.partition(tp)
	switch {
	case p == nil || !p.known:
		return codeUnknownPartition
	case p.topic.deleting:
		return codeInvalidTopic
	case kind == PreferredElection && len(p.replicas) > 0 && p.state.Leader == p.replicas[0].id:
		return codeElectionNotNeeded
	case kind == PreferredElection && !im.preferable(p):
		return codePreferredUnavailable
	case kind == UncleanElection && im.alive(p, p.state.Leader):
		return codeElectionNotNeeded
	case kind == UncleanElection && im.candidate(p) == cluster.NoBroker && len(im.onlineOf(p, p.assignment.Replicas)) == 0:
		return codeEligibleUnavailable
	case p.state.LeaderEpoch == lastEpoch:
		return kind.NotElected()
	}
	p.wish = kind
	im.changed(p)
	return codeNone
}

// Stuck are the partitions whose state has to change and cannot, because their
// leader epoch cannot rise; sorted.
func (im *Image) Stuck() []cluster.TopicPartition {
	var out []cluster.TopicPartition
	for tp := range im.last {
		switch p := im.partition(tp); {
		case p == nil || p.state.LeaderEpoch != lastEpoch:
			delete(im.last, tp)
		case im.next(p).stuck:
			out = append(out, tp)
		}
	}
	slices.SortFunc(out, cluster.TopicPartition.Compare)
	return out
}

// Imbalanced are the partitions for which a preferred election would succeed,
// for brokers of which more than the given percentage of preferred partitions
// is led by others; sorted.
func (im *Image) Imbalanced(percentage int) []cluster.TopicPartition {
	type load struct {
		all, away int
		movable   []cluster.TopicPartition
	}
	loads := map[cluster.BrokerID]*load{}
	for _, t := range im.topics {
		if t.deleting {
			continue
		}
		for _, p := range t.parts {
			if len(p.replicas) == 0 {
				continue
			}
			first := p.replicas[0].id
			l := loads[first]
			if l == nil {
				l = &load{}
				loads[first] = l
			}
			l.all++
			if p.known && p.state.Leader != first {
				l.away++
				if im.preferable(p) && !reassigning(p.assignment) && p.state.LeaderEpoch != lastEpoch {
					l.movable = append(l.movable, p.tp())
				}
			}
		}
	}
	var out []cluster.TopicPartition
	for _, l := range loads {
		if l.away*100 > percentage*l.all {
			out = append(out, l.movable...)
		}
	}
	slices.SortFunc(out, cluster.TopicPartition.Compare)
	return out
}
