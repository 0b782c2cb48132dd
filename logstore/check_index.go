package logstore

import (
	"fmt"
	"math"
	"sort"
)

// offsetIndexChecker judges the entries of an offset index one after the other.
type offsetIndexChecker struct {
	base         int64
	any          bool
	lastRel, pos int64
}

func (c *offsetIndexChecker) entry(rel, pos int64) string {
	text := ""
	switch {
	case rel < 0 || pos < 0:
		text = fmt.Sprintf("entry %d at position %d is negative", c.base+rel, pos)
	case c.any && (rel <= c.lastRel || pos <= c.pos):
		text = fmt.Sprintf("entry %d at position %d after %d at %d: both must rise", c.base+rel, pos, c.base+c.lastRel, c.pos)
	}
	c.any, c.lastRel, c.pos = true, rel, pos
	return text
}

// timeIndexChecker judges the entries of a time index one after the other.
type timeIndexChecker struct {
	base        int64
	any         bool
	ts, lastRel int64
}

func (c *timeIndexChecker) entry(ts, rel int64) string {
	text := ""
	switch {
	case ts < 0 || rel < 0:
		text = fmt.Sprintf("entry of timestamp %d at offset %d is negative", ts, c.base+rel)
	case c.any && (ts <= c.ts || rel < c.lastRel):
		text = fmt.Sprintf("entry of timestamp %d at offset %d after %d at %d: both must rise", ts, c.base+rel, c.ts, c.base+c.lastRel)
	}
	c.any, c.ts, c.lastRel = true, ts, rel
	return text
}

// compare tells whether ts is the largest timestamp in the segment up to the
// batch that holds off, as a lookup relies on.
func (c *timeIndexChecker) compare(steps []timeStep, ts, off int64) string {
	i := sort.Search(len(steps), func(i int) bool { return int64(steps[i].first) > off }) - 1
	largest := int64(math.MinInt64)
	if i >= 0 {
		largest = steps[i].ts
	}
	if largest == ts {
		return ""
	}
	if i < 0 {
		return fmt.Sprintf("timestamp %d at offset %d, which lies before the log", ts, off)
	}
	return fmt.Sprintf("timestamp %d at offset %d, but the largest up to there is %d", ts, off, largest)
}
