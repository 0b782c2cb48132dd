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

// add takes n bytes whatever the bound.
func (b *budget) add(n int) { b.used.Add(int64(n)) }

// take waits until n bytes can be taken; it is false when done was closed
// first.
func (b *budget) take(n int, done <-chan struct{}) bool {
	for !b.try(n) {
		turn := b.queue()
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

// takeEither waits until n bytes can be taken of one of two budgets, and tells of
// which; nil when done was closed first.
func takeEither(a, b *budget, n int, done <-chan struct{}) *budget {
	for {
		for _, x := range [...]*budget{a, b} {
			if x.try(n) {
				x.wake() // there may be room for the next one too
				return x
			}
		}
		turnA, turnB := a.queue(), b.queue()
		select {
		case <-turnA:
			b.forget(turnB)
		case <-turnB:
			a.forget(turnA)
		case <-done:
			a.forget(turnA)
			b.forget(turnB)
			return nil
		}
	}
}

// queue gives a turn, which is closed when there may be room.
func (b *budget) queue() (turn chan struct{}) {
	turn = make(chan struct{})
	b.mu.Lock()
	b.waiters = append(b.waiters, turn)
	b.waiting.Add(1)
	b.mu.Unlock()
	b.wake() // what was given back before we stood in the queue
	return turn
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
