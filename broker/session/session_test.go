package session

import (
	"slices"
	"testing"
	"time"
)

var t0 = time.Unix(1000, 0)

func want(topic string, _ int64) Wanted {
	return Wanted{Key: Key{Topic: topic}, MaxBytes: 100, LastEpoch: -1, CurrentEpoch: -1, LogStart: -1, Offset: 0}
}

func answer(t *testing.T, f *Fetch, told ...Told) (int32, Verdict, []bool) {
	t.Helper()
	keep := make([]bool, len(f.Wanted()))
	id, v := f.Answer(t0, told, keep)
	return id, v, keep
}

func begin(t *testing.T, c *Cache, q Request) *Fetch {
	t.Helper()
	f, v := c.Begin(t0, q)
	if v != OK {
		t.Fatalf("Begin(%d, %d): verdict %d", q.ID, q.Epoch, v)
	}
	return f
}

func topics(f *Fetch) (out []string) {
	for _, w := range f.Wanted() {
		out = append(out, w.Topic)
	}
	return out
}

func TestSessionLife(t *testing.T) {
	c := NewCache(10, 1)
	f := begin(t, c, Request{Wanted: []Wanted{want("a", 0), want("b", 0)}})
	id, v, keep := answer(t, f, Told{HW: 5}, Told{HW: 6})
	if id == 0 || v != OK || !keep[0] || !keep[1] {
		t.Fatalf("full fetch: id %d verdict %d keep %v, want a session and all partitions", id, v, keep)
	}

	f = begin(t, c, Request{ID: id, Epoch: 1})
	if got := topics(f); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("incremental fetch serves %v", got)
	}
	if _, _, keep = answer(t, f, Told{HW: 5}, Told{HW: 7}); keep[0] || !keep[1] {
		t.Errorf("only b's HW moved, kept %v", keep)
	}

	// Records move a partition to the end; an error is told until it ends.
	f = begin(t, c, Request{ID: id, Epoch: 2})
	if _, _, keep = answer(t, f, Told{HW: 5, HasRecords: true}, Told{HW: 7, Failed: true}); !keep[0] || !keep[1] {
		t.Errorf("records and error: kept %v, want both", keep)
	}
	f = begin(t, c, Request{ID: id, Epoch: 3})
	if got := topics(f); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("served in order %v, want b before a", got)
	}
	if _, _, keep = answer(t, f, Told{HW: 7}, Told{HW: 5}); !keep[0] || keep[1] {
		t.Errorf("the error ended: kept %v, want b only", keep)
	}

	// A topic is added, another forgotten; forgetting the last ends it.
	f = begin(t, c, Request{ID: id, Epoch: 4, Wanted: []Wanted{want("c", 0)}, Forget: []Key{{Topic: "b"}}})
	if got := topics(f); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("serves %v, want a and c", got)
	}
	answer(t, f, Told{}, Told{})
	f = begin(t, c, Request{ID: id, Epoch: 5, Forget: []Key{{Topic: "a"}, {Topic: "c"}}})
	if id, _, _ := answer(t, f); id != 0 {
		t.Errorf("an emptied session answers id %d, want 0", id)
	}
	if _, v := c.Begin(t0, Request{ID: id, Epoch: 6}); v != IDNotFound {
		t.Errorf("verdict %d of an emptied session, want IDNotFound", v)
	}
}

func TestVerdicts(t *testing.T) {
	c := NewCache(10, 1)
	id, _, _ := answer(t, begin(t, c, Request{Wanted: []Wanted{want("a", 0)}}), Told{})
	if _, v := c.Begin(t0, Request{ID: id, Epoch: 2}); v != InvalidEpoch {
		t.Errorf("epoch 2 at 1: verdict %d, want InvalidEpoch", v)
	}
	if _, v := c.Begin(t0, Request{ID: id, Epoch: 1, ByID: true}); v != TopicIDError {
		t.Errorf("ids in a session of names: verdict %d, want TopicIDError", v)
	}
	f := begin(t, c, Request{ID: id, Epoch: 1})
	begin(t, c, Request{ID: id, Epoch: 2})
	if _, v, _ := answer(t, f, Told{}); v != InvalidEpoch {
		t.Errorf("an answer overtaken by the next request: verdict %d, want InvalidEpoch", v)
	}
	f = begin(t, c, Request{ID: id, Epoch: -1, Wanted: []Wanted{want("a", 0)}})
	if got, _, keep := answer(t, f, Told{}); got != 0 || !keep[0] {
		t.Errorf("a closing fetch answers id %d keep %v, want 0 and all", got, keep)
	}
	if n, _, _ := c.Counts(); n != 0 {
		t.Errorf("%d sessions are left, want 0", n)
	}
}

func TestEviction(t *testing.T) {
	c := NewCache(1, 1)
	create := func(at time.Time, follower bool, names ...string) int32 {
		q := Request{Follower: follower}
		for _, n := range names {
			q.Wanted = append(q.Wanted, want(n, 0))
		}
		f, _ := c.Begin(at, q)
		id, _ := f.Answer(at, make([]Told, len(names)), make([]bool, len(names)))
		return id
	}
	if create(t0, false, "a") == 0 {
		t.Fatal("no session in an empty cache")
	}
	if create(t0, false, "a", "b") != 0 {
		t.Error("a consumer took the slot of a fresh consumer")
	}
	if create(t0, true, "a") == 0 {
		t.Error("a follower did not take the slot of a consumer")
	}
	if create(t0.Add(EvictAfter/2), true, "a", "b") != 0 {
		t.Error("a follower took the slot of a fresh follower")
	}
	if create(t0.Add(EvictAfter+1), false, "a") == 0 {
		t.Error("a stale session kept its slot")
	}
	if _, _, evicted := c.Counts(); evicted != 2 {
		t.Errorf("%d evictions, want 2", evicted)
	}
}

func TestEpochWraps(t *testing.T) {
	if got := nextEpoch(1<<31 - 1); got != 1 {
		t.Errorf("after the largest epoch comes %d, want 1", got)
	}
}
