package loop

import (
	"context"
	"time"
)

// lookAgain is how often AwaitAcknowledged looks.
const lookAgain = 2 * time.Millisecond

// AwaitAcknowledged waits until every live broker has acknowledged all that was
// due to it, or ctx ends. A broker that is about to stop so learns that its
// successors know of their leaderships before it turns its clients away.
func (l *Loop) AwaitAcknowledged(ctx context.Context) error {
	for {
		due := true
		err := l.do(ctx, func(t *term) error {
			due = !t.im.Settled()
			return nil
		})
		if err != nil || !due {
			return err
		}
		over := make(chan struct{})
		stop := l.opts.Clock.AfterFunc(lookAgain, func() { close(over) })
		select {
		case <-ctx.Done():
			stop()
			return ctx.Err()
		case <-over:
		}
	}
}
