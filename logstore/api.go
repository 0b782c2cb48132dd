package logstore

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/producers"
)

// Origin says who appends to a leader's log: a client (duplicates are found,
// sequences and verification checked) or a coordinator (epochs are checked).
type Origin = producers.Origin

// The origins of an append to a leader's log.
const (
	Client      = producers.Client
	Coordinator = producers.Coordinator
)

// Guard ties a transaction coordinator's answer to the question (KIP-890).
type Guard = producers.Guard

// AppendOptions go with one append to a leader's log.
type AppendOptions struct {
	Origin Origin
	// Guard is what BeginTxnVerification returned before the coordinator
	// confirmed the transaction; zero when it was not needed.
	Guard Guard
	// RequireSequenceStart refuses a producer that is not known here unless its
	// first sequence number is 0: a batch before it was answered with an error.
	RequireSequenceStart bool
}

// AppendInfo is what became of an append.
type AppendInfo struct {
	// First and Last are the records' offsets. A duplicate has those of the
	// first time; where they are not known any more, First is NoOffset and Last at
	// or above them. An append that wrote nothing has First = Last+1 = LEO.
	First, Last     cluster.Offset
	LogAppendTimeMs int64 // record.NoTimestamp unless the log stamps it; a duplicate's timestamp
	LogStart        cluster.Offset
	Duplicate       bool
	// LeaderEpoch is that of the last batch written.
	LeaderEpoch cluster.LeaderEpoch
	// Bytes is how much of the buffer was written: AppendAsFollower stops
	// before a partial batch and before one of a higher leader epoch.
	Bytes int
}

// AbortedTxn is a transaction that readers of committed data skip.
type AbortedTxn struct {
	ProducerID cluster.ProducerID
	First      cluster.Offset
}

// TimestampOffset is a record found by its timestamp.
type TimestampOffset struct {
	Offset      cluster.Offset
	Timestamp   int64
	LeaderEpoch cluster.LeaderEpoch // NoLeaderEpoch when the batch has none
}

// ProducerInfo is what DescribeProducers tells of a producer.
type ProducerInfo struct {
	ID               cluster.ProducerID
	Epoch            cluster.ProducerEpoch
	LastSequence     int32
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnStart         cluster.Offset // NoOffset: no open transaction
}

// DirInfo describes a log directory.
type DirInfo struct {
	Path                    string
	Err                     error // why it is offline; nil while it serves
	TotalBytes, UsableBytes int64 // of its file system; -1 unknown
}

// LoadStats tells what Open did.
type LoadStats struct {
	Logs           int
	Unclean        bool  // ends of logs may be missing: a directory is new, or its machine has stopped and no clean stop came before
	Recovered      int   // logs that were scanned after an unclean stop
	ScannedBytes   int64 // by those scans
	TruncatedBytes int64 // by those scans
}
