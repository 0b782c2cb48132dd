package logstore

// recentAppends remembers where the last appends lie, so that consumers at the
// end of the log, and bounds at the high watermark, need no lookup on disk.
// Guarded by the log's state.
type recentAppends struct {
	seg  *segment
	ring [8]recentAppend
	next uint8
	n    uint8
}

// recentAppend is one append: its first batch lies at pos and is the answer to
// every offset from..last.
type recentAppend struct {
	from int64 // LEO before it
	p    place
}

func (l *Log) rememberLocked(s *segment, from int64, p place) {
	r := l.recent
	if r == nil {
		r = &recentAppends{}
		l.recent = r
	}
	if r.seg != s {
		*r = recentAppends{seg: s}
	}
	r.ring[r.next] = recentAppend{from, p}
	r.next = (r.next + 1) % uint8(len(r.ring))
	r.n = min(r.n+1, uint8(len(r.ring)))
}

// findLocked is segment.find for what is remembered.
func (r *recentAppends) findLocked(s *segment, off int64) (place, bool) {
	if r == nil || r.seg != s {
		return place{}, false
	}
	for i := range r.n {
		if a := &r.ring[i]; off >= a.from && off <= a.p.last {
			return a.p, true
		}
	}
	return place{}, false
}
