package producers

import (
	"fmt"

	"github.com/kbroker/kbroker/cluster"
)

// Invariants returns what is wrong with the state, nil for nothing. It is for tests
// and the invariants build.
func (s *State) Invariants() error {
	if err := s.checkTxns(); err != nil {
		return err
	}
	open := 0
	for id, e := range s.producers {
		if err := e.check(); err != nil {
			return fmt.Errorf("producer %d: %w", id, err)
		}
		if e.txnFirst >= 0 {
			open++
		}
	}
	if open != len(s.open) {
		return fmt.Errorf("%d transactions are open, %d producers have one", len(s.open), open)
	}
	return nil
}

func (s *State) checkTxns() error {
	for i, t := range s.open {
		if i > 0 && s.open[i-1].First >= t.First {
			return fmt.Errorf("open transactions out of order at offset %d", t.First)
		}
		if e := s.producers[t.ProducerID]; e == nil || e.txnFirst != t.First || t.Last != cluster.NoOffset {
			return fmt.Errorf("open transaction from offset %d is not its producer's (%d)", t.First, t.ProducerID)
		}
	}
	for i, t := range s.unreplicated {
		if i > 0 && s.unreplicated[i-1].First >= t.First {
			return fmt.Errorf("completed transactions out of order at offset %d", t.First)
		}
		if t.Last < t.First {
			return fmt.Errorf("completed transaction %d-%d", t.First, t.Last)
		}
	}
	return nil
}

func (e *entry) check() error {
	if e.n > WindowSize || e.head >= WindowSize {
		return fmt.Errorf("window of %d from %d", e.n, e.head)
	}
	for i := uint8(1); i < e.n; i++ {
		if e.at(i).first() <= e.at(i-1).last {
			return fmt.Errorf("window out of order at offset %d", e.at(i).last)
		}
	}
	return nil
}
