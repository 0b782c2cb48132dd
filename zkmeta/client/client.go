package client

import (
	"errors"

	"github.com/kbroker/kbroker/zkmeta"
)

// Open connects in the background and returns at once; Wait waits for the
// session.
func Open(o Options) (zkmeta.Store, error) { return nil, errors.New("not yet") }
