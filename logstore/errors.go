package logstore

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/kbroker/kbroker/cluster"
)

// What can go wrong with a log. Errors wrap one of these together with the
// partition's name; producers' and record's own sentinels pass through.
var (
	// ErrOffsetOutOfRange: below the log's start or above its end.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrStorage: the log directory is offline. Nothing of it is served until a restart.
	ErrStorage = errors.New("log directory is offline")
	// ErrClosed: the log was deleted or the store closed.
	ErrClosed = errors.New("log is closed")
	// ErrNotFound: no such log.
	ErrNotFound = errors.New("no such log")
	// ErrCorruptLog: stored bytes are not what was written. Nothing is truncated.
	ErrCorruptLog = errors.New("stored data is corrupt")
	// ErrTooLarge: the records are larger than segment.bytes.
	ErrTooLarge = errors.New("records are larger than a segment")
	// ErrUnexpectedOffset: replicated records begin below the log's end.
	ErrUnexpectedOffset = errors.New("unexpected offset in append")
	// ErrOffsetsOutOfOrder: replicated records do not rise.
	ErrOffsetsOutOfOrder = errors.New("offsets out of order in append")
	// ErrInconsistentTopicID: the directory belongs to another incarnation of the topic.
	ErrInconsistentTopicID = errors.New("inconsistent topic id")
	// ErrDirLocked: another process uses the log directory.
	ErrDirLocked = errors.New("log directory is in use by another process")
	// ErrStaleSlice: the log was truncated after the slice was read.
	ErrStaleSlice = errors.New("log was truncated after the read")
)

// errGone tells a lookup that its segment was deleted or replaced meanwhile. It
// is for the retry; to whoever does not try again the offset is gone.
var errGone = fmt.Errorf("%w: the segment is gone", ErrOffsetOutOfRange)

// UnexpectedOffset tells a follower what it was sent, so that it can decide to
// start its empty log at First.
type UnexpectedOffset struct {
	First, Last, LEO cluster.Offset
}

func (e *UnexpectedOffset) Error() string {
	return fmt.Sprintf("%v: records from %d to %d, log ends at %d", ErrUnexpectedOffset, e.First, e.Last, e.LEO)
}

func (e *UnexpectedOffset) Unwrap() error { return ErrUnexpectedOffset }

// outOfFiles reports whether the process (or the machine) has no descriptor
// left: that is no fault of the directory.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// shortRead turns the end of a file where a batch should be into corruption:
// somebody shortened the file behind our back.
func shortRead(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: file ends early", ErrCorruptLog)
	}
	return err
}
