package zkmeta

import (
	"context"
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// Stat is what the store knows about a znode besides its data.
//
// Version counts the sets since the creation, so it is 0 for a fresh znode;
// Czxid and Mzxid are points in the one order of all changes of the store.
type Stat struct {
	Version        cluster.ZKVersion
	Czxid, Mzxid   int64
	Ctime, Mtime   int64 // ms since the Unix epoch
	EphemeralOwner int64 // id of the owning session, 0 for a persistent znode
	NumChildren    int32
}

// Read is one answer of GetMany.
type Read struct {
	Path string
	Data []byte
	Stat Stat
	Err  error
}

// Result is the answer to one operation of a multi. Path is the created path
// (with its number when it was sequential) and Stat that of a Set; the other
// operations leave them zero. When the multi failed, Err is the failing
// operation's own error there and ErrRolledBack for every other operation.
type Result struct {
	Path string
	Stat Stat
	Err  error
}

// Outcome is the answer to one multi of MultiMany.
type Outcome struct {
	Results []Result
	Err     error
}

// Session is one session with the store. It never turns into another one: once
// it ended, every call fails with ErrSessionExpired, nothing that was asked of
// it is applied in a later session, and the store hands out a new Session with
// a higher generation.
//
// Calls are refused with ErrNotConnected while there is no connection; they are
// never queued. A write that fails with ErrUnknownOutcome may have been
// applied: re-read and compare before anything else is done.
//
// A watch is one-shot, and asking for one that is already set is free. It fires
// as an event of the store, before any read in this session returns the new
// data, and it means no more than "re-read": after a reconnection every watch
// that is set fires once, whether or not its znode changed.
type Session interface {
	ID() int64
	// Generation counts the sessions of this store from 1.
	Generation() uint64
	// Done is closed when the session has ended.
	Done() <-chan struct{}
	// Timeout is the negotiated time-out; 0 says that the session lives as
	// long as the process.
	Timeout() time.Duration
	// LastContact is when the latest request that the store answered was sent:
	// the session lives in the store at least until LastContact + Timeout less
	// one tick of the server.
	LastContact() time.Time
	// Owned reports whether an EphemeralOwner is this session or an earlier
	// one of the same store, which this session replaced.
	Owned(owner int64) bool

	// Get fails with ErrNoNode, and sets no watch, when there is no znode.
	Get(ctx context.Context, path string, watch bool) ([]byte, Stat, error)
	// GetMany reads the znodes with many requests in flight, in any order; the
	// answers come in the order of the paths.
	GetMany(ctx context.Context, paths []string, watch bool) []Read
	// Exists watches the creation when there is no znode.
	Exists(ctx context.Context, path string, watch bool) (Stat, bool, error)
	// Children are the names (not the paths) of a znode's children, sorted.
	Children(ctx context.Context, path string, watch bool) ([]string, Stat, error)

	// Multi applies all operations or none. Its error is the *MultiError of
	// the first operation that failed, or ErrNotConnected, ErrSessionExpired or
	// ErrTooLarge (nothing was done), or ErrUnknownOutcome.
	Multi(ctx context.Context, ops ...Op) ([]Result, error)
	// MultiMany runs the multis with many in flight; each stands for itself,
	// and they may be applied in any order.
	MultiMany(ctx context.Context, multis [][]Op) []Outcome
}

// Store is a metadata store that keeps a session up.
type Store interface {
	// Session is the current session, connected or not; ErrNotConnected before
	// the first one and between two.
	Session() (Session, error)
	// Wait waits until there is a session that is connected.
	Wait(ctx context.Context) (Session, error)
	// Events is one subscription, made at the first call: all calls return the
	// same channel. It is for a store with one reader; others Subscribe.
	Events() <-chan Event
	// Subscribe makes another subscription: every subscription gets every
	// event from then on, in order. It begins with SessionStarted when there
	// is a session, and Disconnected when that has no connection. stop ends it
	// and closes the channel.
	Subscribe() (events <-chan Event, stop func())
	// Close ends the session, which deletes its ephemeral znodes, and closes
	// the subscriptions.
	Close() error
}

// EventType says what an Event is about.
type EventType int

// The kinds of events: first those of the session, then those of a watch.
const (
	SessionStarted  EventType = iota + 1 // a new session, connected
	SessionExpired                       // the session has ended; its ephemerals and watches are gone or going
	Disconnected                         // the connection is lost; the session may live on
	Connected                            // the session has a connection again
	Created                              // a watched absence ended
	DataChanged                          // the watched data changed
	Deleted                              // the watched znode is gone
	ChildrenChanged                      // the watched list of children changed
)

// String is the name of the kind.
func (t EventType) String() string {
	names := [...]string{"invalid", "session started", "session expired", "disconnected", "connected",
		"created", "data changed", "deleted", "children changed"}
	if t < 0 || int(t) >= len(names) {
		t = 0
	}
	return names[t]
}

// OfSession reports whether the event is about the session rather than a znode.
func (t EventType) OfSession() bool { return t >= SessionStarted && t <= Connected }

// Event is something that happened to the session or to a watched znode.
// Events are never dropped; equal watch events that nobody has taken yet are
// one event.
type Event struct {
	Generation uint64
	Type       EventType
	Path       string // of a watch event
}
