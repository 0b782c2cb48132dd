package client

import (
	"cmp"
	"slices"

	"github.com/kbroker/kbroker/zkmeta"
)

// The library keeps a channel for every watch that was ever asked for on a path
// that does not change, and sets them all again on every connection. So a watch
// is asked for once, and remembered here until it fires.

// watchKey is a watched path: its data (being there included) or its children.
type watchKey struct {
	path     string
	children bool
}

type watch struct {
	set bool // the server has answered; before that it may come to nothing
}

// watched runs a read that sets a watch if the caller wants one and there is
// none. ask says whether the read really left a watch.
func (x *session) watched(path string, children, want bool, ask func(set bool) (read, error)) (read, error) {
	if !want {
		return ask(false)
	}
	key := watchKey{path, children}
	x.s.mu.Lock()
	w := x.watches[key]
	if w != nil && w.set {
		x.s.mu.Unlock()
		return ask(false)
	}
	// The watch can fire before the answer has come all the way here, so it is
	// entered first; an event takes the entry away.
	mine := w == nil
	if mine {
		w = &watch{}
		x.watches[key] = w
	}
	x.s.mu.Unlock()

	r, err := ask(true)

	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if mine && x.watches[key] == w {
		if err == nil {
			w.set = true
		} else {
			delete(x.watches, key)
		}
	}
	return r, err
}

// firedLocked takes away the watches that an event has used up.
func (x *session) firedLocked(path string, t zkmeta.EventType) {
	switch t {
	case zkmeta.Created, zkmeta.DataChanged:
		delete(x.watches, watchKey{path, false})
	case zkmeta.ChildrenChanged:
		delete(x.watches, watchKey{path, true})
	case zkmeta.Deleted:
		delete(x.watches, watchKey{path, false})
		delete(x.watches, watchKey{path, true})
	}
}

// watchEventsLocked are an event for every watch, sorted: after a reconnection
// nobody knows what was missed. The watches stay: the library sets them again.
func (x *session) watchEventsLocked() []zkmeta.Event {
	events := make([]zkmeta.Event, 0, len(x.watches))
	for key := range x.watches {
		t := zkmeta.DataChanged
		if key.children {
			t = zkmeta.ChildrenChanged
		}
		events = append(events, zkmeta.Event{Generation: x.generation, Type: t, Path: key.path})
	}
	slices.SortFunc(events, func(a, b zkmeta.Event) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Type, b.Type))
	})
	return events
}
