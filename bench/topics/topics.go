package topics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topic is a topic that is there.
type Topic struct {
	Name       string
	Partitions []int32
	Leaders    []Leader // by their address
	Leader     string   // address of the broker that leads all of them; "" if there are several
}

// Leader is a broker and the partitions that it leads.
type Leader struct {
	Addr       string
	Partitions []int32
}

// Ensure makes a topic unless it is there, and waits until every partition has
// a leader. With partitions 0 it has to be there.
func Ensure(ctx context.Context, bootstrap, name string, partitions int32, replicas int16) (Topic, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return Topic{}, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(60_000)
	t, err := describe(ctx, adm, name)
	if errors.Is(err, kerr.UnknownTopicOrPartition) && partitions > 0 {
		if _, err = adm.CreateTopic(ctx, partitions, replicas, nil, name); err == nil || underway(err) {
			t, err = await(ctx, adm, name, partitions)
		}
	}
	if err != nil {
		return t, fmt.Errorf("topic %s: %w", name, err)
	}
	return t, nil
}

// underway are answers to a creation after which the topic may yet come.
func underway(err error) bool {
	return errors.Is(err, kerr.TopicAlreadyExists) || errors.Is(err, kerr.RequestTimedOut)
}

// await asks until the topic is complete.
func await(ctx context.Context, adm *kadm.Client, name string, partitions int32) (Topic, error) {
	for {
		t, err := describe(ctx, adm, name)
		if err == nil && len(t.Partitions) >= int(partitions) {
			return t, nil
		}
		select {
		case <-ctx.Done():
			return t, errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func describe(ctx context.Context, adm *kadm.Client, name string) (Topic, error) {
	t := Topic{Name: name}
	m, err := adm.Metadata(ctx, name)
	if err != nil {
		return t, err
	}
	d := m.Topics[name]
	if d.Err != nil {
		return t, d.Err
	}
	led := map[int32][]int32{}
	for _, p := range d.Partitions.Sorted() {
		if p.Err != nil {
			return t, p.Err
		}
		if p.Leader < 0 {
			return t, kerr.LeaderNotAvailable
		}
		led[p.Leader] = append(led[p.Leader], p.Partition)
		t.Partitions = append(t.Partitions, p.Partition)
	}
	known := 0
	for _, b := range m.Brokers {
		if ids := led[b.NodeID]; ids != nil {
			t.Leaders = append(t.Leaders, Leader{net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), ids})
			known++
		}
	}
	if known < len(led) { // a leader that has gone
		return t, kerr.LeaderNotAvailable
	}
	slices.SortFunc(t.Leaders, func(a, b Leader) int { return strings.Compare(a.Addr, b.Addr) })
	if len(t.Leaders) == 1 {
		t.Leader = t.Leaders[0].Addr
	}
	return t, nil
}

// Delete removes a topic. That its files are gone is not awaited.
func Delete(ctx context.Context, bootstrap, name string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).DeleteTopic(ctx, name)
	return err
}
