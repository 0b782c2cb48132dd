package sim

import "time"

// luck is the only source of chance in a run (splitmix64).
type luck struct{ state uint64 }

func (l *luck) next() uint64 {
	l.state += 0x9e3779b97f4a7c15
	z := l.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below is a number from 0 to n-1; 0 for n < 1.
func (l *luck) below(n int) int {
	if n < 1 {
		return 0
	}
	return int(l.next() % uint64(n))
}

// once in n.
func (l *luck) once(n int) bool { return n > 0 && l.below(n) == 0 }

// between is a duration from a up to b.
func (l *luck) between(a, b time.Duration) time.Duration {
	if b <= a {
		return a
	}
	return a + time.Duration(l.next()%uint64(b-a))
}

// mix folds numbers into the hash of a run (FNV over whole words).
func mix(h uint64, values ...uint64) uint64 {
	for _, v := range values {
		h = (h ^ v) * 0x100000001b3
		h ^= h >> 29
	}
	return h
}
