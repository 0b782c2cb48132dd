package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/kbroker/kbroker/zkmeta"
)

var (
	errDead    = errors.New("this connection has been given up")
	errTimeout = errors.New("no answer in time")
	errLost    = errors.New("the connection was lost")
)

// definite are the server's answers: nothing was done, and why.
var definite = []struct{ library, contract error }{
	{zk.ErrNoNode, zkmeta.ErrNoNode},
	{zk.ErrNodeExists, zkmeta.ErrNodeExists},
	{zk.ErrBadVersion, zkmeta.ErrBadVersion},
	{zk.ErrNotEmpty, zkmeta.ErrNotEmpty},
	{zk.ErrNoChildrenForEphemerals, zkmeta.ErrNoChildrenForEphemerals},
	{zk.ErrNoAuth, zkmeta.ErrNoAuth},
	{zk.ErrAuthFailed, zkmeta.ErrNoAuth},
	{zk.ErrInvalidACL, zkmeta.ErrInvalidACL},
	{zk.ErrInvalidPath, zkmeta.ErrInvalidPath},
	{zk.ErrBadArguments, zkmeta.ErrInvalidPath},
	{zk.ErrSessionExpired, zkmeta.ErrSessionExpired},
	{zk.ErrNoServer, zkmeta.ErrNotConnected},
	{zk.ErrAPIError, zk.ErrAPIError},
}

// translate gives the contract's error for the library's. What is not known to
// be an answer of the server leaves the outcome open.
func translate(err error) error {
	if err == nil {
		return nil
	}
	for _, d := range definite {
		if errors.Is(err, d.library) {
			return d.contract
		}
	}
	if code, ok := unnamedCode(err); ok && code <= -100 {
		return fmt.Errorf("ZooKeeper refuses: error %d", code)
	}
	return fmt.Errorf("%w: %w", zkmeta.ErrUnknownOutcome, err)
}

// unnamedCode is a server's code that the library has no name for. Those above
// -100 are failures of the server itself.
func unnamedCode(err error) (int, bool) {
	s, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	if !ok {
		return 0, false
	}
	code, err := strconv.Atoi(s)
	return code, err == nil
}
