package shards

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/protocol/record"
)

// reload makes another set on the same host, as after a restart, and answers
// the machines of before and after.
func (r *rig) reload(p int32) (before, after *machine) {
	r.t.Helper()
	before = r.machine(p)
	r.set.Close()
	r.open()
	synctest.Wait()
	if after = r.machine(p); after == before {
		r.t.Fatal("no other machine")
	}
	return before, after
}

// What a machine is after any requests is what a replay of the log makes it,
// down to the offsets and timestamps.
func TestReplayIsTheState(t *testing.T) {
	seed := rand.Uint64()
	for codec := record.CodecNone; codec <= record.CodecZstd; codec++ {
		for _, buffer := range []int{1, 3000, 5 << 20} {
			bubble(t, func(t *testing.T, r *rig) {
				t.Logf("%v, buffer of %d, seed %d", codec, buffer, seed)
				rnd := rand.New(rand.NewPCG(seed, uint64(codec)))
				r.cfg.MaxMessageBytes, r.cfg.SegmentBytes = 2000, 20_000
				r.set.Close()
				o := r.options()
				o.Codec, o.LoadBuffer = int(codec), buffer
				r.set = New(o)
				r.lead(0, 1)
				for range 50 {
					r.ask(0, check{func() {
						for range rnd.IntN(20) {
							r.random(rnd)
						}
					}})
					r.clock.Advance(time.Duration(rnd.IntN(1000)) * time.Millisecond)
				}
				r.set.Close()
				r.set = New(o)
				synctest.Wait()
				m := r.machines[0]
				same(t, "replayed", m[1].diary, m[0].diary)
				if !maps.Equal(m[0].values, m[1].values) || len(m[0].values) == 0 {
					t.Fatal(m[0].values, m[1].values)
				}
				if c := r.set.Counts(); c.LoadedRecords != int64(len(m[0].diary)) || c.Loads != 1 || c.Unread != 0 {
					t.Fatalf("%+v", c)
				}
			})
		}
	}
}

func (r *rig) random(rnd *rand.Rand) {
	key := fmt.Sprint("k", rnd.IntN(10))
	switch rnd.IntN(10) {
	case 0:
		r.ask(0, drop{key})
	case 1:
		r.ask(0, get{key})
	case 2:
		r.ask(0, put{key, strings.Repeat("x", 1500+rnd.IntN(1500))}) // about max.message.bytes
	default:
		r.ask(0, put{key, fmt.Sprint(rnd.Uint32())})
	}
}

// Every batch is below max.message.bytes, unless a single record is not.
func TestBatchesAreSplit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.MaxMessageBytes = 2000
		r.lead(0, 1)
		r.ask(0, check{func() {
			for range 10 {
				r.ask(0, put{"a", strings.Repeat("x", 600)})
			}
			r.ask(0, put{"b", strings.Repeat("x", 5000)})
			r.ask(0, put{"c", "1"})
		}})
		var got []string
		r.eachBatch(0, func(b record.Batch) {
			got = append(got, fmt.Sprintf("%d+%d", b.BaseOffset(), b.Count()))
			if b.Count() > 1 && len(b) > 2000 {
				t.Error(len(b), "bytes")
			}
		})
		if want := []string{"0+3", "3+3", "6+3", "9+1", "10+1", "11+1"}; !slices.Equal(got, want) {
			t.Fatal(got)
		}
	})
}

func (r *rig) eachBatch(p int32, f func(record.Batch)) {
	r.t.Helper()
	log := r.replica(p).Log()
	s, err := log.Read(log.LogStart(), 1<<20, log.LEO(), true)
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Release()
	buf, err := s.Bytes()
	if err != nil {
		r.t.Fatal(err)
	}
	for len(buf) > 0 {
		b := record.Batch(buf[:record.Batch(buf).Length()])
		buf = buf[len(b):]
		f(b)
	}
}

// write appends a batch beside the shard, as another leader had.
func (r *rig) write(p int32, b record.Batch) {
	r.t.Helper()
	v := validated(b, b.MaxTimestamp())
	if b.HasProducerID() {
		v.ProducerID, v.ProducerEpoch, v.BaseSequence, v.LastSequence = b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence()
		v.Transactional, v.Control = b.Transactional(), b.Control()
	}
	if _, err := r.replica(p).AppendAsLeader(v, false, logstore.AppendOptions{Origin: logstore.Coordinator}); err != nil {
		r.t.Fatal(err)
	}
}

func plain(key, value string) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{})
	b.Append(5, []byte(key), []byte(value), nil)
	return b.Build()
}

func transactional(p cluster.ProducerID, seq int32, key, value string) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{HasProducer: true, ProducerID: p, ProducerEpoch: 1, BaseSequence: seq, Transactional: true})
	b.Append(5, []byte(key), []byte(value), nil)
	return b.Build()
}

