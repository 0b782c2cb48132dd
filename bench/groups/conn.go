package groups

import (
	"context"
	"time"

	"github.com/kbroker/kbroker/bench/raw"
)

// patience is how long an answer may take before the run is given up. A member
// that joins is answered when the whole group has.
const patience = 2 * time.Minute

func dial(ctx context.Context, addr string) (*raw.Conn, error) {
	c, err := raw.Dial(ctx, addr)
	if err == nil {
		c.Patience = patience
	}
	return c, err
}
