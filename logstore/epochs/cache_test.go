package epochs

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// model is the slow, obvious cache: the epoch of every offset, by itself.
type model struct {
	at []cluster.LeaderEpoch // by offset, -1 unknown
}

func of(entries ...Entry) Cache {
	var c Cache
	for _, e := range entries {
		c, _ = c.Assign(e.Epoch, e.Start)
	}
	return c
}

func TestEndOffsetFor(t *testing.T) {
	c := of(Entry{2, 10}, Entry{5, 30}, Entry{7, 35})
	for _, x := range []struct {
		requested, epoch cluster.LeaderEpoch
		end              cluster.Offset
	}{
		{-1, -1, -1}, // no epoch asked for
		{0, 0, 10},   // before all that is known: its records are gone
		{1, 1, 10},
		{2, 2, 30},
		{4, 2, 30}, // absent: the largest below, and where that ends
		{5, 5, 35},
		{6, 5, 35},
		{7, 7, 50},  // the newest ends with the log
		{8, -1, -1}, // not known yet
	} {
		epoch, end := c.EndOffsetFor(x.requested, 50)
		if epoch != x.epoch || end != x.end {
			t.Errorf("epoch %d: got (%d, %d), want (%d, %d)", x.requested, epoch, end, x.epoch, x.end)
		}
	}
	if epoch, end := (Cache{}).EndOffsetFor(0, 50); epoch != -1 || end != -1 {
		t.Errorf("without any epoch: got (%d, %d), want (-1, -1)", epoch, end)
	}
}

// TestFastFailover is KIP-279: A led epochs 1 and 3, B led 2, which A never
// saw. A must name epoch 1 when asked for 2, and B finds that its own epoch 1
// ends earlier.
func TestFastFailover(t *testing.T) {
	a := of(Entry{1, 0}, Entry{3, 21})
	epoch, end := a.EndOffsetFor(2, 31)
	if epoch != 1 || end != 21 {
		t.Fatalf("A answers (%d, %d), want (1, 21)", epoch, end)
	}
	for _, leo := range []cluster.Offset{20, 21, 22} {
		b := of(Entry{1, 0}, Entry{2, 11})
		own, ownEnd := b.EndOffsetFor(epoch, leo)
		if own != 1 || ownEnd != 11 {
			t.Fatalf("B with LEO %d: (%d, %d), want (1, 11)", leo, own, ownEnd)
		}
		cut, changed := b.TruncateFromEnd(min(end, ownEnd))
		if !changed || cut.LatestEpoch() != 1 {
			t.Fatalf("B after truncation to 11: %v", cut.Entries())
		}
	}
}

func TestBecomeLeaderWithoutData(t *testing.T) {
	c := of(Entry{1, 0}, Entry{2, 10})
	c, changed := c.Assign(3, 10) // epoch 2 ended without a record
	if !changed || show(c) != "1:0,3:10" {
		t.Fatalf("got %s", show(c))
	}
	if c, changed = c.Assign(3, 12); changed {
		t.Fatalf("the epoch's records go on: %s", show(c))
	}
	if c, changed = c.Assign(3, 9); !changed || show(c) != "1:0,3:9" {
		t.Fatalf("an earlier start: %s", show(c))
	}
}

// TestFoundBatches: what a batch says counts more than what the file does, which
// may know epochs that a leader began and never wrote a record of.
func TestFoundBatches(t *testing.T) {
	const all = "2:0,4:50,5:100,6:110"
	c := of(Entry{2, 0}, Entry{4, 50}, Entry{5, 100}, Entry{6, 110})
	for _, x := range []struct {
		epoch      cluster.LeaderEpoch
		base, last cluster.Offset
		want       string
	}{
		{2, 0, 49, all}, {4, 50, 60, all}, {4, 60, 99, all}, {6, 115, 120, all},
		{4, 100, 101, "2:0,4:50"}, // 4 went on, there was no 5
		{4, 95, 100, "2:0,4:50"},  // the same, within the batch
		{4, 95, 300, "2:0,4:50"},
		{4, 45, 55, "2:0,4:45"},
		{2, 50, 51, "2:0"},
		{3, 100, 101, "2:0,3:100"}, // and no 4
		{5, 115, 116, "2:0,4:50,5:100"},
		{7, 100, 101, "2:0,4:50,7:100"},
		{7, 105, 120, "2:0,4:50,5:100,7:105"},
		{1, 0, 1, "1:0"},
	} {
		if got := c.Found(x.epoch, x.base, x.last); show(got) != x.want || got.Check() != nil {
			t.Errorf("epoch %d at %d..%d: %s %v, want %s", x.epoch, x.base, x.last, show(got), got.Check(), x.want)
		}
	}
}

func TestSawRebuilds(t *testing.T) {
	var c Cache
	for off, epoch := range []cluster.LeaderEpoch{-1, 0, 0, 2, 1, 2, 5} {
		c, _ = c.Saw(epoch, cluster.Offset(off))
	}
	if show(c) != "0:1,2:3,5:6" {
		t.Fatalf("got %s", show(c))
	}
}

