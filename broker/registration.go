package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// registration keeps the broker registered: at its start, and again in each new
// session. Its goroutine also watches the finalized features.
type registration struct {
	b      *Broker
	events <-chan zkmeta.Event
	stop   func()
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

func newRegistration(b *Broker) *registration {
	r := &registration{b: b, done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.events, r.stop = b.store.Subscribe()
	return r
}

// begin registers for the first time and starts to keep the registration up.
func (r *registration) begin(ctx context.Context) error {
	s, err := r.b.store.Wait(ctx)
	if err == nil {
		err = r.b.checkCluster(ctx, s)
	}
	if err == nil {
		err = r.register(ctx, s)
	}
	if err == nil {
		err = r.watchFeatures(ctx, s)
	}
	if err != nil {
		r.stop()
		close(r.done)
		return err
	}
	go r.keep(s.Generation())
	return nil
}

func (r *registration) close() {
	r.cancel()
	r.stop()
	<-r.done
}

// checkCluster refuses what this broker cannot live in: without replication, a
// second broker would have partitions on both that are never copied.
func (b *Broker) checkCluster(ctx context.Context, s zkmeta.Session) error {
	brokers, err := zkmeta.ReadBrokers(ctx, s, false)
	if err != nil {
		return err
	}
	for _, other := range brokers {
		if other.ID != b.id {
			return fmt.Errorf("broker %d is registered in this ZooKeeper and kbroker does not replicate between brokers yet: stop it, or give this broker a chroot of its own in zookeeper.connect", other.ID)
		}
	}
	return nil
}

// register registers in this session. A registration left by an earlier session
// of this process is replaced; that of another process is waited for, as its
// session may be about to expire.
func (r *registration) register(ctx context.Context, s zkmeta.Session) error {
	b := r.b
	id, path := b.id, zkmeta.BrokerPath(b.id)
	deadline := time.Now().Add(s.Timeout() + 2*tickTime)
	for waited := false; ; {
		reg := zkmeta.NewBrokerRegistration(b.advertise, b.static.Rack, b.o.Clock.Now().UnixMilli())
		results, err := s.Multi(ctx, zkmeta.Register(id, reg)...)
		if err == nil {
			b.registered(cluster.BrokerEpoch(results[1].Stat.Czxid))
			return nil
		}
		if !errors.Is(err, zkmeta.ErrNodeExists) && !errors.Is(err, zkmeta.ErrUnknownOutcome) {
			return fmt.Errorf("registering broker %d: %w", id, err)
		}
		st, there, err := s.Exists(ctx, path, false)
		switch {
		case err != nil:
			return fmt.Errorf("registering broker %d: %w", id, err)
		case !there:
			continue
		case st.EphemeralOwner == s.ID() && st.Version == 1:
			b.registered(cluster.BrokerEpoch(st.Czxid))
			return nil
		case s.Owned(st.EphemeralOwner):
			_, _ = s.Multi(ctx, zkmeta.Delete(path, st.Version)) // gone already is as good
			continue
		case time.Now().After(deadline):
			return fmt.Errorf("broker.id %d is registered by another process and its session does not end: stop that process, or choose another broker.id", id)
		}
		if !waited {
			b.o.Logger.Warn().Str("znode", path).Msg("another session has registered this broker id, waiting for it to end")
			waited = true
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// tickTime is the largest tick of a ZooKeeper server that is usual.
const tickTime = 2 * time.Second

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Broker) registered(epoch cluster.BrokerEpoch) {
	b.epoch.Store(int64(epoch))
	b.logs.SetBrokerEpoch(epoch)
	b.o.Logger.Info().Int64("brokerEpoch", int64(epoch)).Msg("registered")
}

// watchFeatures notes the version of the finalized features. kbroker knows no
// feature, so a cluster that has finalized one is not for it, as with Kafka.
func (r *registration) watchFeatures(ctx context.Context, s zkmeta.Session) error {
	f, st, found, err := zkmeta.GetFeature(ctx, s, true)
	if err != nil {
		return err
	}
	if !found {
		r.b.featuresEpoch.Store(-1)
		return nil
	}
	r.b.featuresEpoch.Store(int64(st.Version))
	if len(f.Features) > 0 {
		return fmt.Errorf("%s lists finalized features that this broker does not know: %v", zkmeta.FeaturePath, f.Features)
	}
	return nil
}

func (r *registration) keep(generation uint64) {
	defer close(r.done)
	for e := range r.events {
		switch {
		case e.Type == zkmeta.SessionStarted && e.Generation > generation:
			generation = e.Generation
			r.again()
		case e.Path == zkmeta.FeaturePath:
			r.again()
		}
	}
}

// again registers in a new session, and looks at the features.
func (r *registration) again() {
	for r.ctx.Err() == nil {
		s, err := r.b.store.Wait(r.ctx)
		if err != nil {
			return
		}
		if !r.mine(s) {
			err = r.register(r.ctx, s)
		}
		if err == nil {
			err = r.watchFeatures(r.ctx, s)
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, zkmeta.ErrSessionExpired), errors.Is(err, zkmeta.ErrNotConnected), errors.Is(err, zkmeta.ErrUnknownOutcome):
			if pause(r.ctx, 100*time.Millisecond) != nil {
				return
			}
		default:
			r.b.fail(err)
			return
		}
	}
}

// mine reports whether this session owns the registration.
func (r *registration) mine(s zkmeta.Session) bool {
	st, there, err := s.Exists(r.ctx, zkmeta.BrokerPath(r.b.id), false)
	return err == nil && there && st.EphemeralOwner == s.ID()
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
