package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
)

// departures takes brokers out of ZooKeeper whose process has ended, at once
// instead of when their session does: a connection to it stood, and now its
// endpoint refuses connections, which the kernel does for a process that is not
// there. Everybody else sees what the end of a session shows, only sooner; one that
// lives all the same registers again, as after the end of its session
// (docs/adr/0019). It is done to kbrokers only: one of Apache Kafka would not
// notice.
type departures struct {
	store    zkmeta.Store
	listener string // inter.broker.listener.name
	log      zerolog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	reached map[cluster.BrokerID]string // where a connection was made, and nobody was taken out since; guarded by mu
	looking map[cluster.BrokerID]bool   // guarded by mu
}

func newDepartures(store zkmeta.Store, listener string, log zerolog.Logger) *departures {
	d := &departures{store: store, listener: listener, log: log, reached: map[cluster.BrokerID]string{}, looking: map[cluster.BrokerID]bool{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

func (d *departures) close() {
	d.cancel()
	d.wg.Wait()
}

// dialed takes what became of an attempt to connect to a broker. nil departures
// are those that are turned off.
func (d *departures) dialed(id cluster.BrokerID, addr string, err error) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.reached[id] = addr
	case errors.Is(err, syscall.ECONNREFUSED) && d.reached[id] == addr && !d.looking[id] && d.ctx.Err() == nil:
		d.looking[id] = true
		d.wg.Go(func() { d.look(id, addr) })
	}
}

// lookTimeout bounds a look as a whole.
const lookTimeout = 5 * time.Second

func (d *departures) look(id cluster.BrokerID, addr string) {
	ctx, cancel := context.WithTimeout(d.ctx, lookTimeout)
	defer cancel()
	settled, err := d.takeOut(ctx, id, addr)
	if err != nil && d.ctx.Err() == nil {
		d.log.Warn().Err(err).Int32("peer", int32(id)).Msg("a broker whose process has gone was not taken out of ZooKeeper; it is when its session ends")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.looking, id)
	if settled && d.reached[id] == addr {
		delete(d.reached, id)
	}
}

// takeOut reports whether there is nothing left to do: the next refused connection
// looks again otherwise.
func (d *departures) takeOut(ctx context.Context, id cluster.BrokerID, addr string) (settled bool, err error) {
	s, err := d.store.Session()
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
	if e, ok := reg.Endpoint(d.listener); !ok || net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) != addr {
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
	d.log.Warn().Int32("peer", int32(id)).Str("addr", addr).Bool("controller", len(ops) > 1).Str("session", fmt.Sprintf("%#x", st.EphemeralOwner)).
		Msg("a broker's process has gone: its endpoint refuses connections; it is taken out of ZooKeeper before its session ends")
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
