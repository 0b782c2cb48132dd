package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// good is a partition of n records from two writers, all acked but the last few,
// read by two consumers.
func good(n int, rng *rand.Rand) evidence {
	e := evidence{partition: 3, sent: []sent{{writer: 1}, {writer: 2}}, read: map[string][]got{}, known: map[int32]int{}}
	for o := range int64(n) {
		s := &e.sent[rng.IntN(2)]
		e.log = append(e.log, gotOf(o, 3, value(id{s.writer, int32(len(s.acks))}, 3, 100)))
		s.acks = append(s.acks, o)
		e.known[s.writer]++
	}
	e.read["a"] = slices.Clone(e.log)
	e.read["b"] = slices.Clone(e.log[:n/2])
	return e
}

func kinds(list []anomaly) (out []string) {
	for _, a := range list {
		if !slices.Contains(out, a.kind) {
			out = append(out, a.kind)
		}
	}
	slices.Sort(out)
	return out
}

// cut takes the record at an offset out of the log, and moves up what follows.
func cut(log []got, offset int) (out []got) {
	for _, g := range slices.Delete(slices.Clone(log), offset, offset+1) {
		if g.offset > int64(offset) {
			g.offset--
		}
		out = append(out, g)
	}
	return out
}

// Each anomaly, planted into a good history, is found by its name.
func TestPlanted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	cases := []struct {
		name  string
		plant func(*evidence)
		want  string // kinds, in order
	}{
		{"nothing", func(*evidence) {}, ""},
		{"acked without an offset", func(e *evidence) { e.sent[0].acks[3] = unplaced }, ""},
		{"acked without an offset, and gone", func(e *evidence) {
			e.sent[0].acks = append(e.sent[0].acks, unplaced)
			e.known[1]++
		}, "lost"},
		{"the tail is gone", func(e *evidence) {
			e.log = e.log[:90]
			e.read["a"] = e.read["a"][:90]
		}, "lost"},
		{"the tail is gone, and was read", func(e *evidence) { e.log = e.log[:90] }, "dirty lost"},
		{"one is gone from the middle", func(e *evidence) {
			e.log = cut(e.log, 60)
			e.read = nil
		}, "lost moved"},
		{"another one stands in its place", func(e *evidence) {
			e.log[60].id = id{2, 100}
			e.known[2] = 101
			e.read["a"] = nil
		}, "disorder lost"},
		{"one was read that was never committed", func(e *evidence) {
			e.read["b"] = append(e.read["b"], got{50, id{1, 99}})
		}, "dirty"},
		{"a reader was ahead of the log", func(e *evidence) {
			e.read["a"] = append(e.read["a"], got{100, id{1, 99}})
		}, "dirty"},
		{"a retry was written twice", func(e *evidence) {
			e.log = append(e.log, got{100, e.log[98].id})
		}, "duplicate"},
		{"two of a writer changed places", func(e *evidence) {
			var own []int
			for i, g := range e.log {
				if g.id.writer == 1 {
					own = append(own, i)
				}
			}
			i, j := own[3], own[4]
			e.log[i].id, e.log[j].id = e.log[j].id, e.log[i].id
			e.sent[0].acks[3], e.sent[0].acks[4] = e.sent[0].acks[4], e.sent[0].acks[3]
			e.read = nil
		}, "disorder"},
		{"damaged", func(e *evidence) {
			e.log[99] = gotOf(99, 3, strings.Replace(value(id{1, 7}, 3, 100), "h", "i", 1))
			e.sent[0].acks, e.sent[1].acks = pendingAt(e.sent[0].acks, 99), pendingAt(e.sent[1].acks, 99)
			e.read = nil
		}, "phantom"},
		{"of another partition", func(e *evidence) {
			e.log = append(e.log, gotOf(100, 3, value(id{1, 7}, 4, 100)))
		}, "phantom"},
		{"of nobody", func(e *evidence) { e.log = append(e.log, got{100, id{9, 0}}) }, "phantom"},
		{"never sent", func(e *evidence) { e.log = append(e.log, got{100, id{1, 5000}}) }, "phantom"},
		{"sent after the evidence was taken", func(e *evidence) {
			e.log = append(e.log, got{100, id{1, int32(len(e.sent[0].acks))}})
			e.known[1]++
		}, ""},
		{"an offset is missing", func(e *evidence) {
			e.log[99].offset = 100
			e.sent[0].acks, e.sent[1].acks = pendingAt(e.sent[0].acks, 99), pendingAt(e.sent[1].acks, 99)
			e.read["a"] = e.read["a"][:99]
		}, "hole"},
		{"a reader missed one", func(e *evidence) { e.read["a"] = slices.Delete(e.read["a"], 20, 21) }, "skipped"},
		{"a reader got one again", func(e *evidence) { e.read["a"] = slices.Insert(e.read["a"], 21, e.read["a"][20]) }, "skipped"},
		{"a reader missed the first", func(e *evidence) { e.read["a"] = e.read["a"][1:] }, "skipped"},
		{"the producer was told no", func(e *evidence) { e.sent[1].acks = append(e.sent[1].acks, refused) }, "failed"},
		{"unknown outcome, and written", func(e *evidence) { e.sent[0].acks = pendingAt(e.sent[0].acks, 99) }, ""},
		{"everything is gone", func(e *evidence) { e.log, e.read = nil, nil }, "lost"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := good(100, rand.New(rand.NewPCG(seed, 1)))
			c.plant(&e)
			if got := strings.Join(kinds(check(e)), " "); got != c.want {
				t.Errorf("found %q, want %q: %v", got, c.want, check(e))
			}
		})
	}
}

