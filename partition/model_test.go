package partition

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
)

var seedFlag = flag.Uint64("seed", 0, "run only this seed of the random test")

// TestModel drives a leader by random schedules and compares HW, the maximal
// ISR and the proposals with a model that keeps all that happened and derives
// them from the words of the rules each time.
func TestModel(t *testing.T) {
	first, last := uint64(1), uint64(2000)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		if err := newModel(seed).run(120); err != nil {
			t.Fatalf("seed %d (-seed=%d): %v", seed, seed, err)
		}
	}
}

// fetchSeen is one fetch of this epoch.
type fetchSeen struct {
	at        Time
	off       cluster.Offset
	leaderLEO cluster.Offset
}

type model struct {
	r   *rand.Rand
	s   State
	log []string

	now        Time
	epoch      cluster.LeaderEpoch
	epochBegan Time
	epochStart cluster.Offset
	leo, hw    cluster.Offset
	version    cluster.ZKVersion
	isr        []cluster.BrokerID
	atStart    []cluster.BrokerID // the ISR at the start of the epoch
	pending    []cluster.BrokerID
	live       []cluster.BrokerID
	minISR     int32
	fetches    map[cluster.BrokerID][]fetchSeen
}

var everybody = []cluster.BrokerID{1, 2, 3, 4}

const modelLag = 1000 * time.Millisecond

func newModel(seed uint64) *model {
	m := &model{r: rand.New(rand.NewPCG(seed, 2)), s: New(1, 0, 0, 0), epoch: -1, minISR: 1, live: everybody}
	m.s.MaxLagChanged(modelLag)
	m.s.EligibleChanged(m.live, 0)
	m.lead()
	return m
}

func (m *model) say(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) run(steps int) error {
	for range steps {
		m.now += Time(m.r.IntN(400)) * Time(time.Millisecond)
		m.step()
		if err := m.compare(); err != nil {
			for _, l := range m.log {
				err = fmt.Errorf("%w\n  %s", err, l)
			}
			return err
		}
	}
	return nil
}

func (m *model) step() {
	switch m.r.IntN(12) {
	case 0, 1, 2:
		m.leo += cluster.Offset(1 + m.r.IntN(3))
		m.say("%v appended to %d", time.Duration(m.now), m.leo)
		m.s.Appended(m.leo)
		m.settleHW(m.clock())
	case 3, 4, 5, 6:
		m.fetch()
	case 7, 8:
		m.say("%v tick", time.Duration(m.now))
		m.tick()
	case 9, 10:
		m.settle()
	case 11:
		switch m.r.IntN(4) {
		case 0:
			m.lead()
		case 1:
			m.minISR = int32(1 + m.r.IntN(4))
			m.say("min ISR %d", m.minISR)
			m.s.MinISRChanged(m.minISR)
			m.settleHW(m.clock())
		default:
			m.live = slices.DeleteFunc(slices.Clone(everybody), func(id cluster.BrokerID) bool { return id != 1 && m.r.IntN(4) == 0 })
			m.say("%v live %v", time.Duration(m.now), m.live)
			m.s.EligibleChanged(m.live, m.now)
			m.settleHW(m.now)
		}
	}
}

// clock is the latest time that the state was told.
func (m *model) clock() Time { return m.s.clock }

func (m *model) lead() {
	m.epoch++
	m.isr = slices.DeleteFunc(slices.Clone(everybody), func(id cluster.BrokerID) bool { return id != 1 && m.r.IntN(3) == 0 })
	m.atStart, m.pending, m.fetches = m.isr, nil, map[cluster.BrokerID][]fetchSeen{}
	m.epochBegan, m.epochStart, m.version = m.now, m.leo, m.version+1
	m.say("%v leads epoch %d with ISR %v", time.Duration(m.now), m.epoch, m.isr)
	l := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: m.epoch, ISR: m.isr, ZKVersion: m.version}
	if _, err := m.s.BecomeLeader(l, cluster.Assignment{Replicas: everybody}, m.now); err != nil {
		panic(err)
	}
	m.settleHW(m.now)
}

