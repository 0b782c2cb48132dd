package group

import (
	"container/heap"
	"time"
)

// timer fires once at its due time. Postponing one costs nothing: its place in
// the heap is kept until that comes up, so at <= due while it is armed.
type timer struct {
	fire    func()
	due, at time.Duration // since the shard's first step
	seq     uint64        // equal times fire in the order in which they were armed
	place   int           // in the heap, plus one; 0 while not armed
}

func (t *timer) armed() bool { return t.place > 0 }

// timers is a heap by (at, seq).
type timers struct {
	heap   []*timer
	seq    uint64
	firing bool
}

// arm sets t to fire d after now.
func (h *timers) arm(t *timer, now, d time.Duration) {
	if h.firing && d <= 0 {
		d = time.Millisecond // else one that arms itself would never end expire
	}
	t.due = now + max(d, 0)
	switch {
	case !t.armed():
		h.seq++
		t.at, t.seq = t.due, h.seq
		heap.Push(h, t)
	case t.due < t.at:
		t.at = t.due
		heap.Fix(h, t.place-1)
	}
}

func (h *timers) disarm(t *timer) {
	if t.armed() {
		heap.Remove(h, t.place-1)
	}
}

// next is when expire has to look; it is never later than the first due time.
func (h *timers) next() (time.Duration, bool) {
	if len(h.heap) == 0 {
		return 0, false
	}
	return h.heap[0].at, true
}

// expire fires what is due at now.
func (h *timers) expire(now time.Duration) {
	h.firing = true
	for len(h.heap) > 0 && h.heap[0].at <= now {
		t := h.heap[0]
		if t.due > now {
			t.at = t.due
			heap.Fix(h, 0)
			continue
		}
		heap.Pop(h)
		t.fire()
	}
	h.firing = false
}

func (h *timers) Len() int { return len(h.heap) }
func (h *timers) Less(i, j int) bool {
	a, b := h.heap[i], h.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (h *timers) Swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].place, h.heap[j].place = i+1, j+1
}
func (h *timers) Push(x any) {
	t := x.(*timer)
	h.heap = append(h.heap, t)
	t.place = len(h.heap)
}
func (h *timers) Pop() any {
	t := h.heap[len(h.heap)-1]
	h.heap[len(h.heap)-1] = nil
	h.heap = h.heap[:len(h.heap)-1]
	t.place = 0
	return t
}
