package producers

import (
	"errors"
	"math"

	"github.com/kbroker/kbroker/cluster"
)

// What a refused batch is answered with.
var (
	ErrOutOfOrderSequence   = errors.New("out of order sequence number")
	ErrInvalidProducerEpoch = errors.New("invalid producer epoch")
	ErrInvalidTxnState      = errors.New("invalid transaction state")
	ErrCoordinatorFenced    = errors.New("transaction coordinator fenced")
)

// NoSequence is the base sequence of a batch that carries none.
const NoSequence int32 = -1

// WindowSize is how many of a producer's last batches are known, so that a
// producer may have so many in flight and repeat any of them.
//
// Apache Kafka 3.9 knows five, as many as a producer may have in flight on one
// connection. With some of a partition's still unanswered at a former leader the
// Java producer has up to five more at the next one, and then repeats what is the
// sixth from the end: Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, the producer
// begins a new epoch, and what was written already is written twice (a drill found
// it: 13 records). Ten hold what is in flight at two leaders.
const WindowSize = 10

// Origin tells where a batch comes from, and with that what is checked.
type Origin int8

// The origins. A client's batch is checked for everything; a coordinator's
// (offset commits, transaction markers) for epochs and transaction state, as it
// has no sequence; a replicated one for nothing: the leader has checked it, and
// its log is the truth.
const (
	Client Origin = iota
	Coordinator
	Replication
)

// Marker is what a control batch says.
type Marker int8

// The markers. An empty control batch, which compaction leaves behind, has
// NoMarker and changes nothing.
const (
	NoMarker Marker = iota
	Commit
	Abort
)

// Batch is what producer state needs to know of one batch that has a producer
// id (ProducerID >= 0).
type Batch struct {
	ProducerID    cluster.ProducerID
	Epoch         cluster.ProducerEpoch
	BaseSequence  int32 // NoSequence for none
	LastSequence  int32
	First, Last   cluster.Offset // Last is inclusive; both as in the log
	MaxTimestamp  int64          // of a control batch, its record's
	Transactional bool
	Control       bool

	Marker           Marker // of a control batch
	CoordinatorEpoch int32  // of a marker
}

// Written is where a batch that is already in the log stands. Of a repeat from
// before the window only that it ends by Last is known: First and Timestamp are -1.
type Written struct {
	First, Last cluster.Offset // Last is inclusive
	Timestamp   int64          // the batch's largest
}

// Txn is a transaction in the log: open, or completed by a marker at Last.
type Txn struct {
	ProducerID  cluster.ProducerID
	First, Last cluster.Offset // Last is NoOffset while the transaction is open
}

// Completed is a transaction that a marker just completed.
type Completed struct {
	ProducerID  cluster.ProducerID
	First, Last cluster.Offset // Last is the marker's offset
	Aborted     bool
	// LastStable is the last stable offset, but for replication, once this
	// transaction is complete: the first offset of the oldest transaction of
	// another producer that is still open, or the one after the marker. It
	// goes into the transaction index.
	LastStable cluster.Offset
}

// AddSequence is the sequence n records after seq, which wraps from the largest
// int32 to 0.
func AddSequence(seq, n int32) int32 {
	if seq > math.MaxInt32-n {
		return n - (math.MaxInt32 - seq) - 1
	}
	return seq + n
}

// SubSequence is the sequence n records before seq.
func SubSequence(seq, n int32) int32 {
	if seq < n {
		return math.MaxInt32 - (n - seq) + 1
	}
	return seq - n
}

func follows(last, next int32) bool {
	return int64(next) == int64(last)+1 || (next == 0 && last == math.MaxInt32)
}
