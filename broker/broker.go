package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/broker/api"
	"github.com/kbroker/kbroker/broker/configs"
	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/broker/producerids"
	"github.com/kbroker/kbroker/broker/quota"
	"github.com/kbroker/kbroker/broker/session"
	"github.com/kbroker/kbroker/broker/topics"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/console"
	"github.com/kbroker/kbroker/controller/loop"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/protocol/server"
	"github.com/kbroker/kbroker/zkmeta"
	zkclient "github.com/kbroker/kbroker/zkmeta/client"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
)

// What the metric BrokerState says, as Kafka numbers it.
const (
	starting                  = 1
	running                   = 3
	pendingControlledShutdown = 6
	shuttingDown              = 7
)

// Options of a broker.
type Options struct {
	Config *config.Broker
	Store  zkmeta.Store // nil: as Config says; else closed with the broker
	Clock  clock.Clock  // nil: the machine's
	FS     vfs.FS       // nil: the machine's
	Logger zerolog.Logger
}

// Broker is a running broker.
type Broker struct {
	o        Options
	static   *config.Broker
	id       cluster.BrokerID
	epoch    atomic.Int64
	state    atomic.Int32
	store    zkmeta.Store
	logs     *logstore.Store
	waits    *delay.Timer
	cache    *metadata.Cache
	host     atomic.Pointer[replica.Host]
	configs  *configs.Configs
	sessions *session.Cache
	server   *server.Server
	loop     atomic.Pointer[loop.Loop]
	metrics  *metric.Registry
	keeper   *registration
	vigil    *vigil // nil: off
	session  *sessionWatch
	console  *console.Server // nil: none

	replication  *replication
	coordinators *coordinators

	clusterID     string
	newStore      bool         // the embedded store was made by this start
	featuresEpoch atomic.Int64 // version of /feature, -1 without one
	advertise     []zkmeta.Endpoint

	fatal    chan error
	stopOnce sync.Once
	stopErr  error
}

// Start brings a broker up: when it returns, the broker is registered, listens,
// and has been told its partitions by the controller or will be shortly. Errors
// are for people: they say what is wrong and what to do. The end of ctx ends the
// start, with ctx's error alone if all that had begun was undone.
func Start(ctx context.Context, o Options) (*Broker, error) {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.FS == nil {
		o.FS = vfs.OS
	}
	b := &Broker{o: o, static: o.Config, metrics: &metric.Registry{}, cache: metadata.New(), fatal: make(chan error, 1)}
	b.state.Store(starting)
	if err := b.start(ctx); err != nil {
		stopErr := b.Stop()
		if ctx.Err() != nil && interrupted(err) {
			if stopErr != nil {
				return nil, stopErr
			}
			return nil, ctx.Err()
		}
		return nil, err
	}
	return b, nil
}

// interrupted reports whether an error is no more than the end of the context: a
// start that somebody ends waits for ZooKeeper or has a request under way there.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, zkmeta.ErrClosed) || transient(err)
}

func (b *Broker) start(ctx context.Context) error {
	steps := []func(context.Context) error{
		b.openStore, b.identify, b.loadConfigs, b.openLogs, b.listen, b.listenConsole, b.register, b.contend, b.watchPeers, b.serveConsole,
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return noAuth(err)
		}
	}
	b.server.Start()
	b.state.Store(running)
	return nil
}

// openStore opens ZooKeeper or the embedded store and makes the paths that
// every broker makes.
func (b *Broker) openStore(ctx context.Context) error {
	var err error
	switch {
	case b.o.Store != nil:
		b.store = b.o.Store
	case b.static.ZooKeeperConnect == "":
		// Beside the logs as plain files, which Apache Kafka passes over.
		b.store, err = embedded.Open(b.static.LogDirs[0], embedded.Options{Logger: b.o.Logger, Clock: b.o.Clock})
	default:
		var o zkclient.Options
		if o, err = zooKeeperOptions(b.static, b.o.Clock, b.o.Logger); err == nil {
			b.store, err = zkclient.Open(o)
		}
	}
	if err != nil {
		return err
	}
	waitCtx, cancel := context.WithTimeout(ctx, b.static.ZooKeeperConnectionTimeout)
	defer cancel()
	s, err := b.store.Wait(waitCtx)
	if err != nil {
		return noSession(b.static, err)
	}
	return zkmeta.EnsurePersistentPaths(ctx, s)
}

