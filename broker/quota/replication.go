package quota

import (
	"time"
)

// Replication is one side of the replication quota: what throttled replicas may
// use in a second, leaders and followers each for themselves
// (leader.replication.throttled.rate and follower.replication.throttled.rate).
type Replication struct {
	limit func() int64
	used  *Rate
}

// NewReplication makes a quota whose limit may change at any time.
func NewReplication(limit func() int64, windows int, window time.Duration) *Replication {
	return &Replication{limit: limit, used: NewRate(windows, window)}
}

// Exceeded reports whether throttled replicas have to wait.
func (q *Replication) Exceeded(now time.Time) bool {
	limit := q.limit()
	return limit < 1<<62 && q.used.PerSecond(now) > float64(limit)
}

// Used counts bytes of a throttled replica.
func (q *Replication) Used(now time.Time, bytes int) { q.used.Add(now, float64(bytes)) }
