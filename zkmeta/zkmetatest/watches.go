package zkmetatest

import (
	"fmt"
	"sync"

	"github.com/kbroker/kbroker/zkmeta"
)

func (f *fixture) watchData(path string) {
	f.t.Helper()
	_, _, err := f.s.Get(f.ctx, path, true)
	f.ok(err)
}

func (f *fixture) watchExists(path string) {
	f.t.Helper()
	_, _, err := f.s.Exists(f.ctx, path, true)
	f.ok(err)
}

func (f *fixture) watchChildren(path string) {
	f.t.Helper()
	_, _, err := f.s.Children(f.ctx, path, true)
	f.ok(err)
}

func testDataWatches(f *fixture) {
	f.create("/a")
	f.watchData("/a")
	f.multi(zkmeta.Set("/a", []byte("1"), 0))
	f.event(zkmeta.DataChanged, "/a")

	f.watchExists("/a")
	f.multi(zkmeta.Set("/a", []byte("2"), 1))
	f.event(zkmeta.DataChanged, "/a")

	f.watchData("/a")
	f.create("/a/child") // no change of the data
	f.quiet()
	f.multi(zkmeta.Delete("/a/child", 0), zkmeta.Delete("/a", 2))
	f.event(zkmeta.Deleted, "/a")

	f.watchExists("/a")
	f.create("/a")
	f.event(zkmeta.Created, "/a")

	_, _, err := f.s.Get(f.ctx, "/none", true) // sets no watch
	f.fails(err, zkmeta.ErrNoNode)
	f.create("/none")
	f.quiet()

	reads := f.s.GetMany(f.ctx, []string{"/a", "/none", "/missing"}, true)
	f.ok(reads[0].Err)
	f.fails(reads[2].Err, zkmeta.ErrNoNode)
	f.create("/missing")
	f.multi(zkmeta.Set("/none", nil, 0))
	f.event(zkmeta.DataChanged, "/none")
	f.multi(zkmeta.Set("/a", nil, 0))
	f.event(zkmeta.DataChanged, "/a")
}

func testChildWatches(f *fixture) {
	f.create("/p")
	f.watchChildren("/p")
	f.multi(zkmeta.Set("/p", nil, 0)) // the data is not the children
	f.quiet()
	f.create("/p/a")
	f.event(zkmeta.ChildrenChanged, "/p")

	f.watchChildren("/p")
	f.multi(zkmeta.Set("/p/a", nil, 0)) // nor is a child's data
	f.create("/p/a/deep")               // nor a grandchild
	f.multi(zkmeta.Delete("/p/a/deep", 0))
	f.quiet()
	f.multi(zkmeta.Delete("/p/a", 1))
	f.event(zkmeta.ChildrenChanged, "/p")

	f.watchChildren("/p")
	f.multi(zkmeta.Delete("/p", 1))
	f.event(zkmeta.Deleted, "/p")

	// A multi that fails fires nothing.
	f.create("/p")
	f.watchChildren("/p")
	_, err := f.s.Multi(f.ctx, persistent("/p/x"), zkmeta.Check("/p", 5))
	f.fails(err, zkmeta.ErrBadVersion)
	f.quiet()
}

func testOneShot(f *fixture) {
	f.create("/a")
	for range 5 { // asked for again and again, it is one watch
		f.watchData("/a")
		f.watchExists("/a")
	}
	f.multi(zkmeta.Set("/a", nil, -1))
	f.multi(zkmeta.Set("/a", nil, -1))
	f.event(zkmeta.DataChanged, "/a")
	f.quiet()

	// Data and children of one znode are two watches, its deletion is one
	// event that uses up both.
	f.watchData("/a")
	f.watchChildren("/a")
	f.create("/a/c")
	f.event(zkmeta.ChildrenChanged, "/a")
	f.watchChildren("/a")
	f.multi(zkmeta.Delete("/a/c", 0))
	f.event(zkmeta.ChildrenChanged, "/a")
	f.watchChildren("/a")
	f.multi(zkmeta.Delete("/a", -1))
	f.event(zkmeta.Deleted, "/a")
	f.create("/a")
	f.create("/a/c")
	f.quiet()
}

// testEventOrder: watches of one multi and of one after the other.
func testEventOrder(f *fixture) {
	for i := range 10 {
		f.create(fmt.Sprintf("/n%d", i))
	}
	for range 20 {
		for i := range 10 {
			f.watchData(fmt.Sprintf("/n%d", i))
		}
		for i := range 10 {
			f.multi(zkmeta.Set(fmt.Sprintf("/n%d", 9-i), nil, -1))
		}
		for i := range 10 {
			f.event(zkmeta.DataChanged, fmt.Sprintf("/n%d", 9-i))
		}
	}
	// Somebody else's writes: whoever has read the new data finds the event.
	_, other := f.second()
	for i := range 50 {
		_, st, err := f.s.Get(f.ctx, "/n0", true)
		f.ok(err)
		done := make(chan error, 1)
		go func() {
			_, err := other.Multi(f.ctx, zkmeta.Set("/n0", []byte{byte(i)}, st.Version))
			done <- err
		}()
		for {
			now, _, err := f.s.Exists(f.ctx, "/n0", false)
			f.ok(err)
			if now.Version != st.Version {
				break
			}
		}
		f.ok(<-done)
		f.event(zkmeta.DataChanged, "/n0")
	}
}

func testSubscriptions(f *fixture) {
	events, stop := f.store.Subscribe()
	first := NextEvent(f.t, events)
	equal(f, "first event", first, zkmeta.Event{Generation: f.s.Generation(), Type: zkmeta.SessionStarted})
	f.create("/a")
	f.watchData("/a")
	f.multi(zkmeta.Set("/a", nil, 0))
	want := zkmeta.Event{Generation: f.s.Generation(), Type: zkmeta.DataChanged, Path: "/a"}
	equal(f, "event of the first subscription", f.next(), want)
	equal(f, "event of the second", NextEvent(f.t, events), want)
	stop()
	stop()
	for range events { // it ends
	}
	// Nobody takes the events of this one: nothing waits for it.
	_, stop = f.store.Subscribe()
	defer stop()
	f.create("/many")
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			path := fmt.Sprintf("/many/%d", i)
			if _, _, err := f.s.Exists(f.ctx, path, true); err != nil {
				f.t.Error(err)
			}
			if _, err := f.s.Multi(f.ctx, persistent(path)); err != nil {
				f.t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for range 200 { // none is dropped
		e := f.next()
		if e.Type != zkmeta.Created || seen[e.Path] {
			f.t.Fatalf("event %v", e)
		}
		seen[e.Path] = true
	}
}
