package producerids

import (
	"context"
	"sync"

	"github.com/kbroker/kbroker/cluster"
)

// Source gives blocks: ids start to start+n-1 are the caller's alone.
type Source func(ctx context.Context) (start int64, n int32, err error)

// IDs hands out producer ids.
type IDs struct {
	source Source

	mu        sync.Mutex
	next, end int64
}

// New makes an IDs that has no block yet.
func New(s Source) *IDs { return &IDs{source: s} }

// Next is a producer id that nobody else has. The error is the source's; the
// lock is held while a block is asked for, as everybody who comes meanwhile
// needs the same one.
func (i *IDs) Next(ctx context.Context) (cluster.ProducerID, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.next == i.end {
		start, n, err := i.source(ctx)
		if err != nil {
			return cluster.NoProducerID, err
		}
		i.next, i.end = start, start+int64(n)
	}
	id := i.next
	i.next++
	return cluster.ProducerID(id), nil
}
