package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
)

// TestEnsemble: counters go up by conditional writes while the servers of an
// ensemble are killed and started one after the other. Whoever gets an unknown
// outcome looks. Nothing is lost or done twice, and the session goes on.
func TestEnsemble(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	servers := zkmetatest.StartEnsemble(t, 3)
	if t.Failed() {
		return
	}
	var addrs []string
	for _, z := range servers {
		addrs = append(addrs, z.Addr)
	}
	s := openStore(t, Options{Connect: strings.Join(addrs, ",") + "/kafka", SessionTimeout: 10 * time.Second})
	sess := wait(t, s)
	mustMulti(t, sess, zkmeta.Create("/e", nil, zkmeta.Ephemeral, nil))
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	counts := make([]int, 8)
	var wg sync.WaitGroup
	for i := range counts {
		mustMulti(t, sess, zkmeta.Create(fmt.Sprintf("/n%d", i), []byte("0"), zkmeta.Persistent, nil))
		wg.Go(func() { counts[i] = count(t, s, fmt.Sprintf("/n%d", i), stop) })
	}
	for _, z := range servers {
		z.Kill()
		progress(t, s)
		if err := z.Start(); err != nil {
			t.Error(err)
		}
		progress(t, s)
	}
	end()
	wg.Wait()
	for i, n := range counts {
		data, st, err := wait(t, s).Get(testContext(t), fmt.Sprintf("/n%d", i), false)
		if err != nil || string(data) != strconv.Itoa(n) || int(st.Version) != n || n == 0 {
			t.Errorf("counter %d: %q at version %d, want %d (%v)", i, data, st.Version, n, err)
		}
	}
	if _, st, err := sess.Get(testContext(t), "/e", false); err != nil || st.EphemeralOwner != sess.ID() {
		t.Errorf("the session did not go on: %+v, %v", st, err)
	}
}

// progress waits until a write goes through.
func progress(t *testing.T, s *store) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		sess, err := s.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = sess.Multi(ctx, zkmeta.Create("/p_", nil, zkmeta.PersistentSequential, nil)); err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// count raises a counter that nobody else touches and returns how far.
func count(t *testing.T, s *store, path string, stop chan struct{}) int {
	n := 0
	for {
		select {
		case <-stop:
			return n
		default:
		}
		err := raise(t, s, path, n)
		switch {
		case err == nil:
			n++
		case errors.Is(err, zkmeta.ErrNotConnected):
		case errors.Is(err, zkmeta.ErrUnknownOutcome):
			if n, err = look(t, s, path, n); err != nil {
				t.Error(err)
				return n
			}
		default:
			t.Errorf("%s at %d: %v", path, n, err)
			return n
		}
	}
}

// raise is one write; its context does not stay until the test's end, as there
// are many.
func raise(t *testing.T, s *store, path string, n int) error {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sess, err := s.Wait(ctx)
	if err != nil {
		return err
	}
	_, err = sess.Multi(ctx, zkmeta.Set(path, []byte(strconv.Itoa(n+1)), cluster.ZKVersion(n)))
	return err
}

// look finds out whether a write with an unknown outcome was applied.
func look(t *testing.T, s *store, path string, n int) (int, error) {
	for {
		sess, err := s.Wait(testContext(t))
		if err != nil {
			return n, err
		}
		data, _, err := sess.Get(testContext(t), path, false)
		switch {
		case err == nil && string(data) == strconv.Itoa(n+1):
			return n + 1, nil
		case err == nil && string(data) == strconv.Itoa(n):
			return n, nil
		case err == nil:
			return n, fmt.Errorf("%s is %s after %d", path, data, n)
		case errors.Is(err, zkmeta.ErrNotConnected), errors.Is(err, zkmeta.ErrUnknownOutcome):
		default:
			return n, err
		}
	}
}
