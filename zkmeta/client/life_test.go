package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
)

// TestLostReply: the write is applied, the caller cannot know.
func TestLostReply(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	s := openStore(t, Options{Connect: p.Addr + chroot(), SessionTimeout: 3 * time.Second})
	sess := wait(t, s)
	mustMulti(t, sess, zkmeta.Create("/a", nil, zkmeta.Persistent, nil))
	p.Set(zkmetatest.DropReplies)
	ctx, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
	defer cancel()
	_, err := sess.Multi(ctx, zkmeta.Set("/a", []byte("x"), 0))
	mustFail(t, err, zkmeta.ErrUnknownOutcome)
	mustFail(t, err, context.DeadlineExceeded)

	// The same when the connection is cut instead of the patience running out.
	c := make(chan error, 1)
	go func() {
		_, err := sess.Multi(testContext(t), zkmeta.Create("/b", nil, zkmeta.Persistent, nil))
		c <- err
	}()
	other := wait(t, openStore(t, Options{Connect: z.Addr + s.chroot}))
	for { // until the request has arrived
		if _, there, err := other.Exists(testContext(t), "/b", false); err != nil {
			t.Fatal(err)
		} else if there {
			break
		}
	}
	p.Set(zkmetatest.Refuse)
	mustFail(t, <-c, zkmeta.ErrUnknownOutcome)
	p.Set(zkmetatest.Pass)
	if again := wait(t, s); again != sess {
		t.Fatalf("another session: %v", again)
	}
	data, st, err := sess.Get(testContext(t), "/a", false)
	if err != nil || string(data) != "x" || st.Version != 1 {
		t.Fatalf("%q, %+v, %v", data, st, err)
	}
}

// TestNothingCrossesSessions: creates of ephemerals and conditional writes that
// hammer one session while it is cut and expires are never applied in the next
// one, and whoever waited for an answer gets an error.
func TestNothingCrossesSessions(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	s := openStore(t, Options{Connect: p.Addr + "," + zkmetatest.StartProxy(t, p.Addr).Addr + chroot(), SessionTimeout: 3 * time.Second})
	sess := wait(t, s)
	const counters = 8
	versions := func(s zkmeta.Session) (out [counters]cluster.ZKVersion) {
		for i := range out {
			st, there, err := s.Exists(testContext(t), fmt.Sprintf("/c/%d", i), false)
			if err != nil || !there {
				t.Fatal(there, err)
			}
			out[i] = st.Version
		}
		return out
	}
	mustMulti(t, sess, zkmeta.Create("/c", nil, zkmeta.Persistent, nil))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	ctx := t.Context() // one for all: a million contexts kept until the end starve the rest
	for i := range counters {
		path := fmt.Sprintf("/c/%d", i)
		mustMulti(t, sess, zkmeta.Create(path, nil, zkmeta.Persistent, nil))
		wg.Go(func() {
			// One in four has the right version, whatever became of the writes
			// that got no answer.
			v := cluster.ZKVersion(0)
			for n := 0; ; n++ {
				select {
				case <-stop:
					if _, err := sess.Multi(ctx, zkmeta.Set(path, nil, -1)); !errors.Is(err, zkmeta.ErrSessionExpired) {
						t.Errorf("%s in the dead session: %v", path, err)
					}
					return
				default:
				}
				r, err := sess.Multi(ctx, zkmeta.Set(path, nil, v+cluster.ZKVersion(n%4)))
				if err == nil {
					v = r[0].Stat.Version
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	for i := range 40 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := sess.Multi(ctx, zkmeta.Create(fmt.Sprintf("/e%d_%d", i, n), nil, zkmeta.Ephemeral, nil))
				if errors.Is(err, zkmeta.ErrNotConnected) {
					n--
					runtime.Gosched()
				}
			}
		})
	}
	p.Set(zkmetatest.Refuse)
	p.Expire(t)
	p.Set(zkmetatest.Pass)
	<-sess.Done()
	next := wait(t, s)
	if next.Generation() != 2 || next.ID() == sess.ID() {
		t.Fatalf("session %#x of generation %d", next.ID(), next.Generation())
	}
	before := versions(next)
	mustMulti(t, next, zkmeta.Create("/mine", nil, zkmeta.Ephemeral, nil))
	close(stop)
	wg.Wait()
	if after := versions(next); after != before {
		t.Errorf("versions %v in the new session, then %v: a write of the dead one was sent", before, after)
	}
	names, _, err := next.Children(testContext(t), "/", false)
	if err != nil || !slices.Equal(names, []string{"c", "mine"}) {
		t.Fatalf("ephemerals of the dead session live in the new one: %q, %v", names, err)
	}
}

// TestMuteServer: a server that accepts and says nothing is left for another.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	a, b := zkmetatest.StartProxy(t, z.Addr), zkmetatest.StartProxy(t, z.Addr)
	s := openStore(t, Options{Connect: a.Addr + "," + b.Addr + chroot(), SessionTimeout: 3 * time.Second})
	events := s.Events()
	sess := wait(t, s)
	until(t, events, zkmeta.SessionStarted)
	used, other := a, b
	if b.Accepted() > 0 {
		used, other = b, a
	}
	start := time.Now()
	used.Set(zkmetatest.Mute)
	until(t, events, zkmeta.Disconnected)
	until(t, events, zkmeta.Connected)
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("changing the server took %v", took)
	}
	if other.Accepted() == 0 || sess != wait(t, s) {
		t.Error("it did not change the server in the same session")
	}
}

