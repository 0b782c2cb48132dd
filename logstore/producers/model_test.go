package producers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// model is the slow, obvious state: it keeps the whole log and looks everything
// up in it.
type model struct {
	log []Batch
	hw  cluster.Offset
}

func (m *model) leo() cluster.Offset {
	if len(m.log) == 0 {
		return 0
	}
	return m.log[len(m.log)-1].Last + 1
}

// window is a producer's last data batches under its present epoch.
func (m *model) window(id cluster.ProducerID) (epoch cluster.ProducerEpoch, list []Batch, known bool) {
	epoch, list, known = m.written(id)
	return epoch, list[max(0, len(list)-WindowSize):], known
}

// before reports whether every sequence of b was written, without a hole up to the
// newest, by batches before the window.
func (m *model) before(b Batch) bool {
	_, list, _ := m.written(b.ProducerID)
	seen := map[int32]bool{}
	for i := len(list) - 1; i >= 0; i-- {
		if i < len(list)-1 && AddSequence(list[i].LastSequence, 1) != list[i+1].BaseSequence {
			break
		}
		for seq := list[i].BaseSequence; i < len(list)-WindowSize; seq = AddSequence(seq, 1) {
			seen[seq] = true
			if seq == list[i].LastSequence {
				break
			}
		}
	}
	for seq := b.BaseSequence; ; seq = AddSequence(seq, 1) {
		if !seen[seq] {
			return false
		}
		if seq == b.LastSequence {
			return true
		}
	}
}

// written is all of a producer's data batches under its present epoch.
func (m *model) written(id cluster.ProducerID) (epoch cluster.ProducerEpoch, list []Batch, known bool) {
	for _, b := range m.log {
		if b.ProducerID != id {
			continue
		}
		if !known || b.Epoch != epoch {
			epoch, list, known = b.Epoch, nil, true
		}
		if !b.Control {
			list = append(list, b)
		}
	}
	return epoch, list, known
}

// txns is every transaction of the log, open ones with Last -1.
func (m *model) txns() []Txn {
	var list []Txn
	open := map[cluster.ProducerID]int{}
	for _, b := range m.log {
		i, isOpen := open[b.ProducerID]
		switch {
		case b.Control && isOpen:
			list[i].Last = b.Last
			delete(open, b.ProducerID)
		case !b.Control && b.Transactional && !isOpen:
			open[b.ProducerID] = len(list)
			list = append(list, Txn{ProducerID: b.ProducerID, First: b.First, Last: -1})
		}
	}
	return list
}

func (m *model) lso() cluster.Offset {
	lso := m.hw
	for _, t := range m.txns() {
		if t.Last < 0 || t.Last >= m.hw {
			lso = min(lso, t.First)
		}
	}
	return lso
}

func (m *model) open(id cluster.ProducerID) bool {
	return slices.ContainsFunc(m.txns(), func(t Txn) bool { return t.ProducerID == id && t.Last < 0 })
}

func (m *model) lastCoordinator(id cluster.ProducerID) int32 {
	last := int32(-1)
	for _, b := range m.log {
		if b.ProducerID == id && b.Control {
			last = b.CoordinatorEpoch
		}
	}
	return last
}

// check says what must become of a client's batch, or a marker.
func (m *model) check(b Batch) string {
	epoch, window, known := m.window(b.ProducerID)
	if !b.Control && known && b.Epoch == epoch {
		for _, w := range window {
			if w.BaseSequence == b.BaseSequence && w.LastSequence == b.LastSequence {
				return fmt.Sprintf("dup %d-%d", w.First, w.Last)
			}
		}
		if m.before(b) {
			return fmt.Sprintf("before %d", window[0].First)
		}
	}
	switch {
	case known && b.Epoch < epoch:
		return "epoch"
	case b.Control && b.CoordinatorEpoch < m.lastCoordinator(b.ProducerID):
		return "fenced"
	case b.Control:
		return "ok"
	case known && b.Epoch > epoch && b.BaseSequence != 0:
		return "sequence"
	case known && b.Epoch == epoch && len(window) == 0 && b.BaseSequence != 0:
		return "sequence"
	case known && b.Epoch == epoch && len(window) > 0 && b.BaseSequence != AddSequence(window[len(window)-1].LastSequence, 1):
		return "sequence"
	case m.open(b.ProducerID) && !b.Transactional:
		return "txn"
	}
	return "ok"
}

func verdict(s *State, b Batch) string {
	o := CheckOptions{Origin: Client}
	if b.Control {
		o.Origin = Coordinator
	}
	dup, duplicate, err := s.Check(&b, o)
	if duplicate && dup.First < 0 {
		return fmt.Sprintf("before %d", dup.Last+1)
	}
	if duplicate {
		return fmt.Sprintf("dup %d-%d", dup.First, dup.Last)
	}
	if err == nil {
		return "ok"
	}
	for sentinel, word := range map[error]string{ErrOutOfOrderSequence: "sequence", ErrInvalidProducerEpoch: "epoch", ErrInvalidTxnState: "txn", ErrCoordinatorFenced: "fenced"} {
		if bytes.HasPrefix([]byte(err.Error()), []byte(sentinel.Error())) {
			return word
		}
	}
	return err.Error()
}

func (m *model) compare(s *State, ids int) error {
	if err := s.Invariants(); err != nil {
		return err
	}
	if got := s.LSO(0, m.hw); got != m.lso() {
		return fmt.Errorf("LSO %d, want %d", got, m.lso())
	}
	for id := range cluster.ProducerID(ids) {
		_, window, _ := m.window(id)
		var want []Written
		for _, b := range window {
			want = append(want, Written{b.First, b.Last, b.MaxTimestamp})
		}
		if got := s.Window(id); !slices.Equal(got, want) {
			return fmt.Errorf("window of %d is %v, want %v", id, got, want)
		}
		if s.TxnOpen(id) != m.open(id) {
			return fmt.Errorf("transaction of %d: open is %v", id, s.TxnOpen(id))
		}
	}
	return nil
}

