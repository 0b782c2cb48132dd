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

// Ready waits until the broker answers for all of the groups: the offsets topic
// is made by the first who asks for a coordinator.
func Ready(ctx context.Context, addr string, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	for {
		err := find(ctx, addr, names)
		if err == nil {
			_, err = committed(ctx, addr, names)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no coordinator: %w", err), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func find(ctx context.Context, addr string, names []string) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 4, names
	r, err := raw.Ask(ctx, addr, req)
	if err != nil {
		return err
	}
	for _, c := range r.(*kmsg.FindCoordinatorResponse).Coordinators {
		if err := protocol.Error(c.ErrorCode); err != nil {
			return fmt.Errorf("FindCoordinator: %w", err)
		}
	}
	return nil
}

// describeAtOnce is how many groups are asked about in one request.
const describeAtOnce = 100

// Stable checks that the coordinator has each group stable, with so many
// members.
func Stable(ctx context.Context, addr string, names []string, members int) error {
	for len(names) > 0 {
		n := min(len(names), describeAtOnce)
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, names[:n]
		r, err := raw.Ask(ctx, addr, req)
		if err != nil {
			return err
		}
		resp := r.(*kmsg.DescribeGroupsResponse)
		if len(resp.Groups) != n {
			return fmt.Errorf("DescribeGroups: %d groups for %d", len(resp.Groups), n)
		}
		for _, g := range resp.Groups {
			if err := protocol.Error(g.ErrorCode); err != nil {
				return fmt.Errorf("%s: DescribeGroups: %w", g.Group, err)
			}
			if g.State != "Stable" || len(g.Members) != members {
				return fmt.Errorf("%s is %s with %d members, want %d", g.Group, g.State, len(g.Members), members)
			}
		}
		names = names[n:]
	}
	return nil
}

// Offsets are what a group has committed, by partition of the one topic.
type Offsets map[int32]int64

// committed reads all that the groups have committed.
func committed(ctx context.Context, addr string, names []string) (map[string]Offsets, error) {
	out := map[string]Offsets{}
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, c.Close)()
	for len(names) > 0 {
		n := min(len(names), describeAtOnce)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = 8
		for _, name := range names[:n] {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group = name // no topics: all of them
			req.Groups = append(req.Groups, g)
		}
		r, err := c.Do(req)
		if err != nil {
			return nil, err
		}
		resp := r.(*kmsg.OffsetFetchResponse)
		if len(resp.Groups) != n {
			return nil, fmt.Errorf("OffsetFetch: %d groups for %d", len(resp.Groups), n)
		}
		for _, g := range resp.Groups {
			if err := protocol.Error(g.ErrorCode); err != nil {
				return nil, fmt.Errorf("%s: OffsetFetch: %w", g.Group, err)
			}
			o := Offsets{}
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					if err := protocol.Error(p.ErrorCode); err != nil {
						return nil, fmt.Errorf("%s: OffsetFetch of %d: %w", g.Group, p.Partition, err)
					}
					o[p.Partition] = p.Offset
				}
			}
			out[g.Group] = o
		}
		names = names[n:]
	}
	return out, nil
}

// Verify reads back what the groups have committed: nothing else than want.
func Verify(ctx context.Context, addr string, want map[string]Offsets) error {
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	got, err := committed(ctx, addr, names)
	if err != nil {
		return err
	}
	return same(got, want)
}

// same says where two sets of offsets differ.
func same(got, want map[string]Offsets) error {
	for name, offsets := range want {
		if len(got[name]) != len(offsets) {
			return fmt.Errorf("%s: offsets of %d partitions, want %d", name, len(got[name]), len(offsets))
		}
		for p, o := range offsets {
			if have, ok := got[name][p]; !ok || have != o {
				return fmt.Errorf("%s: offset of partition %d is %d, want %d", name, p, have, o)
			}
		}
	}
	return nil
}
