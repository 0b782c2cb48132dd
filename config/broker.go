package config

import (
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// Listener is one endpoint. Name is upper case as Kafka normalises it; an
// empty Host means every interface; IPv6 hosts are without brackets.
type Listener struct {
	Name, Protocol, Host string
	Port                 int
}

// Broker is one broker's effective configuration. It is immutable: a dynamic
// change makes another one.
type Broker struct {
	Raw Values // what was set, dynamic configs applied

	ID                  cluster.BrokerID // broker.id; NoBroker: to be generated
	IDGeneration        bool             // broker.id.generation.enable
	ReservedBrokerMaxID int32            // reserved.broker.max.id
	Rack                string           // broker.rack
	InterBrokerProtocol string           // inter.broker.protocol.version, as set

	Listeners           []Listener // listeners
	AdvertisedListeners []Listener // advertised.listeners, or listeners
	InterBrokerListener string     // name of the listener that brokers use between them
	ControlPlane        string     // control.plane.listener.name, or ""

	LogDirs []string // log.dirs, or log.dir

	// Sockets and requests.
	NumNetworkThreads, NumIOThreads, BackgroundThreads int32
	SocketSendBufferBytes, SocketReceiveBufferBytes    int32
	SocketRequestMaxBytes                              int32
	SocketListenBacklog                                int32
	MaxConnections, MaxConnectionCreationRate          int32
	MaxConnectionsPerIP                                int32
	MaxConnectionsPerIPOverrides                       map[string]int32
	ConnectionsMaxIdle                                 time.Duration // negative: never closed
	QueuedMaxRequests                                  int32
	QueuedMaxRequestBytes                              int64 // -1: no bound of Kafka's
	RequestTimeout                                     time.Duration
	MaxRequestPartitionSizeLimit                       int32

	// Topics.
	AutoCreateTopics         bool
	DeleteTopicEnable        bool
	NumPartitions            int32
	DefaultReplicationFactor int32
	FetchMaxBytes            int32
	MaxFetchSessions         int32 // max.incremental.fetch.session.cache.slots

	// Logs, beside the topic defaults.
	RecoveryThreadsPerDir         int32
	RetentionCheckInterval        time.Duration
	FlushSchedulerInterval        time.Duration
	FlushOffsetCheckpointInterval time.Duration
	FlushStartOffsetCheckpoint    time.Duration
	HighWatermarkCheckpoint       time.Duration
	LogDirFailureTimeout          time.Duration
	InitialTaskDelay              time.Duration
	ProducerIDExpiration          time.Duration
	ProducerIDExpirationCheck     time.Duration
	TransactionMaxTimeout         time.Duration
	TxnPartitionVerification      bool
	CleanerEnable                 bool
	CleanerThreads                int32
	CleanerBackoff                time.Duration
	CleanerDedupeBufferBytes      int64
	CleanerIOBufferBytes          int32
	CleanerLoadFactor             float64
	CleanerIOMaxBytesPerSecond    float64
	MaxOpenFiles                  int32 // kbroker.max.open.files; 0: from the process's limit

	// Replication and the controller.
	ReplicaLagTimeMax            time.Duration
	ReplicaFetchWaitMax          time.Duration
	ReplicaFetchMinBytes         int32
	ReplicaFetchMaxBytes         int32
	ReplicaFetchResponseMaxBytes int32
	ReplicaFetchBackoff          time.Duration
	ReplicaSocketTimeout         time.Duration
	ReplicaSocketReceiveBuffer   int32
	NumReplicaFetchers           int32
	ControllerSocketTimeout      time.Duration
	ControlledShutdown           bool
	ControlledShutdownRetries    int32
	ControlledShutdownBackoff    time.Duration
	AutoLeaderRebalance          bool
	LeaderImbalanceCheck         time.Duration
	LeaderImbalancePercent       int32

	// ZooKeeper; an empty Connect means the embedded store.
	ZooKeeperConnect           string
	ZooKeeperSessionTimeout    time.Duration
	ZooKeeperConnectionTimeout time.Duration
	ZooKeeperSetACL            bool
	ZooKeeperMaxInFlight       int32

	// kbroker's own.
	HTTPListener       string // kbroker.http.listener, HOST:PORT, or ""
	ControllerEligible bool   // kbroker.controller.eligible
	ZooKeeperFencing   bool   // kbroker.zookeeper.fencing: auto (true) or off

	defaults                  Values // replaced table defaults
	static                    Values // server.properties and --override
	perBroker, clusterDefault Values
}

// An Option changes how NewBroker reads values.
type Option func(*Broker)

// WithDefaults replaces the table's defaults for some keys, as the caller that
// chooses the data directory does. They count as defaults, not as set values;
// a default log.dirs gives way to a log.dir that was set.
func WithDefaults(v Values) Option { return func(b *Broker) { b.defaults = v } }

// Standalone is the defaults of a broker started without a file: it listens on
// localhost:9092 only, keeps its data in dir and is content to be alone.
func Standalone(dir string) Values { panic("config: not built yet") }

// NewBroker checks every value and makes the effective configuration. The
// error is one line that names key, value and remedy. There is one warning for
// each key that is unknown or that kbroker does not act on; a caller that is
// strict turns warnings into errors.
func NewBroker(v Values, opts ...Option) (*Broker, []Warning, error) {
	panic("config: not built yet")
}

// WithDynamic is the broker with dynamic configs on top: the broker's own over
// the cluster's defaults over what was set over the table.
func (b *Broker) WithDynamic(perBroker, clusterDefault Values) (*Broker, error) {
	panic("config: not built yet")
}
