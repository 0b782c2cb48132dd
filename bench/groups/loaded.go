package groups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Loaded is how a coordinator came to answer for a group. The answers before
// Done were refusals, or there were none.
type Loaded struct {
	Listening time.Time // the broker took a connection and answered
	Leading   time.Time // it said for the last time that it is not the coordinator, or did not answer
	Done      time.Time // it answered with offsets
}

// poll is how often a coordinator that refuses is asked again.
const poll = 500 * time.Microsecond

// AwaitLoaded asks a broker that is about to start for a group's offset until
// it answers. ended is closed when the broker has ended.
func AwaitLoaded(ctx context.Context, addr, group, topic string, ended <-chan struct{}) (l Loaded, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	l.Leading = time.Now()
	for {
		c, err := dial(ctx, addr)
		if err == nil {
			err = l.ask(ctx, c, group, topic)
			c.Close()
			if err == nil {
				return l, nil
			}
		}
		l.Leading = time.Now()
		select {
		case <-ended:
			return l, errors.Join(errors.New("the broker has ended"), err)
		case <-ctx.Done():
			return l, errors.Join(err, ctx.Err())
		case <-time.After(poll):
		}
	}
}

// ask asks on one connection until there is an offset. Its errors are the
// connection's, as they come while a broker starts.
func (l *Loaded) ask(ctx context.Context, c *raw.Conn, group, topic string) error {
	defer context.AfterFunc(ctx, c.Close)()
	for {
		r, err := c.Do(offsetFetch(group, topic))
		if err != nil {
			return err
		}
		now := time.Now()
		if l.Listening.IsZero() {
			l.Listening = now
		}
		resp := r.(*kmsg.OffsetFetchResponse)
		if len(resp.Groups) != 1 {
			return fmt.Errorf("OffsetFetch: %d groups", len(resp.Groups))
		}
		switch err := protocol.Error(resp.Groups[0].ErrorCode); {
		case err == nil:
			l.Done = now
			return nil
		case errors.Is(err, protocol.ErrCoordinatorLoadInProgress):
		default:
			l.Leading = now
		}
		time.Sleep(poll)
	}
}

// offsetFetch asks for a group's offset of partition 0.
func offsetFetch(group, topic string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = topic, []int32{0}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	return req
}
