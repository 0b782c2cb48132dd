package feed

import (
	"sync"

	"github.com/kbroker/kbroker/zkmeta"
)

// Feed is a set of subscriptions. The zero value has none.
type Feed struct {
	mu     sync.Mutex
	subs   map[*subscription]struct{}
	closed bool
}

// subscription is a queue and the goroutine that empties it into out. The
// goroutine ends with stop.
type subscription struct {
	out  chan zkmeta.Event
	stop chan struct{}
	more chan struct{} // holds a token when the queue has something new

	mu      sync.Mutex
	queue   []zkmeta.Event
	waiting map[zkmeta.Event]struct{} // the watch events in queue, each once
	stopped bool
}

// Subscribe makes a subscription that begins with first. stop ends it and
// closes the channel; events that nobody took are gone then. On a closed feed
// the channel is closed.
func (f *Feed) Subscribe(first ...zkmeta.Event) (events <-chan zkmeta.Event, stop func()) {
	s := &subscription{
		out:     make(chan zkmeta.Event),
		stop:    make(chan struct{}),
		more:    make(chan struct{}, 1),
		waiting: map[zkmeta.Event]struct{}{},
	}
	s.push(first)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		close(s.out)
		return s.out, func() {}
	}
	if f.subs == nil {
		f.subs = map[*subscription]struct{}{}
	}
	f.subs[s] = struct{}{}
	go s.run()
	return s.out, func() {
		f.mu.Lock()
		delete(f.subs, s)
		f.mu.Unlock()
		s.end()
	}
}

// Publish queues the events for every subscription.
func (f *Feed) Publish(events ...zkmeta.Event) {
	if len(events) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		s.push(events)
	}
}

// Close ends all subscriptions and lets no new one begin.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for s := range f.subs {
		s.end()
	}
	f.subs = nil
}

// push leaves out a watch event that is in the queue already: who takes that
// one re-reads afterwards, and sees this change too.
func (s *subscription) push(events []zkmeta.Event) {
	s.mu.Lock()
	for _, e := range events {
		if !e.Type.OfSession() {
			if _, ok := s.waiting[e]; ok {
				continue
			}
			s.waiting[e] = struct{}{}
		}
		s.queue = append(s.queue, e)
	}
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *subscription) take() []zkmeta.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What run holds but has not handed over may still be merged into: that is
	// safe until the reader has it, so only the handed-over part leaves waiting.
	q := s.queue
	s.queue = nil
	return q
}

func (s *subscription) handing(e zkmeta.Event) {
	if e.Type.OfSession() {
		return
	}
	s.mu.Lock()
	delete(s.waiting, e)
	s.mu.Unlock()
}

func (s *subscription) run() {
	defer close(s.out)
	for {
		for _, e := range s.take() {
			// From here on the reader may have it and read, so that an equal
			// event from now on is news.
			s.handing(e)
			select {
			case s.out <- e:
			case <-s.stop:
				return
			}
		}
		select {
		case <-s.more:
		case <-s.stop:
			return
		}
	}
}

func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
}