// TestValuesDoNotChange checks that a cache that was handed out stays as it was.
func TestValuesDoNotChange(t *testing.T) {
	base := of(Entry{1, 0}, Entry{2, 10}, Entry{3, 20})
	want := show(base)
	cut, _ := base.TruncateFromEnd(20)
	cut.Assign(4, 20)
	if x, _ := cut.Assign(5, 30); show(x) != "1:0,2:10,5:30" {
		t.Fatalf("got %s", show(x))
	}
	base.TruncateFromStart(15)
	base.Assign(1, 0)
	base.Entries()[0].Start = 99
	if show(base) != want {
		t.Fatalf("the cache changed under its holder: %s, was %s", show(base), want)
	}
}

// TestModel compares with the epoch of every offset kept one by one, over logs
// that are appended to, truncated at both ends and led by rising epochs.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var c Cache
		var m model
		start, epoch := 0, cluster.LeaderEpoch(r.IntN(3))
		for step := range 60 {
			switch r.IntN(5) {
			case 0: // a new leader
				epoch += cluster.LeaderEpoch(1 + r.IntN(3))
				c, _ = c.Assign(epoch, cluster.Offset(len(m.at)))
			case 1, 2: // records
				for range 1 + r.IntN(6) {
					c, _ = c.Assign(epoch, cluster.Offset(len(m.at)))
					m.at = append(m.at, epoch)
				}
			case 3: // truncation, then the epoch before goes on
				if len(m.at) > start {
					m.at = m.at[:start+r.IntN(len(m.at)-start)]
				}
				c, _ = c.TruncateFromEnd(cluster.Offset(len(m.at)))
				epoch++ // only a new leader writes after a truncation
			case 4: // retention
				if len(m.at) > start {
					start += r.IntN(len(m.at) - start)
				}
				c, _ = c.TruncateFromStart(cluster.Offset(start))
			}
			if err := c.Check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			for off := start; off < len(m.at); off++ {
				if e, ok := c.EpochAt(cluster.Offset(off)); !ok || e != m.at[off] {
					t.Fatalf("seed %d, step %d: offset %d has epoch %d, want %d; %s", seed, step, off, e, m.at[off], show(c))
				}
			}
			m.checkEnds(t, seed, step, c, start)
			again, err := Parse(c.Encode())
			if err != nil || !again.Equal(c) {
				t.Fatalf("seed %d, step %d: file: %v %v, want %v", seed, step, err, again.Entries(), c.Entries())
			}
		}
	}
}

// checkEnds asks for the end of each epoch that has records.
func (m *model) checkEnds(t *testing.T, seed uint64, step int, c Cache, start int) {
	for e := cluster.LeaderEpoch(0); e <= c.LatestEpoch(); e++ {
		last := -1
		for off := start; off < len(m.at); off++ {
			if m.at[off] == e {
				last = off
			}
		}
		if last < 0 {
			continue
		}
		got, end := c.EndOffsetFor(e, cluster.Offset(len(m.at)))
		if got != e || end != cluster.Offset(last+1) {
			t.Fatalf("seed %d, step %d: epoch %d ends at (%d, %d), want %d; %s", seed, step, e, got, end, last+1, show(c))
		}
	}
}

func TestAssignAllocatesNothing(t *testing.T) {
	c := of(Entry{1, 0}, Entry{2, 10})
	if n := testing.AllocsPerRun(100, func() {
		c, _ = c.Assign(2, 50)
		c.EndOffsetFor(1, 60)
		c.Latest()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestParseErrors(t *testing.T) {
	for _, x := range []struct{ file, want string }{
		{"x\n0\n", "line 1"},
		{"1\n0\n", "line 1: corrupt leader epoch checkpoint: version 1, want 0"},
		{"0\nzero\n", "line 2"},
		{"0\n1\n", "line 2: corrupt leader epoch checkpoint: 1 entries announced, 0 found"},
		{"0\n1\n0 0\n1 1\n", "line 2"},
		{"0\n1\n0 0 0\n", "line 3"},
		{"0\n1\n0 99999999999999999999\n", "line 3"},
		{"0\n1\n4294967296 0\n", "line 3"},
		{"0\n2\n1 0\n1 5\n", "line 4: corrupt leader epoch checkpoint: leader epoch entry (1 5) after (1 0): epoch and offset must both rise"},
		{"0\n2\n1 5\n2 5\n", "line 4"},
		{"0\n1\n-1 5\n", "line 3"},
	} {
		c, err := Parse([]byte(x.file))
		if !errors.Is(err, ErrCorrupt) || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%q: %v, want %s", x.file, err, x.want)
		}
		if c.Len() != 0 {
			t.Errorf("%q: entries in spite of an error", x.file)
		}
	}
	for _, file := range []string{"", "0\n", "0\n0\n", "0\n0"} {
		if c, err := Parse([]byte(file)); err != nil || c.Len() != 0 {
			t.Errorf("%q: %v %v", file, c.Entries(), err)
		}
	}
	if c, err := Parse([]byte("0\n2\n0 0\n3  17 \n")); err != nil || show(c) != "0:0,3:17" {
		t.Errorf("got %s, %v", show(c), err)
	}
}

// FuzzParse: whatever is accepted is a valid history, and what Encode makes of
// it is read back.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "0\n", "0\n0\n", "0\n2\n0 0\n5 100\n", "0\n1\n-1 0\n", "0\n9999999\n0 0\n", "1\n0\n", "0\r\n1\r\n2 3\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(c.Encode())
		if err != nil || !again.Equal(c) {
			t.Fatalf("%v: %v, %v", c.Entries(), again.Entries(), err)
		}
	})
}