// TestNoSpin: servers that accept and hang up, and servers that refuse, are
// tried about once a second each.
func TestNoSpin(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	z := shared.ZooKeeper(t)
	a, b := zkmetatest.StartProxy(t, z.Addr), zkmetatest.StartProxy(t, z.Addr)
	a.Set(zkmetatest.Refuse)
	b.Set(zkmetatest.Refuse)
	s := openStore(t, Options{Connect: a.Addr + "," + b.Addr + chroot(), SessionTimeout: 3 * time.Second})
	ctx, cancel := context.WithTimeout(testContext(t), 3500*time.Millisecond)
	defer cancel()
	_, err := s.Wait(ctx)
	mustFail(t, err, zkmeta.ErrNotConnected)
	if !strings.Contains(err.Error(), a.Addr) || !strings.HasSuffix(err.Error(), s.problem().Error()) {
		t.Errorf("the error does not name the servers and what went wrong last: %v", err)
	}
	if n := a.Accepted() + b.Accepted(); n < 3 || n > 7 {
		t.Errorf("%d connections in 3.5 seconds", n)
	}
	a.Set(zkmetatest.Pass)
	wait(t, s)
	// Sessions that do not last are failures too.
	before := a.Accepted() + b.Accepted()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); <-tick.C {
		a.CutAll()
	}
	if n := a.Accepted() + b.Accepted() - before; n > 7 {
		t.Errorf("%d connections in 3 seconds of cuts", n)
	}
}

// TestOutage: when the whole ensemble is away for longer than the session
// time-out, the session goes on afterwards, watches and ephemerals included.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	z := zkmetatest.StartZooKeeper(t)
	s := openStore(t, Options{Connect: z.Addr, SessionTimeout: 4 * time.Second})
	events := s.Events()
	sess := wait(t, s)
	until(t, events, zkmeta.SessionStarted)
	mustMulti(t, sess, zkmeta.Create("/e", nil, zkmeta.Ephemeral, nil))
	if _, _, err := sess.Get(testContext(t), "/e", true); err != nil {
		t.Fatal(err)
	}
	z.Kill()
	until(t, events, zkmeta.Disconnected)
	_, err := sess.Multi(testContext(t), zkmeta.Set("/e", nil, 0))
	mustFail(t, err, zkmeta.ErrNotConnected)
	ctx, cancel := context.WithTimeout(testContext(t), 5*time.Second)
	defer cancel()
	_, err = s.Wait(ctx)
	mustFail(t, err, zkmeta.ErrNotConnected)
	if err := z.Start(); err != nil {
		t.Fatal(err)
	}
	if between := until(t, events, zkmeta.Connected); len(between) > 0 {
		t.Fatalf("events %v", between)
	}
	if again := wait(t, s); again != sess {
		t.Fatal("another session")
	}
	e := zkmetatest.NextEvent(t, events)
	if e.Path != "/e" {
		t.Fatalf("event %v", e)
	}
	if _, st, err := sess.Get(testContext(t), "/e", false); err != nil || st.EphemeralOwner != sess.ID() {
		t.Fatalf("%+v, %v", st, err)
	}
}

