package broker

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/console"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/zkmeta"
)

// What Ready answers.
var (
	errNoMetadata    = errors.New("no controller has sent metadata yet")
	errNotRegistered = errors.New("the registration went with its session and is not yet renewed")
)

// listenConsole opens the HTTP listener, if there is to be one. It does so before
// the broker is registered, so that an address in use disturbs nobody.
func (b *Broker) listenConsole(context.Context) error {
	if b.static.HTTPListener == "" {
		return nil
	}
	c, err := console.Listen(console.Options{Addr: b.static.HTTPListener, Health: b, Metrics: b.metrics, Partitions: b, Logger: b.o.Logger})
	b.console = c
	return err
}

// serveConsole serves it: the broker is registered.
func (b *Broker) serveConsole(context.Context) error {
	b.watchSession()
	if b.console != nil {
		b.console.Start()
		b.o.Logger.Info().Stringer("addr", b.console.Addr()).Msg("HTTP listener for health, metrics and the console")
	}
	return nil
}

// consoleDrain bounds how long a stop waits for HTTP requests in flight.
const consoleDrain = time.Second

func (b *Broker) closeConsole() {
	if b.console != nil {
		ctx, cancel := context.WithTimeout(context.Background(), consoleDrain)
		defer cancel()
		if err := b.console.Close(ctx); err != nil {
			b.o.Logger.Warn().Err(err).Msg("HTTP listener")
		}
	}
	if b.session != nil {
		b.session.close()
	}
}

// HTTPAddr is where the console listens, nil without one.
func (b *Broker) HTTPAddr() net.Addr {
	if b.console == nil {
		return nil
	}
	return b.console.Addr()
}

// Ready implements console.Health: the broker takes part in the cluster once it
// was told of it, and as long as its registration stands. While ZooKeeper is only
// out of reach, it does.
func (b *Broker) Ready() error {
	switch {
	case !b.session.holds(b.keeper.standing.Load()):
		return errNotRegistered
	case len(b.cache.Brokers()) == 0:
		return errNoMetadata
	}
	return nil
}

// Partitions implements console.Partitions.
func (b *Broker) Partitions(q console.Query) console.Listing {
	out := console.Listing{Broker: int32(b.id), ClusterID: b.clusterID, Controller: int32(b.cache.Controller()),
		Live: []int32{}, Partitions: []console.Partition{}}
	for _, x := range b.cache.Brokers() {
		out.Live = append(out.Live, int32(x.ID))
	}
	replicas := b.host.Load().Replicas()
	out.Hosted = len(replicas)
	for _, r := range replicas {
		tp := r.TopicPartition()
		if !q.Wants(tp.Topic, tp.Partition) {
			continue
		}
		if n := len(out.Partitions); n == q.Limit {
			out.Next = console.Cursor(out.Partitions[n-1].Topic, out.Partitions[n-1].Partition)
			break
		}
		out.Partitions = append(out.Partitions, shown(r))
	}
	return out
}

func shown(r *replica.Replica) console.Partition {
	s, tp := r.Status(), r.TopicPartition()
	out := console.Partition{Topic: tp.Topic, Partition: tp.Partition, Role: s.Role.String(), Leader: int32(s.Leader),
		LeaderEpoch: int32(s.LeaderEpoch), PartitionEpoch: int32(s.ZKVersion),
		LogStart: int64(s.LogStart), LSO: int64(s.LSO), HW: int64(s.HW), LEO: int64(s.LEO),
		ISR: ids(s.ISR), MaximalISR: ids(s.MaximalISR), MinISR: s.MinISR,
		Assignment: console.Assignment{Replicas: ids(s.Assignment.Replicas), Adding: ids(s.Assignment.Adding), Removing: ids(s.Assignment.Removing)},
		Size:       s.Size, Segments: r.Log().Segments()}
	for _, f := range s.Remotes {
		x := console.Follower{Broker: int32(f.ID)}
		if f.LEO >= 0 {
			leo, lag := int64(f.LEO), max(0, int64(s.LEO-f.LEO))
			x.RemoteLEO, x.Lag = &leo, &lag
		}
		if f.CaughtUp >= 0 {
			ms := f.CaughtUp.Milliseconds()
			x.CaughtUpMs = &ms
		}
		out.Followers = append(out.Followers, x)
	}
	return out
}

func ids(list []cluster.BrokerID) []int32 {
	out := make([]int32, len(list))
	for i, id := range list {
		out[i] = int32(id)
	}
	return out
}

// sessionWatch follows the session with the metadata store.
type sessionWatch struct {
	stop func()
	done chan struct{}

	started  atomic.Uint64 // generation of the latest session
	state    atomic.Int32  // index into sessionStates
	expires  metric.Counter
	connects metric.Counter
	losses   metric.Counter
}

// sessionStates are the states that ZooKeeper's own client has.
var sessionStates = [...]string{"CLOSED", "CONNECTING", "CONNECTED"}

const (
	sessionClosed int32 = iota
	sessionConnecting
	sessionConnected
)

func (b *Broker) watchSession() {
	events, stop := b.store.Subscribe()
	w := &sessionWatch{stop: stop, done: make(chan struct{})}
	b.session = w
	if b.static.ZooKeeperConnect != "" {
		b.sessionMetrics(w)
	}
	go func() {
		defer close(w.done)
		for e := range events {
			w.saw(e)
		}
	}()
}

func (w *sessionWatch) saw(e zkmeta.Event) {
	switch e.Type {
	case zkmeta.SessionStarted:
		w.started.Store(e.Generation)
		w.state.Store(sessionConnected)
		w.connects.Add(1)
	case zkmeta.Connected:
		w.state.Store(sessionConnected)
		w.connects.Add(1)
	case zkmeta.Disconnected:
		w.state.Store(sessionConnecting)
		w.losses.Add(1)
	case zkmeta.SessionExpired:
		w.state.Store(sessionClosed)
		w.expires.Add(1)
	}
}

// holds reports whether what was made in the session of that generation is still
// there, as far as is known.
func (w *sessionWatch) holds(generation uint64) bool {
	return w.state.Load() != sessionClosed && generation >= w.started.Load()
}

func (w *sessionWatch) close() {
	w.stop()
	<-w.done
}
