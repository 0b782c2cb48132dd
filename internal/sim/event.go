package sim

import "time"

// event is something that happens at a time; seq keeps the order of those that
// happen at the same time.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// queue is a heap of events, the earliest first.
type queue struct {
	heap []event
	seq  uint64
}

func (q *queue) before(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (q *queue) push(at time.Duration, do func()) {
	q.seq++
	q.heap = append(q.heap, event{at, q.seq, do})
	for i := len(q.heap) - 1; i > 0; {
		p := (i - 1) / 2
		if !q.before(i, p) {
			break
		}
		q.heap[i], q.heap[p] = q.heap[p], q.heap[i]
		i = p
	}
}

func (q *queue) pop() event {
	top, last := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && q.before(c+1, c) {
			c++
		}
		if !q.before(c, i) {
			break
		}
		q.heap[i], q.heap[c] = q.heap[c], q.heap[i]
		i = c
	}
	return top
}