// random makes a batch that is likely, but not certain, to be welcome.
func (m *model) random(r *rand.Rand, ids int) Batch {
	b := Batch{ProducerID: cluster.ProducerID(r.IntN(ids)), MaxTimestamp: r.Int64N(1000), BaseSequence: int32(r.IntN(2)) * (1<<31 - 5)}
	epoch, window, known := m.window(b.ProducerID)
	if known {
		b.Epoch, b.BaseSequence = epoch, 0
		if len(window) > 0 {
			b.BaseSequence = AddSequence(window[len(window)-1].LastSequence, 1)
		}
	}
	b.Transactional = b.ProducerID%2 == 0
	n := 1 + r.Int32N(4)
	switch r.IntN(16) {
	case 0, 1, 2: // a marker
		b.Control, b.Transactional, b.Marker, n = true, true, Marker(1+r.IntN(2)), 1
		b.BaseSequence, b.CoordinatorEpoch = NoSequence, r.Int32N(3)
		b.Epoch += cluster.ProducerEpoch(r.IntN(2))
	case 3: // a new epoch
		b.Epoch++
		b.BaseSequence = r.Int32N(2)
	case 4:
		b.Epoch = max(0, b.Epoch-1)
	case 5:
		b.BaseSequence = AddSequence(b.BaseSequence, 1)
	case 6, 7, 9: // a repeat
		if len(m.log) > 0 {
			if old := m.log[max(0, len(m.log)-1-r.IntN([]int{12, 120}[r.IntN(2)]))]; !old.Control {
				b = old
				n = old.LastSequence - old.BaseSequence + 1
				if n <= 0 {
					n = int32(old.Last-old.First) + 1
				}
			}
		}
	case 8:
		b.Transactional = !b.Transactional
	}
	b.LastSequence = NoSequence
	if b.BaseSequence != NoSequence {
		b.LastSequence = AddSequence(b.BaseSequence, n-1)
	}
	b.First = m.leo() + cluster.Offset(r.IntN(2)) // compaction leaves gaps
	b.Last = b.First + cluster.Offset(n) - 1
	return b
}

func (m *model) append(s *State, b Batch) {
	m.log = append(m.log, b)
	if done, ok := s.Apply(&b); ok {
		s.Complete(done)
	}
	s.SetEnd(b.Last + 1)
}

// rebuilt is the state as a restart finds it: a snapshot of the first part of
// the log, the windows filled up again from it, and the rest replayed. The
// snapshot is one from below the high watermark: it does not hold transactions
// that are complete but not replicated.
func (m *model) rebuilt(r *rand.Rand, t *testing.T) *State {
	cut := r.IntN(len(m.log) + 1)
	for cut > 0 && m.log[cut-1].Last >= m.hw {
		cut--
	}
	old, fresh := &State{}, &State{}
	part := &model{}
	for _, b := range m.log[:cut] {
		part.append(old, b)
	}
	if err := fresh.Load(old.Snapshot(nil), old.End(), 0, 1<<40); err != nil {
		t.Fatal(err)
	}
	if fresh.End() != part.leo() {
		t.Fatalf("loaded up to %d, want %d", fresh.End(), part.leo())
	}
	for i := cut - 1; i >= 0; i-- { // past Short() = 0, which a wrapped sequence deceives
		fresh.Prepend(&m.log[i])
	}
	for _, b := range m.log[cut:] {
		part.append(fresh, b)
	}
	fresh.HighWatermarkMoved(m.hw)
	return fresh
}

func TestModel(t *testing.T) {
	const ids = 5
	words := map[string]int{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		m, s := &model{}, &State{}
		for step := range 120 {
			b := m.random(r, ids)
			want := m.check(b)
			if got := verdict(s, b); got != want {
				t.Fatalf("seed %d, step %d: %+v: %s, want %s", seed, step, b, got, want)
			}
			words[want[:2]]++
			if want == "ok" {
				m.append(s, b)
			}
			if r.IntN(3) == 0 {
				m.hw += cluster.Offset(r.Int64N(int64(m.leo()-m.hw) + 1))
				s.HighWatermarkMoved(m.hw)
			}
			if err := m.compare(s, ids); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
		if err := m.compare(m.rebuilt(r, t), ids); err != nil {
			t.Fatalf("seed %d, after a restart: %v", seed, err)
		}
	}
	for w, least := range map[string]int{"ok": 100, "du": 100, "be": 30, "ep": 100, "se": 100, "tx": 100, "fe": 100} {
		if words[w] < least {
			t.Fatalf("only %d of %q: %v", words[w], w, words)
		}
	}
}

// TestReplicatedIsTruth applies anything at all: a follower never fails on what
// its leader has in the log.
func TestReplicatedIsTruth(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, s := &model{}, &State{}
		for step := range 60 {
			b := m.random(r, 4)
			if b.ProducerID%2 == 1 && !b.Control {
				b.Transactional = false
			}
			if _, dup, err := s.Check(&b, CheckOptions{Origin: Replication, Verify: true}); dup || err != nil {
				t.Fatalf("seed %d, step %d: %v %v", seed, step, dup, err)
			}
			m.append(s, b)
			m.hw = m.leo()
			s.HighWatermarkMoved(m.hw)
			if err := m.compare(s, 4); err != nil {
				t.Fatalf("seed %d, step %d: %+v: %v", seed, step, b, err)
			}
		}
	}
}
