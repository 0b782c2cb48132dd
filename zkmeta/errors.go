package zkmeta

import (
	"errors"
	"fmt"
)

// What can go wrong with a call. The first group is definite: nothing was
// done.
var (
	ErrNoNode                  = errors.New("no such znode")
	ErrNodeExists              = errors.New("znode exists")
	ErrBadVersion              = errors.New("znode version differs")
	ErrNotEmpty                = errors.New("znode has children")
	ErrNoChildrenForEphemerals = errors.New("an ephemeral znode has no children")
	ErrNoAuth                  = errors.New("not authorised")
	ErrInvalidACL              = errors.New("invalid access list")
	ErrInvalidPath             = errors.New("invalid znode path")
	ErrTooLarge                = errors.New("request too large for the metadata store")
	ErrNotConnected            = errors.New("not connected to the metadata store")
	ErrSessionExpired          = errors.New("the session with the metadata store has ended")
	ErrClosed                  = errors.New("the metadata store is closed")

	// ErrUnknownOutcome says that the connection was lost, or the caller's
	// patience ended, before the answer came: the write may be applied or not.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrRolledBack marks the operations of a failed multi that did not fail
	// themselves.
	ErrRolledBack = errors.New("not applied because another operation of the multi failed")
)

// ErrBadZnode marks a znode whose content cannot be read; the error names the
// path.
var ErrBadZnode = errors.New("unreadable znode")

// MultiError is the failure of one operation of a multi, by which none was
// applied.
type MultiError struct {
	Index int
	Op    Op
	Err   error
}

func (e *MultiError) Error() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }

// Unwrap gives the sentinel.
func (e *MultiError) Unwrap() error { return e.Err }

// FailedResults is the vector of results that goes with a MultiError.
func FailedResults(n int, failed *MultiError) []Result {
	results := make([]Result, n)
	for i := range results {
		results[i].Err = ErrRolledBack
	}
	if failed.Index >= 0 && failed.Index < n {
		results[failed.Index].Err = failed.Err
	}
	return results
}
