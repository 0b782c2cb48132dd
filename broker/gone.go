package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
)

// vigil takes brokers out of ZooKeeper whose process has ended, at once instead of
// when their session does. It keeps a connection to each other broker that nothing
// is sent along. When that ends and the endpoint refuses another, the kernel says
// that there is no process. Everybody else sees what the end of a session shows,
// only sooner; one that lives all the same registers again, as after the end of its
// session (docs/adr/0019). It is done to kbrokers only: one of Apache Kafka would
// not notice.
type vigil struct {
	self     cluster.BrokerID
	cache    *metadata.Cache
	store    zkmeta.Store
	listener string // inter.broker.listener.name
	clock    clock.Clock
	log      zerolog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// startVigil begins to watch the brokers that the cache names, as it changes.
func startVigil(self cluster.BrokerID, cache *metadata.Cache, store zkmeta.Store, listener string, clk clock.Clock, log zerolog.Logger) *vigil {
	v := &vigil{self: self, cache: cache, store: store, listener: listener, clock: clk, log: log}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.wg.Go(v.run)
	return v
}

func (v *vigil) close() {
	v.cancel()
	v.wg.Wait()
}

// watched is a broker that is watched where it listens.
type watched struct {
	addr string
	stop context.CancelFunc
}

func (v *vigil) run() {
	at := map[cluster.BrokerID]watched{}
	for {
		changed := v.cache.Changed()
		live := v.peers()
		for id, w := range at {
			if live[id] != w.addr {
				w.stop()
				delete(at, id)
			}
		}
		for id, addr := range live {
			if _, there := at[id]; there {
				continue
			}
			ctx, stop := context.WithCancel(v.ctx)
			at[id] = watched{addr, stop}
			v.wg.Go(func() { v.watch(ctx, id, addr) })
		}
		select {
		case <-changed:
		case <-v.ctx.Done():
			for _, w := range at {
				w.stop()
			}
			return
		}
	}
}

// peers are the other live brokers and where they listen.
func (v *vigil) peers() map[cluster.BrokerID]string {
	live := map[cluster.BrokerID]string{}
	for _, b := range v.cache.Brokers() {
		if e, ok := b.Endpoint(v.listener); ok && b.ID != v.self {
			live[b.ID] = hostPort(e.Host, e.Port)
		}
	}
	return live
}

// vigilRest is the pause before a connection where the last one failed, or the last
// two did not stand for as long.
const vigilRest = time.Second

func (v *vigil) watch(ctx context.Context, id cluster.BrokerID, addr string) {
	reached := false // since it was last taken out: nobody is twice who is not reached
	short := false   // the last connection did not stand for long
	for ctx.Err() == nil {
		began := v.clock.Now()
		c, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", addr)
		switch {
		case err == nil:
			untilEnd(ctx, c)
			before := short
			reached, short = true, v.clock.Now().Sub(began) < vigilRest
			if !before || !short {
				continue
			}
		case reached && errors.Is(err, syscall.ECONNREFUSED):
			reached = !v.look(ctx, id, addr)
		}
		pause(ctx, v.clock, vigilRest)
	}
}

// untilEnd waits until the other side ends a connection, and closes it.
func untilEnd(ctx context.Context, c net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer c.Close()
	var one [1]byte
	for {
		if _, err := c.Read(one[:]); err != nil {
			return
		}
	}
}

// lookTimeout bounds a look as a whole.
const lookTimeout = 5 * time.Second

// look reports whether there is nothing left to do about a broker that refuses
// connections.
func (v *vigil) look(ctx context.Context, id cluster.BrokerID, addr string) (settled bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	settled, err := v.takeOut(ctx, id, addr)
	if err != nil && v.ctx.Err() == nil {
		v.log.Warn().Err(err).Int32("peer", int32(id)).Msg("a broker whose process has gone was not taken out of ZooKeeper; it is when its session ends")
	}
	return settled
}

func (v *vigil) takeOut(ctx context.Context, id cluster.BrokerID, addr string) (settled bool, err error) {
	s, err := v.store.Session()
	if err != nil {
		return false, nil // without ZooKeeper there is nobody to tell
	}
	reg, st, found, err := zkmeta.GetBroker(ctx, s, id, false)
	switch {
	case errors.Is(err, zkmeta.ErrBadZnode):
		return true, nil // nobody reaches it by that
	case err != nil:
		return false, passing(err)
	case !found || !reg.Kbroker() || s.Owned(st.EphemeralOwner):
		return true, nil
	}
	if e, ok := reg.Endpoint(v.listener); !ok || hostPort(e.Host, e.Port) != addr {
		return true, nil // it is elsewhere by now
	}
	// Asked again after the registration was read: that of a process which begins to
	// listen from now on is another.
	if !refuses(ctx, addr) {
		return false, nil
	}
	ops := []zkmeta.Op{zkmeta.Delete(zkmeta.BrokerPath(id), st.Version)}
	_, cst, found, err := zkmeta.GetController(ctx, s, false)
	if err != nil {
		return false, passing(err)
	}
	if found && cst.EphemeralOwner == st.EphemeralOwner {
		ops = append(ops, zkmeta.Delete(zkmeta.ControllerPath, cst.Version))
	}
	_, err = s.Multi(ctx, ops...)
	switch {
	case errors.Is(err, zkmeta.ErrNoNode), errors.Is(err, zkmeta.ErrBadVersion):
		return false, nil // changed meanwhile, most likely by another broker that saw the same
	case err != nil:
		return !transient(err), passing(err)
	}
	v.log.Info().Int32("peer", int32(id)).Str("addr", addr).Bool("controller", len(ops) > 1).Str("session", fmt.Sprintf("%#x", st.EphemeralOwner)).
		Msg("nobody listens any more at a broker's endpoint; it is taken out of ZooKeeper before its session ends")
	return true, nil
}

// passing leaves out errors that the next look does without.
func passing(err error) error {
	if transient(err) {
		return nil
	}
	return err
}

// refuses reports whether nobody listens at an address, whichever of its host's
// addresses is tried: a name may have one that always refuses and one that cannot
// be reached now.
func refuses(ctx context.Context, addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	hosts, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(hosts, func(h string) bool { return !refusesAt(ctx, net.JoinHostPort(h, port)) })
}

func refusesAt(ctx context.Context, addr string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
