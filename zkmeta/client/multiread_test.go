package client

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
)

// manyOf fills a store with n znodes and answers their paths, with some between
// them that are not there or cannot be.
func manyOf(t *testing.T, s zkmeta.Session, n int) (paths []string) {
	t.Helper()
	mustMulti(t, s, zkmeta.Create("/many", nil, zkmeta.Persistent, nil))
	for i := range n {
		path := fmt.Sprintf("/many/%d", i)
		data := bytes.Repeat([]byte{byte(i)}, i)
		if i == 3 {
			data = nil
		}
		mustMulti(t, s, zkmeta.Create(path, data, zkmeta.Persistent, nil))
		paths = append(paths, path)
		if i%7 == 0 {
			paths = append(paths, path+"/none")
		}
		if i%11 == 0 {
			paths = append(paths, path+"//")
		}
	}
	return paths
}

// sameAsGets compares what GetMany read with what Gets read one by one.
func sameAsGets(t *testing.T, s zkmeta.Session, reads []zkmeta.Read, paths []string) {
	t.Helper()
	if len(reads) != len(paths) {
		t.Fatalf("%d reads of %d paths", len(reads), len(paths))
	}
	for i, path := range paths {
		data, st, err := s.Get(testContext(t), path, false)
		r := reads[i]
		if r.Path != path || !bytes.Equal(r.Data, data) || (r.Data == nil) != (data == nil) || r.Stat != st || fmt.Sprint(r.Err) != fmt.Sprint(err) {
			t.Errorf("%s: read %+v, Get has %q, %+v, %v", path, r, data, st, err)
		}
	}
}

// TestMultiRead: many reads are few requests, and say what single ones say.
func TestMultiRead(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	s := wait(t, openStore(t, Options{Connect: p.Addr + chroot()}))
	paths := manyOf(t, s, 120)
	before, already := p.Asked(opGetData), p.Asked(opMultiRead)
	reads := s.GetMany(testContext(t), paths, false)
	if got, want := p.Asked(opMultiRead)-already, (len(paths)+multiReadPaths-1)/multiReadPaths; got != want {
		t.Errorf("%d MultiReads for %d paths, want %d", got, len(paths), want)
	}
	if got := p.Asked(opGetData) - before; got != 0 {
		t.Errorf("%d Gets beside them", got)
	}
	sameAsGets(t, s, reads, paths)

	// What a Get of its own is refused, a MultiRead's part is refused as well.
	secret := zkmeta.ACL{{Perms: zkmeta.PermWrite, Scheme: "world", ID: "anyone"}}
	mustMulti(t, s, zkmeta.Create("/many/secret", nil, zkmeta.Persistent, secret))
	paths = []string{"/many/1", "/many/secret", "/many/2"}
	reads = s.GetMany(testContext(t), paths, false)
	mustFail(t, reads[1].Err, zkmeta.ErrNoAuth)
	sameAsGets(t, s, reads, paths)

	// Watches cost a Get each.
	before = p.Asked(opMultiRead)
	sameAsGets(t, s, s.GetMany(testContext(t), paths, true), paths)
	if got := p.Asked(opMultiRead) - before; got != 0 {
		t.Errorf("%d MultiReads for watches", got)
	}
}

// TestMultiReadOfOldServer: a server before 3.6 says that it knows no MultiRead
// and hangs up. It is asked once, and the caller does not notice.
func TestMultiReadOfOldServer(t *testing.T) {
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	store := openStore(t, Options{Connect: p.Addr + chroot()})
	s := wait(t, store)
	paths := manyOf(t, s, 40)
	p.Set(zkmetatest.OldServer)
	before := p.Asked(opMultiRead)
	for range 2 {
		sameAsGets(t, s, s.GetMany(testContext(t), paths, false), paths)
		if got := p.Asked(opMultiRead) - before; got != 1 {
			t.Errorf("asked %d times, want once", got)
		}
	}
	if now := wait(t, store); now != s {
		t.Error("the session did not outlive it")
	}
}

// TestOldServerFromTheStart: the first session's first list, of the chroot's
// parts, meets such a server as well.
func TestOldServerFromTheStart(t *testing.T) {
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	p.Set(zkmetatest.OldServer)
	store := openStore(t, Options{Connect: p.Addr + chroot(), CallTimeout: time.Hour}) // longer than wait is patient
	s := wait(t, store)
	paths := manyOf(t, s, 40)
	sameAsGets(t, s, s.GetMany(testContext(t), paths, false), paths)
	if got := p.Asked(opMultiRead); got != 1 {
		t.Errorf("asked %d times, want once", got)
	}
}

// TestMultiReadLost: after a MultiRead of unknown outcome, which might be the
// answer's fault, the next list is read one by one, and the one after it is not.
func TestMultiReadLost(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	store := openStore(t, Options{Connect: p.Addr + chroot(), SessionTimeout: 6 * time.Second})
	s := wait(t, store)
	paths := manyOf(t, s, 40)
	before := p.Asked(opMultiRead)
	p.Set(zkmetatest.DropReplies)
	c := make(chan []zkmeta.Read, 1)
	go func() { c <- s.GetMany(testContext(t), paths, false) }()
	waitFor(t, func() bool { return p.Asked(opMultiRead) == before+1 })
	lost := lostOf(store)
	p.CutAll()
	for _, r := range <-c {
		if !errors.Is(r.Err, zkmeta.ErrUnknownOutcome) && !errors.Is(r.Err, zkmeta.ErrInvalidPath) {
			t.Errorf("%s: %v", r.Path, r.Err)
		}
	}
	<-lost
	p.Set(zkmetatest.Pass)
	if again := wait(t, store); again != s {
		t.Fatal("another session")
	}
	for i, want := range []int{1, 2} {
		sameAsGets(t, s, s.GetMany(testContext(t), paths, false), paths)
		if got := p.Asked(opMultiRead) - before; got != want {
			t.Errorf("list %d: asked %d times, want %d", i, got, want)
		}
	}
}

func TestParseMultiRead(t *testing.T) {
	head := func(b []byte, kind int32, done byte) []byte { return appendMultiHeader(b, kind, done) }
	stat := make([]byte, statLen)
	got := appendText(head(nil, opGetData, 0), "ab")
	got = append(got, stat...)
	none := append(head(nil, opError, 0), 0xff, 0xff, 0xff, 0x9b)
	end := head(nil, opError, 1)
	for name, c := range map[string]struct {
		body []byte
		n    int
		ok   bool
	}{
		"one":            {join(got, end), 1, true},
		"two":            {join(got, none, end), 2, true},
		"none":           {end, 0, true},
		"too few":        {join(got, end), 2, false},
		"too many":       {join(got, got, end), 1, false},
		"without an end": {got, 1, false},
		"cut":            {join(got[:len(got)-1]), 1, false},
		"another kind":   {join(head(nil, opSetData, 0), stat, end), 1, false},
		"empty":          {nil, 0, false},
	} {
		out, err := parseMultiRead(c.body, c.n)
		if (err == nil) != c.ok || c.ok && len(out) != c.n {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	out, err := parseMultiRead(join(got, none, end), 2)
	if err != nil || string(out[0].data) != "ab" || out[1].code != codeNoNode {
		t.Errorf("%+v, %v", out, err)
	}
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
