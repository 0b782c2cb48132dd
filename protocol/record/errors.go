package record

import (
	"errors"
	"fmt"
)

// What can be wrong with a batch. Every error of this package wraps exactly
// one of these (ErrShort aside, which callers handle themselves); the wire code
// that Kafka 3.9 answers is in the comment.
var (
	ErrCorrupt                     = errors.New("corrupt message")                                 // CORRUPT_MESSAGE
	ErrInvalidRecord               = errors.New("invalid record")                                  // INVALID_RECORD
	ErrInvalidTimestamp            = errors.New("invalid timestamp")                               // INVALID_TIMESTAMP
	ErrUnsupportedForMessageFormat = errors.New("unsupported for message format")                  // UNSUPPORTED_FOR_MESSAGE_FORMAT
	ErrUnsupportedCompression      = errors.New("unsupported compression type")                    // UNSUPPORTED_COMPRESSION_TYPE
	ErrTooLarge                    = errors.New("message too large")                               // MESSAGE_TOO_LARGE
	ErrListTooLarge                = errors.New("record list larger than a segment")               // RECORD_LIST_TOO_LARGE
	ErrUnprocessable               = errors.New("valid checksum, but the batch cannot be decoded") // UNKNOWN_SERVER_ERROR: 3.9 has no code for it

	// ErrShort tells that the buffer ends before the entry does.
	ErrShort = errors.New("incomplete batch")
)

// Fault is the cause of a rejection that Kafka counts in a meter of its own.
type Fault uint8

// The counted causes, named after the broker topic meters they belong to.
const (
	FaultNone             Fault = iota
	FaultMagic                  // InvalidMagicNumberRecordsPerSec
	FaultChecksum               // InvalidMessageCrcRecordsPerSec
	FaultOffsetOrSequence       // InvalidOffsetOrSequenceRecordsPerSec
	FaultNoKey                  // NoKeyCompactedTopicRecordsPerSec
)

// reject is an error of this package: the sentinel it stands for, what was
// found, and the meter it counts in.
type reject struct {
	kind  error
	fault Fault
	text  string
}

func (r *reject) Error() string { return r.kind.Error() + ": " + r.text }
func (r *reject) Unwrap() error { return r.kind }

func rejectf(kind error, fault Fault, format string, args ...any) error {
	return &reject{kind: kind, fault: fault, text: fmt.Sprintf(format, args...)}
}

// FaultOf tells which meter err counts in.
func FaultOf(err error) Fault {
	if r, ok := errors.AsType[*reject](err); ok {
		return r.fault
	}
	if r, ok := errors.AsType[*RecordErrors](err); ok {
		return r.Fault
	}
	return FaultNone
}

// RecordError says what is wrong with one record of a rejected batch.
type RecordError struct {
	BatchIndex int32 // the record's index within its batch
	Message    string
}

// RecordErrors rejects a batch because of single records; Produce v8 and later
// return the list. It wraps ErrInvalidRecord or ErrInvalidTimestamp.
type RecordErrors struct {
	Kind    error
	Fault   Fault
	Message string        // for the partition as a whole
	Errors  []RecordError // the first maxRecordErrors of them, by rising index
}

func (e *RecordErrors) Error() string { return e.Message }
func (e *RecordErrors) Unwrap() error { return e.Kind }
