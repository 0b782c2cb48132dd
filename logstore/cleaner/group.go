package cleaner

import "math"

// Segment is what grouping asks of a segment.
type Segment struct {
	Base             int64
	Size             int64
	Index, TimeIndex int64 // bytes of its indexes
}

// Groups says which neighbouring segments become one: their sizes together stay
// below those of one segment, whatever compaction takes away, and their offsets
// within 31 bits of the first one's base. The result is the number of segments of
// each group. end is the offset after the last segment.
func Groups(segs []Segment, maxSize, maxIndex, end int64) []int {
	var groups []int
	for i := 0; i < len(segs); {
		sum := segs[i]
		n := 1
		for ; i+n < len(segs); n++ {
			next := segs[i+n]
			last := end - 1
			if i+n+1 < len(segs) {
				last = segs[i+n+1].Base - 1
			}
			sum.Size += next.Size
			sum.Index += next.Index
			sum.TimeIndex += next.TimeIndex
			// An empty one does not count: else an empty segment would stay every
			// 2^31 offsets.
			far := next.Size > 0 && last-sum.Base > math.MaxInt32
			if sum.Size > maxSize || sum.Index > maxIndex || sum.TimeIndex > maxIndex || far {
				break
			}
		}
		groups = append(groups, n)
		i += n
	}
	return groups
}
