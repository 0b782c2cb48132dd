package sim

import (
	"slices"
	"time"
)

// Minimise looks for a smaller configuration that breaks the same invariant:
// fewer faults, a shorter run, a quieter network, fewer clients. It makes at
// most tries runs.
func Minimise(cfg Config, tries int) (Config, Result) {
	s := shrinker{best: cfg, result: Run(cfg, nil), left: tries}
	if s.result.Violation == nil {
		return cfg, s.result
	}
	for before := -1; before != s.left && s.left > 0; {
		before = s.left
		better := s.shorten() || s.faults()
		for _, simpler := range []func(*Config){
			func(c *Config) { c.LoseOnceIn = 0 },
			func(c *Config) { c.HoldOnceIn = 0 },
			func(c *Config) { c.FlipOnceIn = 0 },
			func(c *Config) { c.Clients = 1 },
			func(c *Config) { c.Partitions = 1 },
			func(c *Config) { c.Brokers = max(3, c.Replicas) },
			func(c *Config) { c.Groups.FailOnceIn = 0 },
			func(c *Config) { c.Groups.Coordinators = min(c.Groups.Coordinators, 1) },
			func(c *Config) { c.Groups.Groups = min(c.Groups.Groups, 1) },
			func(c *Config) { c.Groups.Members = min(c.Groups.Members, 2) },
			func(c *Config) { c.Groups.Parts = min(c.Groups.Parts, 2) },
		} {
			better = s.try(func(c *Config) { simpler(c) }) || better
		}
		if !better {
			break
		}
	}
	return s.best, s.result
}

type shrinker struct {
	best   Config
	result Result
	left   int
}

// try keeps a change that breaks the same invariant.
func (s *shrinker) try(change func(*Config)) bool {
	c := s.best
	c.Faults = slices.Clone(c.Faults)
	change(&c)
	if s.left <= 0 || same(c, s.best) {
		return false
	}
	s.left--
	r := Run(c, nil)
	if r.Violation == nil || r.Violation.Invariant != s.result.Violation.Invariant {
		return false
	}
	s.best, s.result = c, r
	return true
}

func same(a, b Config) bool {
	return a.LoseOnceIn == b.LoseOnceIn && a.HoldOnceIn == b.HoldOnceIn && a.FlipOnceIn == b.FlipOnceIn && a.Clients == b.Clients && a.Partitions == b.Partitions &&
		a.Brokers == b.Brokers && a.Faulty == b.Faulty && a.Groups == b.Groups && slices.Equal(a.Faults, b.Faults)
}

// shorten ends the faults and the load at the violation, or earlier.
func (s *shrinker) shorten() bool {
	end := min(s.result.Logical+time.Millisecond, s.best.Faulty)
	better := s.try(func(c *Config) { c.cutAt(end) })
	for s.try(func(c *Config) { c.cutAt(c.Faulty * 3 / 4) }) {
		better = true
	}
	return better
}

func (c *Config) cutAt(end time.Duration) {
	c.Faulty = end
	c.Faults = slices.DeleteFunc(c.Faults, func(f Fault) bool { return f.At > end })
}

// faults leaves out as many faults as it can: halves of them first.
func (s *shrinker) faults() bool {
	better := false
	for size := (len(s.best.Faults) + 1) / 2; size >= 1; size /= 2 {
		for from := 0; from < len(s.best.Faults) && s.left > 0; {
			to := min(from+size, len(s.best.Faults))
			if s.try(func(c *Config) { c.Faults = slices.Delete(c.Faults, from, to) }) {
				better = true
				continue
			}
			from = to
		}
	}
	return better
}
