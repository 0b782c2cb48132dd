package assign

import "slices"

// free and the member's index are the values of an owners table.
const free = -1

// owners is who holds each partition of each topic of the plan.
type owners [][]int32

// kept fills the table with what members hold already and may keep: topics that
// they subscribe to, partitions that exist, the first holder of each. It also
// returns how many that is for each member.
func (p *plan) kept() (owners, []int) {
	own := make(owners, len(p.topics))
	for t, topic := range p.topics {
		own[t] = make([]int32, topic.Partitions)
		for i := range own[t] {
			own[t][i] = free
		}
	}
	load := make([]int, len(p.in.Members))
	for _, m := range p.order {
		member := &p.in.Members[m]
		for _, tp := range member.Current {
			t, ok := p.topic(tp.Topic)
			if !ok || !p.subscribes(m, t) {
				continue
			}
			for _, partition := range tp.Partitions {
				if partition >= 0 && partition < p.topics[t].Partitions && own[t][partition] == free {
					own[t][partition] = int32(m)
					load[m]++
				}
			}
		}
	}
	return own, load
}

func (p *plan) subscribes(m, t int) bool {
	if p.same {
		return true
	}
	_, ok := slices.BinarySearch(p.perUser[m], t)
	return ok
}

// sets turns the table into what each member is given. A member that keeps just
// what it has gets the very same Set.
func (p *plan) sets(own owners) []Set {
	out := make([]Set, len(p.in.Members))
	for t, topic := range p.topics {
		for partition, m := range own[t] {
			if m == free {
				continue
			}
			set := out[m]
			if n := len(set); n == 0 || set[n-1].Topic != topic.ID {
				set = append(set, TopicPartitions{Topic: topic.ID})
			}
			last := &set[len(set)-1]
			last.Partitions = append(last.Partitions, int32(partition))
			out[m] = set
		}
	}
	for m := range out {
		if current := p.in.Members[m].Current; out[m].Equal(current) {
			out[m] = current
		}
	}
	return out
}

// uniform balances the number of partitions per member and moves as few as that
// allows. With one subscription for all, numbers differ by one at most and no
// partition moves that need not. With several, balance is sought within the
// subscribers of each topic.
func uniform(in Input) []Set {
	p := newPlan(in, byID)
	if len(in.Members) == 0 {
		return nil
	}
	own, load := p.kept()
	if p.same {
		p.level(own, load)
	} else {
		b := &balancer{plan: p, own: own, load: load, subscribers: p.subscribers()}
		b.fill()
		b.balance()
	}
	return p.sets(own)
}

// level gives every member the same number, one more for some. Those who hold
// more than their share are the first to get the one more, since that moves the
// least; after them it goes by the order, from the end, as in Kafka.
func (p *plan) level(own owners, load []int) {
	total := 0
	for _, t := range p.topics {
		total += int(t.Partitions)
	}
	share, more := total/len(p.order), total%len(p.order)
	quota := make([]int, len(load))
	for _, m := range p.order {
		quota[m] = share
		if more > 0 && load[m] > share {
			quota[m]++
			more--
		}
	}
	for _, m := range slices.Backward(p.order) {
		if more > 0 && quota[m] == share {
			quota[m]++
			more--
		}
	}
	// The last ones above the quota go.
	for t := len(own) - 1; t >= 0; t-- {
		for partition := len(own[t]) - 1; partition >= 0; partition-- {
			if m := own[t][partition]; m != free && load[m] > quota[m] {
				own[t][partition] = free
				load[m]--
			}
		}
	}
	next := 0 // the first in order with room
	for t := range own {
		for partition, m := range own[t] {
			if m != free {
				continue
			}
			for load[p.order[next]] >= quota[p.order[next]] {
				next++
			}
			to := p.order[next]
			own[t][partition] = int32(to)
			load[to]++
		}
	}
}