// The machine gets a transaction's records with their producer, and its end.
func TestLoadTransactions(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		r.write(0, plain("a", "1"))
		r.write(0, transactional(7, 0, "a", "2"))
		r.write(0, transactional(8, 0, "b", "3"))
		r.write(0, plain("c", "4"))
		r.write(0, record.EndTxnMarker(true, 7, 1, 0, 5))
		r.write(0, record.EndTxnMarker(false, 8, 1, 0, 5))
		r.write(0, transactional(7, 1, "c", "5"))
		_, m := r.reload(0)
		want := []string{"0 5 -1/-1 a=1", "1 5 7/1 a=2", "2 5 8/1 b=3", "3 5 -1/-1 c=4", "marker 7/1 true", "marker 8/1 false", "6 5 7/1 c=5"}
		same(t, "replayed", m.diary, want)
		r.ask(0, get{"a"}).is("2")
		r.ask(0, get{"b"}).is("")
		r.ask(0, get{"c"}).is("4") // still open

		// The marker comes while the shard is active: reads wait for it, too.
		r.order(0, 1, 1, 2)
		r.write(0, record.EndTxnMarker(true, 7, 1, 0, 5))
		r.set.Markers(0, 7, 1, true)
		read := r.ask(0, get{"c"})
		read.waits()
		r.replicated(0)
		read.is("5")
		before, after := r.reload(0)
		same(t, "replayed", after.diary, before.diary)
	})
}

// What was loaded counts as written: it is not shown before HW has passed it.
func TestLoadedButNotCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1, 2)
		r.ask(0, put{"a", "1"})
		r.order(0, 2, 1, 2)
		r.lead(0, 1, 2)
		read := r.ask(0, get{"a"})
		read.waits()
		r.replicated(0)
		read.is("1")
	})
}

// A batch that is broken is passed over, the rest is there.
func TestBrokenBatch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		r.write(0, plain("a", "1"))
		broken := plain("a", "2")
		broken[len(broken)-3] ^= 1
		r.write(0, broken)
		r.write(0, plain("", "3")) // the machine cannot read it
		r.write(0, plain("b", "4"))
		r.reload(0)
		r.ask(0, get{"a"}).is("1")
		r.ask(0, get{"b"}).is("4")
		if c := r.set.Counts(); c.Unread != 2 || c.LoadedRecords != 3 {
			t.Fatalf("%+v", c)
		}
	})
}

// gate holds machines at their first record.
type gate struct {
	mu      sync.Mutex
	held    int
	most    int
	open    chan struct{}
	entered int
}

func (g *gate) wait() {
	g.mu.Lock()
	g.entered++
	g.held++
	g.most = max(g.most, g.held)
	g.mu.Unlock()
	<-g.open
	g.mu.Lock()
	g.held--
	g.mu.Unlock()
}

func TestLoadsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for p := range int32(6) {
			r.lead(p, 1)
			r.ask(p, put{"a", fmt.Sprint(p)}).is("")
		}
		g := &gate{open: make(chan struct{})}
		r.onApply = g.wait
		r.set.Close()
		r.open()
		synctest.Wait()
		if g.held != maxLoading {
			t.Fatal("loading at once:", g.held)
		}
		for p := range int32(6) {
			r.ask(p, get{"a"}).fails(ErrLoadInProgress)
		}
		if c := r.set.Counts(); c.Loading != 6 || c.Active != 0 || len(r.set.Led()) != 6 {
			t.Fatalf("%+v", c)
		}
		close(g.open)
		synctest.Wait()
		for p := range int32(6) {
			r.ask(p, get{"a"}).is(fmt.Sprint(p))
		}
		if g.most != maxLoading || r.set.Counts().Active != 6 {
			t.Fatal(g.most, r.set.Counts())
		}
	})
}

// A load whose leadership ends is given up, and what was told to it is gone.
func TestLeadershipLostWhileLoading(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		r.ask(0, put{"a", "1"})
		g := &gate{open: make(chan struct{})}
		r.onApply = g.wait
		r.set.Close()
		r.open()
		synctest.Wait()
		r.set.Tell(tell{"x"})
		r.order(0, 2, 1, 2)
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		close(g.open)
		synctest.Wait()
		m := r.machine(0)
		if !m.loaded.IsZero() || slices.Contains(m.diary, "told") {
			t.Fatal(m.loaded, m.diary)
		}
		r.lead(0, 1)
		r.ask(0, get{"told"}).is("")
		r.ask(0, get{"a"}).is("1")
	})
}

// Events that come while a shard loads are handed over once it has loaded.
func TestEventsWhileLoading(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		r.write(0, transactional(7, 0, "a", "2"))
		g := &gate{open: make(chan struct{})}
		r.onApply = g.wait
		r.set.Close()
		r.open()
		synctest.Wait()
		r.set.Tell(tell{"x"})
		r.write(0, record.EndTxnMarker(true, 7, 1, 0, 5))
		r.set.Markers(0, 7, 1, true)
		r.set.View(func(int32, coordinator.Machine) { t.Error("shown while it loads") })
		close(g.open)
		synctest.Wait()
		r.ask(0, get{"a"}).is("2")
		r.ask(0, get{"told"}).is("x")
		if m := r.machine(0); !m.loaded.Equal(r.clock.Now()) {
			t.Fatal(m.loaded)
		}
	})
}