func pendingAt(acks []int64, offset int64) []int64 {
	out := slices.Clone(acks)
	for i := range out {
		if out[i] == offset {
			out[i] = pending
		}
	}
	return out
}

// However many there are of a kind, a few are told and the rest counted.
func TestFindingsAreBounded(t *testing.T) {
	e := good(100, rand.New(rand.NewPCG(1, 1)))
	e.log, e.read = e.log[:50], nil
	list := check(e)
	if len(list) != most+1 || list[most].text != fmt.Sprintf("and %d more", 50-most) {
		t.Errorf("%v", list)
	}
}

func TestValueRoundTrip(t *testing.T) {
	for _, size := range []int{0, 20, 120, 5000} {
		v := value(id{3, 77}, 5, size)
		x, p, ok := parse(v)
		if x != (id{3, 77}) || p != 5 || !ok || len(v) < size {
			t.Errorf("size %d: %v %d %v from %.60q", size, x, p, ok, v)
		}
	}
	for _, v := range []string{"", "/", "x", "1/2/3/", "1/2/3//00000000", value(id{1, 1}, 1, 50) + "0"} {
		if x, p, ok := parse(v); ok {
			t.Errorf("%q is taken for %v of partition %d", v, x, p)
		}
	}
}

// A history knows what was acked since a mark, by whom and where, and what was
// noticed under way.
func TestHistory(t *testing.T) {
	h := newHistory(2)
	all, one := h.newWriter("all", -1), h.newWriter("one", 1)
	r := h.newReader("r", -1)
	write := func(w *writer, p int, offset int64) {
		seq, v := w.sends(p)
		w.acked(p, seq, offset)
		r.got(p, offset, v)
	}
	write(all, 0, 0)
	m := h.mark()
	if err := h.since(m); err == nil || err.Error() != "all has had nothing acked in partition 0" {
		t.Errorf("%v", err)
	}
	write(all, 0, 1)
	write(all, 1, 0)
	if err := h.since(m); err == nil || err.Error() != "one has had nothing acked in partition 1" {
		t.Errorf("%v", err)
	}
	if err := h.since(m, "one"); err != nil {
		t.Error(err)
	}
	write(one, 1, 1)
	if err := h.since(m); err != nil {
		t.Error(err)
	}
	if err := h.readTo(h.ends()); err != nil {
		t.Error(err)
	}
	if err := h.readTo([]int{2, 3}); err == nil || err.Error() != "r has read 2 of 3 in partition 1" {
		t.Errorf("%v", err)
	}
	seq, _ := one.sends(1)
	one.failed(1, seq, errors.New("no"))
	if got := fmt.Sprint(h.troubles()); got != "[failed, partition 1: one, record 1: no]" {
		t.Error(got)
	}
	ev := h.evidence()
	if len(ev[0].sent) != 1 || len(ev[1].sent) != 2 || !slices.Equal(ev[1].sent[1].acks, []int64{1, refused}) {
		t.Errorf("%v", ev)
	}
	if want := []got{{0, id{1, 0}}, {1, id{2, 0}}}; !slices.Equal(ev[1].read["r"], want) {
		t.Errorf("%v, want %v", ev[1].read["r"], want)
	}
	acked, read := h.counts()
	if acked != 4 || read != 4 {
		t.Errorf("%d acked, %d read", acked, read)
	}
	for p := range ev {
		ev[p].log, ev[p].known = ev[p].read["r"], h.known(p)
	}
	if got := fmt.Sprint(kinds(check(ev[0])), kinds(check(ev[1]))); got != "[] [failed]" {
		t.Error(got)
	}
}