// identify settles the cluster's id and this broker's.
func (b *Broker) identify(ctx context.Context) error {
	s, err := b.store.Wait(ctx)
	if err != nil {
		return err
	}
	storedID, proposed, err := logstore.Identity(b.o.FS, b.static.LogDirs)
	if err != nil {
		return err
	}
	if proposed == "" || b.static.ZooKeeperConnect != "" {
		proposed = cluster.NewTopicID().String()
	}
	_, known, err := zkmeta.GetClusterID(ctx, s)
	if err != nil {
		return err
	}
	clusterID, err := zkmeta.GetOrCreateClusterID(ctx, s, proposed)
	if err != nil {
		return err
	}
	b.id = b.static.ID
	switch {
	case b.id == cluster.NoBroker && storedID != cluster.NoBroker:
		b.id = storedID
	case b.id == cluster.NoBroker && !b.static.IDGeneration:
		return errors.New("broker.id is not set and broker.id.generation.enable is false: set broker.id to a number of its own for each broker")
	case b.id == cluster.NoBroker:
		if b.id, err = zkmeta.NextBrokerID(ctx, s, cluster.BrokerID(b.static.ReservedBrokerMaxID)); err != nil {
			return err
		}
	}
	b.newStore = b.static.ZooKeeperConnect == "" && !known
	b.clusterID = clusterID
	b.o.Logger = b.o.Logger.With().Int32("broker", int32(b.id)).Logger()
	return nil
}

// loadConfigs puts the dynamic configs on top of the static ones.
func (b *Broker) loadConfigs(ctx context.Context) error {
	var err error
	b.configs, err = configs.Load(ctx, configs.Options{
		Store: b.store, Self: b.id, Static: b.static, Clock: b.o.Clock, Logger: b.o.Logger,
		OnTopic: func(topic string, c config.Log) {
			if h := b.host.Load(); h != nil {
				h.TopicConfigChanged(topic, c)
			}
		},
		OnBroker: func(*config.Broker) {
			if l := b.loop.Load(); l != nil {
				l.UncleanElectionChanged()
			}
		},
	})
	return err
}

// bootID is that of the machine whose disk fs is.
func bootID(fs vfs.FS) string {
	if fs != vfs.OS {
		return ""
	}
	return vfs.BootID()
}

func (b *Broker) openLogs(context.Context) error {
	c := b.configs.Broker()
	logs, err := logstore.Open(logstore.Options{
		Dirs: c.LogDirs, FS: b.o.FS, Clock: b.o.Clock, Logger: b.o.Logger, BrokerID: b.id, ClusterID: b.clusterID, BootID: bootID(b.o.FS),
		TopicConfig: b.configs.Topic, MaxOpenFiles: maxOpenFiles(int(c.MaxOpenFiles)), RecoveryThreads: int(c.RecoveryThreadsPerDir),
		FlushScheduler: c.FlushSchedulerInterval, FlushOffsetCheckpointInterval: c.FlushOffsetCheckpointInterval,
		FlushStartOffsetCheckpointInterval: c.FlushStartOffsetCheckpoint, HighWatermarkCheckpointInterval: c.HighWatermarkCheckpoint,
		RetentionCheckInterval: c.RetentionCheckInterval, InitialTaskDelay: c.InitialTaskDelay,
		ProducerExpiration: c.ProducerIDExpiration, ProducerExpirationCheck: c.ProducerIDExpirationCheck,
		TxnMaxTimeout: c.TransactionMaxTimeout, OnDirFailure: b.logDirFailed,
		Cleaner: b.cleanerConfig(c),
	})
	if err != nil {
		return err
	}
	b.logs = logs
	if n := len(logs.Logs()); b.newStore && n > 0 {
		b.o.Logger.Warn().Int("partitions", n).Str("dir", c.LogDirs[0]).
			Msg("log.dirs hold partitions, but the metadata store is new and knows none of them: they are not served. " +
				"Was kbroker.meta removed, or should zookeeper.connect be set?")
	}
	b.replication = b.newReplication()
	host := replica.NewHost(replica.Options{Self: b.id, Store: logs, TopicConfig: b.configs.Topic, MaxLag: c.ReplicaLagTimeMax,
		FenceAfter: fenceAfter(c), Fetching: b.replication.fetchers, Proposals: b.replication.isr, Clock: b.o.Clock, Logger: b.o.Logger})
	logs.SetHighWatermarkSource(host.HighWatermarks)
	b.host.Store(host)
	b.replication.start(b, host)
	return nil
}

