package shards

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbroker/kbroker/coordinator"
)

// Many submitters at once, while leadership, the ISR and the time go up and
// down: every request is answered once, nothing that was confirmed is lost, and
// every shard is what its log says.
func TestParallelSubmitters(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	bubble(t, func(t *testing.T, r *rig) {
		const submitters, each = 8, 60
		r.lead(0, 1, 2)
		var wg sync.WaitGroup
		confirmed := make([]map[string]string, submitters)
		for g := range submitters {
			confirmed[g] = map[string]string{}
			wg.Go(func() { r.submitter(g, each, confirmed[g]) })
		}
		ended := make(chan struct{})
		go func() { wg.Wait(); close(ended) }()
		rnd := rand.New(rand.NewPCG(seed, 1))
		for n, done := 0, false; !done; n++ {
			select {
			case <-ended:
				done = true
			default:
				if n%7 == 0 && n < 1000 {
					r.disturb(rnd)
				}
				r.replicated(0)
				if n%2 == 0 {
					synctest.Wait() // until everybody waits for HW
				}
			}
		}
		r.order(0, 1, 1)
		synctest.Wait()
		m := r.machine(0)
		for g := range confirmed {
			for k, v := range confirmed[g] {
				if m.values[k] != v {
					t.Errorf("%s is %q, confirmed was %q", k, m.values[k], v)
				}
			}
		}
		before, after := r.reload(0)
		same(t, "replayed", after.diary, before.diary)
		if !maps.Equal(before.values, after.values) {
			t.Error("the values differ")
		}
		t.Logf("%+v, %d machines", r.set.Counts(), len(r.machines[0]))
	})
}

func (r *rig) disturb(rnd *rand.Rand) {
	switch rnd.IntN(7) {
	case 0, 6:
		r.order(0, 2, 1, 2)
		r.order(0, 1, 1, 2)
	case 1:
		r.order(0, 1, 1)
	case 2:
		r.order(0, 1, 1, 2)
	case 3:
		r.clock.Advance(time.Duration(rnd.IntN(6000)) * time.Millisecond)
	case 4:
		r.set.Tell(tell{fmt.Sprint(rnd.Uint32())})
	case 5:
		r.set.View(func(int32, coordinator.Machine) {})
	}
}

// submitter writes values under keys of its own and keeps what was confirmed.
func (r *rig) submitter(g, each int, confirmed map[string]string) {
	type result struct {
		got any
		err error
	}
	for i := range each {
		key, value := fmt.Sprintf("%d-%d", g, i%10), fmt.Sprint(i)
		for {
			answers := make(chan result, 2)
			r.set.Submit(0, coordinator.Request{Msg: put{key, value}}, func(got any, err error) { answers <- result{got, err} })
			got := <-answers
			if len(answers) > 0 {
				r.t.Error("answered twice")
			}
			if got.err == nil {
				confirmed[key] = value
				break
			}
			if !errors.Is(got.err, ErrNotCoordinator) && !errors.Is(got.err, ErrLoadInProgress) && !errors.Is(got.err, ErrTimedOut) {
				r.t.Error(got.err)
			}
		}
	}
}
