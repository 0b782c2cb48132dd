package coordinator

import (
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// Token names a request that waits for its reply; the driver hands it out.
type Token uint64

// NoToken is that of an event that nobody waits for.
const NoToken Token = 0

// Request is what a shard is asked, or told.
type Request struct {
	Token      Token
	ClientID   string
	ClientHost string // as Kafka shows it: "/127.0.0.1"
	// Msg is a kmsg request, of which the shard sees only what belongs to it and
	// what the caller may see, or an event that the machine's package declares.
	Msg any
	// ReadOnly requests never lead to records. The others are refused before they
	// reach the machine while the partition takes no acks=all append.
	ReadOnly bool
}

// Record is a record to be written. A nil Value is a tombstone.
type Record struct{ Key, Value []byte }

// Entry is a record as the log has it.
type Entry struct {
	Record
	// Offset of a record that was decided just now is below the true one if a
	// marker came between; it is above those of all records before in any case.
	Offset      cluster.Offset
	TimestampMs int64
	// Producer and ProducerEpoch are those of a transaction that has not ended
	// yet; NoProducerID outside of one. ApplyMarker ends it.
	Producer      cluster.ProducerID
	ProducerEpoch cluster.ProducerEpoch
}

// Reply ends the wait of one request.
type Reply struct {
	Token    Token
	Response any // a kmsg response, or what the machine's package declares
}

// Result is what a machine wants done.
type Result struct {
	// Records are to be appended, in this order. The driver calls Apply with each
	// before the next Handle or Expire.
	Records []Record
	// Replies may belong to requests of before. They are sent when all that was
	// applied so far is committed, or the requests fail with NOT_COORDINATOR.
	Replies []Reply
}

// Machine is one shard of a coordinator. It is used by one caller at a time.
//
// Durable state is changed by Apply and ApplyMarker alone and equals what a
// replay of the log gives; the rest (pending joins, sessions, deadlines) is
// volatile and starts anew with Loaded. Times are the driver's clock.
type Machine interface {
	// Handle takes a request. Its reply may be in this Result or in a later one.
	Handle(now time.Time, r Request) Result
	// Apply replays one record, whose key and value are to be copied: they are in
	// a buffer that is used again. An error is one of the log (a key or value that
	// cannot be read): it is logged with its offset and passed over.
	Apply(Entry) error
	// ApplyMarker ends the transaction of a producer.
	ApplyMarker(producer cluster.ProducerID, epoch cluster.ProducerEpoch, committed bool)
	// Loaded ends the replay of the log: sessions start.
	Loaded(now time.Time) Result
	// NextDeadline is when Expire is due, false for never.
	NextDeadline() (time.Time, bool)
	// Expire does what is due at now.
	Expire(now time.Time) Result
}

// Answerer is a machine that answers some requests at once. Such a request leads to
// no record and is answered in its own step, and the answer says nothing of durable
// state: it goes out whatever is committed.
type Answerer interface {
	// Answer does what Handle would for msg; false: it is for Handle, and nothing
	// has happened.
	Answer(now time.Time, msg any) (response any, ok bool)
}
