package embedded

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// memory is a store in memory and its session.
func memory(t *testing.T) (*Store, zkmeta.Session) {
	s := NewMemory(Options{}).Connect()
	t.Cleanup(func() { s.Close() })
	return s, current(t, s)
}

// TestHook: lost requests are not applied, lost replies are, and a hook that
// waits delays the call.
func TestHook(t *testing.T) {
	st, s := memory(t)
	for fault, applied := range map[Fault]bool{LoseRequest: false, LoseReply: true, NoFault: true} {
		path := fmt.Sprintf("/f%d", fault)
		st.SetHook(func(_ context.Context, c Call) Fault {
			if c.Kind != "multi" || len(c.Ops) != 1 || c.Ops[0].Path != path {
				t.Errorf("call %+v", c)
			}
			return fault
		})
		_, err := s.Multi(ctx, zkmeta.Create(path, nil, zkmeta.Persistent, nil))
		if unknown := errors.Is(err, zkmeta.ErrUnknownOutcome); unknown != (fault != NoFault) {
			t.Errorf("fault %d: error %v", fault, err)
		}
		st.SetHook(nil)
		if _, there, err := s.Exists(ctx, path, false); there != applied || err != nil {
			t.Errorf("fault %d: there %t, %v", fault, there, err)
		}
	}
	st.SetHook(func(context.Context, Call) Fault { return LoseReply })
	_, _, err := s.Get(ctx, "/f0", false)
	_, _, err2 := s.Children(ctx, "/", false)
	_, _, err3 := s.Exists(ctx, "/f0", false)
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, zkmeta.ErrUnknownOutcome) {
			t.Error(err)
		}
	}
	// The session ends while a call is under way.
	st.SetHook(func(context.Context, Call) Fault {
		st.SetHook(nil)
		st.Expire()
		return NoFault
	})
	if _, err := s.Multi(ctx, zkmeta.Create("/x", nil, zkmeta.Persistent, nil)); !errors.Is(err, zkmeta.ErrSessionExpired) {
		t.Error(err)
	}
}

// TestProducerIDsUnknownOutcome: a block whose reply was lost is found again,
// one whose request was lost is asked for again; none is given out twice or
// skipped.
func TestProducerIDsUnknownOutcome(t *testing.T) {
	for _, fault := range []Fault{LoseReply, LoseRequest} {
		st, s := memory(t)
		if err := zkmeta.EnsurePersistentPaths(ctx, s); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			lost := false
			st.SetHook(func(_ context.Context, c Call) Fault {
				if c.Kind != "multi" || lost {
					return NoFault
				}
				lost = true
				return fault
			})
			block, err := zkmeta.NextProducerIDs(ctx, s, 7)
			if want := (zkmeta.ProducerIDBlock{Broker: 7, First: cluster.ProducerID(i * 1000), Last: cluster.ProducerID(i*1000 + 999)}); block != want || err != nil {
				t.Fatalf("fault %d: block %v, %v", fault, block, err)
			}
		}
	}
}

// TestWriteEachUnknown: what was in a multi whose reply was lost is unknown,
// the rest is not touched by it.
func TestWriteEachUnknown(t *testing.T) {
	st, s := memory(t)
	var writes [][]zkmeta.Op
	for i := range 500 {
		writes = append(writes, []zkmeta.Op{zkmeta.Create(fmt.Sprintf("/w%d", i), nil, zkmeta.Persistent, nil)})
	}
	calls := 0
	st.SetHook(func(context.Context, Call) Fault {
		if calls++; calls == 2 {
			return LoseReply
		}
		return NoFault
	})
	unknown := 0
	for _, o := range zkmeta.WriteEach(ctx, s, nil, writes) {
		switch {
		case errors.Is(o.Err, zkmeta.ErrUnknownOutcome):
			unknown++
		case o.Err != nil:
			t.Fatal(o.Err)
		}
	}
	if unknown != 200 || calls != 3 {
		t.Errorf("%d unknown in %d multis", unknown, calls)
	}
}
