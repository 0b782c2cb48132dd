package assign

import (
	"cmp"
	"container/heap"
	"slices"
)

// balancer spreads topics whose subscribers differ.
type balancer struct {
	*plan
	own         owners
	load        []int
	subscribers [][]int // of each topic
}

// rounds bounds the search for balance over topics whose subscribers overlap:
// each round about halves what is left, so that this is plenty.
const rounds = 16

// fill gives away what nobody holds, each to the subscriber with the fewest.
// Topics with much for few subscribers come first: the others then even it out.
func (b *balancer) fill() {
	for _, t := range b.byPressure() {
		if !slices.Contains(b.own[t], free) {
			continue
		}
		least := b.queue(b.subscribers[t], func(x, y int) bool { return b.load[x] < b.load[y] })
		for partition, m := range b.own[t] {
			if m == free {
				b.give(t, partition, least.members[0])
				heap.Fix(least, 0)
			}
		}
	}
}

// byPressure orders the topics that have subscribers.
func (b *balancer) byPressure() []int {
	var out []int
	for t := range b.topics {
		if len(b.subscribers[t]) > 0 {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(x, y int) int {
		nx, ny := int64(len(b.subscribers[x])), int64(len(b.subscribers[y]))
		// partitions per subscriber, descending, without dividing
		if c := cmp.Compare(int64(b.topics[y].Partitions)*nx, int64(b.topics[x].Partitions)*ny); c != 0 {
			return c
		}
		return cmp.Compare(nx, ny)
	})
	return out
}

// balance moves partitions within each topic, from the subscriber with the most
// to the one with the fewest, until no topic has a move that helps.
func (b *balancer) balance() {
	topics := b.byPressure()
	quiet := 0 // topics in a row without a move
	for range rounds {
		for _, t := range topics {
			if b.balanceTopic(t) {
				quiet = 0
			}
			if quiet++; quiet > len(topics) {
				return
			}
		}
	}
}

// balanceTopic says whether it moved anything.
func (b *balancer) balanceTopic(t int) bool {
	subscribers := b.subscribers[t]
	if len(subscribers) < 2 {
		return false
	}
	low, high := b.load[subscribers[0]], b.load[subscribers[0]]
	for _, m := range subscribers {
		low, high = min(low, b.load[m]), max(high, b.load[m])
	}
	if high-low < 2 {
		return false
	}
	held := make(map[int][]int, len(subscribers)) // the topic's partitions of each holder
	var holders []int
	for partition, m := range b.own[t] {
		if len(held[int(m)]) == 0 {
			holders = append(holders, int(m))
		}
		held[int(m)] = append(held[int(m)], partition)
	}
	slices.SortFunc(holders, func(x, y int) int { return cmp.Compare(b.in.Members[x].ID, b.in.Members[y].ID) })
	least := b.queue(subscribers, func(x, y int) bool { return b.load[x] < b.load[y] })
	most := b.queue(holders, func(x, y int) bool { return b.load[x] > b.load[y] })
	moved := false
	for most.Len() > 0 {
		from, to := most.members[0], least.members[0]
		if b.load[from]-b.load[to] < 2 {
			break
		}
		have := held[from]
		b.give(t, have[len(have)-1], to)
		held[from] = have[:len(have)-1]
		moved = true
		least.fix(from)
		least.fix(to)
		if len(held[from]) == 0 {
			heap.Pop(most)
		} else {
			most.fix(from)
		}
		// What to was given stays out of its list: it has the fewest, and a move
		// away from it cannot come up again before the topic is level.
		most.fix(to)
	}
	return moved
}

func (b *balancer) give(t, partition, to int) {
	if m := b.own[t][partition]; m != free {
		b.load[m]--
	}
	b.own[t][partition] = int32(to)
	b.load[to]++
}

// queue is a heap of members, ties in the order of the list that it was made of.
type queue struct {
	members []int
	at      map[int]int // where in members
	rank    map[int]int // where in the first list
	less    func(x, y int) bool
}

func (b *balancer) queue(members []int, less func(x, y int) bool) *queue {
	q := &queue{members: slices.Clone(members), at: make(map[int]int, len(members)), rank: make(map[int]int, len(members)), less: less}
	for i, m := range members {
		q.at[m], q.rank[m] = i, i
	}
	heap.Init(q)
	return q
}

// fix restores the order after a member's load changed, if it is in the queue.
func (q *queue) fix(m int) {
	if i, ok := q.at[m]; ok {
		heap.Fix(q, i)
	}
}

func (q *queue) Len() int { return len(q.members) }
func (q *queue) Less(i, j int) bool {
	x, y := q.members[i], q.members[j]
	if q.less(x, y) || q.less(y, x) {
		return q.less(x, y)
	}
	return q.rank[x] < q.rank[y]
}
func (q *queue) Swap(i, j int) {
	q.members[i], q.members[j] = q.members[j], q.members[i]
	q.at[q.members[i]], q.at[q.members[j]] = i, j
}
func (q *queue) Push(x any) { panic("assign: nothing is pushed") }
func (q *queue) Pop() any {
	last := len(q.members) - 1
	m := q.members[last]
	q.members = q.members[:last]
	delete(q.at, m)
	return m
}