// existing reports whether the cluster has topics, and how many partitions of
// __consumer_offsets there are.
func (b *Broker) existing(ctx context.Context) (topics bool, groupPartitions int, err error) {
	s, err := b.store.Wait(ctx)
	if err != nil {
		return false, 0, err
	}
	names, _, err := s.Children(ctx, zkmeta.TopicsPath, false)
	if errors.Is(err, zkmeta.ErrNoNode) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	if slices.Contains(names, cluster.GroupMetadataTopic) {
		list, err := zkmeta.ReadTopicsNamed(ctx, s, []string{cluster.GroupMetadataTopic}, false)
		if err != nil {
			return false, 0, err
		}
		for _, t := range list { // one that cannot be read is the controller's to report
			groupPartitions = len(t.Assignment.Partitions)
		}
	}
	return len(names) > 0, groupPartitions, nil
}

// listen opens the listeners; nothing is accepted yet.
func (b *Broker) listen(ctx context.Context) error {
	hasTopics, groupPartitions, err := b.existing(ctx)
	if err != nil {
		return err
	}
	b.waits = delay.NewTimer(b.o.Clock)
	c := b.configs.Broker()
	b.sessions = session.NewCache(int(c.MaxFetchSessions), uint64(b.o.Clock.Now().UnixNano()))
	b.coordinators = b.newCoordinators()
	handlers := api.New(api.Options{
		Self: b.id, ClusterID: b.clusterID, BrokerEpoch: func() cluster.BrokerEpoch { return cluster.BrokerEpoch(b.epoch.Load()) },
		Configs: b.configs, Replicas: b.host.Load(), Logs: b.logs, Metadata: b.cache,
		Sessions: b.sessions, HasTopics: hasTopics, GroupPartitions: groupPartitions,
		Waits: b.waits, Topics: topics.New(topics.Options{Store: b.store, Config: b.configs.Broker, Nodes: b.nodes}),
		ProducerIDs: producerids.New(b.allocateProducerIDs),
		AllKbrokers: func() bool { return b.keeper.allKbrokers.Load() }, Store: b.store,
		Controller: b.controller, FeaturesEpoch: b.featuresEpoch.Load,
		LeaderQuota: quota.NewReplication(func() int64 { return b.configs.Broker().LeaderReplicationRate },
			int(c.ReplicationQuotaWindows), c.ReplicationQuotaWindow),
		Groups: b.coordinators.groups, Metrics: b.metrics, Clock: b.o.Clock, Logger: b.o.Logger,
	})
	s, err := server.Listen(serverOptions(c, handlers, b.o.Clock, b.o.Logger, b.metrics))
	if err != nil {
		return err
	}
	b.server = s
	b.advertise = advertised(c, s.Addr)
	return nil
}

// nodes are the live brokers as placements see them.
func (b *Broker) nodes() []topics.Node {
	brokers := b.cache.Brokers()
	out := make([]topics.Node, len(brokers))
	for i, x := range brokers {
		out[i] = topics.Node{ID: x.ID, Rack: x.Rack}
	}
	return out
}

// register makes the broker known to the cluster.
func (b *Broker) register(ctx context.Context) error {
	b.keeper = newRegistration(b)
	return b.keeper.begin(ctx)
}

// contend starts the controller, or the wait for becoming it.
func (b *Broker) contend(context.Context) error {
	c := b.configs.Broker()
	listener := c.ControlPlane
	if listener == "" {
		listener = c.InterBrokerListener
	}
	l, err := loop.Start(loop.Options{
		Store: b.store, Self: b.id, Listener: listener, InterBrokerListener: c.InterBrokerListener,
		Client:          client.Options{ClientID: strconv.Itoa(int(b.id)), RequestTimeout: c.ControllerSocketTimeout, Clock: b.o.Clock},
		UncleanElection: func() bool { return b.configs.Broker().TopicDefaults().UncleanElection },
		MinISR:          func() int { return int(b.configs.Broker().TopicDefaults().MinInSyncReplicas) },
		DeletionOff:     !c.DeleteTopicEnable,
		RebalanceEvery:  rebalanceEvery(c), RebalancePercentage: int(c.LeaderRebalancePercentage),
		Ineligible: !c.ControllerEligible, VacantAfter: c.ZooKeeperSessionTimeout, Clock: b.o.Clock, Logger: b.o.Logger,
	})
	if err != nil {
		return err
	}
	b.loop.Store(l)
	b.registerGauges()
	return nil
}

