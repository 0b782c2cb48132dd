package zkmetatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

func testVersions(f *fixture) {
	before := time.Now().Add(-time.Hour).UnixMilli()
	f.create("/a")
	f.create("/b")
	a, b := f.stat("/a"), f.stat("/b")
	equal(f, "version of a fresh znode", a.Version, 0)
	equal(f, "mzxid of a fresh znode", a.Mzxid, a.Czxid)
	equal(f, "mtime of a fresh znode", a.Mtime, a.Ctime)
	equal(f, "ctime is about now", a.Ctime > before, true)
	equal(f, "owner of a persistent znode", a.EphemeralOwner, 0)
	equal(f, "czxid goes up across paths", b.Czxid > a.Czxid, true)

	r := f.multi(zkmeta.Set("/a", []byte("1"), 0), zkmeta.Set("/a", []byte("2"), 1))
	equal(f, "version after a set", r[0].Stat.Version, 1)
	equal(f, "version after two sets", r[1].Stat.Version, 2)
	st := f.stat("/a")
	equal(f, "stat of the set", r[1].Stat, st)
	equal(f, "czxid stays", st.Czxid, a.Czxid)
	equal(f, "mzxid moves", st.Mzxid > b.Czxid, true)
	equal(f, "one zxid per multi", r[0].Stat.Mzxid, r[1].Stat.Mzxid)

	f.multi(zkmeta.Set("/a", nil, cluster.AnyZKVersion))
	equal(f, "version after a set at any version", f.stat("/a").Version, 3)
	f.create("/a/child")
	st = f.stat("/a")
	equal(f, "a child leaves the version", st.Version, 3)
	equal(f, "children", st.NumChildren, 1)

	f.multi(zkmeta.Delete("/a/child", 0), zkmeta.Delete("/a", 3))
	f.create("/a")
	again := f.stat("/a")
	equal(f, "version of a znode made again", again.Version, 0)
	equal(f, "czxid of a znode made again", again.Czxid > st.Mzxid, true)

	f.multi(zkmeta.Create("/e", nil, zkmeta.Ephemeral, nil), zkmeta.Set("/e", []byte("x"), 0))
	e := f.stat("/e")
	equal(f, "owner of an ephemeral", e.EphemeralOwner, f.s.ID())
	equal(f, "own", f.s.Owned(e.EphemeralOwner), true)
	equal(f, "not own", f.s.Owned(e.EphemeralOwner+1), false)
	equal(f, "version after create and set", e.Version, 1)
}

func testData(f *fixture) {
	for i, data := range [][]byte{nil, {}, {0}, []byte("{}"), bytes.Repeat([]byte{0xff}, 100_000)} {
		path := fmt.Sprintf("/d%d", i)
		own := bytes.Clone(data)
		f.multi(zkmeta.Create(path, own, zkmeta.Persistent, nil), zkmeta.Create(path+"s", nil, zkmeta.Persistent, nil), zkmeta.Set(path+"s", own, 0))
		for j := range own {
			own[j] = 'x' // the store has a copy
		}
		for _, p := range []string{path, path + "s"} {
			got, st, err := f.s.Get(f.ctx, p, false)
			f.ok(err)
			if !bytes.Equal(got, data) || (got == nil) != (data == nil) {
				f.t.Fatalf("%s: got %d bytes (nil: %t), want %d (nil: %t)", p, len(got), got == nil, len(data), data == nil)
			}
			equal(f, "stat of get and exists", st, f.stat(p))
		}
	}
}

