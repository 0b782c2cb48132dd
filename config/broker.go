package config

import (
	"maps"
	"strings"
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// Broker is one broker's effective configuration. It is immutable: a dynamic
// change makes another one. Its maps and slices are not to be written to.
type Broker struct {
	Raw Values // what was set, dynamic configs applied

	ID                  cluster.BrokerID // broker.id; NoBroker: to be generated
	IDGeneration        bool             // broker.id.generation.enable
	ReservedBrokerMaxID int32            // reserved.broker.max.id
	Rack                string           // broker.rack, or ""

	Listeners           []Listener // listeners
	AdvertisedListeners []Listener // advertised.listeners, or Listeners; an empty Host is this machine's name
	InterBrokerListener string     // the listener that brokers use between them
	ControlPlane        string     // control.plane.listener.name, or ""

	LogDirs []string // log.dirs, or log.dir; without duplicates

	// Sockets and requests.
	SocketSendBufferBytes        int32            // socket.send.buffer.bytes; -1: the system's
	SocketReceiveBufferBytes     int32            // socket.receive.buffer.bytes; -1: the system's
	SocketRequestMaxBytes        int32            // socket.request.max.bytes
	MaxConnections               int32            // max.connections; see also ListenerLimits
	MaxConnectionCreationRate    int32            // max.connection.creation.rate
	MaxConnectionsPerIP          int32            // max.connections.per.ip
	MaxConnectionsPerIPOverrides map[string]int32 // max.connections.per.ip.overrides, by host or address
	ConnectionsMaxIdle           time.Duration    // connections.max.idle.ms; negative: never closed
	QueuedMaxRequestBytes        int64            // queued.max.request.bytes; not positive: no bound was set
	RequestTimeout               time.Duration    // request.timeout.ms

	HTTPListener string // kbroker.http.listener: HOST:PORT, an empty host being loopback; "": none

	// Topics.
	AutoCreateTopics         bool  // auto.create.topics.enable
	DeleteTopicEnable        bool  // delete.topic.enable
	NumPartitions            int32 // num.partitions
	DefaultReplicationFactor int32 // default.replication.factor
	FetchMaxBytes            int32 // fetch.max.bytes
	MaxFetchSessions         int32 // max.incremental.fetch.session.cache.slots

	// Internal topics, as they are created on first use.
	OffsetsTopicPartitions            int32 // offsets.topic.num.partitions
	OffsetsTopicReplicationFactor     int32 // offsets.topic.replication.factor
	OffsetsTopicSegmentBytes          int32 // offsets.topic.segment.bytes
	OffsetMetadataMaxBytes            int32 // offset.metadata.max.bytes
	TransactionTopicPartitions        int32 // transaction.state.log.num.partitions
	TransactionTopicReplicationFactor int32 // transaction.state.log.replication.factor
	TransactionTopicSegmentBytes      int32 // transaction.state.log.segment.bytes
	TransactionTopicMinISR            int32 // transaction.state.log.min.isr

	// The group coordinator.
	RebalanceProtocols           []string      // group.coordinator.rebalance.protocols
	OffsetsLoadBufferSize        int32         // offsets.load.buffer.size
	OffsetsCompressionCodec      int32         // offsets.topic.compression.codec: a batch's codec number
	OffsetsRetentionMinutes      int32         // offsets.retention.minutes
	OffsetsRetentionCheck        time.Duration // offsets.retention.check.interval.ms
	OffsetsCommitTimeout         time.Duration // offsets.commit.timeout.ms
	GroupMinSessionTimeout       time.Duration // group.min.session.timeout.ms
	GroupMaxSessionTimeout       time.Duration // group.max.session.timeout.ms
	GroupInitialRebalanceDelay   time.Duration // group.initial.rebalance.delay.ms
	GroupMaxSize                 int32         // group.max.size
	ConsumerGroupSessionTimeout  time.Duration // group.consumer.session.timeout.ms
	ConsumerGroupHeartbeat       time.Duration // group.consumer.heartbeat.interval.ms
	ConsumerGroupMaxSize         int32         // group.consumer.max.size
	ConsumerGroupAssignors       []string      // group.consumer.assignors, see AssignorName
	ConsumerGroupMigrationPolicy string        // group.consumer.migration.policy

	// Logs, beside the topic defaults.
	RecoveryThreadsPerDir         int32         // num.recovery.threads.per.data.dir
	RetentionCheckInterval        time.Duration // log.retention.check.interval.ms
	FlushSchedulerInterval        time.Duration // log.flush.scheduler.interval.ms
	FlushOffsetCheckpointInterval time.Duration // log.flush.offset.checkpoint.interval.ms
	FlushStartOffsetCheckpoint    time.Duration // log.flush.start.offset.checkpoint.interval.ms
	HighWatermarkCheckpoint       time.Duration // replica.high.watermark.checkpoint.interval.ms
	InitialTaskDelay              time.Duration // log.initial.task.delay.ms
	ProducerIDExpiration          time.Duration // producer.id.expiration.ms
	ProducerIDExpirationCheck     time.Duration // producer.id.expiration.check.interval.ms
	TransactionMaxTimeout         time.Duration // transaction.max.timeout.ms
	MaxOpenFiles                  int32         // kbroker.max.open.files; 0: from the process's limit

	// Compaction, beside the topic defaults.
	CleanerEnable       bool          // log.cleaner.enable
	CleanerThreads      int32         // log.cleaner.threads
	CleanerDedupeBuffer int64         // log.cleaner.dedupe.buffer.size
	CleanerLoadFactor   float64       // log.cleaner.io.buffer.load.factor
	CleanerIOBuffer     int32         // log.cleaner.io.buffer.size
	CleanerMaxIORate    float64       // log.cleaner.io.max.bytes.per.second
	CleanerBackoff      time.Duration // log.cleaner.backoff.ms

	// Replication and the controller.
	ReplicaLagTimeMax            time.Duration // replica.lag.time.max.ms
	ReplicaFetchers              int32         // num.replica.fetchers
	ReplicaFetchWaitMax          time.Duration // replica.fetch.wait.max.ms
	ReplicaFetchMinBytes         int32         // replica.fetch.min.bytes
	ReplicaFetchMaxBytes         int32         // replica.fetch.max.bytes, of a partition
	ReplicaFetchResponseMaxBytes int32         // replica.fetch.response.max.bytes
	ReplicaFetchBackoff          time.Duration // replica.fetch.backoff.ms
	ReplicaSocketTimeout         time.Duration // replica.socket.timeout.ms
	ReplicaSelector              string        // replica.selector.class
	ControlledShutdown           bool          // controlled.shutdown.enable
	ControlledShutdownRetries    int32         // controlled.shutdown.max.retries
	ControlledShutdownBackoff    time.Duration // controlled.shutdown.retry.backoff.ms
	ControllerSocketTimeout      time.Duration // controller.socket.timeout.ms
	ControllerEligible           bool          // kbroker.controller.eligible
	LeaderReplicationRate        int64         // leader.replication.throttled.rate, bytes a second
	FollowerReplicationRate      int64         // follower.replication.throttled.rate, bytes a second
	ReplicationQuotaWindows      int32         // replication.quota.window.num
	ReplicationQuotaWindow       time.Duration // replication.quota.window.size.seconds
	ZooKeeperFencing             string        // kbroker.zookeeper.fencing
	DeadBrokerDetection          string        // kbroker.dead.broker.detection
	LeaderRebalance              bool          // auto.leader.rebalance.enable
	LeaderRebalanceEvery         time.Duration // leader.imbalance.check.interval.seconds
	LeaderRebalancePercentage    int32         // leader.imbalance.per.broker.percentage

	// ZooKeeper; an empty Connect means the embedded store.
	ZooKeeperConnect           string        // zookeeper.connect
	ZooKeeperSessionTimeout    time.Duration // zookeeper.session.timeout.ms
	ZooKeeperConnectionTimeout time.Duration // zookeeper.connection.timeout.ms, or the session's
	ZooKeeperSetACL            bool          // zookeeper.set.acl
	ZooKeeperDigest            string        // kbroker.zookeeper.digest, a secret
	ZooKeeperTLS               ZooKeeperTLS

	set                       *settings
	defaults                  Values // the caller's own defaults
	static                    Values // server.properties and overrides
	perBroker, clusterDefault Values
	topicBase                 map[string]value // topic keys without overrides
	topicDefaults             Log
}

// ZooKeeperTLS is the zookeeper.ssl keys.
type ZooKeeperTLS struct {
	Enable                 bool     // client.enable
	ClientCnxnSocket       string   // zookeeper.clientCnxnSocket
	KeyStore, TrustStore   KeyStore // keystore, truststore
	Protocol               string   // protocol
	EnabledProtocols       []string // enabled.protocols; none: Protocol
	CipherSuites           []string // cipher.suites
	EndpointIdentification string   // endpoint.identification.algorithm
	CRL, OCSP              bool     // crl.enable, ocsp.enable
}

// KeyStore says where a key or trust store is.
type KeyStore struct {
	Location, Password, Type string
}

// RackAwareSelector is the class that Kafka ships for replica.selector.class, and
// the only one that kbroker knows: others are Java code.
const RackAwareSelector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

// AssignorName is what an entry of group.consumer.assignors is called on the wire:
// Kafka's classes have names, which may be written themselves, too. Others are
// Java code.
func AssignorName(class string) (string, bool) {
	const pkg = "org.apache.kafka.coordinator.group.assignor."
	switch class {
	case pkg + "UniformAssignor", "uniform":
		return "uniform", true
	case pkg + "RangeAssignor", "range":
		return "range", true
	}
	return "", false
}

// binding ties a key to the field that holds it.
type binding struct {
	key   string
	field any // *bool, *int32, *int64, *float64, *string, *[]string or *time.Duration
}

// bindings lists the keys whose fields are filled by type alone.
func (b *Broker) bindings() []binding {
	return []binding{
		{"broker.id.generation.enable", &b.IDGeneration},
		{"reserved.broker.max.id", &b.ReservedBrokerMaxID},
		{"broker.rack", &b.Rack},
		{"socket.send.buffer.bytes", &b.SocketSendBufferBytes},
		{"socket.receive.buffer.bytes", &b.SocketReceiveBufferBytes},
		{"socket.request.max.bytes", &b.SocketRequestMaxBytes},
		{"max.connections", &b.MaxConnections},
		{"max.connection.creation.rate", &b.MaxConnectionCreationRate},
		{"max.connections.per.ip", &b.MaxConnectionsPerIP},
		{"connections.max.idle.ms", &b.ConnectionsMaxIdle},
		{"queued.max.request.bytes", &b.QueuedMaxRequestBytes},
		{"request.timeout.ms", &b.RequestTimeout},
		{"auto.create.topics.enable", &b.AutoCreateTopics},
		{"delete.topic.enable", &b.DeleteTopicEnable},
		{"num.partitions", &b.NumPartitions},
		{"default.replication.factor", &b.DefaultReplicationFactor},
		{"fetch.max.bytes", &b.FetchMaxBytes},
		{"max.incremental.fetch.session.cache.slots", &b.MaxFetchSessions},
		{"offsets.topic.num.partitions", &b.OffsetsTopicPartitions},
		{"offsets.topic.replication.factor", &b.OffsetsTopicReplicationFactor},
		{"offsets.topic.segment.bytes", &b.OffsetsTopicSegmentBytes},
		{"offset.metadata.max.bytes", &b.OffsetMetadataMaxBytes},
		{"group.coordinator.rebalance.protocols", &b.RebalanceProtocols},
		{"offsets.load.buffer.size", &b.OffsetsLoadBufferSize},
		{"offsets.topic.compression.codec", &b.OffsetsCompressionCodec},
		{"offsets.retention.minutes", &b.OffsetsRetentionMinutes},
		{"offsets.retention.check.interval.ms", &b.OffsetsRetentionCheck},
		{"offsets.commit.timeout.ms", &b.OffsetsCommitTimeout},
		{"group.min.session.timeout.ms", &b.GroupMinSessionTimeout},
		{"group.max.session.timeout.ms", &b.GroupMaxSessionTimeout},
		{"group.initial.rebalance.delay.ms", &b.GroupInitialRebalanceDelay},
		{"group.max.size", &b.GroupMaxSize},
		{"group.consumer.session.timeout.ms", &b.ConsumerGroupSessionTimeout},
		{"group.consumer.heartbeat.interval.ms", &b.ConsumerGroupHeartbeat},
		{"group.consumer.max.size", &b.ConsumerGroupMaxSize},
		{"group.consumer.assignors", &b.ConsumerGroupAssignors},
		{"group.consumer.migration.policy", &b.ConsumerGroupMigrationPolicy},
		{"transaction.state.log.num.partitions", &b.TransactionTopicPartitions},
		{"transaction.state.log.replication.factor", &b.TransactionTopicReplicationFactor},
		{"transaction.state.log.segment.bytes", &b.TransactionTopicSegmentBytes},
		{"transaction.state.log.min.isr", &b.TransactionTopicMinISR},
		{"num.recovery.threads.per.data.dir", &b.RecoveryThreadsPerDir},
		{"log.retention.check.interval.ms", &b.RetentionCheckInterval},
		{"log.flush.scheduler.interval.ms", &b.FlushSchedulerInterval},
		{"log.flush.offset.checkpoint.interval.ms", &b.FlushOffsetCheckpointInterval},
		{"log.flush.start.offset.checkpoint.interval.ms", &b.FlushStartOffsetCheckpoint},
		{"replica.high.watermark.checkpoint.interval.ms", &b.HighWatermarkCheckpoint},
		{"log.initial.task.delay.ms", &b.InitialTaskDelay},
		{"producer.id.expiration.ms", &b.ProducerIDExpiration},
		{"producer.id.expiration.check.interval.ms", &b.ProducerIDExpirationCheck},
		{"transaction.max.timeout.ms", &b.TransactionMaxTimeout},
		{"kbroker.max.open.files", &b.MaxOpenFiles},
		{"log.cleaner.enable", &b.CleanerEnable},
		{"log.cleaner.threads", &b.CleanerThreads},
		{"log.cleaner.dedupe.buffer.size", &b.CleanerDedupeBuffer},
		{"log.cleaner.io.buffer.load.factor", &b.CleanerLoadFactor},
		{"log.cleaner.io.buffer.size", &b.CleanerIOBuffer},
		{"log.cleaner.io.max.bytes.per.second", &b.CleanerMaxIORate},
		{"log.cleaner.backoff.ms", &b.CleanerBackoff},
		{"replica.lag.time.max.ms", &b.ReplicaLagTimeMax},
		{"num.replica.fetchers", &b.ReplicaFetchers},
		{"replica.fetch.wait.max.ms", &b.ReplicaFetchWaitMax},
		{"replica.fetch.min.bytes", &b.ReplicaFetchMinBytes},
		{"replica.fetch.max.bytes", &b.ReplicaFetchMaxBytes},
		{"replica.fetch.response.max.bytes", &b.ReplicaFetchResponseMaxBytes},
		{"replica.fetch.backoff.ms", &b.ReplicaFetchBackoff},
		{"replica.socket.timeout.ms", &b.ReplicaSocketTimeout},
		{"replica.selector.class", &b.ReplicaSelector},
		{"controlled.shutdown.enable", &b.ControlledShutdown},
		{"controlled.shutdown.max.retries", &b.ControlledShutdownRetries},
		{"controlled.shutdown.retry.backoff.ms", &b.ControlledShutdownBackoff},
		{"controller.socket.timeout.ms", &b.ControllerSocketTimeout},
		{"leader.replication.throttled.rate", &b.LeaderReplicationRate},
		{"follower.replication.throttled.rate", &b.FollowerReplicationRate},
		{"replication.quota.window.num", &b.ReplicationQuotaWindows},
		{"replication.quota.window.size.seconds", &b.ReplicationQuotaWindow},
		{"kbroker.zookeeper.fencing", &b.ZooKeeperFencing},
		{"kbroker.dead.broker.detection", &b.DeadBrokerDetection},
		{"auto.leader.rebalance.enable", &b.LeaderRebalance},
		{"leader.imbalance.check.interval.seconds", &b.LeaderRebalanceEvery},
		{"leader.imbalance.per.broker.percentage", &b.LeaderRebalancePercentage},
		{"kbroker.controller.eligible", &b.ControllerEligible},
		{"kbroker.http.listener", &b.HTTPListener},
		{"zookeeper.connect", &b.ZooKeeperConnect},
		{"zookeeper.session.timeout.ms", &b.ZooKeeperSessionTimeout},
		{"zookeeper.connection.timeout.ms", &b.ZooKeeperConnectionTimeout},
		{"zookeeper.set.acl", &b.ZooKeeperSetACL},
		{"kbroker.zookeeper.digest", &b.ZooKeeperDigest},
		{"zookeeper.ssl.client.enable", &b.ZooKeeperTLS.Enable},
		{"zookeeper.clientCnxnSocket", &b.ZooKeeperTLS.ClientCnxnSocket},
		{"zookeeper.ssl.keystore.location", &b.ZooKeeperTLS.KeyStore.Location},
		{"zookeeper.ssl.keystore.password", &b.ZooKeeperTLS.KeyStore.Password},
		{"zookeeper.ssl.keystore.type", &b.ZooKeeperTLS.KeyStore.Type},
		{"zookeeper.ssl.truststore.location", &b.ZooKeeperTLS.TrustStore.Location},
		{"zookeeper.ssl.truststore.password", &b.ZooKeeperTLS.TrustStore.Password},
		{"zookeeper.ssl.truststore.type", &b.ZooKeeperTLS.TrustStore.Type},
		{"zookeeper.ssl.protocol", &b.ZooKeeperTLS.Protocol},
		{"zookeeper.ssl.enabled.protocols", &b.ZooKeeperTLS.EnabledProtocols},
		{"zookeeper.ssl.cipher.suites", &b.ZooKeeperTLS.CipherSuites},
		{"zookeeper.ssl.endpoint.identification.algorithm", &b.ZooKeeperTLS.EndpointIdentification},
		{"zookeeper.ssl.crl.enable", &b.ZooKeeperTLS.CRL},
		{"zookeeper.ssl.ocsp.enable", &b.ZooKeeperTLS.OCSP},
	}
}

// An Option changes how NewBroker reads values.
type Option func(*Broker)

// WithDefaults replaces the table's defaults for some keys, as the caller that
// chooses the data directory does. They count as defaults, not as set values;
// a default log.dirs gives way to a log.dir that was set.
func WithDefaults(v Values) Option { return func(b *Broker) { b.defaults = v } }

// Standalone is the defaults of a broker started without a file: it listens on
// localhost:9092 only, keeps its data in dir, and has an id.
func Standalone(dir string) Values {
	return Values{
		"broker.id":                             "0",
		"listeners":                             "PLAINTEXT://localhost:9092",
		"log.dirs":                              dir,
		"group.initial.rebalance.delay.ms":      "0",
		"group.coordinator.rebalance.protocols": "classic,consumer",
	}
}

// alone are defaults of a broker without ZooKeeper, beside which there can be no
// other: Kafka's would leave its internal topics waiting for two more.
var alone = Values{
	"offsets.topic.replication.factor":         "1",
	"transaction.state.log.replication.factor": "1",
	"transaction.state.log.min.isr":            "1",
}

// NewBroker checks every value and makes the effective configuration. The
// error is one line that names key, value and remedy. There is one warning for
// each key that is unknown or that kbroker does not act on; a caller that is
// strict turns warnings into errors.
func NewBroker(v Values, opts ...Option) (*Broker, []Warning, error) {
	b := &Broker{}
	for _, o := range opts {
		o(b)
	}
	if _, ok := v["log.dir"]; ok && b.defaults["log.dirs"] != "" {
		b.defaults = maps.Clone(b.defaults)
		delete(b.defaults, "log.dirs")
	}
	if id, ok := v["node.id"]; ok { // else the default id would contradict it
		b.defaults = overlay(b.defaults, Values{"broker.id": id})
	}
	if v["zookeeper.connect"] == "" { // there will be no other broker, so no second replica
		b.defaults = overlay(alone, b.defaults)
	}
	b.static = withAliases(v)
	if err := unresolved(b.static); err != nil {
		return nil, nil, startError(err)
	}
	if err := b.fill(b.static); err != nil {
		return nil, nil, startError(err)
	}
	return b, warnings(b.set), nil
}

// startError shows an error as an operator wants it: what Kafka would answer
// over the wire becomes KEY=VALUE: PROBLEM.
func startError(err *InvalidError) error {
	e := *err
	if e.kind == badValue {
		e.Problem += remedy(e.Key)
	}
	e.text = ""
	return &e
}

func remedy(name string) string {
	k := keyOf(name)
	if k == nil {
		return ""
	}
	switch {
	case k.Type == Boolean:
		return "; write true or false"
	case k.Type == Double:
		return "; write a number" + allowed(k)
	case k.Type == Int, k.Type == Short, k.Type == Long:
		return "; write a whole number without a unit" + allowed(k)
	}
	return ""
}

func allowed(k *key) string {
	if k.Valid == "" {
		return ""
	}
	return " (" + k.Valid + ")"
}

// WithDynamic is the broker with dynamic configs on top: the broker's own over
// the cluster's defaults over what was set over the table. What b itself had
// of dynamic configs is replaced.
func (b *Broker) WithDynamic(perBroker, clusterDefault Values) (*Broker, error) {
	n := &Broker{defaults: b.defaults, static: b.static, perBroker: maps.Clone(perBroker), clusterDefault: maps.Clone(clusterDefault)}
	if err := n.fill(overlay(overlay(b.static, clusterDefault), perBroker)); err != nil {
		return nil, err
	}
	return n, nil
}

// fill reads raw into b, whose defaults are known.
func (b *Broker) fill(raw Values) *InvalidError {
	s, err := readSettings(raw, b.defaults)
	if err != nil {
		return err
	}
	if err := s.checkKRaft(); err != nil {
		return err
	}
	if err := s.checkID(); err != nil {
		return err
	}
	if err := s.checkZooKeeperTimes(); err != nil {
		return err
	}
	e, err := s.endpoints()
	if err != nil {
		return err
	}
	b.Listeners, b.AdvertisedListeners = e.listeners, e.advertised
	b.InterBrokerListener, b.ControlPlane = e.interBroker, e.controlPlane
	if b.LogDirs, err = s.logDirs(); err != nil {
		return err
	}
	if b.MaxConnectionsPerIPOverrides, err = s.perIPOverrides(); err != nil {
		return err
	}
	if err := s.checkCombinations(e); err != nil {
		return err
	}
	b.set, b.Raw = s, s.raw
	b.ID = cluster.BrokerID(s.int("broker.id"))
	for _, f := range b.bindings() {
		s.fill(f)
	}
	if s.isNull("zookeeper.connection.timeout.ms") {
		b.ZooKeeperConnectionTimeout = b.ZooKeeperSessionTimeout
	}
	b.topicBase = s.topicValues()
	b.topicDefaults = logFrom(b.topicBase)
	return nil
}

func (s *settings) fill(f binding) {
	v := s.parsed[f.key]
	switch p := f.field.(type) {
	case *bool:
		*p = v.b
	case *int32:
		*p = int32(v.n)
	case *int64:
		*p = v.n
	case *float64:
		*p = v.f
	case *string:
		*p = v.s
	case *[]string:
		*p = v.list
	case *time.Duration:
		if *p = milliseconds(v.n); strings.HasSuffix(f.key, ".seconds") {
			*p = milliseconds(min(v.n, 1<<63/1000-1) * 1000)
		}
	default:
		panic("config: no way to fill " + f.key)
	}
}

// milliseconds converts Kafka's milliseconds: what a Duration cannot hold is
// Never, or the most negative one.
func milliseconds(n int64) time.Duration {
	const most = int64(Never / time.Millisecond)
	switch {
	case n > most:
		return Never
	case n < -most:
		return -Never
	}
	return time.Duration(n) * time.Millisecond
}

// ListenerLimits are the connection limits of one listener: its own keys, or
// the most there is when it has none (the broker-wide ones apply beside).
func (b *Broker) ListenerLimits(listener string) (maxConnections, creationRate int32) {
	return b.listenerLimit(listener, "max.connections"), b.listenerLimit(listener, "max.connection.creation.rate")
}

func (b *Broker) listenerLimit(listener, name string) int32 {
	raw, ok := b.Raw[listenerPrefix(listener)+name]
	if !ok {
		return 1<<31 - 1
	}
	v, err := brokerTable[name].parse(raw)
	if err != nil { // was checked when b was made
		return 1<<31 - 1
	}
	return int32(v.n)
}
