package api

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/kbroker/kbroker/broker/configs"
	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/broker/producerids"
	"github.com/kbroker/kbroker/broker/quota"
	"github.com/kbroker/kbroker/broker/session"
	"github.com/kbroker/kbroker/broker/topics"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/controller/loop"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/server"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options are what the handlers call upon.
type Options struct {
	Self        cluster.BrokerID
	ClusterID   string
	BrokerEpoch func() cluster.BrokerEpoch
	Configs     *configs.Configs
	Replicas    *replica.Host
	Logs        *logstore.Store
	Metadata    *metadata.Cache
	Sessions    *session.Cache
	Waits       *delay.Timer
	Topics      *topics.Topics
	// GroupPartitions are those that __consumer_offsets had when this broker
	// started; 0: it was not there.
	GroupPartitions int
	// HasTopics: the cluster had topics when this broker started.
	HasTopics   bool
	ProducerIDs *producerids.IDs
	// Groups runs the group coordinator's shards; nil: there is none.
	Groups Groups
	// AllKbrokers reports whether every live broker is a kbroker; nil: no.
	AllKbrokers func() bool
	// Store holds the offsets of OffsetCommit and OffsetFetch v0.
	Store zkmeta.Store
	// Controller is this broker's controller, nil before it was started.
	Controller func() Controller
	// FeaturesEpoch is the version of the finalized features, -1 for none.
	FeaturesEpoch func() int64
	Authorizer    Authorizer
	Quota         Quota
	// LeaderQuota holds what leaders send to throttled followers; nil: no limit.
	LeaderQuota *quota.Replication
	Metrics     *metric.Registry
	Clock       clock.Clock
	Logger      zerolog.Logger
}

