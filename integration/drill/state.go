package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask sends one request to one broker over a connection of its own.
func ask[R kmsg.Response](ctx context.Context, m *member, req kmsg.Request) (resp R, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.addr()), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
	if err != nil {
		return resp, err
	}
	defer cl.Close()
	got, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return resp, fmt.Errorf("%s: %w", m, err)
	}
	return got.(R), nil
}

// view is what a broker tells its clients of a topic.
func view(ctx context.Context, m *member, topic string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := ask[*kmsg.MetadataResponse](ctx, m, req)
	if err == nil && len(resp.Topics) != 1 {
		err = fmt.Errorf("%s: %d topics", m, len(resp.Topics))
	}
	return resp, err
}

// state is a partition's state znode.
type state struct {
	Leader int   `json:"leader"`
	Epoch  int   `json:"leader_epoch"`
	ISR    []int `json:"isr"`
}

func (c *cluster) state(topic string, partition int) (s state, err error) {
	raw, err := c.znode(fmt.Sprintf("/brokers/topics/%s/partitions/%d/state", topic, partition))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// znode reads one, again where the connection is lost meanwhile: the next try waits
// for another one.
func (c *cluster) znode(path string) (data []byte, err error) {
	for range 5 {
		if data, _, err = c.conn.Get(path); !errors.Is(err, zk.ErrConnectionClosed) {
			break
		}
	}
	return data, err
}

// controller is the member named in the controller znode.
func (c *cluster) controller() (*member, error) {
	raw, err := c.znode("/controller")
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	var z struct {
		ID int `json:"brokerid"`
	}
	if err := json.Unmarshal(raw, &z); err != nil {
		return nil, err
	}
	m := c.member(z.ID)
	if m == nil {
		return nil, fmt.Errorf("the controller is %d", z.ID)
	}
	return m, nil
}

// leader is the member that leads a partition, as ZooKeeper has it.
func (c *cluster) leader(topic string, partition int) (*member, error) {
	s, err := c.state(topic, partition)
	if err != nil {
		return nil, err
	}
	m := c.member(s.Leader)
	if m == nil {
		return nil, fmt.Errorf("%s-%d is led by %d", topic, partition, s.Leader)
	}
	return m, nil
}

// whole is nil when every broker tells its clients the same, and it is what
// ZooKeeper has: all brokers live, one controller, all replicas in every ISR.
func (c *cluster) whole(ctx context.Context, topic string, partitions int) error {
	controller, err := c.controller()
	if err != nil {
		return err
	}
	for _, m := range c.members {
		if !m.proc.running() {
			return fmt.Errorf("%s has ended with %s, see %s", m, m.proc.exit(), m.proc.log)
		}
		resp, err := view(ctx, m, topic)
		if err != nil {
			return err
		}
		if len(resp.Brokers) != len(c.members) || resp.ControllerID != int32(controller.id) {
			return fmt.Errorf("%s knows %d brokers and controller %d; ZooKeeper has %d", m, len(resp.Brokers), resp.ControllerID, controller.id)
		}
		t := resp.Topics[0]
		if t.ErrorCode != 0 || len(t.Partitions) != partitions {
			return fmt.Errorf("%s has %d partitions of %s, and error %v", m, len(t.Partitions), topic, kerr.ErrorForCode(t.ErrorCode))
		}
		for _, p := range t.Partitions {
			s, err := c.state(topic, int(p.Partition))
			if err != nil {
				return err
			}
			if p.ErrorCode != 0 || len(p.ISR) != len(c.members) || len(s.ISR) != len(c.members) || int(p.Leader) != s.Leader || int(p.LeaderEpoch) != s.Epoch {
				return fmt.Errorf("%s on %s-%d: error %v, leader %d in epoch %d, ISR %v; ZooKeeper has leader %d in epoch %d, ISR %v", m, topic,
					p.Partition, kerr.ErrorForCode(p.ErrorCode), p.Leader, p.LeaderEpoch, p.ISR, s.Leader, s.Epoch, s.ISR)
			}
		}
	}
	return nil
}

// client is a franz-go client of the cluster.
func (c *cluster) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.bootstrap()...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.DialTimeout(2 * time.Second),
		kgo.RequestTimeoutOverhead(2 * time.Second), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RetryTimeout(time.Minute),
	}, opts...)...)
}

// createTopic makes a topic and waits until it is whole.
func (c *cluster) createTopic(ctx context.Context, topic string, partitions int) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	defer adm.Close()
	err = eventually(ctx, time.Minute, "topic "+topic+" is created", func() error {
		_, err := adm.CreateTopic(ctx, int32(partitions), int16(len(c.members)), nil, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return eventually(ctx, time.Minute, topic+" is whole", func() error { return c.whole(ctx, topic, partitions) })
}

// electPreferred gives every partition back to its first replica.
func (c *cluster) electPreferred(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	defer adm.Close()
	_, err = adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
	if err != nil {
		return fmt.Errorf("elect the preferred leaders: %w", err)
	}
	return nil
}

func (c *cluster) deleteTopic(ctx context.Context, topic string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	defer adm.Close()
	if _, err := adm.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("delete %s: %w", topic, err)
	}
	return eventually(ctx, c.o.heal, topic+" is deleted", func() error {
		found, _, err := c.conn.Exists("/brokers/topics/" + topic)
		if err == nil && found {
			err = errors.New("it is there")
		}
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
}

// readAll reads every partition with a new consumer from its beginning to its
// end.
func (c *cluster) readAll(ctx context.Context, topic string, partitions int) ([][]got, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	adm := kadm.NewClient(cl)
	defer adm.Close()
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", topic, err)
	}
	from := map[int32]kgo.Offset{}
	left := 0
	for p := range partitions {
		end, ok := ends.Lookup(topic, int32(p))
		if !ok {
			return nil, fmt.Errorf("no end offset of %s-%d", topic, p)
		}
		if end.Offset > 0 {
			from[int32(p)] = kgo.NewOffset().At(0)
			left++
		}
	}
	consumer, err := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out := make([][]got, partitions)
	for left > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, _ := ends.Lookup(topic, r.Partition)
			if r.Offset >= end.Offset {
				return
			}
			p := int(r.Partition)
			out[p] = append(out[p], gotOf(r.Offset, p, string(r.Value)))
			if r.Offset == end.Offset-1 {
				left--
			}
		})
		var bad error
		fetches.EachError(func(t string, p int32, err error) { bad = fmt.Errorf("%s-%d: %w", t, p, err) })
		if bad != nil {
			return nil, bad
		}
	}
	return out, nil
}
