package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/zkmeta"
	zkclient "github.com/kbroker/kbroker/zkmeta/client"
)

// registration keeps the broker registered: at its start, and again in each new
// session. Its goroutine also watches the finalized features.
type registration struct {
	b *Broker
	// unclean: this process started on logs that were not stopped cleanly. The
	// controller does not trust it with what only it could have (KIP-966), in
	// later registrations neither while partitions of its are without a leader.
	unclean bool
	events  <-chan zkmeta.Event
	stop    func()
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	// The connection is watched beside, as registering again may take its time.
	connection   <-chan zkmeta.Event
	stopWatching func()
	watched      chan struct{}

	standing atomic.Uint64 // generation of the session that holds the registration

	allKbrokers atomic.Bool // whether every live broker is a kbroker; watched only where somebody asks
}

func newRegistration(b *Broker) *registration {
	r := &registration{b: b, unclean: b.logs.Stats().Unclean, done: make(chan struct{}), watched: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.events, r.stop = b.store.Subscribe()
	r.connection, r.stopWatching = b.store.Subscribe()
	return r
}

// begin registers for the first time and starts to keep the registration up.
func (r *registration) begin(ctx context.Context) error {
	s, err := r.b.store.Wait(ctx)
	if err == nil {
		err = r.b.checkCluster(ctx, s)
	}
	if err == nil {
		s, err = r.register(ctx)
	}
	if err == nil {
		err = r.watchFeatures(ctx, s)
	}
	if err == nil {
		err = r.watchKinds(ctx, s)
	}
	if err != nil {
		r.stop()
		r.stopWatching()
		close(r.done)
		close(r.watched)
		return err
	}
	go r.keep(s.Generation())
	go r.watchConnections()
	return nil
}

func (r *registration) close() {
	r.cancel()
	r.stop()
	r.stopWatching()
	<-r.done
	<-r.watched
}

// checkCluster refuses, before it is written, a registration that would harm the
// cluster. One without the listener on which brokers reach each other makes the
// controller of 3.9 fail at each change of the brokers: nothing fails over any
// more. One with another broker's endpoint draws that broker's requests.
func (b *Broker) checkCluster(ctx context.Context, s zkmeta.Session) error {
	brokers, err := zkmeta.ReadBrokers(ctx, s, false)
	if err != nil {
		return err
	}
	listener := b.static.InterBrokerListener
	own := zkmeta.BrokerRegistration{Endpoints: b.advertise}
	if _, ok := own.Endpoint(listener); !ok {
		return fmt.Errorf("advertised.listeners lacks inter.broker.listener.name %s: other brokers could not reach this one", listener)
	}
	for _, other := range brokers {
		if other.ID == b.id || other.Err != nil { // what nobody can read, nobody reaches
			continue
		}
		if _, ok := other.Registration.Endpoint(listener); !ok {
			return fmt.Errorf("broker %d has no listener named %s, the inter.broker.listener.name of this broker: brokers of one cluster reach each other on a listener of one name", other.ID, listener)
		}
		for _, mine := range b.advertise {
			for _, e := range other.Registration.Endpoints {
				if e.Host == mine.Host && e.Port == mine.Port {
					return fmt.Errorf("advertised listener %s is at %s:%d, where broker %d advertises its listener %s: give each broker an endpoint of its own", mine.Listener, mine.Host, mine.Port, other.ID, e.Listener)
				}
			}
		}
	}
	return nil
}

// register registers the broker and returns the session that holds the
// registration.
func (r *registration) register(ctx context.Context) (zkmeta.Session, error) {
	b := r.b
	reg := zkmeta.NewBrokerRegistration(b.advertise, b.static.Rack, b.o.Clock.Now().UnixMilli())
	if again := b.epoch.Load() != 0; again && !b.host.Load().Leaderless() {
		r.unclean = false
	}
	reg.MarkKbroker()
	if r.unclean {
		reg.MarkUncleanRestart()
	}
	epoch, s, err := zkclient.Registration{
		Store: b.store, ID: b.id, Broker: reg,
		Answers: b.answersElsewhere, Clock: b.o.Clock, Logger: b.o.Logger,
	}.Register(ctx)
	if errors.Is(err, zkmeta.ErrNodeExists) {
		return nil, fmt.Errorf("broker.id %d is registered by another process, whose session does not end: stop that process, or choose another broker.id; if it was killed, start again once its older, longer session is over: %w", b.id, err)
	}
	if err != nil {
		return nil, err
	}
	// Its end is watched: a process that another broker took for dead is told so.
	if _, there, err := s.Exists(ctx, zkmeta.BrokerPath(b.id), true); err != nil || !there {
		if err == nil || transient(err) {
			return r.register(ctx)
		}
		return nil, err
	}
	b.epoch.Store(int64(epoch))
	r.standing.Store(s.Generation())
	b.logs.SetBrokerEpoch(epoch)
	b.o.Logger.Info().Int64("brokerEpoch", int64(epoch)).Msg("registered")
	return s, nil
}

// answersElsewhere reports whether somebody listens at an endpoint of another
// registration of this broker's id. At one that is this broker's too, it is this
// broker: who had it before has gone.
func (b *Broker) answersElsewhere(ctx context.Context, other zkmeta.BrokerRegistration) bool {
	for _, e := range other.Endpoints {
		if slices.ContainsFunc(b.advertise, func(mine zkmeta.Endpoint) bool { return mine.Host == e.Host && mine.Port == e.Port }) {
			continue
		}
		d := net.Dialer{Timeout: 2 * time.Second}
		if c, err := d.DialContext(ctx, "tcp", hostPort(e.Host, e.Port)); err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}

// errUnsupported: the cluster has finalized what this broker does not know.
var errUnsupported = errors.New("features are finalized that this broker does not know")

// watchFeatures notes the version of the finalized features. kbroker knows no
// feature, so a cluster that has finalized one is not for it, as with Kafka. What
// nobody can read finalizes nothing until it is mended, as with Kafka: a slip
// in one znode must not end every broker of the cluster.
func (r *registration) watchFeatures(ctx context.Context, s zkmeta.Session) error {
	f, st, found, err := zkmeta.GetFeature(ctx, s, true)
	switch {
	case errors.Is(err, zkmeta.ErrBadZnode):
		r.b.o.Logger.Error().Err(err).Str("path", zkmeta.FeaturePath).
			Msg("the finalized features cannot be read and are taken for none until they can; set the znode to " + string(zkmeta.Feature{Version: 2, Enabled: true}.Encode()))
	case err != nil:
		return err
	case found && f.Enabled && len(f.Finalized) > 0:
		return fmt.Errorf("%w: %s lists %v", errUnsupported, zkmeta.FeaturePath, slices.Sorted(maps.Keys(f.Finalized)))
	case found && f.Enabled:
		r.b.featuresEpoch.Store(int64(st.Version))
		return nil
	}
	r.b.featuresEpoch.Store(-1)
	return nil
}

func (r *registration) watchConnections() {
	defer close(r.watched)
	for e := range r.connection {
		r.watchConnection(e.Type)
	}
}

// watchConnection tells the partitions whether ZooKeeper can be reached, so that
// leaders that may have lost their cluster fence themselves.
func (r *registration) watchConnection(e zkmeta.EventType) {
	h := r.b.host.Load()
	if h == nil || fenceAfter(r.b.static) == 0 {
		return
	}
	switch e {
	case zkmeta.Disconnected:
		h.ZooKeeperLost(true)
	case zkmeta.SessionStarted:
		h.ZooKeeperLost(false)
	case zkmeta.Connected:
		h.ZooKeeperLost(false)
	}
}

// sessionEnded makes leaders wait for a word that they lead.
func (r *registration) sessionEnded() {
	if h := r.b.host.Load(); h != nil && fenceAfter(r.b.static) > 0 {
		h.SessionEnded()
	}
}

// fenceAfter is after what time without ZooKeeper a leader may be deposed; 0 turns
// fencing off.
func fenceAfter(c *config.Broker) time.Duration {
	if c.ZooKeeperFencing == "off" {
		return 0
	}
	return c.ZooKeeperSessionTimeout
}

func (r *registration) keep(generation uint64) {
	defer close(r.done)
	for e := range r.events {
		var err error
		switch {
		case e.Type == zkmeta.SessionStarted && e.Generation > generation:
			r.sessionEnded() // the one before it
			var s zkmeta.Session
			if s, err = r.register(r.ctx); err == nil {
				generation = s.Generation()
				err = r.watchFeaturesOn(s)
			}
			if err == nil {
				err = r.watchKinds(r.ctx, s)
			}
		case e.Path == zkmeta.FeaturePath:
			err = r.featuresChanged()
		case e.Path == zkmeta.BrokerPath(r.b.id) && e.Generation == generation:
			err = r.ownChanged()
		case strings.HasPrefix(e.Path, zkmeta.BrokerIDsPath):
			err = r.brokersChanged()
		}
		if err != nil && r.ctx.Err() == nil && !transient(err) {
			r.b.fail(err)
			return
		}
	}
}

// ownChanged registers again where the registration is gone though its session
// lives: another broker found nobody at this one's endpoint, or somebody deleted
// the znode. It means what the end of a session does.
func (r *registration) ownChanged() error {
	for {
		s, err := r.b.store.Wait(r.ctx)
		if err != nil {
			return err
		}
		st, there, err := s.Exists(r.ctx, zkmeta.BrokerPath(r.b.id), true)
		if err == nil && (!there || st.EphemeralOwner != s.ID()) {
			break
		}
		if err == nil || !transient(err) {
			return err
		}
		// The watch is spent: nobody would tell again.
	}
	r.b.o.Logger.Warn().Msg("this broker's registration was taken out of ZooKeeper; registering again")
	r.sessionEnded()
	_, err := r.register(r.ctx)
	return err
}

// featuresChanged looks at the features in the session that there is; the next
// session begins with a look of its own.
func (r *registration) featuresChanged() error {
	s, err := r.b.store.Session()
	if err != nil {
		return err
	}
	return r.watchFeaturesOn(s)
}

// watchFeaturesOn is watchFeatures of a broker that runs: only features that it
// does not know end it.
func (r *registration) watchFeaturesOn(s zkmeta.Session) error {
	err := r.watchFeatures(r.ctx, s)
	if err == nil || errors.Is(err, errUnsupported) {
		return err
	}
	if r.ctx.Err() == nil && !transient(err) {
		r.b.o.Logger.Warn().Err(err).Str("path", zkmeta.FeaturePath).Msg("the finalized features were not read; what was known of them holds")
	}
	return nil
}

// watchKinds finds out whether every live broker is a kbroker: only then may
// groups use the protocol of KIP-848, whose records a coordinator of Kafka 3.9
// would pass over.
func (r *registration) watchKinds(ctx context.Context, s zkmeta.Session) error {
	if !slices.Contains(r.b.static.RebalanceProtocols, "consumer") {
		return nil
	}
	brokers, err := zkmeta.ReadBrokers(ctx, s, true)
	if err != nil {
		return err
	}
	all := !slices.ContainsFunc(brokers, func(b zkmeta.BrokerRead) bool { return b.Err != nil || !b.Registration.Kbroker() })
	if r.allKbrokers.Swap(all) != all {
		r.b.o.Logger.Info().Bool("on", all).Msg("the consumer protocol is on while every live broker is a kbroker")
	}
	return nil
}

// brokersChanged looks at the brokers in the session that there is; the next
// session begins with a look of its own.
func (r *registration) brokersChanged() error {
	s, err := r.b.store.Session()
	if err != nil {
		return err
	}
	return r.watchKinds(r.ctx, s)
}

// transient errors end with the session that they happened in.
func transient(err error) bool {
	return errors.Is(err, zkmeta.ErrSessionExpired) || errors.Is(err, zkmeta.ErrNotConnected) || errors.Is(err, zkmeta.ErrUnknownOutcome)
}

// logDirFailed tells the controller that replicas have gone offline.
func (r *registration) logDirFailed() {
	s, err := r.b.store.Wait(r.ctx)
	if err == nil {
		_, err = s.Multi(r.ctx, zkmeta.Create(zkmeta.LogDirEventSequentialPath, zkmeta.EncodeLogDirEvent(r.b.id), zkmeta.PersistentSequential, nil))
	}
	if err != nil {
		r.b.o.Logger.Error().Err(err).Msg("the controller was not told of the failed log directory")
	}
}
