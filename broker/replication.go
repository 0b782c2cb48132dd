package broker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/kbroker/kbroker/broker/quota"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller/loop"
	"github.com/kbroker/kbroker/partition/fetcher"
	"github.com/kbroker/kbroker/partition/isr"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// replication is what this broker does as one of several: it follows leaders,
// has ISR changes settled by the controller, and looks after its followers.
type replication struct {
	link     *controllerLink
	fetchers *fetcher.Set
	isr      *isr.Sender
	cancel   context.CancelFunc
	done     chan struct{}
}

// tickEvery is how often leaders look for followers that have fallen behind,
// where replica.lag.time.max.ms is long.
const tickEvery = 500 * time.Millisecond

func (b *Broker) newReplication() *replication {
	c := b.configs.Broker()
	control := c.ControlPlane
	if control == "" {
		control = c.InterBrokerListener
	}
	p := &peers{cache: b.cache, listener: c.InterBrokerListener, control: control,
		client: client.Options{ClientID: strconv.Itoa(int(b.id)), RequestTimeout: c.ControllerSocketTimeout, Clock: b.o.Clock}}
	r := &replication{link: &controllerLink{peers: p}, done: make(chan struct{})}
	epoch := func() cluster.BrokerEpoch { return cluster.BrokerEpoch(b.epoch.Load()) }
	r.fetchers = fetcher.New(fetcher.Options{Self: b.id, BrokerEpoch: epoch, Fetchers: int(c.ReplicaFetchers),
		Dial: func(ctx context.Context, id cluster.BrokerID, clientID string) (*client.Conn, error) {
			return p.dialLeader(ctx, id, clientID, c.ReplicaSocketTimeout)
		},
		MaxWait: c.ReplicaFetchWaitMax, MinBytes: c.ReplicaFetchMinBytes, MaxBytes: c.ReplicaFetchResponseMaxBytes,
		Throttle: quota.NewReplication(func() int64 { return b.configs.Broker().FollowerReplicationRate },
			int(c.ReplicationQuotaWindows), c.ReplicationQuotaWindow),
		PartitionBytes: c.ReplicaFetchMaxBytes, Backoff: c.ReplicaFetchBackoff, Clock: b.o.Clock, Logger: b.o.Logger})
	r.isr = isr.Start(isr.Options{Self: b.id, BrokerEpoch: epoch, Controller: r.link, Clock: b.o.Clock, Logger: b.o.Logger})
	return r
}

// start begins to look after followers.
func (r *replication) start(b *Broker, h *replica.Host) {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	every := min(tickEvery, max(time.Millisecond, b.static.ReplicaLagTimeMax/2))
	go func() {
		defer close(r.done)
		for pause(ctx, b.o.Clock, every) {
			h.Tick()
		}
	}()
}

// close ends replication: nothing is fetched and no ISR changes any more.
func (r *replication) close() {
	if r.cancel != nil {
		r.cancel()
		<-r.done
	}
	r.fetchers.Close()
	r.isr.Close()
	r.link.close()
}

// allocateProducerIDs asks the controller for a block of producer ids.
func (b *Broker) allocateProducerIDs(ctx context.Context) (int64, int32, error) {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = int32(b.id), b.epoch.Load()
	got, err := b.replication.link.Do(ctx, req)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", loop.ErrNotController, err)
	}
	resp := got.(*kmsg.AllocateProducerIDsResponse)
	if resp.ErrorCode != 0 {
		return 0, 0, protocol.Code(resp.ErrorCode)
	}
	return resp.ProducerIDStart, resp.ProducerIDLen, nil
}

// farewell is how long a broker that leads nothing any more goes on answering: a
// client that comes meanwhile is told who leads (KIP-951). One that only finds
// its connection closed waits for its next look at the metadata, which takes
// seconds with some.
const farewell = 200 * time.Millisecond

// controlledShutdown hands this broker's leaderships over before it stops. It
// gives up after controlled.shutdown.max.retries; the partitions that are left
// wait for the controller to notice.
func (b *Broker) controlledShutdown(ctx context.Context) {
	c := b.configs.Broker()
	if !c.ControlledShutdown {
		return
	}
	for try := int32(1); len(b.cache.Brokers()) > 1; try++ {
		left, err := b.askControlledShutdown(ctx)
		if err == nil && left == 0 {
			b.o.Logger.Info().Msg("controlled shutdown: nothing is led any more")
			pause(ctx, b.o.Clock, farewell)
			return
		}
		b.o.Logger.Warn().Err(err).Int("partitions", left).Int32("attempt", try).Msg("controlled shutdown is not complete")
		if try >= max(1, c.ControlledShutdownRetries) || !pause(ctx, b.o.Clock, c.ControlledShutdownBackoff) {
			return
		}
	}
}

func (b *Broker) askControlledShutdown(ctx context.Context) (left int, err error) {
	req := kmsg.NewPtrControlledShutdownRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 3, int32(b.id), b.epoch.Load()
	got, err := b.replication.link.Do(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := got.(*kmsg.ControlledShutdownResponse)
	if resp.ErrorCode != 0 {
		return 0, protocol.Code(resp.ErrorCode)
	}
	return len(resp.PartitionsRemaining), nil
}

// shutdownTimeout bounds a controlled shutdown as a whole: its attempts, with the
// pauses between them.
func (b *Broker) shutdownTimeout() time.Duration {
	c := b.configs.Broker()
	return time.Duration(max(1, c.ControlledShutdownRetries)) * (c.ControlledShutdownBackoff + c.ControllerSocketTimeout)
}
