package zkmetatest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kbroker/kbroker/zkmeta"
)

// Subject is one empty tree and ways to reach it.
type Subject struct {
	// Open makes another store. The suite closes it.
	Open func(t testing.TB) zkmeta.Store
	// Single says that a second store cannot be open at the same time.
	Single bool
	// Cut takes a store's connection away, Heal gives it back; Expire ends its
	// session in the ensemble. A nil one cannot be done to the subject.
	Cut, Heal, Expire func(t testing.TB, s zkmeta.Store)
}

// patience is how long the suite waits for what must happen.
const patience = 20 * time.Second

// Run runs the contract; each test gets a subject of its own.
func Run(t *testing.T, subject func(t *testing.T) Subject) {
	tests := []struct {
		name string
		run  func(f *fixture)
	}{
		{"versions", testVersions},
		{"data", testData},
		{"errors", testErrors},
		{"multi", testMulti},
		{"sequential", testSequential},
		{"too large", testTooLarge},
		{"bulk", testBulk},
		{"data watches", testDataWatches},
		{"child watches", testChildWatches},
		{"watches are one-shot", testOneShot},
		{"event order", testEventOrder},
		{"subscriptions", testSubscriptions},
		{"ephemerals", testEphemerals},
		{"expiry", testExpiry},
		{"reconnection", testReconnection},
		{"expiry while away", testExpiryWhileAway},
		{"closed", testClosed},
		{"persistent paths", testPersistentPaths},
		{"cluster id", testClusterID},
		{"election", testElection},
		{"broker ids", testBrokerIDs},
		{"producer ids", testProducerIDs},
		{"configs", testConfigs},
		{"consumer offsets", testConsumerOffsets},
		{"write each", testWriteEach},
		{"topics", testTopics},
		{"concurrent", testConcurrent},
		{"random", testRandom},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			f := &fixture{t: t, ctx: ctx, Subject: subject(t)}
			f.store, f.s = f.open()
			f.events = f.store.Events()
			f.event(zkmeta.SessionStarted, "")
			test.run(f)
		})
	}
}

// fixture is a test with one store, its session and its events.
type fixture struct {
	t   *testing.T
	ctx context.Context
	Subject
	store  zkmeta.Store
	s      zkmeta.Session
	events <-chan zkmeta.Event
}

func (f *fixture) open() (zkmeta.Store, zkmeta.Session) {
	f.t.Helper()
	store := f.Open(f.t)
	f.t.Cleanup(func() { store.Close() })
	s, err := store.Wait(f.ctx)
	if err != nil {
		f.t.Fatalf("Wait: %v", err)
	}
	return store, s
}

// second opens another store, or skips the test.
func (f *fixture) second() (zkmeta.Store, zkmeta.Session) {
	f.t.Helper()
	if f.Single {
		f.t.Skip("one store at a time")
	}
	return f.open()
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) fails(err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) {
		f.t.Fatalf("got error %v, want %v", err, want)
	}
}

func equal[T comparable](f *fixture, what string, got, want T) {
	f.t.Helper()
	if got != want {
		f.t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// multi applies the operations, which must succeed.
func (f *fixture) multi(ops ...zkmeta.Op) []zkmeta.Result {
	f.t.Helper()
	results, err := f.s.Multi(f.ctx, ops...)
	f.ok(err)
	equal(f, "results", len(results), len(ops))
	return results
}

func (f *fixture) create(path string) { f.t.Helper(); f.multi(persistent(path)) }

func (f *fixture) stat(path string) zkmeta.Stat {
	f.t.Helper()
	st, there, err := f.s.Exists(f.ctx, path, false)
	f.ok(err)
	if !there {
		f.t.Fatalf("%s is not there", path)
	}
	return st
}

func (f *fixture) absent(path string) {
	f.t.Helper()
	_, there, err := f.s.Exists(f.ctx, path, false)
	f.ok(err)
	equal(f, path+" is there", there, false)
}

func persistent(path string) zkmeta.Op {
	return zkmeta.Create(path, []byte(path), zkmeta.Persistent, nil)
}

func ephemeral(path string) zkmeta.Op {
	return zkmeta.Create(path, []byte(path), zkmeta.Ephemeral, nil)
}

// event takes the next event, which must be this one of the current session.
func (f *fixture) event(typ zkmeta.EventType, path string) {
	f.t.Helper()
	e := f.next()
	equal(f, "event", e, zkmeta.Event{Generation: f.s.Generation(), Type: typ, Path: path})
}

func (f *fixture) next() zkmeta.Event {
	f.t.Helper()
	return NextEvent(f.t, f.events)
}

// NextEvent takes an event off a subscription.
func NextEvent(t testing.TB, events <-chan zkmeta.Event) zkmeta.Event {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the events have ended")
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event came")
	}
	return zkmeta.Event{}
}

// quiet checks that no event is under way: one that is caused now comes next.
func (f *fixture) quiet() {
	f.t.Helper()
	const path = "/quiet"
	_, _, err := f.s.Exists(f.ctx, path, true)
	f.ok(err)
	f.create(path)
	f.event(zkmeta.Created, path)
	f.multi(zkmeta.Delete(path, -1))
}

// nextSession waits for the session after f.s.
func (f *fixture) nextSession() {
	f.t.Helper()
	old := f.s
	for {
		s, err := f.store.Wait(f.ctx)
		f.ok(err)
		if s.Generation() != old.Generation() {
			f.s = s
			break
		}
		select {
		case <-old.Done():
		case <-f.ctx.Done():
			f.t.Fatal("the session does not end")
		}
	}
	if f.s.Generation() != old.Generation()+1 || f.s.ID() == old.ID() {
		f.t.Fatalf("session %#x of generation %d follows %#x of %d", f.s.ID(), f.s.Generation(), old.ID(), old.Generation())
	}
}
