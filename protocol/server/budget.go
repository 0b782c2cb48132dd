package server

import (
	"sync"
	"sync/atomic"
)

// budget bounds memory in bytes. Like Kafka's pool it lets a taker go over the
// bound while there is anything left, so that one request always fits:
// used < max before each try that succeeds.
type budget struct {
	max  int64 // <= 0: no bound
	used atomic.Int64

	mu      sync.Mutex
	waiters []chan struct{} // oldest first; guarded by mu
	waiting atomic.Int32    // len(waiters)
}

// try takes n bytes unless the bound is reached.
func (b *budget) try(n int) bool {
	if b.max <= 0 {
		b.used.Add(int64(n))
		return true
	}
	for {
		u := b.used.Load()
		if u >= b.max {
			return false
		}
		if b.used.CompareAndSwap(u, u+int64(n)) {
			return true
		}
	}
}

// tryReserved is try for the small chunks that every connection reads into: it
// may go an eighth over the bound, so that requests that are large and slow to
// arrive do not keep small ones from being read at all.
func (b *budget) tryReserved(n int) bool {
	if b.max <= 0 || b.used.Load() < b.max+b.max/8 {
		b.used.Add(int64(n))
		return true
	}
	return false
}

// add takes n bytes whatever the bound.
func (b *budget) add(n int) { b.used.Add(int64(n)) }

// take waits until n bytes can be taken; it is false when done was closed
// first.
func (b *budget) take(n int, done <-chan struct{}) bool {
	for !b.try(n) {
		b.mu.Lock()
		turn := make(chan struct{})
		b.waiters = append(b.waiters, turn)
		b.waiting.Add(1)
		b.mu.Unlock()
		b.wake() // what was given back before we stood in the queue
		select {
		case <-turn:
		case <-done:
			b.forget(turn)
			return false
		}
	}
	b.wake() // there may be room for the next one too
	return true
}

func (b *budget) give(n int) {
	b.used.Add(-int64(n))
	b.wake()
}

// wake lets the oldest waiter try if there is room.
func (b *budget) wake() {
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiters) > 0 && b.used.Load() < b.max {
		close(b.waiters[0])
		b.removeLocked(0)
	}
}

func (b *budget) forget(turn chan struct{}) {
	b.mu.Lock()
	for i, w := range b.waiters {
		if w == turn {
			b.removeLocked(i)
			b.mu.Unlock()
			return
		}
	}
	b.mu.Unlock()
	b.wake() // it was our turn: pass it on
}

func (b *budget) removeLocked(i int) {
	b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
	b.waiting.Add(-1)
}
