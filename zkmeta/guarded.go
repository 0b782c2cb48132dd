package zkmeta

import (
	"context"
	"errors"
)

// The bounds of one batch: small enough that a batch leaves the server free for
// others between two, large enough that its one commit is shared by many.
const (
	batchOps   = 200
	batchBytes = 500_000
)

// WriteEach runs each write (one or more operations that belong together) in a
// multi together with the guard, and answers for each by itself: a stale version
// fails only its own write. Underneath, writes share multis; a multi that fails
// is split at the write that failed and run again without it.
//
// When the guard fails, every write that was not applied before fails with the
// guard's *MultiError, whose Index is below len(guard). Results leave out those
// of the guard, and the Index of a write's own failure counts within the write.
func WriteEach(ctx context.Context, s Session, guard []Op, writes [][]Op) []Outcome {
	out := make([]Outcome, len(writes))
	batches := makeBatches(guard, writes)
	for len(batches) > 0 {
		multis := make([][]Op, len(batches))
		for i, b := range batches {
			multis[i] = append(multis[i], guard...)
			for _, w := range b {
				multis[i] = append(multis[i], writes[w]...)
			}
		}
		var again [][]int
		for i, o := range s.MultiMany(ctx, multis) {
			again = append(again, settle(len(guard), writes, batches[i], o, out)...)
		}
		batches = again
	}
	return out
}

// makeBatches groups the writes, by index, in order.
func makeBatches(guard []Op, writes [][]Op) [][]int {
	var batches [][]int
	var batch []int
	ops, bytes := 0, 0
	for i, w := range writes {
		n := Size(w)
		if len(batch) > 0 && (ops+len(w) > batchOps || bytes+n > batchBytes-Size(guard)) {
			batches, batch, ops, bytes = append(batches, batch), nil, 0, 0
		}
		batch, ops, bytes = append(batch, i), ops+len(w), bytes+n
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	return batches
}

// settle spreads the answer to one batch over its writes and returns what has
// to run again: the writes before and those after the one that failed.
func settle(guard int, writes [][]Op, batch []int, o Outcome, out []Outcome) (again [][]int) {
	failed, ok := errors.AsType[*MultiError](o.Err)
	if o.Err == nil {
		at := guard
		for _, w := range batch {
			out[w].Results = o.Results[at : at+len(writes[w])]
			at += len(writes[w])
		}
		return nil
	}
	if !ok || failed.Index < guard {
		for _, w := range batch {
			out[w].Err = o.Err
		}
		return nil
	}
	at := guard
	for i, w := range batch {
		if failed.Index >= at+len(writes[w]) {
			at += len(writes[w])
			continue
		}
		own := &MultiError{failed.Index - at, failed.Op, failed.Err}
		out[w] = Outcome{FailedResults(len(writes[w]), own), own}
		if i > 0 {
			again = append(again, batch[:i])
		}
		if i+1 < len(batch) {
			again = append(again, batch[i+1:])
		}
		break
	}
	return again
}
