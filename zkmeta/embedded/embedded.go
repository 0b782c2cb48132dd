package embedded

import (
	"errors"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/zkmeta"
)

// Options are the settings of a store.
type Options struct {
	Logger zerolog.Logger
	Clock  clock.Clock // default the machine's
}

// Open opens or creates the store in the directory.
func Open(dir string, o Options) (zkmeta.Store, error) { return nil, errors.New("not yet") }
