package producerids

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

func TestBlocksFollowEachOther(t *testing.T) {
	blocks := []int64{0, 5000}
	ids := New(func(context.Context) (int64, int32, error) {
		start := blocks[0]
		blocks = blocks[1:]
		return start, 3, nil
	})
	for _, want := range []cluster.ProducerID{0, 1, 2, 5000} {
		if got, err := ids.Next(t.Context()); got != want || err != nil {
			t.Errorf("Next is %d, %v, want %d", got, err, want)
		}
	}
}

func TestNoIDTwice(t *testing.T) {
	next := int64(0)
	ids := New(func(context.Context) (int64, int32, error) {
		next += 7
		return next - 7, 7, nil
	})
	var mu sync.Mutex
	seen := map[cluster.ProducerID]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				id, err := ids.Next(t.Context())
				mu.Lock()
				if err != nil || seen[id] {
					t.Errorf("id %d again, or %v", id, err)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 800 {
		t.Errorf("%d ids, want 800", len(seen))
	}
}

func TestSourceFails(t *testing.T) {
	broken := errors.New("no controller")
	fail := true
	ids := New(func(context.Context) (int64, int32, error) {
		if fail {
			return 0, 0, broken
		}
		return 10, 1, nil
	})
	if _, err := ids.Next(t.Context()); !errors.Is(err, broken) {
		t.Errorf("%v, want the source's error", err)
	}
	fail = false
	if id, err := ids.Next(t.Context()); id != 10 || err != nil {
		t.Errorf("after the failure %d, %v, want 10", id, err)
	}
}
