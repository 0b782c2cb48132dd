package zkmetatest

import (
	"errors"
	"testing"

	"github.com/kbroker/kbroker/zkmeta"
)

func (f *fixture) needs(things ...func(testing.TB, zkmeta.Store)) {
	for _, g := range things {
		if g == nil {
			f.t.Skip("cannot be done to this store")
		}
	}
}

func testEphemerals(f *fixture) {
	store, other := f.second()
	if _, err := other.Multi(f.ctx, ephemeral("/e"), persistent("/p")); err != nil {
		f.t.Fatal(err)
	}
	_, err := f.s.Multi(f.ctx, ephemeral("/e"))
	f.fails(err, zkmeta.ErrNodeExists)
	st := f.stat("/e")
	equal(f, "owner", st.EphemeralOwner, other.ID())
	equal(f, "own", f.s.Owned(st.EphemeralOwner), false)
	equal(f, "the other's", other.Owned(st.EphemeralOwner), true)
	f.watchExists("/e")
	f.watchChildren("/")
	f.ok(store.Close())
	seen := map[zkmeta.EventType]bool{}
	for range 2 { // their order is the store's
		seen[f.next().Type] = true
	}
	equal(f, "both events", seen[zkmeta.Deleted] && seen[zkmeta.ChildrenChanged], true)
	f.absent("/e")
	f.stat("/p")
	f.multi(ephemeral("/e"))
}

func testExpiry(f *fixture) {
	f.needs(f.Expire)
	f.multi(ephemeral("/e"), persistent("/p"))
	f.watchData("/p")
	old := f.s
	f.Expire(f.t, f.store)
	e := f.next()
	if e.Type == zkmeta.Disconnected { // a store may see that first
		e = f.next()
	}
	equal(f, "event", e, zkmeta.Event{Generation: old.Generation(), Type: zkmeta.SessionExpired})
	<-old.Done()
	f.nextSession()
	f.event(zkmeta.SessionStarted, "")

	_, err := old.Multi(f.ctx, persistent("/never"))
	f.fails(err, zkmeta.ErrSessionExpired)
	_, _, err = old.Get(f.ctx, "/p", false)
	f.fails(err, zkmeta.ErrSessionExpired)
	_, _, err = old.Children(f.ctx, "/", false)
	f.fails(err, zkmeta.ErrSessionExpired)
	f.absent("/never")
	f.absent("/e")
	f.stat("/p")
	equal(f, "own", f.s.Owned(old.ID()), true)

	f.multi(zkmeta.Set("/p", nil, 0)) // the watch is gone with its session
	f.quiet()
	f.multi(ephemeral("/e"))
	equal(f, "owner", f.stat("/e").EphemeralOwner, f.s.ID())
}

func testReconnection(f *fixture) {
	f.needs(f.Cut, f.Heal)
	_, other := f.second()
	f.multi(persistent("/changes"), persistent("/stays"), persistent("/dir"), ephemeral("/e"))
	f.watchData("/changes")
	f.watchData("/stays")
	f.watchExists("/absent")
	f.watchChildren("/dir")
	f.Cut(f.t, f.store)
	f.event(zkmeta.Disconnected, "")
	_, err := f.s.Multi(f.ctx, persistent("/never"))
	f.fails(err, zkmeta.ErrNotConnected)
	_, _, err = f.s.Get(f.ctx, "/stays", false)
	f.fails(err, zkmeta.ErrNotConnected)
	for _, r := range f.s.GetMany(f.ctx, []string{"/stays", "/dir"}, true) {
		f.fails(r.Err, zkmeta.ErrNotConnected)
	}
	if s, err := f.store.Session(); err != nil || s != f.s {
		f.t.Fatalf("the session while away: %v, %v", s, err)
	}
	late, stop := f.store.Subscribe()
	defer stop()
	for _, want := range []zkmeta.EventType{zkmeta.SessionStarted, zkmeta.Disconnected} {
		equal(f, "event of a late subscription", NextEvent(f.t, late), zkmeta.Event{Generation: f.s.Generation(), Type: want})
	}
	if _, err := other.Multi(f.ctx, zkmeta.Set("/changes", nil, 0), persistent("/absent"), persistent("/dir/x")); err != nil {
		f.t.Fatal(err)
	}
	f.Heal(f.t, f.store)
	f.event(zkmeta.Connected, "")
	if _, err := f.store.Wait(f.ctx); err != nil {
		f.t.Fatal(err)
	}
	want := map[string]bool{"/changes": true, "/stays": true, "/absent": true, "/dir": true}
	for len(want) > 0 { // each watched path, once or more
		e := f.next()
		equal(f, "generation", e.Generation, f.s.Generation())
		delete(want, e.Path)
	}
	f.absent("/never")
	equal(f, "the ephemeral lives on", f.stat("/e").EphemeralOwner, f.s.ID())
	// Everything watched again works again.
	f.watchData("/stays")
	f.multi(zkmeta.Set("/stays", nil, 0))
	for {
		if e := f.next(); e.Path == "/stays" {
			break
		}
	}
}

func testExpiryWhileAway(f *fixture) {
	f.needs(f.Cut, f.Heal, f.Expire)
	_, other := f.second()
	f.multi(ephemeral("/e"))
	old := f.s
	f.Cut(f.t, f.store)
	f.event(zkmeta.Disconnected, "")
	f.Expire(f.t, f.store)
	if _, there, err := other.Exists(f.ctx, "/e", false); there || err != nil {
		f.t.Fatalf("the ephemeral of the dead session is there: %t, %v", there, err)
	}
	_, err := old.Multi(f.ctx, ephemeral("/e"))
	f.fails(err, zkmeta.ErrNotConnected) // the store cannot know yet
	f.Heal(f.t, f.store)
	f.event(zkmeta.SessionExpired, "")
	f.nextSession()
	f.event(zkmeta.SessionStarted, "")
	_, err = old.Multi(f.ctx, ephemeral("/e"))
	f.fails(err, zkmeta.ErrSessionExpired)
	f.absent("/e")
}

func testClosed(f *fixture) {
	f.multi(ephemeral("/e"), persistent("/p"))
	f.ok(f.store.Close())
	f.ok(f.store.Close())
	for range f.events { // they end
	}
	<-f.s.Done()
	_, err := f.s.Multi(f.ctx, persistent("/x"))
	f.fails(err, zkmeta.ErrSessionExpired)
	_, err = f.store.Session()
	f.fails(err, zkmeta.ErrClosed)
	_, err = f.store.Wait(f.ctx)
	f.fails(err, zkmeta.ErrClosed)
	events, stop := f.store.Subscribe()
	if _, ok := <-events; ok {
		f.t.Fatal("an event of a closed store")
	}
	stop()
	f.store, f.s = f.open() // and the tree is still there, without the ephemeral
	f.stat("/p")
	f.absent("/e")
	f.absent("/x")
	if errors.Is(err, zkmeta.ErrNotConnected) {
		f.t.Fatal("closed is not the same as not connected")
	}
}
