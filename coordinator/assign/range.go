package assign

// ranges gives each subscriber of a topic a run of its partitions, in the order
// of the members, so that members of the same subscription get the same numbers
// of topics with as many partitions (co-partitioning). The first ones get one
// more where it does not divide. What was given before plays no part.
func ranges(in Input) []Set {
	p := newPlan(in, static)
	out := make([]Set, len(in.Members))
	give := func(t Topic, members []int) {
		n := int32(len(members))
		if n == 0 {
			return
		}
		quota, more, next := t.Partitions/n, t.Partitions%n, int32(0)
		run := make([]int32, t.Partitions)
		for i := range run {
			run[i] = int32(i)
		}
		for i, m := range members {
			end := next + quota
			if int32(i) < more {
				end++
			}
			if end > next {
				out[m] = append(out[m], TopicPartitions{t.ID, run[next:end:end]})
			}
			next = end
		}
	}
	if p.same {
		for _, t := range p.topics {
			give(t, p.order)
		}
		return out
	}
	for t, members := range p.subscribers() {
		give(p.topics[t], members)
	}
	return out
}
