package zkmeta

import (
	"math"

	"github.com/kbroker/kbroker/cluster"
)

// A new controller reads the states of all partitions before it does anything
// else, so those that are written just as EncodeState and Kafka 3.9 write them
// are read by a scanner of their own. Whatever looks different in any way is
// left to the general one, which also says what is wrong.

// scanner reads expected text from the beginning of b, until something else
// comes.
type scanner struct {
	b  []byte
	ok bool
}

// has takes the text if it is there.
func (s *scanner) has(text string) bool {
	if len(s.b) < len(text) || string(s.b[:len(text)]) != text {
		return false
	}
	s.b = s.b[len(text):]
	return true
}

func (s *scanner) expect(text string) { s.ok = s.has(text) && s.ok }

// integer takes an integer of at most 18 digits, in the one way to write it.
func (s *scanner) integer(low, high int64) int64 {
	negative := s.has("-")
	n, digits := int64(0), 0
	for digits < len(s.b) && digits < 18 && s.b[digits] >= '0' && s.b[digits] <= '9' {
		n = n*10 + int64(s.b[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 1 && s.b[0] == '0' || negative && n == 0 {
		s.ok = false
		return 0
	}
	s.b = s.b[digits:]
	if negative {
		n = -n
	}
	if n < low || n > high {
		s.ok = false
	}
	return n
}

// list takes integers in brackets; each is told of one.
func (s *scanner) list(low, high int64, each func(n int64)) {
	s.expect("[")
	if s.has("]") {
		return
	}
	for s.ok {
		each(s.integer(low, high))
		if !s.has(",") {
			break
		}
	}
	s.expect("]")
}

// scanState reads a state that is written in the usual way; ok is false for any
// other.
func scanState(data []byte) (l cluster.LeaderAndISR, ok bool) {
	s := &scanner{data, true}
	s.expect(`{"controller_epoch":`)
	l.ControllerEpoch = cluster.ControllerEpoch(s.integer(-1, math.MaxInt32))
	s.expect(`,"leader":`)
	l.Leader = cluster.BrokerID(s.integer(int64(cluster.LeaderDuringDelete), math.MaxInt32))
	s.expect(`,"version":1,"leader_epoch":`)
	l.LeaderEpoch = cluster.LeaderEpoch(s.integer(0, math.MaxInt32))
	s.expect(`,"isr":`)
	l.ISR = make([]cluster.BrokerID, 0, 3)
	s.list(0, math.MaxInt32, func(n int64) { l.ISR = append(l.ISR, cluster.BrokerID(n)) })
	l.Recovery = cluster.Recovered
	if s.has(`,"` + historyKey + `":{"version":1,"joined":`) {
		h := &cluster.ISRHistory{}
		s.list(int64(cluster.RestartedUncleanly), math.MaxInt64, func(n int64) { h.Joined = append(h.Joined, cluster.BrokerEpoch(n)) })
		s.expect("}")
		s.ok = s.ok && len(h.Joined) == len(l.ISR)
		l.History = h
	}
	s.expect("}")
	return l, s.ok && len(s.b) == 0
}