// watchPeers begins to look for processes that are gone.
func (b *Broker) watchPeers(context.Context) error {
	if c := b.configs.Broker(); c.DeadBrokerDetection != "off" {
		b.vigil = startVigil(b.id, b.cache, b.store, c.InterBrokerListener, b.o.Clock, b.o.Logger)
	}
	return nil
}

// rebalanceEvery is how often preferred leaders are restored, 0 for never.
func rebalanceEvery(c *config.Broker) time.Duration {
	if !c.LeaderRebalance {
		return 0
	}
	return c.LeaderRebalanceEvery
}

func (b *Broker) controller() api.Controller {
	if l := b.loop.Load(); l != nil {
		return l
	}
	return nil
}

// logDirFailed takes the replicas of a directory offline and tells the
// controller. A broker without a directory left stops, as in Kafka.
func (b *Broker) logDirFailed(dir string, err error) {
	h := b.host.Load()
	if h == nil {
		return
	}
	gone := h.LogDirFailed(dir)
	b.o.Logger.Error().Err(err).Str("dir", dir).Int("replicas", len(gone)).Msg("log directory failed, its replicas are offline")
	if !slices.ContainsFunc(b.logs.Dirs(), func(d logstore.DirInfo) bool { return d.Err == nil }) {
		b.fail(fmt.Errorf("every log directory has failed, the last one is %s: %w", dir, err))
		return
	}
	b.keeper.logDirFailed()
}

// fail asks the owner of the broker to stop it.
func (b *Broker) fail(err error) {
	select {
	case b.fatal <- err:
	default:
	}
}

// Failed delivers an error after which the broker cannot go on; its owner then
// calls Stop.
func (b *Broker) Failed() <-chan error { return b.fatal }

// ID is the broker's id.
func (b *Broker) ID() cluster.BrokerID { return b.id }

// Addr is where a listener listens.
func (b *Broker) Addr(listener string) net.Addr { return b.server.Addr(listener) }

// Advertised are the endpoints that clients are told.
func (b *Broker) Advertised() []zkmeta.Endpoint { return b.advertise }

// Metrics are the broker's metrics.
func (b *Broker) Metrics() *metric.Registry { return b.metrics }

// Stop ends the broker: no more requests, what was accepted is answered and on
// disk, the directories are marked clean, and last the registration goes. It
// also undoes a start that failed half-way.
func (b *Broker) Stop() error {
	b.stopOnce.Do(func() { b.stopErr = b.stop() })
	return b.stopErr
}

// withoutStorage is what is left of joined errors without those of directories
// that had failed before, which was said when they did.
func withoutStorage(err error) error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		joined := errors.Join(list.Unwrap()...)
		if joined.Error() == err.Error() { // else it is a failure with its cause
			var rest []error
			for _, e := range list.Unwrap() {
				rest = append(rest, withoutStorage(e))
			}
			return errors.Join(rest...)
		}
	}
	if errors.Is(err, logstore.ErrStorage) {
		return nil
	}
	return err
}

// drainTimeout bounds how long Stop waits for requests in flight.
const drainTimeout = 10 * time.Second

func (b *Broker) stop() error {
	var errs []error
	b.closeConsole()
	if b.loop.Load() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), b.shutdownTimeout())
		b.state.Store(pendingControlledShutdown)
		b.controlledShutdown(ctx)
		cancel()
	}
	b.state.Store(shuttingDown)
	if l := b.loop.Load(); l != nil {
		l.Close()
	}
	if b.vigil != nil {
		b.vigil.close()
	}
	if b.keeper != nil {
		b.keeper.close()
	}
	if b.coordinators != nil {
		b.coordinators.close() // before the timer that its shards run on
	}
	if b.waits != nil {
		b.waits.Close() // what is parked is answered now
	}
	if b.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		if err := b.server.Close(ctx); err != nil {
			b.o.Logger.Warn().Err(err).Msg("some clients did not take their answers in time")
		}
	}
	if b.configs != nil {
		b.configs.Close()
	}
	if b.replication != nil {
		b.replication.close()
	}
	if b.logs != nil {
		err := b.logs.Close()
		if errors.Is(err, logstore.ErrStorage) {
			b.o.Logger.Warn().Msg("a log directory was offline and is not marked as cleanly stopped")
		}
		errs = append(errs, withoutStorage(err))
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	return errors.Join(errs...)
}