func testErrors(f *fixture) {
	f.create("/a")
	f.create("/a/b")
	f.multi(ephemeral("/e"))
	for _, c := range []struct {
		op   zkmeta.Op
		want error
	}{
		{persistent("/a"), zkmeta.ErrNodeExists},
		{persistent("/"), zkmeta.ErrNodeExists},
		{persistent("/none/b"), zkmeta.ErrNoNode},
		{persistent("/e/b"), zkmeta.ErrNoChildrenForEphemerals},
		{zkmeta.Create("/x", nil, zkmeta.Persistent, zkmeta.ACL{}), zkmeta.ErrInvalidACL},
		{zkmeta.Set("/none", nil, -1), zkmeta.ErrNoNode},
		{zkmeta.Set("/a", nil, 1), zkmeta.ErrBadVersion},
		{zkmeta.Delete("/none", 0), zkmeta.ErrNoNode},
		{zkmeta.Delete("/a/b", 1), zkmeta.ErrBadVersion},
		{zkmeta.Delete("/a", 0), zkmeta.ErrNotEmpty},
		{zkmeta.Delete("/a", 1), zkmeta.ErrBadVersion},
		{zkmeta.Check("/none", -1), zkmeta.ErrNoNode},
		{zkmeta.Check("/a", 7), zkmeta.ErrBadVersion},
		{persistent("/a/"), zkmeta.ErrInvalidPath},
		{persistent("a"), zkmeta.ErrInvalidPath},
		{zkmeta.Set("/a/../a", nil, -1), zkmeta.ErrInvalidPath},
		{zkmeta.Delete("", -1), zkmeta.ErrInvalidPath},
		{persistent("/a\x00"), zkmeta.ErrInvalidPath},
	} {
		results, err := f.s.Multi(f.ctx, c.op)
		if !errors.Is(err, c.want) {
			f.t.Fatalf("%v: got %v, want %v", c.op, err, c.want)
		}
		failed, ok := errors.AsType[*zkmeta.MultiError](err)
		if !ok || failed.Index != 0 || failed.Op.Path != c.op.Path || len(results) != 1 || !errors.Is(results[0].Err, c.want) {
			f.t.Fatalf("%v: the error is %#v, the results are %v", c.op, err, results)
		}
	}
	_, _, err := f.s.Get(f.ctx, "/none", false)
	f.fails(err, zkmeta.ErrNoNode)
	_, _, err = f.s.Children(f.ctx, "/none", false)
	f.fails(err, zkmeta.ErrNoNode)
	f.absent("/none")
	for _, path := range []string{"", "x", "/x/", "/x//y", "/."} {
		_, _, err = f.s.Get(f.ctx, path, false)
		f.fails(err, zkmeta.ErrInvalidPath)
		_, _, err = f.s.Exists(f.ctx, path, false)
		f.fails(err, zkmeta.ErrInvalidPath)
		_, _, err = f.s.Children(f.ctx, path, false)
		f.fails(err, zkmeta.ErrInvalidPath)
	}
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	_, err = f.s.Multi(gone, persistent("/never"))
	f.fails(err, context.Canceled)
	f.absent("/never")
}

func testMulti(f *fixture) {
	results, err := f.s.Multi(f.ctx)
	if err != nil || len(results) != 0 {
		f.t.Fatalf("no operations: %v, %v", results, err)
	}
	r := f.multi(persistent("/a"), persistent("/a/b"), zkmeta.Check("/a/b", 0), zkmeta.Set("/a", []byte("x"), 0),
		persistent("/t"), zkmeta.Delete("/t", 0))
	equal(f, "path created", r[1].Path, "/a/b")
	equal(f, "version set", r[3].Stat.Version, 1)
	f.absent("/t")

	results, err = f.s.Multi(f.ctx, persistent("/c"), zkmeta.Set("/a", nil, 1), zkmeta.Check("/a", 1), persistent("/d"))
	f.fails(err, zkmeta.ErrBadVersion)
	failed, _ := errors.AsType[*zkmeta.MultiError](err)
	equal(f, "index of the failed operation", failed.Index, 2)
	for i, r := range results {
		want := zkmeta.ErrRolledBack
		if i == 2 {
			want = zkmeta.ErrBadVersion
		}
		f.fails(r.Err, want)
		equal(f, "nothing was done", r.Path == "" && r.Stat == zkmeta.Stat{}, true)
	}
	equal(f, "results", len(results), 4)
	f.absent("/c")
	f.absent("/d")
	equal(f, "version after a rollback", f.stat("/a").Version, 1)

	// A guard that holds and one that does not.
	f.multi(zkmeta.Check("/a", 1), zkmeta.Set("/a/b", nil, 0))
	_, err = f.s.Multi(f.ctx, zkmeta.Check("/a", 0), zkmeta.Set("/a/b", nil, 1))
	f.fails(err, zkmeta.ErrBadVersion)
	equal(f, "version behind the guard", f.stat("/a/b").Version, 1)
}