// TestWiped: an ensemble that has lost its data hangs up on every client that
// has seen more; the store notices that others are served.
func TestWiped(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	z := zkmetatest.StartZooKeeper(t)
	s := openStore(t, Options{Connect: z.Addr, SessionTimeout: time.Second})
	sess := wait(t, s)
	for i := range 20 {
		mustMulti(t, sess, zkmeta.Create(fmt.Sprintf("/%d", i), nil, zkmeta.Persistent, nil))
	}
	z.Kill()
	if err := z.Wipe(); err != nil {
		t.Fatal(err)
	}
	if err := z.Start(); err != nil {
		t.Fatal(err)
	}
	<-sess.Done()
	next := wait(t, s)
	if next.Generation() != 2 {
		t.Fatalf("generation %d", next.Generation())
	}
	if _, there, err := next.Exists(testContext(t), "/1", false); there || err != nil {
		t.Fatalf("%t, %v", there, err)
	}
	if !next.Owned(sess.ID()) {
		t.Error("the old session is not remembered as own")
	}
}

func TestLastContact(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	start := time.Now()
	s := openStore(t, Options{Connect: p.Addr + chroot(), SessionTimeout: 1500 * time.Millisecond})
	sess := wait(t, s)
	if sess.Timeout() != 1500*time.Millisecond {
		t.Errorf("negotiated %v", sess.Timeout())
	}
	first := sess.LastContact()
	if first.Before(start) || first.After(time.Now()) {
		t.Errorf("last contact %v, started %v", first, start)
	}
	before := time.Now()
	mustMulti(t, sess, zkmeta.Create("/a", nil, zkmeta.Persistent, nil))
	if c := sess.LastContact(); c.Before(before) || c.After(time.Now()) {
		t.Errorf("last contact %v after a call between %v and now", c, before)
	}
	after := time.Now()
	waitFor(t, func() bool { return sess.LastContact().After(after) }) // pings count
	p.Set(zkmetatest.DropReplies)
	mute := time.Now()
	<-lostOf(s)
	if c := sess.LastContact(); c.After(mute.Add(50 * time.Millisecond)) {
		t.Errorf("last contact %v after the replies ended at %v", c, mute)
	}
}

func lostOf(s *store) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur.lost
}

// waitFor looks again and again for what nothing announces.
func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	late := time.After(20 * time.Second)
	for !done() {
		select {
		case <-look.C:
		case <-late:
			t.Fatal("it does not happen")
		}
	}
}

// TestGoroutinesEnd: a closed store leaves nothing behind, whatever state it was
// closed in.
func TestGoroutinesEnd(t *testing.T) {
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	wait(t, openStore(t, Options{Connect: p.Addr + chroot()})).Generation() // warm up
	before := runtime.NumGoroutine()
	for i := range 6 {
		s := openStore(t, Options{Connect: p.Addr + chroot(), SessionTimeout: 2 * time.Second})
		switch i % 3 {
		case 0:
			wait(t, s)
		case 1: // in the middle of connecting
		case 2:
			wait(t, s)
			p.Set(zkmetatest.Refuse)
			<-lostOf(s)
		}
		start := time.Now()
		s.Close()
		if took := time.Since(start); took > time.Second {
			t.Errorf("Close took %v in case %d", took, i%3)
		}
		p.Set(zkmetatest.Pass)
		s.closers.Wait()
	}
	waitFor(t, func() bool { return runtime.NumGoroutine() <= before })
}
