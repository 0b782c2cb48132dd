package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
)

// shared is the ZooKeeper of all tests that do not kill it; each has a chroot.
var shared zkmetatest.Shared

var chroots atomic.Int64

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Kill()
	os.Exit(code)
}

func chroot() string { return fmt.Sprintf("/test/%d", chroots.Add(1)) }

func openStore(t testing.TB, o Options) *store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*store)
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func wait(t testing.TB, s zkmeta.Store) zkmeta.Session {
	t.Helper()
	sess, err := s.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return sess
}

// until waits for the event, and returns those before it.
func until(t testing.TB, events <-chan zkmeta.Event, typ zkmeta.EventType) (before []zkmeta.Event) {
	t.Helper()
	for {
		e := zkmetatest.NextEvent(t, events)
		if e.Type == typ {
			return before
		}
		before = append(before, e)
	}
}

func mustMulti(t testing.TB, s zkmeta.Session, ops ...zkmeta.Op) []zkmeta.Result {
	t.Helper()
	r, err := s.Multi(testContext(t), ops...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustFail(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}