func (m *model) fetch() {
	id := everybody[1+m.r.IntN(3)]
	seen := m.fetches[id]
	off := cluster.Offset(0)
	if n := len(seen); n > 0 {
		off = seen[n-1].leaderLEO // what it was sent last
	}
	switch m.r.IntN(8) {
	case 0:
		off = cluster.Offset(m.r.Int64N(int64(m.leo) + 1)) // it truncated, or reads slowly
	case 1:
		off = m.leo + cluster.Offset(m.r.IntN(2)) // at the end, or beyond it
	}
	m.say("%v fetch of %d from %d", time.Duration(m.now), id, off)
	m.s.FollowerFetched(id, off, 0, m.now)
	if off > m.leo {
		return
	}
	m.fetches[id] = append(seen, fetchSeen{m.now, off, m.leo})
	m.settleHW(m.now)
	if m.pending == nil && !slices.Contains(m.isr, id) && slices.Contains(m.live, id) && off >= m.hw && off >= m.epochStart {
		m.pending = append(slices.Clone(m.isr), id)
	}
}

func (m *model) tick() {
	m.s.Tick(m.now)
	m.settleHW(m.now)
	if m.pending != nil {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(m.isr), func(id cluster.BrokerID) bool {
		return id != 1 && m.leoOf(id) != m.leo && !m.caughtUpWithin(id, m.now)
	})
	if len(rest) < len(m.isr) {
		m.pending = rest
	}
}

func (m *model) settle() {
	p, ok := m.s.Pending()
	if !ok {
		return
	}
	o := Outcome(m.r.IntN(3))
	m.say("proposal %v settled %d", p.ISR, o)
	l := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: m.epoch, ISR: p.ISR, ZKVersion: m.version + 1}
	m.s.ISRSettled(p, o, l)
	switch o {
	case Accepted:
		m.version++
		m.isr, m.pending = p.ISR, nil
	case Reverted:
		m.pending = nil
	case Unknown:
		return
	}
	m.settleHW(m.clock())
}

// leoOf is what a follower has acknowledged in this epoch, -1 for nothing.
func (m *model) leoOf(id cluster.BrokerID) cluster.Offset {
	if seen := m.fetches[id]; len(seen) > 0 {
		return seen[len(seen)-1].off
	}
	return -1
}

// caughtUpWithin: within the lag it had all that the leader had, at the time of
// one of its fetches; a member of the ISR also when the epoch began.
func (m *model) caughtUpWithin(id cluster.BrokerID, now Time) bool {
	recent := func(at Time) bool { return now-at <= Time(modelLag) }
	if slices.Contains(m.atStart, id) && recent(m.epochBegan) {
		return true
	}
	seen := m.fetches[id]
	for i, f := range seen {
		if f.off >= f.leaderLEO && recent(f.at) || i > 0 && f.off >= seen[i-1].leaderLEO && recent(seen[i-1].at) {
			return true
		}
	}
	return false
}

// settleHW: every offset that all who count have acknowledged is committed.
func (m *model) settleHW(now Time) {
	if len(m.isr) < int(min(m.minISR, int32(len(everybody)))) {
		return
	}
	for m.hw < m.leo {
		for _, id := range everybody[1:] {
			counts := slices.Contains(m.isr, id) || slices.Contains(m.pending, id) ||
				m.leoOf(id) >= 0 && slices.Contains(m.live, id) && m.caughtUpWithin(id, now)
			if counts && m.leoOf(id) <= m.hw {
				return
			}
		}
		m.hw++
	}
}

func (m *model) compare() error {
	if err := m.s.Check(); err != nil {
		return err
	}
	p, _ := m.s.Pending()
	switch {
	case m.s.HW() != m.hw:
		return fmt.Errorf("HW is %d, by the model %d", m.s.HW(), m.hw)
	case !slices.Equal(p.ISR, m.pending):
		return fmt.Errorf("proposed %v, by the model %v", p.ISR, m.pending)
	case !slices.Equal(m.s.ISR(), m.isr):
		return fmt.Errorf("ISR %v, by the model %v", m.s.ISR(), m.isr)
	}
	return nil
}