// Controller is what handlers ask of this broker's controller.
type Controller interface {
	// Active reports whether this broker is the controller.
	Active() bool
	// AllocateProducerIDs hands the next block of producer ids to a broker.
	AllocateProducerIDs(ctx context.Context, broker cluster.BrokerID, epoch cluster.BrokerEpoch) (start int64, n int32, err error)
	// AwaitAcknowledged waits until every live broker has acknowledged all that
	// was due to it.
	AwaitAcknowledged(ctx context.Context) error
	// ControlledShutdown takes leaderships from a broker and returns what it
	// still leads.
	ControlledShutdown(ctx context.Context, broker cluster.BrokerID, epoch cluster.BrokerEpoch) (left []cluster.TopicPartition, err error)
	// ElectLeaders holds elections, for all partitions if none is named.
	ElectLeaders(ctx context.Context, kind controller.Election, partitions []cluster.TopicPartition) (map[cluster.TopicPartition]controller.Elected, error)
	// AlterReassignments begins and cancels reassignments; those refused come
	// back. ListReassignments are those under way, of all partitions for nil.
	AlterReassignments(ctx context.Context, list []loop.Reassignment) (map[cluster.TopicPartition]loop.Refusal, error)
	ListReassignments(ctx context.Context, partitions []cluster.TopicPartition) ([]loop.Reassigning, error)
	// AlterPartition answers a leader that wants other ISRs.
	AlterPartition(ctx context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
}

// Config is the broker's effective configuration.
func (h *Handlers) Config() *config.Broker { return h.Configs.Broker() }

// Handlers answer every request of every connection.
type Handlers struct {
	Options
	topicMetrics sync.Map // topic name -> *topicMetrics
	all          *topicMetrics

	orders        orders
	quotas        bool          // whether anything is counted
	metadataWaits delay.Waiters // admin requests that wait for the controller's work to show
	creating      sync.Map      // internal topics whose creation is under way

	told      chan struct{} // closed once clients can be told of topics: see updated
	toldOnce  sync.Once
	graceOnce sync.Once
}

// New makes handlers. Authorizer and Quota default to AllowAll and NoQuota.
func New(o Options) *Handlers {
	if o.Authorizer == nil {
		o.Authorizer = AllowAll{}
	}
	if o.Quota == nil {
		o.Quota = NoQuota{}
	}
	h := &Handlers{Options: o, told: make(chan struct{})}
	_, none := o.Quota.(NoQuota)
	h.quotas = !none
	h.all = newTopicMetrics(o.Metrics, "")
	return h
}

// Call is one request being answered.
type Call struct {
	*server.Request
	h *Handlers
}

// Serve implements server.Handler.
func (h *Handlers) Serve(r *server.Request) {
	a, ok := registered[r.Header.Key]
	if !ok { // the server lets only supported requests through
		r.CloseConnection(protocol.Error(int16(protocol.ErrUnsupportedVersion)))
		return
	}
	if row, _ := protocol.LookupAPI(a.Key); !row.InterBroker && a.Key != protocol.ApiVersions {
		h.awaitMetadata()
	}
	a.Handle(h, &Call{Request: r, h: h})
}

// startTimeout bounds how long clients are held while the controller has told
// this broker nothing.
const startTimeout = 10 * time.Second

// awaitMetadata holds a client that comes before the controller has told of
// brokers and topics. It holds the connection's reader, so that requests keep
// their order.
func (h *Handlers) awaitMetadata() {
	select {
	case <-h.told:
		return
	default:
	}
	late := make(chan struct{})
	stop := h.Clock.AfterFunc(startTimeout, func() { close(late) })
	defer stop()
	select {
	case <-h.told:
	case <-late:
	}
}

// Caller is who sent the request.
func (c *Call) Caller() Caller {
	return Caller{Principal: c.Conn.Principal, Addr: c.Conn.RemoteAddr.Addr(), Listener: c.Conn.ListenerName,
		Protocol: string(c.Conn.SecurityProtocol), ClientID: c.Header.ClientID}
}

// Allowed asks the authorizer.
func (c *Call) Allowed(op Operation, kind ResourceType, name string) bool {
	return c.h.Authorizer.Allowed(c.Caller(), op, kind, name)
}

// Version is the request's version.
func (c *Call) Version() int16 { return c.Header.Version }

// Reply answers with resp and counts the request; throttled says for how long
// a byte quota has the client throttled already.
func (c *Call) Reply(resp kmsg.Response) { c.reply(resp, 0) }

func (c *Call) reply(resp kmsg.Response, throttled time.Duration) {
	throttled = c.account(throttled)
	if t, ok := resp.(kmsg.SetThrottleResponse); ok && throttled > 0 {
		t.SetThrottle(throttleMillis(throttled))
	}
	c.Respond(resp)
}

// account ends a request's accounting: the request quota, and the mute that a
// throttle brings. It answers the whole throttle time.
func (c *Call) account(throttled time.Duration) time.Duration {
	if c.h.quotas {
		now := c.h.Clock.Now()
		throttled = max(throttled, c.h.Quota.Use(now, c.Caller(), QuotaRequest, float64(now.Sub(c.Received))))
	}
	if throttled > 0 {
		c.Throttle(throttled)
	}
	return throttled
}

// Fail answers the request with one error code for everything that it names.
func (c *Call) Fail(err error) {
	c.Reply(protocol.ErrorResponse(c.Msg, CodeOf(err), ""))
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func throttleMillis(d time.Duration) int32 {
	return int32(min(int64(d/time.Millisecond), 1<<31-1))
}

// requireClusterAction answers requests that only brokers may send; it reports
// whether the handler goes on.
func (c *Call) requireClusterAction() bool {
	if c.Allowed(OpClusterAction, ResCluster, ClusterName) {
		return true
	}
	c.Fail(protocol.ErrClusterAuthorizationFailed)
	return false
}

// controllerTimeout bounds what brokers ask of the controller; they ask again.
const controllerTimeout = 30 * time.Second

// aside answers in a goroutine of its own, so that a controller that waits for
// ZooKeeper does not keep this connection's later requests waiting. It ends with
// its time-out, or with the controller.
func aside(timeout time.Duration, answer func(ctx context.Context)) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		answer(ctx)
	}()
}