func testSequential(f *fixture) {
	f.create("/s")
	next := func(want string) {
		f.t.Helper()
		r := f.multi(zkmeta.Create("/s/n_", []byte("x"), zkmeta.PersistentSequential, nil))
		equal(f, "path", r[0].Path, want)
	}
	next("/s/n_0000000000")
	next("/s/n_0000000001")
	f.multi(zkmeta.Delete("/s/n_0000000001", 0))
	next("/s/n_0000000002")
	f.create("/s/other") // every child counts
	next("/s/n_0000000004")
	_, err := f.s.Multi(f.ctx, zkmeta.Create("/s/n_", nil, zkmeta.PersistentSequential, nil), zkmeta.Check("/s", 9))
	f.fails(err, zkmeta.ErrBadVersion)
	next("/s/n_0000000005") // what was rolled back does not
	r := f.multi(zkmeta.Create("/s/n_", nil, zkmeta.PersistentSequential, nil), zkmeta.Create("/s/n_", nil, zkmeta.PersistentSequential, nil))
	equal(f, "second in a multi", r[1].Path, "/s/n_0000000007")
	r = f.multi(zkmeta.Create("/s/", nil, zkmeta.PersistentSequential, nil))
	equal(f, "no prefix", r[0].Path, "/s/0000000008")
	f.create("/s/n_0000000010")
	_, err = f.s.Multi(f.ctx, zkmeta.Create("/s/n_", nil, zkmeta.PersistentSequential, nil))
	f.fails(err, zkmeta.ErrNodeExists)
	names, _, err := f.s.Children(f.ctx, "/s", false)
	f.ok(err)
	want := []string{"0000000008", "n_0000000000", "n_0000000002", "n_0000000004", "n_0000000005", "n_0000000006", "n_0000000007", "n_0000000010", "other"}
	if !slices.Equal(names, want) {
		f.t.Fatalf("children: got %q, want %q", names, want)
	}
	for _, n := range names[1:8] {
		if seq, ok := zkmeta.Sequence(n); !ok || fmt.Sprintf("n_%010d", seq) != n {
			f.t.Fatalf("sequence of %s: %d, %t", n, seq, ok)
		}
	}
}

func testTooLarge(f *fixture) {
	f.create("/big")
	_, err := f.s.Multi(f.ctx, zkmeta.Set("/big", make([]byte, 1<<20), 0))
	f.fails(err, zkmeta.ErrTooLarge)
	equal(f, "nothing was done", f.stat("/big").Version, 0)
	many := make([]zkmeta.Op, 30_000) // small ones add up
	for i := range many {
		many[i] = zkmeta.Check("/big", 0)
	}
	_, err = f.s.Multi(f.ctx, many...)
	f.fails(err, zkmeta.ErrTooLarge)
	data := bytes.Repeat([]byte("x"), 1_000_000)
	f.multi(zkmeta.Set("/big", data, 0)) // the connection is still good
	got, _, err := f.s.Get(f.ctx, "/big", false)
	f.ok(err)
	equal(f, "length", len(got), len(data))
}

func testBulk(f *fixture) {
	const n = 2000
	multis := make([][]zkmeta.Op, n)
	paths := make([]string, n, n+1)
	f.create("/bulk")
	for i := range multis {
		paths[i] = fmt.Sprintf("/bulk/%04d", n-i)
		multis[i] = []zkmeta.Op{zkmeta.Check("/bulk", 0), persistent(paths[i])}
	}
	multis[7] = []zkmeta.Op{zkmeta.Check("/bulk", 1), persistent(paths[7])}
	outcomes := f.s.MultiMany(f.ctx, multis)
	equal(f, "outcomes", len(outcomes), n)
	for i, o := range outcomes {
		if i == 7 {
			f.fails(o.Err, zkmeta.ErrBadVersion)
			equal(f, "results of the failed one", len(o.Results), 2)
			continue
		}
		f.ok(o.Err)
		equal(f, "path", o.Results[1].Path, paths[i])
	}
	paths = append(paths, "/bulk//")
	reads := f.s.GetMany(f.ctx, paths, false)
	equal(f, "reads", len(reads), n+1)
	for i, r := range reads {
		equal(f, "path", r.Path, paths[i])
		switch i {
		case 7:
			f.fails(r.Err, zkmeta.ErrNoNode)
		case n:
			f.fails(r.Err, zkmeta.ErrInvalidPath)
		default:
			f.ok(r.Err)
			equal(f, "data", string(r.Data), paths[i])
			equal(f, "czxid", r.Stat.Czxid > 0, true)
		}
	}
	names, st, err := f.s.Children(f.ctx, "/bulk", false)
	f.ok(err)
	equal(f, "children", len(names), n-1)
	equal(f, "number of children", int(st.NumChildren), n-1)
	equal(f, "sorted", slices.IsSorted(names), true)
	equal(f, "none", len(f.s.GetMany(f.ctx, nil, false)), 0)
	equal(f, "none", len(f.s.MultiMany(f.ctx, nil)), 0)
}
